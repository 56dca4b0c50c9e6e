//! Undoing requests of unknown outcome in the background: what is kept, and for how long.

use crate::base::error::Result;
use crate::base::log;
use crate::signal::clock::Clock;
use crate::store::Undo;

/// Undos resolved in one write.
const CHUNK: usize = 200;

/// How far an undo has got.
pub(crate) enum Resolution {
    Done,
    /// None of its requests can run any more, but the release was refused, for lack of permission,
    /// for example: now only the end of the lease frees the lock.
    Refused,
    /// The release was sent, and its reply was lost.
    MayHaveRun,
    NotYet,
}

/// Performs the first few undos by `resolve`, which returns one outcome for each, and keeps those
/// that are not done.
pub(crate) fn resolve_first(
    undos: &mut Vec<Undo>,
    clock: &dyn Clock,
    resolve: impl FnOnce(&[Undo]) -> Result<Vec<Resolution>>,
) {
    let mut kept = Vec::new();
    // After the TTL of the idempotency key a repeat could return the permits twice.
    let asked_at = clock.now();
    let is_expired =
        |undo: &Undo| asked_at >= undo.expires && undo.permits_without_lease().is_some();
    let (expired, rest): (Vec<Undo>, Vec<Undo>) = undos.drain(..).partition(is_expired);
    *undos = rest;
    for undo in &expired {
        undo.warn_of_a_leak();
    }
    if undos.is_empty() {
        return;
    }
    let chunk: Vec<Undo> = undos.drain(..undos.len().min(CHUNK)).collect();
    match resolve(&chunk) {
        Ok(done) => {
            for (mut undo, resolved) in chunk.into_iter().zip(done) {
                match resolved {
                    Resolution::Done => continue,
                    Resolution::Refused => undo.note_refusal(asked_at),
                    Resolution::MayHaveRun => undo.note_possible_run(asked_at),
                    Resolution::NotYet => {}
                }
                kept.push(undo);
            }
        }
        Err(error) => {
            let count = chunk.len() + undos.len();
            log::debug!("{count} unknown outcomes cannot be resolved yet: {}", error.chain());
            kept.extend(chunk);
        }
    }
    // The undos that failed are moved behind the others.
    undos.append(&mut kept);
    let now = clock.now();
    // After `expires` a lease has ended by itself, unless an outcome is unknown: the request may
    // remain in the buffer of a suspended server for any length of time. Permits without leases are
    // given up above.
    let goes_on = |undo: &Undo| !undo.unknowns.is_empty() || undo.permits_without_lease().is_some();
    undos.retain(|undo| goes_on(undo) || now < undo.expires);
}
