//! The requests that give up a hold, and how long it may remain in the store after that.
//!
//! A `min_hold`, the least time for which a lock stays taken however early it is given up, changes
//! nothing but that request: the store then leaves the lock taken for the rest of the time. The
//! code for a release, an undo or a close is not aware of it.
//!
//! The stores need a separate request for that (`Release::keeps_for`), because no other one does
//! it. A renewal with a short lease would leave the holder in place: a late renewal of it would
//! postpone the end, and its thread could re-enter the hold. And waiters would sleep until the end
//! that they know of, because only a release notifies them of a new one.

use std::time::Duration;

use crate::base::lease::{LeaseState, Moment, margin};
use crate::lease::records::StoreHold;
use crate::os::atomic::Ordering;
use crate::store::{HoldCounts, Release, Undo, UnknownOutcomes};

/// How long a release is attempted in the background beyond the lease that it removes, because
/// clocks differ.
const SLACK: Duration = Duration::from_secs(1);

/// Its user has not got it, or wants no `min_hold`.
const NOT_BEGUN: u64 = 0;
/// Its user has cancelled it.
const OVER: u64 = 1;

impl StoreHold {
    /// The request that gives it up, down to the counts of `left`.
    pub(crate) fn release(&self, left: HoldCounts) -> Release<'_> {
        let all = Release::of_all(&self.asked.name, &self.asked.holder, self.asked.permits);
        Release { left, has_token: self.has_token, kept_until: self.kept_until(), ..all }
    }

    /// The request that gives it up in the background.
    pub(crate) fn undo(&self, left: HoldCounts, unknowns: UnknownOutcomes) -> Undo {
        Undo::of_release(&self.release(left), &self.asked.name, unknowns, self.stands_until())
    }

    /// When the hold has certainly expired at the server, if the server runs requests as they
    /// arrive and its clock drifts by no more than the margin. If more than one lease was asked
    /// for, the last request may not have been answered.
    pub(crate) fn gone_at(&self) -> Moment {
        let now = self.now().plus(SLACK);
        let longest = self.longest();
        let own = self.ends.lock().own();
        let ends = own.plus(SLACK).plus(margin(longest) * 2);
        match self.state() {
            // It ends with its session, which nobody keeps alive after the close.
            _ if own == Moment::NEVER => now.plus(longest),
            _ if !self.asked.is_renewed && longest == self.asked.lease => ends,
            LeaseState::Lost => ends.plus(longest),
            _ => now.plus(longest),
        }
    }

    /// When the hold has certainly expired at the server ([`gone_at`](Self::gone_at)), and its
    /// `min_hold` is over too.
    pub(crate) fn stands_until(&self) -> Moment {
        self.kept_until().map_or(self.gone_at(), |until| self.gone_at().max(until))
    }

    /// The store has put the hold back during or after its release. Returns whether the caller has
    /// to undo that now; otherwise the release is under way, and its sender finds out [at the
    /// end](Self::end_release). Sent during the release, the undo could run first, and the
    /// release would find no hold and report a loss.
    pub(crate) fn was_put_back(&self) -> bool {
        self.release_race.put_back()
    }

    /// The release is over. Returns whether the hold was [put back](Self::was_put_back) during it
    /// and has to be undone.
    pub(crate) fn end_release(&self) -> bool {
        self.release_race.give_up()
    }

    /// From now on the lock stays taken until `least` has passed, unless such a time has begun
    /// before. Zero has no effect.
    ///
    /// Counted from when its user got it, and not from when the request was sent: at the server the
    /// hold began in between.
    pub(crate) fn begin_min_hold(&self, least: Duration) {
        if !least.is_zero() {
            let until = self.now().plus(least).as_nanos().max(OVER + 1);
            let _ = self.kept_until.compare_exchange(
                NOT_BEGUN,
                until,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
    }

    /// From now on the lock is free as soon as the hold is given up.
    pub(crate) fn end_min_hold(&self) {
        self.kept_until.store(OVER, Ordering::Release);
    }

    /// Whether the lock stays taken if the hold is given up now: then it passes to nobody.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.kept_until(), Some(until) if self.now() < until)
    }

    /// Until when the lock stays taken, however early it is given up. `None` for a write hold that
    /// only reads now: a read hold has no `min_hold`.
    pub(super) fn kept_until(&self) -> Option<Moment> {
        let until = self.kept_until.load(Ordering::Acquire);
        if until > OVER && !self.has_others() { Some(Moment::from_nanos(until)) } else { None }
    }
}
