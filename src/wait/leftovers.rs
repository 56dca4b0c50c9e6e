//! What a call may have left at the server, and what it knows of that.

use crate::base::lease::Moment;
use crate::store::UnknownOutcomes;

/// What the present holder may have left at the server.
#[derive(Default)]
pub(super) struct Leftovers {
    pub(super) unknowns: UnknownOutcomes,
    /// Since when there are unknown outcomes; only for a counting semaphore, whose permits have no
    /// leases.
    pub(super) unknown_since: Option<Moment>,
    /// A request was sent whose outcome has not been processed. It stays set if a logger panics
    /// before that, and then the request may have run.
    pub(super) under_way: bool,
    /// The server may have its queue entry or wait marker.
    pub(super) has_marker: bool,
    /// The store has one of them: the server answered "busy" to a request that leaves it.
    pub(super) queued: bool,
    pub(super) place: PlaceOfWaiter,
}

/// What a waiter knows of its place in the queue of a fair lock.
#[derive(Debug, Default)]
pub(super) struct PlaceOfWaiter {
    /// When its last request was sent that found or gave it a place.
    pub(super) since: Option<Moment>,
    /// It may have had another place before.
    pub(super) is_another: bool,
}

/// What is known before a request that waits.
pub(super) struct BeforeRequest {
    pub(super) at: Moment,
    pub(super) is_certain: bool,
    pub(super) generation: u64,
}
