//! The requests that give up a hold; and how long the lock stays taken after that (`min_hold`).

use std::time::Duration;

use crate::background::grant::{Grant, RenewalPolicy};
use crate::base::lease::{Moment, State, margin};
use crate::os::atomic::Ordering;
use crate::store::{HoldCounts, Release, Undo, UnknownOutcomes};

/// How long a release is attempted in the background beyond the lease that it removes, for clocks
/// that differ.
const SLACK: Duration = Duration::from_secs(1);

impl Grant {
    /// From now on the lock stays taken until `least` has passed, whenever the hold is given up.
    ///
    /// Counted from when its user got it and not from the request before that: at the server the
    /// hold began in between.
    pub(crate) fn keep_for(&self, least: Duration) {
        let _ = self.kept_until.set(self.now().plus(least));
    }

    /// From now on the lock is free as soon as the hold is given up.
    pub(crate) fn keep_no_more(&self) {
        self.kept_no_more.store(true, Ordering::Release);
    }

    /// Until when the lock stays taken. Not that of a write hold that only reads now: a read hold
    /// has no `min_hold`.
    fn kept_until(&self) -> Option<Moment> {
        let is_kept = !self.is_shared() && !self.kept_no_more.load(Ordering::Acquire);
        self.kept_until.get().copied().filter(|_| is_kept)
    }

    /// Whether the lock stays taken when the hold is given up now: then nobody is next.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept_until().is_some_and(|until| self.now() < until)
    }

    /// The request that gives it up, down to the counts of `left`.
    pub(crate) fn release(&self, left: HoldCounts) -> Release<'_> {
        let (name, holder, kept_until) = (&self.name, &self.holder, self.kept_until());
        Release { name, holder, permits: self.permits, left, granted: true, kept_until }
    }

    /// The request that gives it up in the background.
    pub(crate) fn undo(&self, left: HoldCounts, unknowns: UnknownOutcomes) -> Undo {
        let (name, holder, kept_until) = (self.name.clone(), self.holder.clone(), self.kept_until());
        let (permits, expires) = (self.permits, self.stands_until());
        Undo { name, holder, permits, left, granted: true, unknowns, expires, kept_until }
    }

    /// From when on nothing of it stands at the server, if the server runs requests as they arrive
    /// and its clock drifts no further than the margin. Where more than one lease was requested,
    /// the last request may not have been answered.
    pub(crate) fn gone_at(&self) -> Moment {
        let (now, longest) = (self.now().plus(SLACK), self.longest());
        let own = self.ends.lock().own();
        let ends = own.plus(SLACK).plus(margin(longest) * 2);
        match self.lease.state(self.now()) {
            // It ends with its session, which nobody keeps alive from the close on.
            _ if own == Moment::NEVER => now.plus(longest),
            _ if self.renewal_policy == RenewalPolicy::Fixed && longest == self.span => ends,
            State::Lost => ends.plus(longest),
            _ => now.plus(longest),
        }
    }

    /// From when on nothing of it stands at the server: [`gone_at`](Self::gone_at), and what is
    /// kept.
    pub(crate) fn stands_until(&self) -> Moment {
        self.kept_until().map_or(self.gone_at(), |until| self.gone_at().max(until))
    }
}
