//! The one renewal thread of a client: renews what is due, detects losses, resolves unknown
//! outcomes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::base::lease::{LeaseState, Moment, margin};
use crate::base::limits::SHORTEST_LEASE;
use crate::base::log;
use crate::base::random::Backoff;
use crate::lease::announcer::{Announcer, HeldNow};
use crate::lease::records::{HoldRequest, StoreHold};
use crate::lease::renewal_failures::Outages;
use crate::lease::watchdog::{AT_WORK, RenewalTable, Watchdog, log_dropped};
use crate::os;
use crate::signal::clock::ClockReading;
use crate::signal::worker::Phase;
use crate::store::{HoldCounts, Undo, UnknownOutcomes};

/// Reports every lease in the table as lost when the thread ends, even by a panic: nothing renews
/// them any more.
struct RenewalExit<'a>(&'a Watchdog);

impl Drop for RenewalExit<'_> {
    fn drop(&mut self) {
        let mut table = self.0.table.lock();
        table.phase = Phase::Ended;
        let orphans = table.due.take_all();
        drop(table);
        for hold in orphans {
            hold.neglect();
            for tenure in hold.tenures().iter().filter(|tenure| tenure.state() == LeaseState::Lost)
            {
                self.0.loss_callbacks.report(tenure);
                if let Some(line) = tenure.loss_to_log() {
                    log::warn!("the watchdog ended: {line}");
                }
            }
        }
        self.0.changed.notify_all();
    }
}

impl Watchdog {
    pub(super) fn run(&self) {
        let _exit_guard = RenewalExit(self);
        self.table.lock().planned = Some(AT_WORK);
        let mut round = self.first_round();
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.pass(&mut round))) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    log::warn!("the watchdog panicked and continues");
                    let is_late = |until| os::now() >= until;
                    if self.table.lock().resolve_until.is_some_and(is_late) {
                        return;
                    }
                    // If the panic repeats at once, the loop must not occupy a core.
                    os::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    pub(super) fn first_round(&self) -> RenewalRound {
        RenewalRound {
            resolve_pause: Backoff::new(Duration::from_millis(20), Duration::from_millis(500)),
            renew_pause: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
            maintain_at: Some(self.clock.now()),
            announce_at: None,
            trouble: Outages::default(),
            seen: self.created,
            moves: self.store.moves(),
        }
    }

    /// One round of the loop; false when it is time to end.
    fn pass(&self, round: &mut RenewalRound) -> bool {
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
            for hold in &table.due.take_all() {
                self.enter(&mut table, hold, now);
            }
        }
        if table.phase == Phase::Stopping {
            let until = table.resolve_until;
            drop(table);
            self.resolve_until(until, round);
            return false;
        }
        if let Some(batch) = self.take_due(&mut table, now) {
            drop(table);
            self.renew(batch, round);
        } else if round.maintain_at.is_some_and(|at| at <= now) {
            drop(table);
            round.maintain_at = self.store.maintain();
        } else if table.undos.due().is_some_and(|due| due <= now) {
            drop(table);
            self.resolve(round);
        } else if let Some(announcer) = self.announcer_if_due(&table, round, now) {
            // Sorted and formatted without the mutex: there may be thousands.
            let held: Vec<_> = table.due.holds().cloned().collect();
            drop(table);
            let held_now = held.iter().map(|hold| {
                let HoldRequest { at, holder, name, .. } = &hold.asked;
                HeldNow { taken: *at, holder, key: &name.key }
            });
            announcer.announce(&*self.store, held_now.collect(), now);
        } else {
            self.sleep(&mut table, now, [round.maintain_at, round.announce_at]);
        }
        true
    }

    /// The announcer, if it is time to announce who this client is. Checked after all renewals that
    /// are due.
    fn announcer_if_due(
        &self,
        table: &RenewalTable,
        round: &mut RenewalRound,
        now: Moment,
    ) -> Option<&Announcer> {
        let taken = || table.due.holds().map(|hold| hold.asked.at);
        let is_due =
            |one: &&Announcer| one.is_due(taken(), table.due.tick(), &mut round.announce_at, now);
        self.announcer.as_deref().filter(is_due)
    }

    fn sleep(
        &self,
        table: &mut os::MutexGuard<'_, RenewalTable>,
        now: Moment,
        others: [Option<Moment>; 2],
    ) {
        let wake =
            others.into_iter().chain([table.due.wake_at(now), table.undos.due()]).flatten().min();
        table.planned = wake;
        match wake {
            Some(wake) => {
                let pause = wake.since(now).max(Duration::from_micros(100));
                self.changed.wait_for(table, pause);
            }
            None => self.changed.wait(table),
        }
        // While the thread works it needs no notification: it reads the table before it sleeps.
        table.planned = Some(AT_WORK);
    }

    /// Detects a wall clock that ran ahead of the boot-time clock by more than the margin. The
    /// machine was paused in a way that its boot-time clock did not count, so leases may end sooner
    /// than this client believes: all of them become due now. Returns how far it jumped.
    ///
    /// A jump that endangers none of them is noted for grants that are on their way: their leases
    /// may be shorter.
    fn mistrust_a_jump(
        &self,
        table: &mut RenewalTable,
        round: &mut RenewalRound,
        now: Moment,
    ) -> Option<Duration> {
        let reading = ClockReading::at(&*self.clock, now);
        let ahead = reading.jumped_since(&round.seen);
        round.seen = reading;
        if ahead <= margin(SHORTEST_LEASE) {
            return None;
        }
        let is_endangered = table.due.is_endangered_by(ahead, now);
        self.mistrust(table, || if is_endangered { self.holds.all_holds() } else { Vec::new() });
        is_endangered.then_some(ahead)
    }

    /// Another server has the holds now, and may have missed their last renewals.
    fn mistrust_a_move(&self, table: &mut RenewalTable, round: &mut RenewalRound) -> bool {
        let moves = self.store.moves();
        if std::mem::replace(&mut round.moves, moves) == moves {
            return false;
        }
        self.mistrust(table, || self.holds.all_holds());
        true
    }

    pub(super) fn take_back(&self, hold: &StoreHold) {
        let undo = hold.undo(HoldCounts::NONE, UnknownOutcomes::default());
        let oldest = self.add_undo(&mut self.table.lock(), undo);
        log_dropped(oldest);
    }

    /// Resolves undos repeatedly, until none is left or the time is up.
    fn resolve_until(&self, until: Option<Instant>, round: &mut RenewalRound) {
        let is_done = || self.table.lock().undos.due().is_none();
        loop {
            // A server that has come back in the meantime can be asked as well. With nothing to
            // undo, there is no reason to wait for one.
            if !is_done() {
                self.store.maintain();
            }
            while self.resolve(round) {}
            let pause = round.resolve_pause.next();
            if is_done() || until.is_none_or(|until| os::now() + pause >= until) {
                break;
            }
            os::thread::sleep(pause);
        }
        for undo in &self.unresolved() {
            undo.warn_of_a_leak();
        }
    }

    /// Resolves one batch of undos. Returns true if there was progress and more are left.
    fn resolve(&self, round: &mut RenewalRound) -> bool {
        let mut undos = self.table.lock().undos.begin();
        if undos.is_empty() {
            return false;
        }
        let before = undos.len();
        let not_before = self.clock.now().plus(round.resolve_pause.next());
        let mut batch = UndoBatch { watchdog: self, left: None, not_before };
        self.store.resolve(&mut undos);
        // One batch a round: what is due for renewal goes first.
        let progress = undos.len() < before;
        if progress {
            round.resolve_pause.reset();
            batch.not_before = Moment::from_nanos(0);
        }
        batch.left = Some(undos);
        drop(batch);
        progress && self.table.lock().undos.due().is_some()
    }
}

/// Undos that are being resolved. If that panics, all of them are put back, and tried again after a
/// pause.
struct UndoBatch<'a> {
    watchdog: &'a Watchdog,
    left: Option<Vec<Undo>>,
    not_before: Moment,
}

impl Drop for UndoBatch<'_> {
    fn drop(&mut self) {
        self.watchdog.table.lock().undos.end(self.left.take(), self.not_before);
    }
}

/// What the thread remembers from one round of its loop to the next.
pub(super) struct RenewalRound {
    pub(super) resolve_pause: Backoff,
    pub(super) renew_pause: Backoff,
    /// When the store wants to maintain its connections and servers.
    pub(super) maintain_at: Option<Moment>,
    /// When to announce who this client is, once it was found to hold something.
    pub(super) announce_at: Option<Moment>,
    pub(super) trouble: Outages,
    pub(super) seen: ClockReading,
    pub(super) moves: u64,
}
