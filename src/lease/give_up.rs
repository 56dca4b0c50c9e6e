//! The requests that give up a hold, and how long it may remain in the store after that.

use std::time::Duration;

use crate::base::lease::{LeaseState, Moment, margin};
use crate::lease::records::StoreHold;
use crate::store::{HoldCounts, Release, Undo, UnknownOutcomes};

/// How long a release is attempted in the background beyond the lease that it removes, because
/// clocks differ.
const SLACK: Duration = Duration::from_secs(1);

impl StoreHold {
    /// The request that gives it up, down to the counts of `left`.
    pub(crate) fn release(&self, left: HoldCounts) -> Release<'_> {
        let all = Release::of_all(&self.asked.name, &self.asked.holder, self.asked.permits);
        self.with_min_hold(Release { left, has_token: self.has_token, ..all })
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
}
