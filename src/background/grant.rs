//! What the store granted to one holder: its lease, and whom to notify when it is lost.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::background::callbacks::{OnTrouble, Place};
use crate::background::ending::Ending;
use crate::background::run::{RunLength, Turn};
use crate::background::share::Share;
use crate::base::clock::Clock;
use crate::base::error::Error;
use crate::base::event::Event;
use crate::base::holder::Holder;
use crate::base::lease::{Ends, Lease, Moment, SessionTerm, State, valid_until};
use crate::base::lock_name::{Kind, LockName};
use crate::base::loss::Loss;
use crate::base::primitive::Primitive;
use crate::os::{
    Condvar, Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use crate::store::{Renewal, TokenRule};

/// How the watchdog treats a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalPolicy {
    /// Renewed, until the moment if there is one (`max_hold`).
    Renewed { until: Option<Moment> },
    /// A fixed lease: only inspected, so that the holder learns when it was forced out.
    Fixed,
}

/// For long leases: the default lease, so that they are visited as often as others.
const LONGEST_BETWEEN_VISITS: Duration = Duration::from_secs(30);
/// For a lock that others share. A reader of another library may arrive at any time, and each of
/// its renewals sets the TTL of the whole lock to its own watchdog time. That cut must be undone
/// before it ends the lock, and such a reader must be known before the server becomes unreachable.
/// This gives three inspections within a watchdog time of 3 s, and two within [`LEAST_WATCHDOG`].
const LONGEST_BETWEEN_SHARED_VISITS: Duration = Duration::from_secs(3);
/// The first inspection of a shared lock: before it nothing is known of the other holders. Shorter
/// holds cost none.
const FIRST_SHARED_VISIT: Duration = Duration::from_millis(100);
/// No watchdog of another library is assumed to have a shorter time (`lockWatchdogTimeout`). Less
/// time left belongs to a fixed lease that ends or to a reader that died, and neither cuts a lock.
/// Twice the time between two inspections of a shared lock, so that a cut is undone before it ends
/// one.
const LEAST_WATCHDOG: Duration = Duration::from_secs(2);

/// Shared by the guards of a hold, the watchdog and the thread that reports losses.
pub(crate) struct Grant {
    pub(crate) name: Arc<LockName>,
    /// What took it: a multi-lock takes plain locks.
    pub(crate) primitive: Primitive,
    pub(crate) holder: Holder,
    /// Of a semaphore; 1 for all others.
    pub(crate) permits: u32,
    /// The fencing token; 0 for none.
    pub(crate) token: u64,
    /// The next waiter of a fair lock when it was granted: a hint.
    pub(crate) next: Option<String>,
    /// The lease asked for at the acquire and at every renewal.
    pub(crate) span: Duration,
    pub(crate) renewal_policy: RenewalPolicy,
    /// The instant before the acquire went out, from which the first renewal counts. All turns of a
    /// run have that of the first.
    pub(crate) asked_at: Moment,
    /// When its user got it: for the first turn of a run, when it was asked for.
    pub(crate) since: Moment,
    /// Its turn in a [run](crate::background::run); `None`: it never passes on.
    pub(crate) turn: Option<Turn>,
    /// Of a read hold that other threads of the client may [join](crate::background::share).
    share: Option<Arc<Share>>,
    /// The longest lease that was ever requested, in nanoseconds, answered or not: what may stand
    /// at the server.
    longest: AtomicU64,
    pub(crate) lease: Lease,
    /// The grant that the store answered with: the first turn of the run, or the first member of
    /// the share. `None` for that grant itself.
    first: Option<Arc<Self>>,
    /// The store no longer has the hold: see [`is_gone`](Self::is_gone).
    gone: AtomicBool,
    /// Its user relies on the release: no other turn follows it.
    is_last_turn: AtomicBool,
    /// Its `max_hold` was reached, and that was logged.
    renewed_no_more: AtomicBool,
    ending: Ending,
    /// Set when its user has got it, with a `min_hold`.
    pub(super) kept_until: OnceLock<Moment>,
    /// Its user wants no `min_hold` any more.
    pub(super) kept_no_more: AtomicBool,
    /// Locked while they are used to change the lease.
    pub(super) ends: Mutex<Ends>,
    /// Others may have the lock as well, and readers of other libraries among them may cut its TTL:
    /// it is inspected often.
    shared: AtomicBool,
    /// When the watchdog visits it, in nanoseconds, or [`NOT_SCHEDULED`]. Changed only under the
    /// mutex of the watchdog's table.
    pub(super) due: AtomicU64,
    /// When the renewal was sent that has not been answered, in nanoseconds; 0 for none.
    pub(super) renewal_sent: AtomicU64,
    /// The last renewal failed: [`Listeners::failed`] has the error.
    pub(super) in_trouble: AtomicBool,
    /// Kept from the first time that somebody asks for it.
    pub(super) loss: OnceLock<Box<Loss>>,
    clock: Arc<dyn Clock>,
    /// Made when it is first needed: few holds of many have any.
    pub(super) listeners: Mutex<Option<Box<Listeners>>>,
    pub(super) ended: Condvar,
}

/// The watchdog does not visit the grant.
pub(super) const NOT_SCHEDULED: u64 = u64::MAX;

#[derive(Default)]
pub(super) struct Listeners {
    /// Of all guards; those of guards that are gone lead nowhere.
    pub(super) callbacks: Vec<Weak<Place>>,
    /// The thread that keeps deadlines watches the grant.
    pub(super) watched: bool,
    /// Who is called when renewal begins to fail; those of guards that are gone lead nowhere.
    pub(super) on_trouble: Vec<Weak<OnTrouble>>,
    /// Why the last renewal failed.
    pub(super) failed: Option<Error>,
    /// Of threads that wait for the end of any of several leases.
    pub(super) events: Vec<Arc<Event>>,
}

/// How often a thread that keeps the deadline of a lease reads the clock: condition variables do
/// not count the time that the machine is suspended.
pub(crate) fn tick(span: Duration) -> Duration {
    (span / 10).min(Duration::from_secs(1)).max(Duration::from_millis(1))
}

impl Grant {
    pub(crate) fn new(
        name: Arc<LockName>,
        holder: Holder,
        token: u64,
        sent_at: Moment,
        span: Duration,
        renewal_policy: RenewalPolicy,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let end = valid_until(sent_at, span);
        let (lease, ends) = (Lease::new(end), Mutex::new(Ends::new(end)));
        let shared = AtomicBool::new(name.kind == Kind::Read);
        Self {
            primitive: name.kind.into(),
            name,
            holder,
            permits: 1,
            token,
            next: None,
            span,
            renewal_policy,
            asked_at: sent_at,
            since: sent_at,
            turn: None,
            share: None,
            longest: AtomicU64::new(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
            lease,
            first: None,
            gone: AtomicBool::new(false),
            is_last_turn: AtomicBool::new(false),
            renewed_no_more: AtomicBool::new(false),
            ending: Ending::default(),
            kept_until: OnceLock::new(),
            kept_no_more: AtomicBool::new(false),
            ends,
            shared,
            due: AtomicU64::new(NOT_SCHEDULED),
            renewal_sent: AtomicU64::new(0),
            in_trouble: AtomicBool::new(false),
            loss: OnceLock::new(),
            clock,
            listeners: Mutex::new(None),
            ended: Condvar::new(),
        }
    }

    /// The same, taken by a multi-lock.
    pub(crate) fn of_multi_lock(mut self) -> Self {
        self.primitive = Primitive::Multi;
        self
    }

    /// The same in a store whose holds share a session: it ends with that as well. The session is
    /// what is kept alive, so a hold without a limit has no end of its own.
    pub(crate) fn in_session(mut self, session: Option<Arc<SessionTerm>>) -> Self {
        if session.is_some() {
            let is_limited = self.renewal_policy != RenewalPolicy::Renewed { until: None };
            let end = if is_limited { self.lease.until() } else { Moment::NEVER };
            (self.lease, self.ends) = (Lease::in_session(end, session), Mutex::new(Ends::new(end)));
        }
        self
    }

    /// The next turn at the hold of this one, which has been given up and passed on, or another
    /// member of its share, which has been [counted](Self::admits_one): with the same holder, and
    /// the lease that the store has confirmed for it.
    pub(crate) fn next_turn(self: &Arc<Self>, renewal_policy: impl FnOnce(Moment) -> RenewalPolicy) -> Self {
        let now = self.now();
        let token = if self.token > 0 { self.token + 1 } else { 0 };
        let (name, holder, clock) = (self.name.clone(), self.holder.clone(), self.clock.clone());
        let grant = Self::new(name, holder, token, self.asked_at, self.span, renewal_policy(now), clock);
        // A renewal may have been confirmed since the acquire, and an inspection may have found
        // that others can cut the lease; never more than both allow.
        let ends = *self.ends.lock();
        Self {
            since: now,
            turn: self.turn.map(|turn| turn.next(now)),
            share: self.share.clone(),
            first: Some(self.first().clone()),
            lease: Lease::new(ends.end()),
            ends: Mutex::new(ends),
            ..grant
        }
    }

    /// Takes over what an inspection has found since the [turn was made](Self::next_turn) of
    /// `previous`. To be called once this grant is in the watchdog's schedule: an inspection before
    /// that is seen here, and a later one visits this grant as well.
    pub(crate) fn bounded_as(&self, previous: &Self) {
        let found = *previous.ends.lock();
        let mut ends = self.ends.lock();
        ends.bounded_as(found);
        self.lease.inspected(self.now(), ends.end());
    }

    fn first(self: &Arc<Self>) -> &Arc<Self> {
        self.first.as_ref().unwrap_or(self)
    }

    /// Whether the next turn of the hold can be one with these terms: with the lease that the store
    /// has confirmed it is as good as one that was acquired now, or would be renewed no sooner.
    pub(crate) fn passes_to(&self, lease: Duration, token: TokenRule) -> bool {
        let Some(turn) = self.turn.filter(|_| !self.is_last_turn.load(Ordering::Acquire)) else { return false };
        let has_token = match token {
            TokenRule::Off => self.token == 0,
            TokenRule::On => self.token > 0 && turn.spare_tokens > 0,
            // Its counter never expires, and others read the token of the holder there.
            TokenRule::Kept => false,
        };
        // A longer lease may stand than the next user wants: after a crash it would keep the lock
        // from all others.
        has_token && lease == self.span && self.longest() == self.span && self.run().lasted < self.span / 3
    }

    /// From here on the hold does not pass to another thread of the client: whoever is next asks
    /// the store for it.
    pub(crate) fn ends_run(&self) {
        self.is_last_turn.store(true, Ordering::Release);
    }

    /// Makes it the first member of a share.
    pub(crate) fn open_share(&mut self) {
        self.share = Some(Arc::new(Share::new(self.now())));
    }

    pub(crate) fn is_member(&self) -> bool {
        self.share.is_some()
    }

    /// Counts one more member of its share, for a thread with these terms; false if that has to ask
    /// the store. For a caller that sees to it that the [next turn](Self::next_turn) begins.
    ///
    /// The first inspection of a member comes later than any admission: up to then its lease is as
    /// the store granted it.
    pub(crate) fn admits_one(&self, lease: Duration) -> bool {
        let Some(share) = &self.share else { return false };
        let now = self.now();
        share.is_open(now)
            && now.since(self.asked_at) < self.first_visit()
            && lease == self.span
            && self.longest() == self.span
            && !self.is_gone()
            && self.lease.state(now) == State::Held
            && share.count_one()
    }

    /// Takes back an [admission](Self::admits_one) to the share of this live member.
    pub(super) fn admits_one_less(&self) {
        self.share.iter().for_each(|share| share.take_back_one());
    }

    /// Whether it must be given up in the store, now that it is given up here: not while other
    /// threads have the same hold there. A member leaves its share once: a lease that has ended by
    /// time is given up by the watchdog, and by its guard.
    pub(crate) fn leaves_last(&self) -> bool {
        self.share.as_ref().is_none_or(|share| self.ending.leave() && share.leave())
    }

    /// How long its run is up to now.
    pub(crate) fn run(&self) -> RunLength {
        let turns = self.turn.map_or(1, |turn| turn.number.get());
        RunLength { turns, lasted: self.now().since(self.asked_at) }
    }

    /// Whether the store is known to have lost the hold. All turns of a run and all members of a
    /// share know at once: each enters the hold table first and looks here second, while whoever
    /// learns of the loss notes it first and lists the table second.
    pub(crate) fn is_gone(&self) -> bool {
        self.first.as_deref().unwrap_or(self).gone.load(Ordering::Acquire)
    }

    pub(super) fn note_gone(&self) {
        self.first.as_deref().unwrap_or(self).gone.store(true, Ordering::Release);
    }

    /// To be called before a request for a lease that may be longer than those before.
    pub(crate) fn asks_for(&self, lease: Duration) {
        let nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
        self.share.iter().for_each(|share| share.asks_for(nanos));
    }

    /// The longest lease that was ever requested.
    pub(super) fn longest(&self) -> Duration {
        let of_others = self.share.as_ref().map_or(0, |share| share.longest());
        Duration::from_nanos(self.longest.load(Ordering::Relaxed).max(of_others))
    }

    pub(super) fn is_renewed_at(&self, now: Moment) -> bool {
        match self.renewal_policy {
            RenewalPolicy::Renewed { until } => until.is_none_or(|until| now < until),
            RenewalPolicy::Fixed => false,
        }
    }

    /// Whether its `max_hold` has been reached. True only once, for the caller that logs it.
    pub(crate) fn ends_renewal(&self, now: Moment) -> bool {
        self.renewal_policy != RenewalPolicy::Fixed
            && !self.is_renewed_at(now)
            && !self.renewed_no_more.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn state(&self) -> State {
        self.lease.state(self.now())
    }

    pub(crate) fn remaining(&self) -> Duration {
        let now = self.now();
        if self.lease.is_held(now) { self.lease.until().since(now) } else { Duration::ZERO }
    }

    /// The server confirmed the hold for `lease` from `sent_at`. Returns the state afterwards: a
    /// confirmation that is read after the lease has ended revives nothing.
    pub(crate) fn confirmed(&self, sent_at: Moment, lease: Duration) -> State {
        let mut ends = self.ends.lock();
        ends.granted(valid_until(sent_at, lease));
        let state = self.lease.renewed(self.now(), ends.end());
        drop(ends);
        self.answered(state)
    }

    /// An inspection found that from then on others may cut the TTL of the lock to `beside` at any
    /// time. A cut after the inspection leaves at least that long from the cut on, and one before
    /// it has been undone by it: so the hold is certain for that long, even if no later inspection
    /// reaches the server.
    pub(crate) fn inspected(&self, sent_at: Moment, beside: Option<Duration>) -> State {
        let mut ends = self.ends.lock();
        ends.inspected(sent_at, beside.map(|left| valid_until(sent_at, left.max(LEAST_WATCHDOG))));
        let state = self.lease.inspected(self.now(), ends.end());
        drop(ends);
        self.answered(state)
    }

    /// How often it is visited. A long fixed lease is visited as often as others: its holder may be
    /// forced out at any time.
    pub(crate) fn period(&self) -> Duration {
        match self.renewal_policy {
            _ if self.is_shared() => self.span.min(LONGEST_BETWEEN_SHARED_VISITS) / 3,
            RenewalPolicy::Renewed { .. } => self.span / 3,
            RenewalPolicy::Fixed => self.span.min(LONGEST_BETWEEN_VISITS) / 3,
        }
    }

    /// How long after it was taken it is visited for the first time.
    pub(crate) fn first_visit(&self) -> Duration {
        if self.is_shared() { self.period().min(FIRST_SHARED_VISIT) } else { self.period() }
    }

    /// The request for a visit.
    pub(crate) fn renewal(&self, now: Moment) -> Renewal {
        let lease = match (self.is_shared(), self.is_renewed_at(now)) {
            (false, true) => self.span,
            (false, false) => Duration::ZERO,
            (true, renew) => {
                let left = self.ends.lock().own().since(now);
                // Most visits find the same lease at the server as here, and write nothing. Where
                // another library has cut it (some versions cut the levels of this holder as well),
                // this puts back what was granted.
                let at_next_visit = left.saturating_sub(self.period());
                if renew && at_next_visit < self.span * 2 / 3 { self.span } else { left }
            }
        };
        self.renewal_for(lease)
    }

    /// The request for this lease; zero only asks whether the hold is still there.
    pub(crate) fn renewal_for(&self, lease: Duration) -> Renewal {
        let (name, holder) = (self.name.clone(), self.holder.clone());
        Renewal { name, holder, permits: self.permits, lease, token: self.token }
    }

    /// The store has put the hold back beside its release. Whether the caller has to undo that now;
    /// otherwise the release is under way, and whoever sent it learns of it [in the
    /// end](Self::release_is_over). Sent beside the release, the undo could run first, and the
    /// release would find no hold and report a loss.
    pub(crate) fn was_put_back(&self) -> bool {
        self.ending.put_back()
    }

    /// The release is over. Whether the hold was [put back](Self::was_put_back) beside it and has
    /// to be undone.
    pub(crate) fn release_is_over(&self) -> bool {
        self.ending.give_up()
    }

    /// How long it has lasted up to now.
    pub(crate) fn held(&self) -> Duration {
        self.now().since(self.since)
    }

    /// Whether its loss was not counted before; once. Then no one is told that it was given up.
    pub(super) fn is_first_to_report(&self) -> bool {
        self.ending.report()
    }

    /// The line for the log about its loss: once, for whoever comes first of the watchdog and its
    /// guard. To be called after the loss was reported, and to be logged without any mutex.
    pub(crate) fn loss_to_log(&self) -> Option<String> {
        self.ending.log().then(|| format!("{:?} is lost: {}", self.name.name, self.loss_now()))
    }

    /// Whether its user has given it up, and the listener was not told before; once.
    pub(crate) fn is_first_to_tell(&self) -> bool {
        matches!(self.state(), State::Released | State::Closed) && self.ending.tell()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// The write hold only reads from now on.
    pub(crate) fn share(&self) {
        self.shared.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("name", &self.name.name)
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::clock::FakeClock;
    use crate::base::holder::ClientId;

    pub(crate) fn grant(
        name: &str,
        clock: &Arc<FakeClock>,
        span: Duration,
        renewal_policy: RenewalPolicy,
    ) -> Arc<Grant> {
        let name = Arc::new(LockName::new("", name, crate::base::lock_name::Kind::Mutex).unwrap());
        let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
        let clock: Arc<dyn Clock> = clock.clone();
        Arc::new(Grant::new(name, holder, 1, clock.now(), span, renewal_policy, clock))
    }

    #[test]
    fn a_suspended_process_detects_the_loss_at_its_first_check() {
        let clock = Arc::new(FakeClock::default());
        let g = grant("a", &clock, Duration::from_secs(10), RenewalPolicy::Renewed { until: None });
        assert!(g.lease.is_held(g.now()));
        clock.advance(Duration::from_secs(10));
        assert!(!g.lease.is_held(g.now()));
        assert_eq!(g.confirmed(Moment::from_nanos(0), Duration::from_secs(60)), State::Lost);
        assert_eq!(g.remaining(), Duration::ZERO);
    }

    const SPAN: Duration = Duration::from_secs(10);

    /// As the store has granted it just now: a lock that can pass on, or a read hold that others
    /// can join.
    fn granted(clock: &Arc<FakeClock>, kind: Kind) -> Arc<Grant> {
        let name = Arc::new(LockName::new("", "a", kind).unwrap());
        let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
        let (asked_at, clock): (Moment, Arc<dyn Clock>) = (clock.now(), clock.clone());
        let policy = RenewalPolicy::Renewed { until: None };
        let mut grant = Grant::new(name, holder, 1, asked_at, SPAN, policy, clock);
        if kind == Kind::Read {
            grant.open_share();
        } else {
            grant.turn = Some(Turn::first(9, asked_at));
        }
        Arc::new(grant)
    }

    fn next(grant: &Arc<Grant>) -> Arc<Grant> {
        Arc::new(grant.next_turn(|_| RenewalPolicy::Renewed { until: None }))
    }

    #[test]
    fn a_turn_begins_with_what_is_left_of_the_confirmed_lease() {
        let clock = Arc::new(FakeClock::default());
        let first = granted(&clock, Kind::Mutex);
        let end = valid_until(clock.now(), SPAN);
        clock.advance(Duration::from_secs(3));
        let second = next(&first);
        assert_eq!((second.lease.until(), second.since), (Lease::new(end).until(), clock.now()));
        second.confirmed(clock.now(), SPAN);
        let confirmed = valid_until(clock.now(), SPAN);
        clock.advance(Duration::from_secs(1));
        let third = next(&second);
        assert_eq!(third.lease.until(), Lease::new(confirmed).until());
        clock.advance(SPAN);
        assert_eq!((next(&third).state(), third.state()), (State::Lost, State::Lost));
    }

    #[test]
    fn a_hold_passes_on_only_with_a_fresh_lease_that_was_never_lengthened() {
        let clock = Arc::new(FakeClock::default());
        let passes = |grant: &Arc<Grant>| grant.passes_to(SPAN, TokenRule::On);
        let grant = granted(&clock, Kind::Mutex);
        assert!(passes(&grant) && !grant.passes_to(SPAN * 2, TokenRule::On) && !grant.passes_to(SPAN, TokenRule::Kept));
        clock.advance(SPAN / 3);
        assert!(!passes(&grant), "its renewal is due");
        let lengthened = granted(&clock, Kind::Mutex);
        lengthened.asks_for(SPAN * 2);
        let last = granted(&clock, Kind::Mutex);
        last.ends_run();
        assert!(!passes(&lengthened) && !passes(&last));
        let mut turn = granted(&clock, Kind::Mutex);
        for _ in 0..8 {
            turn = next(&turn);
            assert!(turn.token > 1);
        }
        assert!(!passes(&turn), "its tokens are used up");
    }

    #[test]
    fn readers_join_a_hold_only_while_it_is_young_and_certain() {
        let clock = Arc::new(FakeClock::default());
        let join = |spoil: &dyn Fn(&Arc<Grant>)| {
            let grant = granted(&clock, Kind::Read);
            spoil(&grant);
            grant.admits_one(SPAN)
        };
        assert!(join(&|_| ()));
        assert!(!granted(&clock, Kind::Read).admits_one(SPAN * 2), "another lease");
        assert!(!join(&|grant| assert_eq!(grant.lease.suspect(clock.now()), State::Suspect)));
        assert!(!join(&|grant| assert_eq!(grant.lose(), State::Lost)));
        assert!(!join(&|grant| assert_eq!(grant.lease.release(clock.now()), State::Held)));
        assert!(!join(&|grant| grant.asks_for(SPAN * 2)), "it was lengthened");
        assert!(!join(&|_| clock.advance(Duration::from_millis(4))), "a writer elsewhere may wait");
        assert!(!join(&|grant| {
            assert!(grant.leaves_last());
        }));
    }

    #[test]
    fn a_reader_that_joins_late_has_the_bound_that_an_inspection_found() {
        let clock = Arc::new(FakeClock::default());
        let first = granted(&clock, Kind::Read);
        let before = next(&first);
        clock.advance(Duration::from_millis(1));
        first.inspected(clock.now(), Some(LEAST_WATCHDOG));
        let end = valid_until(clock.now(), LEAST_WATCHDOG);
        let after = next(&first);
        assert_eq!(after.lease.until(), Lease::new(end).until());
        assert!(before.lease.until() > after.lease.until(), "it was made before");
        before.bounded_as(&first);
        assert_eq!(before.lease.until(), after.lease.until());
        clock.advance(LEAST_WATCHDOG);
        assert_eq!((before.state(), after.state()), (State::Lost, State::Lost));
    }

    #[test]
    fn all_turns_of_a_run_know_that_the_store_has_lost_the_hold() {
        let clock = Arc::new(FakeClock::default());
        let first = granted(&clock, Kind::Mutex);
        let second = next(&first);
        let third = next(&second);
        assert!(!third.is_gone());
        first.lose();
        assert!(second.is_gone() && third.is_gone() && next(&third).is_gone());
        let alone = granted(&clock, Kind::Mutex);
        next(&alone).lose();
        assert!(alone.is_gone());
    }

    #[test]
    fn a_hold_put_back_beside_its_release_is_undone_once_and_behind_it() {
        let clock = Arc::new(FakeClock::default());
        let before = grant("a", &clock, Duration::from_secs(10), RenewalPolicy::Fixed);
        assert!(!before.was_put_back() && before.release_is_over());
        let after = grant("b", &clock, Duration::from_secs(10), RenewalPolicy::Fixed);
        assert!(!after.release_is_over() && after.was_put_back());
    }
}
