//! A fair lock that a release has given to a waiter: its message is the grant, so the waiter has
//! the lock without another request.
//!
//! A message may come late, and says nothing of the time. So the waiter's lease counts from its own
//! last request that the store has answered, and lasts as long as the place that this answer gave
//! it. The store counts the same time from the release, which was later. Whatever does not fit is
//! asked for, as if the message had said that the lock is free: the store then finds that the
//! waiter has it, or that it had it and it is over.
//!
//! **A holder believes one grant at most.** A place ends with its grant. If the waiter has another
//! place later, a message of the first grant may still be on its way, and would count from a
//! request after the end of that grant. So the waiter believes no message once it had to queue
//! again, and none if it cannot know that: after a request of unknown outcome, and after a
//! failover.

use crate::base::error::Result;
use crate::base::lease::{Moment, valid_until};
use crate::store::{Acquired, Granted, TokenRule};
use crate::wait::attempt::AcquireAttempt;
use crate::wait::leftovers::BeforeRequest;

impl AcquireAttempt<'_> {
    /// Call it before a request that may get a place.
    pub(super) fn before_request(&self) -> BeforeRequest {
        BeforeRequest {
            at: self.client.clock.now(),
            is_certain: self.is_certain(),
            generation: self.generation,
        }
    }

    /// Call it with the answer to that request.
    pub(super) fn note_place(&mut self, before: &BeforeRequest, answer: &Result<Acquired>) {
        let Ok(Acquired::Queued { is_new, .. }) = answer else { return };
        let had_one = self.traces.queued;
        let queues_again = had_one && (*is_new || before.generation != self.generation);
        self.traces.place.is_another |= queues_again || !before.is_certain;
        self.traces.place.since = Some(before.at);
    }

    /// No request of it can still run.
    fn is_certain(&self) -> bool {
        self.is_resolved() && !self.traces.under_way
    }

    /// The grant of a release with this fencing token, 0 for none, and when it ends. `None`: it has
    /// to be asked for.
    pub(crate) fn granted_by_release(&self, token: u64) -> Option<(Granted, Moment)> {
        let lasts = self.client.who.id.waiter_timeout();
        let place = &self.traces.place;
        let has_all = self.wanted.token == TokenRule::Off || token > 0;
        // Only a request writes data, and only a request sets a lease that is shorter. One that may
        // still run would take the lock again after its release.
        let fits = self.holder.data().is_none() && self.wanted.lease >= lasts && self.is_certain();
        if !has_all || !fits || place.is_another || !self.client.store.trusts_grants() {
            return None;
        }
        let token = if self.wanted.token == TokenRule::Off { 0 } else { token };
        let until = valid_until(place.since?, lasts);
        // The hold begins now: its user has waited until the message came.
        let sent_at = self.client.clock.now();
        Some((Granted { token, sent_at, session: None, next: None }, until))
    }

    /// It has the lock by that grant: it waits in no queue any more.
    pub(crate) fn note_granted(&mut self) {
        (self.traces.has_marker, self.traces.queued) = (false, false);
        self.traces.place = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::data::HoldData;
    use crate::base::lock_name::{Kind, LockName};
    use crate::wait::attempt::Wanted;

    const LEASE: Duration = Duration::from_secs(60);

    /// Whether a waiter that has a place, and that `change` has changed, believes this message.
    fn believes(token: u64, change: impl FnOnce(&mut AcquireAttempt<'_>)) -> bool {
        let client = crate::LockClient::in_memory();
        let name = [Arc::new(LockName::new("", "x", Kind::Fair).unwrap())];
        let wanted = Wanted {
            all: &name,
            primitive: Kind::Fair.into(),
            permits: 1,
            lease: LEASE,
            token: TokenRule::On,
        };
        let mut attempt = AcquireAttempt::new(client.state(), &name[0], wanted, None).unwrap();
        attempt.traces.place.since = Some(client.state().clock.now());
        change(&mut attempt);
        attempt.granted_by_release(token).is_some()
    }

    #[test]
    fn whatever_a_message_does_not_give_is_asked_for() {
        assert!(believes(7, |_| {}));
        assert!(!believes(0, |_| {}), "no token");
        assert!(believes(0, |attempt| attempt.wanted.token = TokenRule::Off));
        assert!(!believes(7, |attempt| attempt.traces.place.is_another = true), "an earlier grant");
        assert!(!believes(7, |attempt| attempt.traces.place.since = None), "no place");
        let shorter = Duration::from_millis(1);
        assert!(!believes(7, |attempt| attempt.wanted.lease = shorter), "a shorter lease");
        assert!(!believes(7, |attempt| attempt.writes(&HoldData::new(b"x"))), "data");
        assert!(!believes(7, |attempt| attempt.traces.under_way = true), "a request may still run");
    }
}
