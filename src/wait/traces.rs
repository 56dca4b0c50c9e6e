//! What an attempt may have left in the store without being a hold.

use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::Kind;
use crate::store::UnknownOutcomes;
use crate::wait::client_state::ClientState;

/// What the present holder may have left at the server.
#[derive(Default)]
pub(super) struct Traces {
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
}

pub(super) fn fresh_holder(client: &ClientState, kind: Kind) -> Holder {
    match kind {
        Kind::Semaphore => Holder::random_permits(),
        _ => client.who.id.fresh_holder(),
    }
}
