//! What may stand of an attempt at the store without being a hold.

use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::Kind;
use crate::store::UnknownOutcomes;
use crate::wait::client_state::ClientState;

/// What may stand of the present holder at the server.
#[derive(Default)]
pub(super) struct Traces {
    pub(super) unknowns: UnknownOutcomes,
    /// Since when there are unknown outcomes; only of a counting semaphore, whose permits have no
    /// leases.
    pub(super) unknown_since: Option<Moment>,
    /// A request was sent whose outcome has not been taken in: it stays so if a logger panics in
    /// the middle of it, and then the request may have run.
    pub(super) under_way: bool,
    /// Its queue entry or wait marker may stand there.
    pub(super) has_marker: bool,
    /// The store holds one of them: the server answered "busy" to a request that leaves it there.
    pub(super) queued: bool,
}

pub(super) fn fresh_holder(client: &ClientState, kind: Kind) -> Holder {
    match kind {
        Kind::Semaphore => Holder::random_permits(),
        _ => client.who.id.fresh_holder(),
    }
}
