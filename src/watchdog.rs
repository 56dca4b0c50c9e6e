//! The one renewal thread of a client: renews what is due, sees losses, settles unknown outcomes.
//!
//! Its work list is a table under a short mutex and not a channel of commands: taking and freeing a lock must not
//! cost a wake-up of this thread each (two context switches a cycle), and a hold must be able to *leave* before its
//! release is sent, not some time after.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::grant::{Grant, Upkeep, tick};
use crate::lease::{Moment, State, margin};
use crate::losses::Losses;
use crate::station::Stations;
use crate::store::{Doubts, LeaseStore, Levels, Renewal, Renewed, Undo};

/// Unknown outcomes kept while the server cannot be asked; past it the oldest goes first.
const MOST_UNDOS: usize = 10_000;
/// How long a background release is tried beyond the lease it removes, for clocks that differ.
const UNDO_SLACK: Duration = Duration::from_secs(1);

/// Redisson's default lease.
const MOST_BETWEEN_LOOKS: Duration = Duration::from_secs(30);

pub(crate) struct Watchdog {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    client_name: String,
    store: Arc<dyn LeaseStore>,
    clock: Arc<dyn Clock>,
    losses: Arc<Losses>,
    /// Threads of this client that wait for a hold of this client to end.
    stations: Arc<Stations>,
    table: Mutex<Table>,
    changed: Condvar,
}

/// Guarded by one mutex, which is never held during I/O.
struct Table {
    /// By due time; the number keeps equal times apart. Each grant knows its place.
    due: BTreeMap<(Moment, u64), Arc<Grant>>,
    next: u64,
    /// The shortest lease since `due` was last empty: how often the clock must be looked at.
    shortest: Duration,
    undos: Vec<Undo>,
    /// No settling before this: a server that just failed waits for its back-off.
    settle_from: Moment,
    /// When the thread means to wake up; whatever is due earlier wakes it. `None`: not before it is told to.
    planned: Option<Moment>,
    /// When it is told to stop: until when it tries to settle what is unsettled.
    settle_until: Option<Instant>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotStarted,
    Running,
    Stopping,
    Ended,
}

impl Watchdog {
    pub(crate) fn new(
        client_name: String,
        store: Arc<dyn LeaseStore>,
        clock: Arc<dyn Clock>,
        losses: Arc<Losses>,
        stations: Arc<Stations>,
    ) -> Self {
        let table = Table {
            due: BTreeMap::new(),
            next: 0,
            shortest: Duration::MAX,
            undos: Vec::new(),
            settle_from: Moment::from_nanos(0),
            planned: None,
            settle_until: None,
            phase: Phase::NotStarted,
        };
        let (table, changed) = (Mutex::new(table), Condvar::new());
        let inner = Inner { client_name, store, clock, losses, stations, table, changed };
        Self { inner: Arc::new(inner), thread: Mutex::new(None) }
    }

    /// From now on the grant is renewed (or looked after), until it leaves, is lost, or is no longer live.
    ///
    /// # Errors
    /// When there is no thread for it: a lease that nobody renews must not look as if somebody did.
    pub(crate) fn watch(&self, grant: &Arc<Grant>) -> Result<(), Error> {
        let mut table = self.inner.table.lock();
        self.start(&mut table)?;
        // From when it was asked for: an answer that took its time has used up some of the lease.
        let due = grant.asked_at.plus(period(grant));
        self.inner.enter(&mut table, grant, due);
        Ok(())
    }

    /// Called after the lease left its live states and *before* the release is sent: a renewal already under way then
    /// finds the field gone, and its answer finds a lease that nothing revives.
    pub(crate) fn leave(&self, grant: &Grant) {
        let mut table = self.inner.table.lock();
        if let Some(place) = grant.place.lock().take() {
            table.due.remove(&place);
        }
    }

    /// The acquisition is removed in the background, as soon as the server can be asked.
    pub(crate) fn undo(&self, undo: Undo) {
        let mut table = self.inner.table.lock();
        if let Err(e) = self.start(&mut table) {
            log::warn!("{:?} stays locked until its lease ends: {e}", undo.keys.name);
            return;
        }
        self.inner.remember(&mut table, undo);
    }

    /// How many unknown outcomes are not settled yet.
    pub(crate) fn unsettled(&self) -> usize {
        self.inner.table.lock().undos.len()
    }

    /// Asks the thread to end after one last try at what is unsettled; waits for it until `deadline`. False: it is
    /// still at work, and ends when its I/O does.
    pub(crate) fn stop(&self, deadline: Instant) -> bool {
        let mut table = self.inner.table.lock();
        match table.phase {
            Phase::NotStarted => table.phase = Phase::Ended,
            Phase::Running => table.phase = Phase::Stopping,
            Phase::Stopping | Phase::Ended => {}
        }
        table.settle_until = Some(deadline);
        self.inner.changed.notify_all();
        let handle = self.thread.lock().take();
        // The last handle may be dropped on this very thread: a callback of the log, say.
        if handle.as_ref().is_some_and(|h| h.thread().id() == std::thread::current().id()) {
            return true;
        }
        while table.phase != Phase::Ended {
            if self.inner.changed.wait_until(&mut table, deadline).timed_out() && table.phase != Phase::Ended {
                return false;
            }
        }
        drop(table);
        if let Some(handle) = handle {
            let _ = handle.join();
        }
        true
    }

    /// Begins now, for a store that is to be looked after before anything is held.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.start(&mut self.inner.table.lock())
    }

    fn start(&self, table: &mut Table) -> Result<(), Error> {
        match table.phase {
            // While stopping it settles once more, so what comes now may still be.
            Phase::Running | Phase::Stopping => return Ok(()),
            Phase::Ended => return Err(Error::new(ErrorKind::Closed, "the client was closed")),
            Phase::NotStarted => {}
        }
        let inner = self.inner.clone();
        let handle = std::thread::Builder::new()
            .name(format!("leasehold-dog-{}", inner.client_name))
            .spawn(move || inner.run())
            .map_err(|e| Error::new(ErrorKind::Unreachable, "no thread for the watchdog").caused_by(e))?;
        *self.thread.lock() = Some(handle);
        table.phase = Phase::Running;
        Ok(())
    }
}

/// Ends the watchdog's promise, however the thread ends: nobody renews these leases any more.
struct LastWill<'a>(&'a Inner);

impl Drop for LastWill<'_> {
    fn drop(&mut self) {
        let mut table = self.0.table.lock();
        table.phase = Phase::Ended;
        let orphans = std::mem::take(&mut table.due);
        drop(table);
        for grant in orphans.into_values() {
            *grant.place.lock() = None;
            if grant.lose() == State::Lost {
                log::warn!("the watchdog ended: {:?} is lost", grant.keys.name);
            }
        }
        self.0.losses.look();
        self.0.changed.notify_all();
    }
}

/// A batch that is out for renewal. Put back when dropped, also by a panic: a grant must not fall out of the table.
struct Batch<'a> {
    inner: &'a Inner,
    grants: Vec<(Arc<Grant>, Moment)>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut table = self.inner.table.lock();
        for (grant, due) in self.grants.drain(..) {
            // Checked under the table's mutex: whoever releases changes the state first and then takes the mutex to
            // leave, so either we see the release here, or it finds the grant in the table.
            if matches!(grant.state(), State::Held | State::Suspect) {
                self.inner.enter(&mut table, &grant, due);
            }
        }
    }
}

impl Inner {
    fn enter(&self, table: &mut Table, grant: &Arc<Grant>, due: Moment) {
        if table.due.is_empty() {
            table.shortest = Duration::MAX;
        }
        table.shortest = table.shortest.min(grant.span);
        // Never later than the end of the lease, which must be seen.
        let place = (due.min(grant.lease.until()), table.next);
        table.next += 1;
        *grant.place.lock() = Some(place);
        table.due.insert(place, grant.clone());
        if table.planned.is_none_or(|planned| place.0 < planned) {
            self.changed.notify_all();
        }
    }

    fn remember(&self, table: &mut Table, undo: Undo) {
        if table.undos.len() == MOST_UNDOS {
            let oldest = table.undos.remove(0);
            log::warn!("too many unknown outcomes: {:?} stays as it is until its lease ends", oldest.keys.name);
        }
        table.undos.push(undo);
        self.changed.notify_all();
    }

    fn run(&self) {
        let _last_will = LastWill(self);
        let mut round = Round {
            settle_pause: Backoff::new(Duration::from_millis(20), Duration::from_millis(500)),
            renew_pause: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
            tend_at: Some(self.clock.now()),
            seen: (self.clock.now(), self.clock.wall()),
        };
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.pass(&mut round))) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    log::warn!("the watchdog panicked and goes on");
                    // A panic that comes back at once must not take a core.
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// One turn of the loop; false when it is time to end.
    fn pass(&self, round: &mut Round) -> bool {
        let mut table = self.table.lock();
        let now = self.clock.now();
        self.mistrust_a_jump(&mut table, round, now);
        if table.phase == Phase::Stopping {
            let until = table.settle_until;
            drop(table);
            loop {
                // A server that comes back meanwhile is one more that can be told; with nothing to tell, none is waited for.
                if !self.table.lock().undos.is_empty() {
                    self.store.tend();
                }
                while self.settle(round) {}
                let pause = round.settle_pause.next();
                let unsettled = !self.table.lock().undos.is_empty();
                if !unsettled || until.is_none_or(|until| Instant::now() + pause >= until) {
                    let left = self.table.lock().undos.clone();
                    left.iter().for_each(Undo::warn_of_a_leak);
                    return false;
                }
                std::thread::sleep(pause);
            }
        }
        if let Some(batch) = self.take_due(&mut table, now) {
            drop(table);
            self.renew(batch, round);
        } else if round.tend_at.is_some_and(|at| at <= now) {
            drop(table);
            round.tend_at = self.store.tend();
        } else if !table.undos.is_empty() && table.settle_from <= now {
            drop(table);
            self.settle(round);
        } else {
            self.sleep(&mut table, now, round.tend_at);
        }
        true
    }

    fn sleep(&self, table: &mut parking_lot::MutexGuard<'_, Table>, now: Moment, tend_at: Option<Moment>) {
        let mut wake = table.due.first_key_value().map(|((due, _), _)| *due);
        if wake.is_some() {
            wake = wake.min(Some(now.plus(tick(table.shortest))));
        }
        wake = [wake, tend_at].into_iter().flatten().min();
        if !table.undos.is_empty() {
            wake = Some(wake.map_or(table.settle_from, |w| w.min(table.settle_from)));
        }
        table.planned = wake;
        match wake {
            Some(wake) => {
                let pause = wake.since(now).max(Duration::from_micros(100));
                self.changed.wait_for(table, pause);
            }
            None => self.changed.wait(table),
        }
        // While it works the thread looks at the table again by itself.
        table.planned = Some(Moment::from_nanos(0));
    }

    /// A wall clock that ran ahead of the boot-time clock by more than the margin: the machine was paused without its
    /// own clock noticing, so what we believe of our leases may be too good. Renew all of them now.
    fn mistrust_a_jump(&self, table: &mut Table, round: &mut Round, now: Moment) {
        let wall = self.clock.wall();
        let (then, wall_then) = std::mem::replace(&mut round.seen, (now, wall));
        if table.due.is_empty() {
            return;
        }
        let ahead = wall.saturating_sub(wall_then).saturating_sub(now.since(then));
        if ahead > margin(table.shortest) {
            log::debug!("the wall clock jumped {ahead:?} ahead: renewing every lease now");
            for grant in std::mem::take(&mut table.due).into_values() {
                grant.lease.suspect(now);
                self.enter(table, &grant, now);
            }
        }
    }

    /// Everything due, and what would be due within a short while: one write instead of many.
    fn take_due(&self, table: &mut Table, now: Moment) -> Option<Batch<'_>> {
        let mut grants = Vec::new();
        let mut horizon = now;
        while let Some(((due, _), grant)) = table.due.first_key_value() {
            if *due > horizon {
                break;
            }
            // A twelfth of a lease early, at most.
            horizon = horizon.max(now.plus((grant.span / 12).min(Duration::from_millis(500))));
            let (_, grant) = table.due.pop_first().expect("it was just looked at");
            *grant.place.lock() = None;
            let again = now.plus(tick(grant.span));
            grants.push((grant, again));
        }
        // Dropping a batch takes the table's mutex, which the caller has: an empty one must not exist.
        if grants.is_empty() { None } else { Some(Batch { inner: self, grants }) }
    }

    fn renew(&self, mut batch: Batch<'_>, round: &mut Round) {
        batch.grants.retain(|(grant, _)| match grant.state() {
            State::Held | State::Suspect => true,
            State::Lost => {
                self.ended_by_time(grant);
                false
            }
            State::Released => false,
        });
        if batch.grants.is_empty() {
            return;
        }
        let now = self.clock.now();
        let renewals: Vec<Renewal> = batch.grants.iter().map(|(grant, _)| renewal_of(grant, now)).collect();
        let outcomes = self.store.renew(&renewals);
        let pause = match outcomes.iter().any(|o| matches!(o, Renewed::Failed(_))) {
            true => round.renew_pause.next(),
            false => {
                round.renew_pause.reset();
                Duration::ZERO
            }
        };
        for ((entry, renewal), outcome) in batch.grants.iter_mut().zip(&renewals).zip(outcomes) {
            entry.1 = self.learn(&entry.0, renewal, outcome, pause);
        }
    }

    /// What a renewal's answer means for its grant, and when the next is due.
    fn learn(&self, grant: &Arc<Grant>, renewal: &Renewal, outcome: Renewed, pause: Duration) -> Moment {
        let now = self.clock.now();
        match outcome {
            Renewed::Held { sent_at, again } => {
                let state =
                    if renewal.lease.is_zero() { grant.state() } else { grant.confirmed(sent_at, renewal.lease) };
                match state {
                    State::Lost => self.ended_by_time(grant),
                    // Its release went out meanwhile, and may have come before what was put again.
                    State::Released if again => self.take_back(grant),
                    _ => {}
                }
                sent_at.plus(period(grant))
            }
            Renewed::Gone => {
                if grant.lose() == State::Lost {
                    log::warn!("the hold of {:?} is gone from the server", grant.keys.name);
                }
                self.losses.look();
                self.stations.ring(&grant.keys.lock);
                now
            }
            Renewed::Failed(error) => {
                log::debug!("renewing {:?} failed, trying again: {error}", grant.keys.name);
                grant.lease.suspect(now);
                now.plus(pause.min(grant.span / 10))
            }
        }
    }

    /// A renewal that arrives late could still have lengthened it: it is taken back.
    fn ended_by_time(&self, grant: &Arc<Grant>) {
        log::warn!("the lease of {:?} ended before it was renewed", grant.keys.name);
        grant.wake();
        self.losses.look();
        self.stations.ring(&grant.keys.lock);
        self.take_back(grant);
    }

    fn take_back(&self, grant: &Grant) {
        let undo = Undo {
            keys: grant.keys.clone(),
            holder: grant.holder.clone(),
            left: Levels::NONE,
            doubts: Doubts::default(),
            expires: self.clock.now().plus(grant.longest()).plus(UNDO_SLACK),
        };
        self.remember(&mut self.table.lock(), undo);
    }

    /// One batch. True: it got somewhere, and there is more.
    fn settle(&self, round: &mut Round) -> bool {
        let mut undos = std::mem::take(&mut self.table.lock().undos);
        if undos.is_empty() {
            return false;
        }
        let before = undos.len();
        self.store.settle(&mut undos);
        let mut table = self.table.lock();
        // One batch a turn: what is due for renewal goes first.
        let progress = undos.len() < before;
        table.settle_from = if progress {
            round.settle_pause.reset();
            Moment::from_nanos(0)
        } else {
            self.clock.now().plus(round.settle_pause.next())
        };
        // Older ones first.
        undos.append(&mut table.undos);
        table.undos = undos;
        progress && !table.undos.is_empty()
    }
}

/// How often a grant is visited. A long fixed lease as often as others: its holder may be forced out any time.
fn period(grant: &Grant) -> Duration {
    match grant.upkeep {
        Upkeep::Renewed { .. } => grant.span / 3,
        Upkeep::Fixed => grant.span.min(MOST_BETWEEN_LOOKS) / 3,
    }
}

struct Round {
    settle_pause: Backoff,
    renew_pause: Backoff,
    /// When the store wants to look after its servers.
    tend_at: Option<Moment>,
    /// The clocks at the last look.
    seen: (Moment, Duration),
}

fn renewal_of(grant: &Grant, now: Moment) -> Renewal {
    let renew = match grant.upkeep {
        Upkeep::Renewed { until } => until.is_none_or(|until| now < until),
        Upkeep::Fixed => false,
    };
    let lease = if renew { grant.span } else { Duration::ZERO };
    Renewal { keys: grant.keys.clone(), holder: grant.holder.clone(), lease, token: grant.token }
}
