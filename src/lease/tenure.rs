//! How one user uses a hold: its thread, its levels, its fencing token, its callbacks, and whether
//! it has ended.
//!
//! A tenure has its own state word, and is held while both that and the word of its
//! [hold](crate::lease::records::StoreHold) are live. Whoever ends it does so by one exchange, so
//! that its callbacks run if and only if its `unlock` reports `Lost`:
//!
//! | event | order |
//! |---|---|
//! | its guard gives it up | ends the tenure, then checks the hold: `Lost` if that is lost |
//! | the store has lost the hold, or its lease has ended | ends the hold, then each tenure |
//! | a tenure begins | enters the tables, then checks the hold |

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, ErrorKind};
use crate::base::lease::{Lease, LeaseState, LostBy, Moment};
use crate::base::lock_name::LockName;
use crate::base::loss::{Loss, LossReason};
use crate::lease::ending::EndMarks;
use crate::lease::records::{Side, Tenure, User};
use crate::lease::store_hold::Admission;
use crate::os::{
    self, Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};
use crate::store::HoldCounts;

impl Side {
    const fn one(self) -> u64 {
        match self {
            Self::Main => 1,
            Self::Read => 1 << 32,
        }
    }
}

impl Tenure {
    /// Begins the tenure that was admitted, with one level.
    pub(crate) fn begin(mut admission: Admission, user: User) -> Arc<Self> {
        let hold = admission.hold.clone();
        let mut users = hold.users.lock();
        let mut since = hold.asked.at;
        if users.turns > 0 {
            since = hold.now();
            users.token += u64::from(users.token > 0);
            users.spare_tokens = users.spare_tokens.map(|spare| spare.saturating_sub(1));
        }
        users.turns = users.turns.saturating_add(1);
        let side = if hold.asked.name.kind.is_read() { Side::Read } else { Side::Main };
        let tenure = Arc::new(Self {
            store_hold: hold.clone(),
            user,
            thread: os::thread::current(),
            token: users.token,
            since,
            own: Lease::new(Moment::NEVER),
            counts: AtomicU64::new(side.one()),
            marks: EndMarks::default(),
            listeners: Mutex::new(None),
            ended: Condvar::new(),
        });
        users.tenures.push(tenure.clone());
        drop(users);
        admission.is_used = true;
        tenure
    }

    pub(crate) fn lock_name(&self) -> &Arc<LockName> {
        &self.store_hold.asked.name
    }

    pub(crate) fn now(&self) -> Moment {
        self.store_hold.now()
    }

    pub(crate) fn is_held(&self, now: Moment) -> bool {
        self.own.is_held(now) && self.store_hold.lease.is_held(now)
    }

    pub(crate) fn state(&self) -> LeaseState {
        self.state_at(self.now())
    }

    /// The state at `now`. Reading it makes a loss of the hold one of the tenure, for good.
    pub(crate) fn state_at(&self, now: Moment) -> LeaseState {
        match self.own.state(now) {
            LeaseState::Held => match self.store_hold.lease.state(now) {
                live @ (LeaseState::Held | LeaseState::Suspect) => live,
                _ => self.ends_with_hold(),
            },
            over => over,
        }
    }

    /// The hold has ended, so the tenure ends in the same way, unless it ended before.
    fn ends_with_hold(&self) -> LeaseState {
        let (how, at) = self.store_hold.lease.lost().unwrap_or((LostBy::Store, self.now()));
        self.own.lose(at, how)
    }

    /// Its user gives it up. Returns the state before that, as far as the user may rely on it:
    /// `Lost` if the hold is lost; then only this caller runs the callbacks.
    pub(crate) fn release(&self, now: Moment) -> LeaseState {
        self.end(now, Lease::release)
    }

    /// [`release`](Self::release) for a client that is closed: the guard then reports that it holds
    /// nothing.
    pub(crate) fn close(&self, now: Moment) -> LeaseState {
        self.end(now, Lease::close)
    }

    fn end(&self, now: Moment, end: impl FnOnce(&Lease, Moment) -> LeaseState) -> LeaseState {
        let before = self.state_at(now);
        match end(&self.own, now) {
            // Checked once more: a loss since then has found the tenure ended, and left the
            // callbacks to this caller.
            LeaseState::Held => match self.store_hold.lease.state(now) {
                LeaseState::Lost | LeaseState::Closed => LeaseState::Lost,
                _ => before,
            },
            over => over,
        }
    }

    /// When it ends, whatever happens to the hold. [`Moment::NEVER`] if no end is left to notice:
    /// otherwise a visit for it would be followed by the next one at once.
    pub(super) fn own_end(&self) -> Moment {
        if let Some(end) = self.own.live_until() {
            return end;
        }
        match self.own.lost() {
            Some((how, at)) if how != LostBy::Closing && !self.marks.has_left() => at,
            _ => Moment::NEVER,
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        let now = self.now();
        let until = || self.own.until().min(self.store_hold.lease.until());
        if self.is_held(now) { until().since(now) } else { Duration::ZERO }
    }

    /// When its `max_hold` is over; [`Moment::NEVER`] without one.
    fn renewed_until(&self) -> Moment {
        self.user.max_hold.map_or(Moment::NEVER, |most| self.since.plus(most))
    }

    pub(crate) fn is_renewed_at(&self, now: Moment) -> bool {
        self.store_hold.asked.is_renewed && now < self.renewed_until()
    }

    /// Whether its lease is renewed without the limit of a `max_hold`.
    pub(crate) fn is_renewed_for_ever(&self) -> bool {
        self.store_hold.asked.is_renewed && self.renewed_until() == Moment::NEVER
    }

    /// If its `max_hold` is over, it ends at `until` from now on. True the first time.
    pub(super) fn ends_max_hold(&self, now: Moment, until: Moment) -> bool {
        let is_over = self.store_hold.asked.is_renewed && self.renewed_until() <= now;
        if is_over && self.marks.end_max_hold() {
            self.own.inspected(now, until);
            return true;
        }
        false
    }

    /// Its user has asked for this lease and got it, even after its `max_hold`.
    pub(crate) fn was_granted(&self, until: Moment) {
        if self.marks.is_not_renewed() {
            // Until the watchdog has said when the tenure ends, it has no end.
            let own = Some(self.own.until()).filter(|end| *end < Lease::new(Moment::NEVER).until());
            self.own.inspected(self.now(), own.map_or(until, |own| own.max(until)));
        }
    }

    pub(crate) fn counts(&self) -> HoldCounts {
        let word = self.counts.load(Ordering::Acquire);
        HoldCounts { main: word as u32, reads: (word >> 32) as u32 }
    }

    #[cfg(test)]
    pub(crate) fn set_counts(&self, HoldCounts { main, reads }: HoldCounts) {
        self.counts.store(u64::from(main) | u64::from(reads) << 32, Ordering::Release);
    }

    /// Adds a level that was granted.
    pub(crate) fn add_count(&self, side: Side) {
        self.counts.fetch_add(side.one(), Ordering::AcqRel);
    }

    pub(crate) fn remove_count(&self, side: Side) {
        self.counts.fetch_sub(side.one(), Ordering::AcqRel);
    }

    /// How long it has lasted so far.
    pub(crate) fn held(&self) -> Duration {
        self.now().since(self.since)
    }

    /// How it was lost or closed; `None` if it is neither.
    pub(crate) fn loss(&self) -> Option<Loss> {
        // Reading the state makes a loss by time permanent.
        self.state();
        let (how, at) = self.lost_at()?;
        let kept = self.listeners.lock().as_ref().and_then(|listeners| listeners.loss.clone());
        Some(kept.unwrap_or_else(|| {
            let (reason, cause) = self.explain(how, at);
            let loss = Loss::new(reason, cause, at.since(self.since));
            self.listeners.lock().get_or_insert_default().loss.get_or_insert(loss).clone()
        }))
    }

    /// How and when it was lost or closed, if any thread has noticed that.
    pub(crate) fn lost_at(&self) -> Option<(LostBy, Moment)> {
        self.own.lost()
    }

    /// [`loss`](Self::loss) of a tenure that was given up and found the hold lost.
    #[cold]
    pub(crate) fn loss_now(&self) -> Loss {
        self.loss().unwrap_or_else(|| {
            let (how, at) = self.store_hold.lease.lost().unwrap_or((LostBy::Store, self.now()));
            let (reason, cause) = self.explain(how, at);
            Loss::new(reason, cause, at.since(self.since))
        })
    }

    #[cold]
    fn explain(&self, how: LostBy, at: Moment) -> (LossReason, Option<Error>) {
        let hold = &self.store_hold;
        // A lease stores its end without the lowest bits.
        let by_own_end = || at.plus(Duration::from_nanos(8)) >= hold.ends.lock().own();
        match how {
            LostBy::Closing => (LossReason::Closed, None),
            LostBy::Store => (LossReason::TakenAway, None),
            LostBy::Neglect => {
                let why =
                    "the thread that renews leases has ended: close the client and make a new one";
                (LossReason::NotRenewed, Some(Error::new(ErrorKind::Closed, why)))
            }
            LostBy::Time if !hold.asked.is_renewed && by_own_end() => {
                (LossReason::FixedLease, None)
            }
            LostBy::Time if hold.asked.is_renewed && at >= self.renewed_until() => {
                (LossReason::MaxHold, None)
            }
            LostBy::Time | LostBy::Session => (LossReason::NotRenewed, hold.why_not_renewed(at)),
        }
    }

    /// True once, for whoever is to count its loss. The listener is then not notified that it was
    /// given up.
    pub(super) fn begin_report(&self) -> bool {
        self.marks.report()
    }

    /// It ended before its user got it, so nobody is notified of that.
    pub(crate) fn hush_end(&self) {
        self.marks.hush();
    }

    /// The log line about its loss: once, for the watchdog or its guard, whichever comes first.
    /// Call it after the loss was reported, and log the line without any mutex.
    pub(crate) fn loss_to_log(&self) -> Option<String> {
        self.marks
            .log()
            .then(|| format!("{:?} is lost: {}", self.lock_name().name, self.loss_now()))
    }

    /// Whether its loss was [reported](Self::begin_report).
    pub(crate) fn was_reported(&self) -> bool {
        self.marks.was_reported()
    }

    /// True once, for whoever notifies the listener that it was given up.
    pub(crate) fn begin_telling(&self) -> bool {
        self.marks.tell()
    }
}

// Like its client.
impl UnwindSafe for Tenure {}
impl RefUnwindSafe for Tenure {}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("name", &self.lock_name().name)
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
