//! A fair lock that a release has given to a waiter: its message is the grant, so the waiter has the
//! lock without another request.
//!
//! A message may come late, and may tell of what has ended: it says nothing of the time. So the
//! waiter's lease counts from its own last request that the store has answered, and lasts as long as
//! the place that this answer gave it. The store counts the same time from the release, which was
//! later. Whatever does not fit is asked for, as if the message had said that the lock is free: the
//! store then finds that the waiter has it.

use std::time::Duration;

use crate::store::{Granted, TokenRule};
use crate::wait::attempt::AcquireAttempt;

impl AcquireAttempt<'_> {
    /// The grant of a release with this fencing token, 0 for none, and for how long it is. `None`:
    /// it has to be asked for.
    pub(crate) fn granted_by_release(&self, token: u64) -> Option<(Granted, Duration)> {
        let place = self.client.who.id.waiter_timeout();
        // A request that may still run would take the lock again after its release.
        let is_certain = self.is_resolved() && !self.traces.under_way;
        let has_all = self.wanted.token == TokenRule::Off || token > 0;
        // Only a request writes data, and only a request sets a lease that is shorter.
        let fits = self.holder.data().is_none() && self.wanted.lease >= place;
        if !is_certain || !has_all || !fits || !self.client.store.trusts_grants() {
            return None;
        }
        let token = if self.wanted.token == TokenRule::Off { 0 } else { token };
        let sent_at = self.traces.place?;
        Some((Granted { token, sent_at, session: None, next: None }, place))
    }

    /// It has the lock by that grant: it waits in no queue any more.
    pub(crate) fn note_granted(&mut self) {
        (self.traces.has_marker, self.traces.queued) = (false, false);
        self.traces.place = None;
    }
}
