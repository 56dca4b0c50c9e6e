//! The one renewal thread of a client: renews what is due, sees losses, settles unknown outcomes.
//!
//! Its work list is a table under a short mutex and not a channel of commands: taking and freeing a lock must not
//! cost a wake-up of this thread each (two context switches a cycle), and a hold must be able to *leave* before its
//! release is sent, not some time after.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::background::grant::{Grant, tick};
use crate::background::local_queue::LocalQueues;
use crate::background::loss_callbacks::LossCallbacks;
use crate::background::renewal_trouble::{News, RenewalTrouble};
use crate::background::schedule::Schedule;
use crate::base::backoff::Backoff;
use crate::base::clock::{Clock, ClockReading};
use crate::base::error::{Error, ErrorKind};
use crate::base::lease::{Moment, State};
use crate::store::{HoldCounts, LockStore, Renewal, Renewed, Undo, UnknownOutcomes};

/// Unknown outcomes kept while the server cannot be asked; past it the oldest goes first.
const MOST_UNDOS: usize = 10_000;

pub(crate) struct Watchdog {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    client_name: String,
    store: Arc<dyn LockStore>,
    clock: Arc<dyn Clock>,
    loss_callbacks: Arc<LossCallbacks>,
    /// Threads of this client that wait for a hold of this client to end.
    local_queues: Arc<LocalQueues>,
    table: Mutex<Table>,
    changed: Condvar,
}

/// Guarded by one mutex, which is never held during I/O.
struct Table {
    due: Schedule,
    undos: Vec<Undo>,
    /// While some of them are being resolved: until when any of those can stand.
    resolving_until: Option<Moment>,
    /// No settling before this: a server that just failed waits for its back-off.
    resolve_from: Moment,
    /// When the thread means to wake up; whatever is due earlier wakes it. `None`: not before it is told to.
    planned: Option<Moment>,
    /// All grants are to be visited, whenever they are due.
    visit_all: bool,
    /// When it is told to stop: until when it tries to resolve what is unresolved.
    resolve_until: Option<Instant>,
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
        store: Arc<dyn LockStore>,
        clock: Arc<dyn Clock>,
        loss_callbacks: Arc<LossCallbacks>,
        local_queues: Arc<LocalQueues>,
    ) -> Self {
        let table = Table {
            due: Schedule::default(),
            undos: Vec::new(),
            resolving_until: None,
            resolve_from: Moment::from_nanos(0),
            planned: None,
            visit_all: false,
            resolve_until: None,
            phase: Phase::NotStarted,
        };
        let (table, changed) = (Mutex::new(table), Condvar::new());
        let inner = Inner { client_name, store, clock, loss_callbacks, local_queues, table, changed };
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
        let due = grant.asked_at.plus(grant.first_visit());
        self.inner.enter(&mut table, grant, due);
        Ok(())
    }

    /// Called after the lease left its live states and *before* the release is sent: a renewal already under way then
    /// finds the field gone, and its answer finds a lease that nothing revives.
    pub(crate) fn leave(&self, grant: &Grant) {
        self.inner.table.lock().due.leave(grant);
    }

    /// Others can have the lock too from now on: it is looked at soon, and often.
    pub(crate) fn shared_now(&self, grant: &Arc<Grant>) {
        // Before the table's mutex is taken: a batch that is out with the grant puts it back under that, for when it is due as
        // a shared one.
        grant.share();
        let mut table = self.inner.table.lock();
        if table.due.leave(grant) {
            self.inner.enter(&mut table, grant, grant.now().plus(grant.first_visit()));
        }
    }

    /// Looks at everything at once: a test has moved the clock, or changed what stands in the store.
    #[cfg(feature = "testing")]
    pub(crate) fn visit_all(&self) {
        let mut table = self.inner.table.lock();
        table.visit_all = true;
        table.resolve_from = Moment::from_nanos(0);
        self.inner.changed.notify_all();
    }

    /// The acquisition is removed in the background, as soon as the server can be asked.
    pub(crate) fn undo(&self, undo: Undo) {
        let name = undo.name.name.clone();
        let mut table = self.inner.table.lock();
        let remembered = self.start(&mut table).map(|()| self.inner.remember(&mut table, undo));
        drop(table);
        match remembered {
            Ok(oldest) => tell_dropped(oldest),
            Err(e) => log::warn!("{name:?} stays locked until its lease ends: {}", e.chain()),
        }
    }

    /// The unknown outcomes that are not resolved yet, and until when those can stand that the thread is at.
    pub(crate) fn unresolved(&self) -> (Vec<Undo>, Option<Moment>) {
        let table = self.inner.table.lock();
        (table.undos.clone(), table.resolving_until)
    }

    /// Asks the thread to end after one last try at what is unresolved; waits for it until `deadline`. False: it is
    /// still at work, and ends when its I/O does.
    pub(crate) fn stop(&self, deadline: Instant) -> bool {
        let mut table = self.inner.table.lock();
        match table.phase {
            Phase::NotStarted => table.phase = Phase::Ended,
            Phase::Running => table.phase = Phase::Stopping,
            Phase::Stopping | Phase::Ended => {}
        }
        table.resolve_until = Some(deadline);
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
            .name(format!("lh-renew-{}", inner.client_name))
            .spawn(move || inner.run())
            .map_err(|e| Error::new(ErrorKind::Unreachable, "no thread for the watchdog").caused_by(e))?;
        *self.thread.lock() = Some(handle);
        table.phase = Phase::Running;
        Ok(())
    }
}

/// Ends the watchdog's promise, however the thread ends: nobody renews these leases any more.
struct ExitGuard<'a>(&'a Inner);

impl Drop for ExitGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.0.table.lock();
        table.phase = Phase::Ended;
        let orphans = table.due.take_all();
        drop(table);
        for grant in orphans {
            if grant.lose() == State::Lost {
                self.0.loss_callbacks.tell(&grant);
                log::warn!("the watchdog ended: {:?} is lost", grant.name.name);
            }
        }
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
                // It may be shared only since this was reckoned.
                let due = due.min(grant.now().plus(grant.period()));
                self.inner.enter(&mut table, &grant, due);
            }
        }
    }
}

impl Inner {
    fn enter(&self, table: &mut Table, grant: &Arc<Grant>, due: Moment) {
        let visit = table.due.enter(grant, due);
        if table.planned.is_none_or(|planned| visit < planned) {
            self.changed.notify_all();
        }
    }

    /// Answers what had to go for it.
    fn remember(&self, table: &mut Table, undo: Undo) -> Option<Undo> {
        let oldest = (table.undos.len() == MOST_UNDOS).then(|| table.undos.remove(0));
        table.undos.push(undo);
        self.changed.notify_all();
        oldest
    }

    fn run(&self) {
        let _exit_guard = ExitGuard(self);
        let mut round = Round {
            resolve_pause: Backoff::new(Duration::from_millis(20), Duration::from_millis(500)),
            renew_pause: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
            maintain_at: Some(self.clock.now()),
            trouble: RenewalTrouble::default(),
            seen: ClockReading::at(&*self.clock, self.clock.now()),
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
        if let Some(ahead) = self.mistrust_a_jump(&mut table, round, now) {
            drop(table);
            log::debug!("the wall clock jumped {ahead:?} ahead: renewing every lease now");
            return true;
        }
        if std::mem::take(&mut table.visit_all) {
            table.due.take_all().iter().for_each(|grant| self.enter(&mut table, grant, now));
        }
        if table.phase == Phase::Stopping {
            let until = table.resolve_until;
            drop(table);
            loop {
                // A server that comes back meanwhile is one more that can be told; with nothing to tell, none is waited for.
                if !self.table.lock().undos.is_empty() {
                    self.store.maintain();
                }
                while self.resolve(round) {}
                let pause = round.resolve_pause.next();
                let unresolved = !self.table.lock().undos.is_empty();
                if !unresolved || until.is_none_or(|until| Instant::now() + pause >= until) {
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
        } else if round.maintain_at.is_some_and(|at| at <= now) {
            drop(table);
            round.maintain_at = self.store.maintain();
        } else if !table.undos.is_empty() && table.resolve_from <= now {
            drop(table);
            self.resolve(round);
        } else {
            self.sleep(&mut table, now, round.maintain_at);
        }
        true
    }

    fn sleep(&self, table: &mut parking_lot::MutexGuard<'_, Table>, now: Moment, maintain_at: Option<Moment>) {
        let mut wake = [table.due.wake_at(now), maintain_at].into_iter().flatten().min();
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
        // While it works the thread looks at the table again by itself.
        table.planned = Some(Moment::from_nanos(0));
    }

    /// A wall clock that ran ahead of the boot-time clock by more than the margin: the machine was paused without its
    /// own clock noticing, so what we believe of our leases may be too good. Renew all of them now. How far it jumped.
    fn mistrust_a_jump(&self, table: &mut Table, round: &mut Round, now: Moment) -> Option<Duration> {
        let look = ClockReading::at(&*self.clock, now);
        let ahead = look.jumped_since(&round.seen);
        round.seen = look;
        if !table.due.minds(ahead) {
            return None;
        }
        for grant in table.due.take_all() {
            grant.lease.suspect(now);
            self.enter(table, &grant, now);
        }
        Some(ahead)
    }

    fn take_due(&self, table: &mut Table, now: Moment) -> Option<Batch<'_>> {
        let due = table.due.take_due(now).into_iter();
        let grants: Vec<_> = due.map(|grant| (grant.clone(), now.plus(tick(grant.span)))).collect();
        // Dropping a batch takes the table's mutex, which the caller has: an empty one must not exist.
        if grants.is_empty() { None } else { Some(Batch { inner: self, grants }) }
    }

    fn renew(&self, mut batch: Batch<'_>, round: &mut Round) {
        let mut ended = News::default();
        batch.grants.retain(|(grant, _)| match grant.state() {
            State::Held | State::Suspect => true,
            State::Lost => {
                self.ended_by_time(grant, &mut ended);
                false
            }
            State::Released | State::Closed => false,
        });
        if batch.grants.is_empty() {
            return ended.log();
        }
        let now = self.clock.now();
        for (grant, _) in batch.grants.iter().filter(|(grant, _)| grant.ends_renewal(now)) {
            let (name, left) = (&grant.name.name, grant.remaining());
            ended.warn(format!("{name:?} was held for its max_hold: it is renewed no more, and ends in {left:.1?}"));
        }
        let renewals: Vec<Renewal> = batch.grants.iter().map(|(grant, _)| grant.renewal(now)).collect();
        let outcomes = self.store.renew(&renewals);
        // Logged once the batch is back in the table: a logger that blocks must keep no lease from its next renewal.
        let mut news = round.trouble.learn(&batch.grants, &outcomes, now);
        let pause = match outcomes.iter().any(|o| matches!(o, Renewed::Failed(_))) {
            true => round.renew_pause.next(),
            false => {
                round.renew_pause.reset();
                Duration::ZERO
            }
        };
        for ((entry, renewal), outcome) in batch.grants.iter_mut().zip(&renewals).zip(outcomes) {
            entry.1 = self.learn(&entry.0, renewal, outcome, pause, &mut news);
        }
        drop(batch);
        ended.log();
        news.log();
    }

    /// What a renewal's answer means for its grant, and when the next is due.
    fn learn(
        &self,
        grant: &Arc<Grant>,
        renewal: &Renewal,
        outcome: Renewed,
        pause: Duration,
        news: &mut News,
    ) -> Moment {
        let now = self.clock.now();
        match outcome {
            Renewed::Held { sent_at, again, beside } => {
                // First, or the end would be too late for a moment.
                grant.looked(sent_at, beside);
                let state =
                    if renewal.lease.is_zero() { grant.state() } else { grant.confirmed(sent_at, renewal.lease) };
                match state {
                    State::Lost => self.ended_by_time(grant, news),
                    // Its release went out meanwhile, and may have come before what was put again.
                    State::Released | State::Closed if again => self.take_back(grant),
                    _ => {}
                }
                sent_at.plus(grant.period())
            }
            Renewed::Gone => {
                if grant.lose() == State::Lost {
                    self.loss_callbacks.tell(grant);
                    news.warn(format!("the hold of {:?} is gone from the server", grant.name.name));
                }
                self.local_queues.notify(&grant.name.key);
                now
            }
            Renewed::Failed(error) => {
                news.debug(|| format!("renewing {:?} failed, trying again: {}", grant.name.name, error.chain()));
                grant.lease.suspect(now);
                now.plus(pause.min(grant.span / 10))
            }
        }
    }

    /// A renewal that arrives late could still have lengthened it: it is taken back.
    fn ended_by_time(&self, grant: &Arc<Grant>, news: &mut News) {
        news.warn(format!("the lease of {:?} ended before it was renewed", grant.name.name));
        grant.wake();
        self.loss_callbacks.tell(grant);
        self.local_queues.notify(&grant.name.key);
        self.take_back(grant);
    }

    fn take_back(&self, grant: &Grant) {
        let undo = grant.undo(HoldCounts::NONE, UnknownOutcomes::default());
        let oldest = self.remember(&mut self.table.lock(), undo);
        tell_dropped(oldest);
    }

    /// One batch. True: it got somewhere, and there is more.
    fn resolve(&self, round: &mut Round) -> bool {
        let mut table = self.table.lock();
        let mut undos = std::mem::take(&mut table.undos);
        table.resolving_until = undos.iter().map(|undo| undo.expires).max();
        drop(table);
        if undos.is_empty() {
            return false;
        }
        let before = undos.len();
        self.store.resolve(&mut undos);
        let mut table = self.table.lock();
        table.resolving_until = None;
        // One batch a turn: what is due for renewal goes first.
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

/// Not under the mutex, without which nothing is renewed: a logger may block.
fn tell_dropped(undo: Option<Undo>) {
    if let Some(Undo { name, .. }) = undo {
        log::warn!("too many unknown outcomes: {:?} stays as it is until its lease ends", name.name);
    }
}

struct Round {
    resolve_pause: Backoff,
    renew_pause: Backoff,
    /// When the store wants to look after its servers.
    maintain_at: Option<Moment>,
    trouble: RenewalTrouble,
    seen: ClockReading,
}
