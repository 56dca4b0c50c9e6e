//! The one renewal thread of a client: renews what is due, detects losses, resolves unknown
//! outcomes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::background::announcer::Announcer;
use crate::background::local_queue::LocalQueues;
use crate::lease::hold_table::HoldTable;
use crate::lease::loss_callbacks::LossCallbacks;
use crate::lease::phase::Phase;
use crate::lease::renewal_trouble::{News, Outages};
use crate::lease::schedule::Schedule;
use crate::lease::store_hold::StoreHold;
use crate::lease::tenure::Tenure;
use crate::lease::visits::tick;
use crate::base::backoff::Backoff;
use crate::base::clock::{Clock, ClockReading};
use crate::base::lease::{Moment, State};
use crate::os::{
    self, Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};
use crate::store::{HoldCounts, LockStore, Renewal, Renewed, Undo, UnknownOutcomes};

/// How many undos are kept while the server cannot be asked. Beyond it the oldest is dropped.
const MOST_UNDOS: usize = 10_000;

pub(super) struct Inner {
    pub(super) client_name: String,
    /// `None`: nobody is to know who this client is.
    pub(super) announcer: Option<Arc<Announcer>>,
    store: Arc<dyn LockStore>,
    clock: Arc<dyn Clock>,
    loss_callbacks: Arc<LossCallbacks>,
    /// Their waiters are notified when a hold of this client ends.
    local_queues: Arc<LocalQueues>,
    holds: Arc<HoldTable>,
    generation: AtomicU64,
    pub(super) table: Mutex<Table>,
    pub(super) changed: Condvar,
}

/// Guarded by one mutex, which is never held during I/O.
pub(super) struct Table {
    pub(super) due: Schedule,
    pub(super) undos: Vec<Undo>,
    /// While some undos are being resolved: until when the last of them can stand.
    pub(super) resolving_until: Option<Moment>,
    /// How many these are.
    pub(super) resolving: usize,
    /// Nothing is resolved before this: the back-off after a failure.
    pub(super) resolve_from: Moment,
    /// When the thread means to wake up; whatever is due earlier wakes it. `None`: not before it is
    /// notified.
    planned: Option<Moment>,
    /// All holds are to be visited, whenever they are due.
    pub(super) visit_all: bool,
    /// Set with the request to stop: until when the thread goes on resolving.
    pub(super) resolve_until: Option<Instant>,
    pub(super) phase: Phase,
}

/// Reports every lease in the table as lost when the thread ends, also by a panic: nothing renews
/// them any more.
struct ExitGuard<'a>(&'a Inner);

impl Drop for ExitGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.0.table.lock();
        table.phase = Phase::Ended;
        let orphans = table.due.take_all();
        drop(table);
        for hold in orphans {
            hold.neglect();
            for tenure in hold.tenures().iter().filter(|tenure| tenure.state() == State::Lost) {
                self.0.loss_callbacks.report(tenure);
                tenure.loss_to_log().iter().for_each(|line| log::warn!("the watchdog ended: {line}"));
            }
        }
        self.0.changed.notify_all();
    }
}

/// A batch that is out for renewal. Its holds are put back when it is dropped, also by a panic:
/// otherwise they would never be renewed again.
struct Batch<'a> {
    inner: &'a Inner,
    /// When it was taken: see [`Inner::generation`].
    generation: u64,
    holds: Vec<(Arc<StoreHold>, Moment)>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut table = self.inner.table.lock();
        // The store may have confirmed them just before a lock was forced open.
        let is_old = self.generation < self.inner.generation();
        for (hold, due) in self.holds.drain(..) {
            // Checked under the table's mutex. A release changes the state first and then takes the
            // mutex to leave the table: either its new state is seen here, or it finds the hold in
            // the table and removes it.
            match hold.state() {
                State::Held | State::Suspect => {
                    // It may have become shared since `due` was computed, and shared holds are due
                    // sooner.
                    let due = due.min(hold.now().plus(if is_old { Duration::ZERO } else { hold.period() }));
                    self.inner.enter(&mut table, &hold, due);
                }
                // Its end came while its renewal was under way, and failed. The next visit reports
                // that, and undoes what may stand.
                State::Lost if due < Moment::NEVER => self.inner.enter(&mut table, &hold, hold.now()),
                State::Lost | State::Released | State::Closed => {}
            }
        }
    }
}

impl Inner {
    pub(super) fn new(
        client_name: String,
        announcer: Option<Arc<Announcer>>,
        store: Arc<dyn LockStore>,
        clock: Arc<dyn Clock>,
        (loss_callbacks, local_queues, holds): (Arc<LossCallbacks>, Arc<LocalQueues>, Arc<HoldTable>),
    ) -> Self {
        let table = Table {
            due: Schedule::default(),
            undos: Vec::new(),
            resolving_until: None,
            resolving: 0,
            resolve_from: Moment::from_nanos(0),
            planned: None,
            visit_all: false,
            resolve_until: None,
            phase: Phase::NotStarted,
        };
        let (generation, table, changed) = (AtomicU64::new(0), Mutex::new(table), Condvar::new());
        Self { client_name, announcer, store, clock, loss_callbacks, local_queues, holds, generation, table, changed }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn enter(&self, table: &mut Table, hold: &Arc<StoreHold>, due: Moment) {
        let visit = table.due.enter(hold, due);
        if table.planned.is_none_or(|planned| visit < planned) {
            self.changed.notify_all();
        }
    }

    /// [`enter`](Self::enter) for a hold that was not in the table before.
    pub(super) fn enter_new(&self, table: &mut Table, hold: &Arc<StoreHold>, due: Moment) {
        let is_doubtful = hold.asked.generation < self.generation();
        if is_doubtful {
            hold.lease.suspect(hold.now());
        }
        self.enter(table, hold, if is_doubtful { hold.now() } else { due });
    }

    /// Counts how often what is known became old: a lock was forced open, another server has the
    /// holds, or the machine stood still. To be read before a request is sent. A hold that was
    /// asked for before the last time enters as Suspect and is visited at once, whatever happened:
    /// one request too many does no harm.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Raises the [generation](Self::generation) and makes these holds Suspect and due. Raised
    /// first, under the mutex under which a hold enters: one that is not among them is seen there.
    pub(super) fn mistrust(&self, table: &mut Table, holds: impl FnOnce() -> Vec<Arc<StoreHold>>) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        let now = self.now();
        for hold in holds() {
            hold.lease.suspect(now);
            // One that is out with a batch comes back with it, and is due at once.
            if table.due.leave(&hold) {
                self.enter(table, &hold, now);
            }
        }
    }

    /// The holds under this key may be gone, as others may that are on their way.
    pub(super) fn mistrust_under(&self, key: &str) {
        self.mistrust(&mut self.table.lock(), || self.holds.under(key));
    }

    /// All holds are visited at once.
    pub(super) fn visit_all(&self) {
        self.table.lock().visit_all = true;
        self.changed.notify_all();
    }

    /// Returns the undo that was dropped for it, if there were too many.
    pub(super) fn remember(&self, table: &mut Table, undo: Undo) -> Option<Undo> {
        let oldest = (table.undos.len() == MOST_UNDOS).then(|| table.undos.remove(0));
        table.undos.push(undo);
        self.changed.notify_all();
        oldest
    }

    pub(super) fn run(&self) {
        let _exit_guard = ExitGuard(self);
        let mut round = Round {
            resolve_pause: Backoff::new(Duration::from_millis(20), Duration::from_millis(500)),
            renew_pause: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
            maintain_at: Some(self.clock.now()),
            announce_at: None,
            trouble: Outages::default(),
            seen: ClockReading::at(&*self.clock, self.clock.now()),
            moves: self.store.moves(),
        };
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.pass(&mut round))) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    log::warn!("the watchdog panicked and goes on");
                    // If the panic repeats at once, the loop must not occupy a core.
                    os::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// One round of the loop; false when it is time to end.
    fn pass(&self, round: &mut Round) -> bool {
        let mut table = self.table.lock();
        let now = self.clock.now();
        if let Some(ahead) = self.mistrust_a_jump(&mut table, round, now) {
            drop(table);
            log::debug!("the wall clock jumped {ahead:?} ahead: renewing every lease now");
            return true;
        }
        if self.mistrust_a_move(&mut table, round) {
            drop(table);
            log::debug!("another server has the holds: renewing every lease now");
            return true;
        }
        if std::mem::take(&mut table.visit_all) {
            table.due.take_all().iter().for_each(|hold| self.enter(&mut table, hold, now));
        }
        if table.phase == Phase::Stopping {
            let until = table.resolve_until;
            drop(table);
            loop {
                // A server that has come back in the meantime is one more that can be asked. With
                // nothing to undo, there is no reason to wait for one.
                if !self.table.lock().undos.is_empty() {
                    self.store.maintain();
                }
                while self.resolve(round) {}
                let pause = round.resolve_pause.next();
                let unresolved = !self.table.lock().undos.is_empty();
                if !unresolved || until.is_none_or(|until| os::now() + pause >= until) {
                    let left = self.table.lock().undos.clone();
                    left.iter().for_each(Undo::warn_of_a_leak);
                    return false;
                }
                os::thread::sleep(pause);
            }
        }
        if let Some(batch) = self.take_due(&mut table, now) {
            drop(table);
            self.renew(batch, round);
        } else if round.maintain_at.is_some_and(|at| at <= now) {
            drop(table);
            round.maintain_at = self.store.maintain();
        } else if !table.undos.is_empty() && table.resolve_from <= now {
            drop(table);
            self.resolve(round);
        } else if let Some(announcer) = self.announcer_if_due(&table, round, now) {
            // Sorted and spelled without the mutex: there may be thousands.
            let mut held: Vec<_> = table.due.holds().cloned().collect();
            drop(table);
            announcer.announce(&*self.store, &mut held, now);
        } else {
            self.sleep(&mut table, now, [round.maintain_at, round.announce_at]);
        }
        true
    }

    /// If it is time to say who this client is. Asked behind all renewals that are due.
    fn announcer_if_due(&self, table: &Table, round: &mut Round, now: Moment) -> Option<&Announcer> {
        self.announcer.as_deref().filter(|announcer| announcer.is_due(&table.due, &mut round.announce_at, now))
    }

    /// Removes what was written of this client, if anything was.
    pub(super) fn withdraw(&self) {
        if let Some(announcer) = &self.announcer {
            announcer.withdraw(&*self.store, self.clock.now());
        }
    }

    fn sleep(&self, table: &mut os::MutexGuard<'_, Table>, now: Moment, others: [Option<Moment>; 2]) {
        let mut wake = others.into_iter().chain([table.due.wake_at(now)]).flatten().min();
        if !table.undos.is_empty() {
            wake = Some(wake.map_or(table.resolve_from, |w| w.min(table.resolve_from)));
        }
        table.planned = wake;
        match wake {
            Some(wake) => {
                let pause = wake.since(now).max(Duration::from_micros(100));
                self.changed.wait_for(table, pause);
            }
            None => self.changed.wait(table),
        }
        // While the thread works it needs no notification: it reads the table before it sleeps.
        table.planned = Some(Moment::from_nanos(0));
    }

    /// Detects a wall clock that ran ahead of the boot-time clock by more than the margin. The
    /// machine was paused in a way that its boot-time clock did not count, so leases may end sooner
    /// than this client believes: all of them become due now. Returns how far it jumped.
    fn mistrust_a_jump(&self, table: &mut Table, round: &mut Round, now: Moment) -> Option<Duration> {
        let reading = ClockReading::at(&*self.clock, now);
        let ahead = reading.jumped_since(&round.seen);
        round.seen = reading;
        if !table.due.is_endangered_by(ahead) {
            return None;
        }
        self.mistrust(table, || self.holds.all_holds());
        Some(ahead)
    }

    /// Another server has the holds now, and may have missed their last renewals.
    fn mistrust_a_move(&self, table: &mut Table, round: &mut Round) -> bool {
        let moves = self.store.moves();
        if std::mem::replace(&mut round.moves, moves) == moves {
            return false;
        }
        self.mistrust(table, || self.holds.all_holds());
        true
    }

    fn take_due(&self, table: &mut Table, now: Moment) -> Option<Batch<'_>> {
        let due = table.due.take_due(now).into_iter();
        let holds: Vec<_> = due.map(|hold| (hold.clone(), now.plus(tick(hold.asked.lease)))).collect();
        // Dropping a batch takes the table's mutex, which the caller holds: an empty batch must not
        // be made here, or the thread would deadlock.
        if holds.is_empty() { None } else { Some(Batch { inner: self, generation: self.generation(), holds }) }
    }

    fn renew(&self, mut batch: Batch<'_>, round: &mut Round) {
        let mut ended = News::default();
        batch.holds.retain(|(hold, _)| {
            self.end_tenures(hold, &mut ended);
            matches!(hold.state(), State::Held | State::Suspect)
        });
        if batch.holds.is_empty() {
            return ended.log();
        }
        let now = self.clock.now();
        for tenure in batch.holds.iter().flat_map(|(hold, _)| hold.end_max_holds(now)) {
            let (name, left) = (&tenure.lock_name().name, tenure.remaining());
            ended.warn(format!("{name:?} was held for its max_hold: it is renewed no more, and ends in {left:.1?}"));
        }
        let renewals: Vec<Renewal> = batch.holds.iter().map(|(hold, _)| hold.renewal(now)).collect();
        batch.holds.iter().for_each(|(hold, _)| hold.sends_renewal(now));
        let outcomes = self.store.renew(&renewals);
        if let Some(announcer) = &self.announcer
            && outcomes.iter().any(|outcome| matches!(outcome, Renewed::Failed(error) if error.kind().is_outage()))
        {
            announcer.postpone(now);
        }
        // Logged only when the batch is back in the table: a logger that blocks must not keep a
        // lease from its next renewal.
        let mut news = round.trouble.record(&batch.holds, &outcomes, now);
        let pause = match outcomes.iter().any(|o| matches!(o, Renewed::Failed(_))) {
            true => round.renew_pause.next(),
            false => {
                round.renew_pause.reset();
                Duration::ZERO
            }
        };
        for ((entry, renewal), outcome) in batch.holds.iter_mut().zip(&renewals).zip(outcomes) {
            entry.1 = self.apply(&entry.0, renewal, outcome, pause, &mut news);
            entry.0.renewal_is_over();
        }
        drop(batch);
        ended.log();
        news.log();
    }

    /// Applies the outcome of a renewal to its hold. Returns when the next one is due: never,
    /// after a loss that it has reported.
    fn apply(
        &self,
        hold: &Arc<StoreHold>,
        renewal: &Renewal,
        outcome: Renewed,
        pause: Duration,
        news: &mut News,
    ) -> Moment {
        let now = self.clock.now();
        match outcome {
            Renewed::Held { sent_at, again, beside } => {
                if !renewal.lease.is_zero() {
                    self.loss_callbacks.observer.renewed(hold.asked.primitive, &hold.asked.name, true);
                }
                // Before the renewal is confirmed, or the lease would for a moment have too late an
                // end.
                hold.inspected(sent_at, beside);
                let state =
                    if renewal.lease.is_zero() { hold.state() } else { hold.confirmed(sent_at, renewal.lease) };
                match state {
                    State::Lost => {
                        self.end_tenures(hold, news);
                        return Moment::NEVER;
                    }
                    // Its release was sent in the meantime, and may have run before the renewal put
                    // the hold back.
                    State::Released | State::Closed if again && hold.was_put_back() => self.take_back(hold),
                    _ => {}
                }
                sent_at.plus(hold.period())
            }
            Renewed::Gone => {
                hold.lose();
                for tenure in hold.tenures().iter().filter(|tenure| tenure.state() == State::Lost) {
                    self.report(tenure, news);
                }
                self.local_queues.notify(&hold.asked.name.key);
                Moment::NEVER
            }
            Renewed::Failed(error) => {
                self.loss_callbacks.observe_renewal_failure(hold, &error);
                news.debug(|| format!("renewing {:?} failed, trying again: {}", hold.asked.name.name, error.chain()));
                if let Some((callbacks, trouble)) = hold.renewal_failed(&error, now) {
                    self.loss_callbacks.tell_of_trouble(callbacks, &trouble);
                }
                now.plus(pause.min(hold.asked.lease / 10))
            }
        }
    }

    /// Ends the tenures of a hold whose lease, or whose own end, has come. Whoever leaves last has
    /// the hold undone: a renewal that reached the server late may have lengthened its lease there.
    fn end_tenures(&self, hold: &Arc<StoreHold>, news: &mut News) {
        for tenure in hold.tenures().iter().filter(|tenure| tenure.state() == State::Lost) {
            tenure.wake();
            self.report(tenure, news);
            if hold.leave(tenure) {
                hold.lease.release(self.now());
                self.take_back(hold);
            }
            self.local_queues.notify(&hold.asked.name.key);
        }
    }

    fn report(&self, tenure: &Arc<Tenure>, news: &mut News) {
        self.loss_callbacks.report(tenure);
        tenure.loss_to_log().into_iter().for_each(|line| news.warn(line));
    }

    /// Gives up a hold whose last user never began. Does no I/O, logs nothing and runs no code of
    /// the user.
    pub(super) fn give_up(&self, hold: &Arc<StoreHold>) {
        // In the order of every release: a renewal that is answered later revives nothing.
        hold.lease.release(self.now());
        let mut table = self.table.lock();
        table.due.leave(hold);
        let undo = hold.undo(HoldCounts::NONE, UnknownOutcomes::default());
        let _ = self.remember(&mut table, undo);
        drop(table);
        self.holds.remove_unless_used(hold, StoreHold::is_unused);
        self.local_queues.notify(&hold.asked.name.key);
    }

    fn take_back(&self, hold: &StoreHold) {
        let undo = hold.undo(HoldCounts::NONE, UnknownOutcomes::default());
        let oldest = self.remember(&mut self.table.lock(), undo);
        log_dropped(oldest);
    }

    /// Resolves one batch of undos. True: there was progress, and there are more.
    fn resolve(&self, round: &mut Round) -> bool {
        let mut table = self.table.lock();
        let mut undos = std::mem::take(&mut table.undos);
        table.resolving_until = undos.iter().map(|undo| undo.expires).max();
        table.resolving = undos.len();
        drop(table);
        if undos.is_empty() {
            return false;
        }
        let before = undos.len();
        self.store.resolve(&mut undos);
        let mut table = self.table.lock();
        table.resolving_until = None;
        table.resolving = 0;
        // One batch a round: what is due for renewal goes first.
        let progress = undos.len() < before;
        table.resolve_from = if progress {
            round.resolve_pause.reset();
            Moment::from_nanos(0)
        } else {
            self.clock.now().plus(round.resolve_pause.next())
        };
        // Older ones first.
        undos.append(&mut table.undos);
        table.undos = undos;
        progress && !table.undos.is_empty()
    }
}

/// To be called without the table's mutex: a logger may block, and nothing would be renewed until
/// it returned.
pub(super) fn log_dropped(undo: Option<Undo>) {
    if let Some(Undo { name, .. }) = undo {
        log::warn!("too many unknown outcomes: {:?} stays as it is until its lease ends", name.name);
    }
}

/// What the thread remembers from one round of its loop to the next.
struct Round {
    resolve_pause: Backoff,
    renew_pause: Backoff,
    /// When the store wants to maintain its connections and servers.
    maintain_at: Option<Moment>,
    /// When to say who this client is, since it was found to hold something.
    announce_at: Option<Moment>,
    trouble: Outages,
    seen: ClockReading,
    moves: u64,
}
