//! What the store has granted to one holder: one lease, which is renewed, inspected and given up as
//! one, whichever threads of the client use it.
//!
//! Its users are [tenures](Tenure). A plain hold has one. A lock that passes on within the client
//! has one after another (lock cohorting: Dice, Marathe, Shavit, PPoPP 2012), and a read hold that
//! several threads share has several at a time. What the client learns about the hold is recorded
//! here, once, and all of its users see it at once.
//!
//! **The holder.** Elsewhere a holder belongs to one acquire, so that a late undo, renewal or
//! release can affect nothing else. Here it may affect a later user. So a hold passes on only while
//! nothing is under way that removes it from the store: it is Held, and its release was not sent. A
//! request that can still arrive late only lengthens the lease or sets the hold count, which the
//! next request corrects.
//!
//! **Who gives it up.** The last user to leave, and nobody before: the store has one entry for the
//! holder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::lease::{Ends, Lease, LeaseState, LostBy, Moment, nanos, valid_until};
use crate::lease::ending::ReleaseRace;
use crate::lease::records::{
    Caretaker, HoldRequest, NOT_SCHEDULED, StoreHold, Tenure, Users, Visits,
};
use crate::os::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use crate::store::{Granted, TokenRule};

/// How long after the grant other readers of the client may join. A writer of another client, which
/// only the store knows, waits longer by this much at most.
const OPEN_TO_READERS: Duration = Duration::from_millis(4);

/// The right to be the next user of a hold, which [`Tenure::begin`] takes. If it is dropped before
/// that, by a panic for example, the hold is given up in the background, unless it has other users:
/// so a hold that is handed over always has somebody responsible for it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Admission {
    pub(crate) hold: Arc<StoreHold>,
    /// A tenure has begun.
    pub(super) is_used: bool,
}

impl Drop for Admission {
    /// Must not run under the mutex of a local queue, which is notified if this was the last user.
    fn drop(&mut self) {
        let leaves_last = !self.is_used && self.hold.users.lock().leave();
        if leaves_last {
            self.hold.caretaker.give_up(&self.hold);
        }
    }
}

/// How long a hold has been kept for threads of this client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunLength {
    pub(crate) turns: u32,
    pub(crate) lasted: Duration,
}

impl RunLength {
    /// One acquisition that cannot be passed on.
    pub(crate) const ONE: Self = Self { turns: 1, lasted: Duration::ZERO };
}

impl StoreHold {
    /// A hold as the store has granted it, for its first user.
    pub(super) fn granted(
        asked: HoldRequest,
        granted: Granted,
        caretaker: Arc<dyn Caretaker>,
    ) -> Self {
        let Granted { token, session, next, .. } = granted;
        // The session is kept alive instead, so a hold that is renewed has no end of its own.
        let end = match &session {
            Some(_) if asked.is_renewed => Moment::NEVER,
            _ => valid_until(asked.at, asked.lease),
        };
        let users = Users {
            tenures: SmallVec::new(),
            members: 1,
            open_until: Moment::from_nanos(0),
            turns: 0,
            token,
            spare_tokens: None,
            failed: None,
        };
        Self {
            next: next.map(String::into_boxed_str),
            lease: Lease::in_session(end, session),
            ends: Mutex::new(Ends::new(end)),
            longest: AtomicU64::new(nanos(asked.lease)),
            has_token: token > 0,
            has_others: AtomicBool::new(asked.name.kind.is_read()),
            visits: Visits {
                due: AtomicU64::new(NOT_SCHEDULED),
                sent: AtomicU64::new(0),
                asked_for: asked.holder.data().map(|_| Box::default()),
            },
            release_race: ReleaseRace::default(),
            kept_until: AtomicU64::new(0),
            users: Mutex::new(users),
            asked,
            caretaker,
        }
    }

    /// Makes it one that passes on to other threads of the client. `tokens`: how many were drawn,
    /// including that of the first user.
    pub(crate) fn passing_on(mut self, tokens: u32) -> Self {
        self.users.get_mut().spare_tokens = Some(tokens.saturating_sub(1));
        self
    }

    /// Makes it one that the store has granted until this end, which is sooner than a lease: its
    /// first renewal asks for a whole one.
    pub(crate) fn ending_at(mut self, end: Moment) -> Self {
        self.lease = Lease::in_session(end, None);
        self.ends = Mutex::new(Ends::new(end));
        self
    }

    /// Makes it one that other readers of the client may join from now on.
    pub(crate) fn open_to_readers(mut self) -> Self {
        self.users.get_mut().open_until = self.now().plus(OPEN_TO_READERS);
        self
    }

    /// Admits the first user.
    pub(crate) fn admit_first(self) -> Admission {
        Admission { hold: Arc::new(self), is_used: false }
    }

    /// Admits one more reader, with this lease, unless that reader has to ask the store: a writer
    /// of another client may be waiting by now, the hold is not certain, or its lease at the server
    /// may be longer than that reader wants.
    ///
    /// The first inspection comes later than any admission: until then the lease is as the store
    /// granted it.
    pub(crate) fn admit_reader(self: &Arc<Self>, lease: Duration) -> Option<Admission> {
        let now = self.now();
        let mut users = self.users.lock();
        let is_open = users.members > 0
            && now < users.open_until
            && now.since(self.asked.at) < self.first_visit();
        if !is_open || !self.has_only_asked_for(lease) || self.lease.state(now) != LeaseState::Held
        {
            return None;
        }
        users.members += 1;
        Some(Admission { hold: self.clone(), is_used: false })
    }

    /// Admits the next user in place of `from`, if that is the only one and has given it up, and
    /// the run `goes_on`. `None` if the next one has to ask the store, because of its terms, or
    /// because the hold is not certain.
    ///
    /// With the lease that the store has confirmed, it is as good as a hold that was acquired now:
    /// no renewal of it is due yet, because it is younger than a third of its lease.
    pub(crate) fn admit_next(
        self: &Arc<Self>,
        from: &Arc<Tenure>,
        (lease, token): (Duration, TokenRule),
        goes_on: impl FnOnce(RunLength) -> bool,
    ) -> Option<Admission> {
        let now = self.now();
        let mut users = self.users.lock();
        let run = RunLength { turns: users.turns, lasted: now.since(self.asked.at) };
        let is_alone =
            users.members == 1 && matches!(&*users.tenures, [one] if Arc::ptr_eq(one, from));
        let has_token = !self.has_token || users.spare_tokens > Some(0);
        let is_young = run.lasted < self.asked.lease / 3;
        let fits = is_alone
            && has_token
            && users.spare_tokens.is_some()
            && self.fits(lease, token)
            && is_young;
        if !fits
            || !goes_on(run)
            || self.lease.state(now) != LeaseState::Held
            || !from.marks.leave()
        {
            return None;
        }
        users.tenures.clear();
        Some(Admission { hold: self.clone(), is_used: false })
    }

    /// Whether a caller with these terms may have it instead of the one that was admitted.
    pub(crate) fn fits(&self, lease: Duration, token: TokenRule) -> bool {
        let has_token = match token {
            TokenRule::Off => !self.has_token,
            TokenRule::On => self.has_token,
            // The counter of such a token never expires, and others read the holder's token from
            // it.
            TokenRule::Kept => false,
        };
        has_token && self.has_only_asked_for(lease)
    }

    /// Whether this lease was asked for, and never a longer one, which after a crash would keep the
    /// lock from all others for longer.
    fn has_only_asked_for(&self, lease: Duration) -> bool {
        lease == self.asked.lease && self.longest() == lease
    }

    /// From now on it does not pass to another thread of the client: the next one asks the store.
    pub(crate) fn stop_passing_on(&self) {
        self.users.lock().spare_tokens = None;
    }

    /// Whether other threads of the client may use it at the same time.
    pub(crate) fn is_shared_within(&self) -> bool {
        self.users.lock().open_until > Moment::from_nanos(0)
    }

    /// The tenure has ended, so the hold is no longer kept for it. True if it was the last to
    /// leave: then the caller must give up the hold in the store. A tenure leaves once, although
    /// several threads may notice that it has ended.
    pub(crate) fn leave(&self, tenure: &Tenure) -> bool {
        let mut users = self.users.lock();
        tenure.marks.leave() && users.leave()
    }

    /// The last guard of the tenure has been given up. Returns whether the hold has no users left.
    pub(crate) fn forget(&self, tenure: &Tenure) -> bool {
        let mut users = self.users.lock();
        users.tenures.retain(|one| !std::ptr::eq(&**one, tenure));
        users.members == 0 && users.tenures.is_empty()
    }

    pub(super) fn is_unused(&self) -> bool {
        let users = self.users.lock();
        users.members == 0 && users.tenures.is_empty()
    }

    /// The tenures that have guards, even if they are lost.
    pub(crate) fn tenures(&self) -> SmallVec<[Arc<Tenure>; 1]> {
        self.users.lock().tenures.clone()
    }

    /// How long it has been kept so far.
    pub(crate) fn run(&self) -> RunLength {
        RunLength { turns: self.users.lock().turns, lasted: self.now().since(self.asked.at) }
    }

    pub(super) fn token(&self) -> u64 {
        self.users.lock().token
    }

    /// Call it before a request for a lease that may be longer than those before.
    pub(crate) fn note_request(&self, lease: Duration) {
        self.longest.fetch_max(nanos(lease), Ordering::AcqRel);
    }

    /// The store granted one more level. If the hold lives in a session, no server was asked for
    /// that: a Suspect hold stays one, and its trouble goes on.
    pub(crate) fn reentered(&self, sent_at: Moment, lease: Duration) {
        if !self.lease.is_in_session() {
            self.confirmed(sent_at, lease);
            return;
        }
        let now = self.now();
        self.end_max_holds(now);
        let mut ends = self.ends.lock();
        ends.granted(valid_until(sent_at, lease));
        self.lease.inspected(now, ends.end());
    }

    /// The longest lease that was ever asked for.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Acquire))
    }

    pub(crate) fn now(&self) -> Moment {
        self.caretaker.now()
    }

    pub(crate) fn state(&self) -> LeaseState {
        self.lease.state(self.now())
    }

    /// How long it is certain to be held.
    pub(crate) fn remaining(&self) -> Duration {
        let now = self.now();
        if self.lease.is_held(now) { self.lease.until().since(now) } else { Duration::ZERO }
    }

    /// The store no longer knows the holder.
    pub(crate) fn lose(&self) -> LeaseState {
        self.end(LostBy::Store)
    }

    /// It is no longer renewed.
    pub(crate) fn neglect(&self) -> LeaseState {
        self.end(LostBy::Neglect)
    }

    fn end(&self, how: LostBy) -> LeaseState {
        let state = self.lease.lose(self.now(), how);
        // Each notices it when its state is read; threads that sleep until then are woken.
        for tenure in &self.tenures() {
            tenure.wake();
        }
        state
    }

    pub(crate) fn has_others(&self) -> bool {
        self.has_others.load(Ordering::Acquire)
    }

    /// From now on the write hold only reads, so others may hold the lock as well.
    pub(super) fn only_reads(&self) {
        self.has_others.store(true, Ordering::Release);
    }
}

impl Users {
    fn leave(&mut self) -> bool {
        self.members -= 1;
        self.members == 0
    }
}

impl fmt::Debug for StoreHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreHold")
            .field("name", &self.asked.name.name)
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "store_hold_tests.rs"]
pub(crate) mod tests;
