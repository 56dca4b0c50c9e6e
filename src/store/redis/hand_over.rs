//! Passing a fair lock from one thread of the client to the next.

use super::wire::RedisFailure;
use super::{RedisStore, script, slot_of};
use crate::store::{Acquire, Acquired, HandedOver, LockStore, Release, Released, UnknownOutcomes};

impl RedisStore {
    /// Releases a fair lock and grants it to `next`, in one run of one script. `None`: nothing was
    /// changed.
    pub(super) fn pass_on(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        let outcome = self.servers.call_one(slot_of(next.name), script::pass_on(release.holder, next))?;
        let mut next_unknowns = UnknownOutcomes::default();
        let (released, acquired) = match outcome {
            Ok(answer) if self.servers.is_redirected(&answer.reply, unknowns) => return None,
            Ok(answer) => {
                // After an error both requests are sent separately, and each gets its own error.
                let granted = script::passed_on_answer(answer.reply, answer.sent_at).ok()??;
                (Ok(Released::Freed { listeners: None, next: None }), Ok(Acquired::Granted(granted)))
            }
            Err(RedisFailure::NotSent(error)) => (Err(error.clone()), Err(error)),
            Err(RedisFailure::Unknown { error, unknown, stale }) => {
                unknowns.push(unknown.clone());
                next_unknowns.push(unknown);
                let released = if stale { self.release(release, unknowns) } else { Err(error.clone()) };
                (released, Err(error))
            }
        };
        Some(HandedOver { released, acquired, unknowns: next_unknowns })
    }
}
