//! What Redis keeps in [`UnknownOutcomes`].

use crate::store::UnknownOutcomes;
use crate::store::redis::wire::UnknownOutcome;

/// The requests whose connection failed before the reply. Each can still run until its connection
/// is killed at the server, the server process has ended, or its not-after has passed.
type Unresolved = Vec<UnknownOutcome>;

pub(super) fn unknowns_of(unknowns: &UnknownOutcomes) -> &[UnknownOutcome] {
    unknowns.get::<Unresolved>().map_or(&[], |list| list)
}

pub(super) fn add_unknown(unknowns: &mut UnknownOutcomes, unknown: UnknownOutcome) {
    let mut list = unknowns_of(unknowns).to_vec();
    list.push(unknown);
    unknowns.set::<Unresolved>(list);
}
