//! When the watchdog visits a hold, what it asks the store for, and what the answers mean.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::error::{Error, ErrorKind};
use crate::base::lease::{LeaseState, Moment, valid_until};
use crate::base::loss::RenewalFailure;
use crate::lease::callbacks::OnTrouble;
use crate::lease::records::{StoreHold, Tenure};
use crate::os::atomic::Ordering;
use crate::store::Renewal;

/// For long leases: the default lease, so that they are visited as often as others.
const LONGEST_BETWEEN_VISITS: Duration = Duration::from_secs(30);
/// For a lock that others share. A reader of another library may arrive at any time, and each of
/// its renewals sets the TTL of the whole lock to its own watchdog time. That cut must be undone
/// before it ends the lock, and such a reader must be known before the server becomes unreachable.
/// This gives three inspections within a watchdog time of 3 s, and two within [`LEAST_WATCHDOG`].
const LONGEST_BETWEEN_SHARED_VISITS: Duration = Duration::from_secs(3);
/// When a shared lock is first inspected: before that, nothing is known of the other holders.
/// Shorter holds cost no inspection.
const FIRST_SHARED_VISIT: Duration = Duration::from_millis(100);
/// The shortest watchdog time (`lockWatchdogTimeout`) that another library is assumed to have. Less
/// remaining time belongs to a fixed lease that ends or to a reader that died, and neither cuts a
/// lock. It is twice the time between two inspections of a shared lock, so that a cut is undone
/// before it ends one.
const LEAST_WATCHDOG: Duration = Duration::from_secs(2);

impl StoreHold {
    /// How often it is visited. A long fixed lease is visited as often as others: its user may be
    /// forced out at any time.
    pub(crate) fn period(&self) -> Duration {
        let longest = match self.asked.is_renewed {
            _ if self.has_others() => LONGEST_BETWEEN_SHARED_VISITS,
            true => Duration::MAX,
            false => LONGEST_BETWEEN_VISITS,
        };
        self.asked.lease.min(longest) / 3
    }

    /// How long after the request for it the hold is first visited.
    pub(crate) fn first_visit(&self) -> Duration {
        if self.has_others() { self.period().min(FIRST_SHARED_VISIT) } else { self.period() }
    }

    /// When it must be visited at the latest: the first end of a lease must be noticed, even that
    /// of a tenure that others outlast.
    pub(super) fn first_end(&self) -> Moment {
        self.users
            .lock()
            .tenures
            .iter()
            .map(|tenure| tenure.own_end())
            .fold(self.lease.until(), Moment::min)
    }

    /// Ends the renewal of those tenures whose `max_hold` is over: they keep what the store has
    /// confirmed so far, even if others are still renewed. Returns those that end now.
    pub(super) fn end_max_holds(&self, now: Moment) -> SmallVec<[Arc<Tenure>; 1]> {
        let mut tenures = self.tenures();
        let until = self.lease.until();
        tenures.retain(|tenure| tenure.ends_max_hold(now, until));
        tenures
    }

    /// The request for a visit. A hold that nobody uses, because it is being handed over, is not
    /// renewed: it would stay for ever if its next user never came.
    pub(crate) fn renewal(&self, now: Moment) -> Renewal {
        let lease = match (
            self.has_others(),
            self.tenures().iter().any(|tenure| tenure.is_renewed_at(now)),
        ) {
            (false, true) => self.asked.lease,
            (false, false) => Duration::ZERO,
            (true, renew) => {
                let left = self.ends.lock().own().since(now);
                // Most visits find the same lease at the server as here, and write nothing. If
                // another library has cut it (some versions cut the levels of this holder as well),
                // this puts back what was granted.
                let at_next_visit = left.saturating_sub(self.period());
                if renew && at_next_visit < self.asked.lease * 2 / 3 {
                    self.asked.lease
                } else {
                    left
                }
            }
        };
        self.renewal_for(lease)
    }

    /// The request for this lease; zero only asks whether the hold still exists.
    pub(crate) fn renewal_for(&self, lease: Duration) -> Renewal {
        let name = self.asked.name.clone();
        let holder = self.asked.holder.clone();
        Renewal { name, holder, permits: self.asked.permits, lease, token: self.token() }
    }

    /// The store confirmed the hold for `lease` from `sent_at`. Returns the state afterwards: a
    /// confirmation that is read after the lease has ended revives nothing.
    pub(crate) fn confirmed(&self, sent_at: Moment, lease: Duration) -> LeaseState {
        let now = self.now();
        self.end_max_holds(now);
        let mut ends = self.ends.lock();
        ends.granted(valid_until(sent_at, lease));
        let state = self.lease.renewed(now, ends.end());
        drop(ends);
        self.answered(state)
    }

    /// An inspection found that others may cut the TTL of the lock to `beside` at any time from
    /// then on. A later cut leaves at least that long from the cut on, and the inspection has
    /// undone an earlier one: so the hold is certain for that long, even if no later inspection
    /// reaches the server.
    pub(crate) fn inspected(&self, sent_at: Moment, beside: Option<Duration>) -> LeaseState {
        let mut ends = self.ends.lock();
        ends.inspected(sent_at, beside.map(|left| valid_until(sent_at, left.max(LEAST_WATCHDOG))));
        let state = self.lease.inspected(self.now(), ends.end());
        drop(ends);
        self.answered(state)
    }

    /// A renewal is sent now.
    pub(super) fn note_renewal(&self, now: Moment) {
        self.visits.sent.store(now.as_nanos(), Ordering::Release);
    }

    /// Its outcome has been applied.
    pub(super) fn note_answer(&self) {
        self.visits.sent.store(0, Ordering::Release);
    }

    /// The store has answered for the hold, which is in this state now. A lease that had ended by
    /// then was lost because renewals had failed.
    fn answered(&self, state: LeaseState) -> LeaseState {
        let is_live = matches!(state, LeaseState::Held | LeaseState::Suspect);
        let failed = if is_live { self.users.lock().failed.take() } else { None };
        if failed.is_some() {
            for tenure in &self.tenures() {
                tenure.end_trouble();
            }
        }
        state
    }

    /// A renewal has failed. Returns whom to notify, if it is the first in a row and there is a
    /// lease that can still be renewed.
    pub(super) fn renewal_failed(
        &self,
        error: &Error,
        now: Moment,
    ) -> Option<(Vec<Arc<OnTrouble>>, RenewalFailure)> {
        // Set before the tenures are listed: a callback that is added from now on checks it.
        let before = self.users.lock().failed.replace(error.clone());
        let is_live = self.lease.suspect(now) == LeaseState::Suspect;
        if before.is_some() || !is_live {
            return None;
        }
        let tenures = self.tenures();
        let renewed = tenures.iter().filter(|tenure| tenure.is_renewed_at(now));
        let to_tell: Vec<_> = renewed.flat_map(|tenure| tenure.told_of_trouble()).collect();
        (!to_tell.is_empty())
            .then(|| (to_tell, RenewalFailure::new(error.clone(), self.remaining())))
    }

    /// Why the last renewal failed, if it did.
    fn why_it_failed(&self) -> Option<Error> {
        self.users.lock().failed.clone()
    }

    /// Why renewals fail now.
    pub(super) fn trouble(&self) -> Option<Error> {
        self.why_it_failed().filter(|_| self.state() == LeaseState::Suspect)
    }

    /// Why it was not renewed up to this moment: the error of the last renewal, or that the server
    /// does not answer, if the first one is still under way.
    pub(super) fn why_not_renewed(&self, at: Moment) -> Option<Error> {
        let sent = self.visits.sent.load(Ordering::Acquire);
        self.why_it_failed().or_else(|| {
            let waited = at.since(Moment::from_nanos(sent));
            let why = || {
                format!("the server has not answered the renewal that was sent {waited:.1?} before")
            };
            (sent > 0).then(|| Error::named(ErrorKind::Unreachable, &self.asked.name.name, why()))
        })
    }
}
