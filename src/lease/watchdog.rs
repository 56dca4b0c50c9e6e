//! The watchdog of a client: which holds it renews, which undos it resolves, and how holds and
//! calls tell it. What its thread does is in [`renewal_thread`](crate::lease::renewal_thread).
//!
//! Holds enter and leave a table under a short mutex instead of sending commands over a channel:
//! taking and freeing a lock must not wake the thread each time (two context switches a cycle), and
//! a hold must be able to *leave* before its release is sent, not some time after.

use std::sync::Arc;
use std::time::Instant;

use crate::base::error::{Error, ErrorKind};
use crate::base::lease::Moment;
use crate::base::log;
use crate::lease::announcer::Announcer;
use crate::lease::hold_table::HoldTable;
use crate::lease::loss_callbacks::LossCallbacks;
use crate::lease::records::{Caretaker, HoldRequest, StoreHold};
use crate::lease::schedule::Schedule;
use crate::lease::undos::Undos;
use crate::os::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};
use crate::signal::clock::{Clock, ClockReading};
use crate::signal::worker::{Phase, Worker};
use crate::store::{Granted, HoldCounts, LockStore, Undo, UnknownOutcomes};

/// Called with the key of a lock when a hold of this client has ended: threads that wait for it are
/// notified.
pub(crate) type OnEnd = Box<dyn Fn(&str) + Send + Sync>;

/// What the thread plans while it works: nothing is earlier.
pub(super) const AT_WORK: Moment = Moment::from_nanos(0);

pub(crate) struct Watchdog {
    pub(super) client_name: String,
    /// `None` if the client does not announce who it is.
    pub(super) announcer: Option<Arc<Announcer>>,
    pub(super) store: Arc<dyn LockStore>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) loss_callbacks: Arc<LossCallbacks>,
    pub(super) on_end: OnEnd,
    pub(super) holds: Arc<HoldTable>,
    generation: AtomicU64,
    /// The thread begins with the first hold, and the clock may have jumped while that was granted.
    pub(super) created: ClockReading,
    pub(super) table: Mutex<RenewalTable>,
    pub(super) changed: Condvar,
    worker: Worker,
}

/// Guarded by one mutex, which is never held during I/O.
#[derive(Default)]
pub(super) struct RenewalTable {
    pub(super) due: Schedule,
    pub(super) undos: Undos,
    /// When the thread plans to wake up; it is notified of anything that is due earlier. `None`:
    /// not before it is notified.
    pub(super) planned: Option<Moment>,
    /// All holds must be visited now, whenever they are due.
    pub(super) visit_all: bool,
    /// Set with the request to stop: until when the thread continues to resolve.
    pub(super) resolve_until: Option<Instant>,
    pub(super) phase: Phase,
}

impl Watchdog {
    pub(crate) fn new(
        client_name: String,
        announcer: Option<Arc<Announcer>>,
        store: Arc<dyn LockStore>,
        clock: Arc<dyn Clock>,
        loss_callbacks: Arc<LossCallbacks>,
        on_end: OnEnd,
        holds: Arc<HoldTable>,
    ) -> Arc<Self> {
        let watchdog = Arc::new(Self {
            client_name,
            announcer,
            store,
            created: ClockReading::at(&*clock, clock.now()),
            clock,
            loss_callbacks,
            on_end,
            holds,
            generation: AtomicU64::new(0),
            table: Mutex::default(),
            changed: Condvar::new(),
            worker: Worker::default(),
        });
        let told = Arc::downgrade(&watchdog);
        watchdog.store.tell_losses(Box::new(move || {
            if let Some(watchdog) = told.upgrade() {
                watchdog.visit_all();
            }
        }));
        watchdog
    }

    /// A hold as the store has granted it, for its first user.
    pub(crate) fn granted(self: &Arc<Self>, asked: HoldRequest, granted: Granted) -> StoreHold {
        StoreHold::granted(asked, granted, self.clone())
    }

    /// From now on the hold is renewed (or inspected, if its lease is fixed), until it leaves or
    /// its lease is no longer live.
    ///
    /// # Errors
    /// When the thread cannot be started: the caller must not rely on a lease that is not renewed.
    pub(crate) fn watch(self: &Arc<Self>, hold: &Arc<StoreHold>) -> Result<(), Error> {
        let mut table = self.table.lock();
        self.ensure_runs(&mut table)?;
        let mut due = hold.first_due();
        if hold.asked.generation < self.generation() {
            due = hold.now();
            hold.lease.suspect(due);
        }
        self.enter(&mut table, hold, due);
        Ok(())
    }

    pub(super) fn enter(&self, table: &mut RenewalTable, hold: &Arc<StoreHold>, due: Moment) {
        let visit = table.due.enter(hold, due);
        if !matches!(table.planned, Some(planned) if planned <= visit) {
            self.changed.notify_all();
        }
    }

    /// Counts the events after which earlier grants may be gone: a lock was forced open, another
    /// server has the holds, or the machine was paused. Read it before a request is sent, and
    /// [store](HoldRequest) it with what the request is granted. A hold that was asked for before
    /// the last event enters as Suspect and is visited at once, whatever the event was: one request
    /// too many does no harm.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Raises the [generation](Self::generation) and makes these holds Suspect and due. Raised
    /// first, under the mutex under which a hold enters: one that is not among them is detected
    /// there.
    pub(super) fn mistrust(
        &self,
        table: &mut RenewalTable,
        holds: impl FnOnce() -> Vec<Arc<StoreHold>>,
    ) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        let now = self.now();
        for hold in holds() {
            hold.lease.suspect(now);
            // One that is out with a batch comes back with it, and is due at once.
            if table.due.leave(&hold).is_some() {
                self.enter(table, &hold, now);
            }
        }
    }

    /// The holds under this key may be gone, and so may others that were asked for before now: they
    /// become Suspect, and the store is asked at once.
    pub(crate) fn mistrust_under(&self, key: &str) {
        self.mistrust(&mut self.table.lock(), || self.holds.under(key));
    }

    /// Called after the lease left its live states and *before* the release is sent: a renewal that
    /// runs after the release then finds no hold, and its reply finds a lease that nothing revives.
    pub(crate) fn leave(&self, hold: &StoreHold) {
        self.table.lock().due.leave(hold);
    }

    /// From now on the hold only reads, and others may hold the lock as well: its first inspection
    /// comes soon, and the next ones at short intervals.
    pub(crate) fn only_reads(&self, hold: &Arc<StoreHold>) {
        // Set before the table's mutex is taken. If a batch has the hold, it puts the hold back
        // under that mutex, and must see by then that it only reads, to compute when it is due.
        hold.only_reads();
        let mut table = self.table.lock();
        if table.due.leave(hold).is_some() {
            self.enter(&mut table, hold, hold.now().plus(hold.first_visit()));
        }
    }

    /// All holds are visited at once.
    pub(super) fn visit_all(&self) {
        self.table.lock().visit_all = true;
        self.changed.notify_all();
    }

    /// Makes everything due now: a test has moved the clock, or changed the content of the store.
    #[cfg(feature = "testing")]
    pub(crate) fn recheck(&self) {
        self.table.lock().undos.hasten();
        self.visit_all();
    }

    /// Whether its thread has done what is due, and sleeps.
    #[cfg(feature = "testing")]
    pub(crate) fn is_settled(&self) -> bool {
        let now = self.now();
        let table = self.table.lock();
        let is_due = || table.due.is_due(now) || table.undos.due().is_some_and(|due| due <= now);
        match table.phase {
            Phase::NotStarted | Phase::Ended => true,
            Phase::Running | Phase::Stopping => {
                table.planned != Some(AT_WORK) && !table.visit_all && !is_due()
            }
        }
    }

    /// Undoes an acquisition in the background, as soon as the server can be asked.
    pub(crate) fn undo(self: &Arc<Self>, undo: Undo) {
        let own = undo.clone();
        let (oldest, runs) = self.remember(undo);
        log_dropped(oldest);
        let Err(e) = runs else { return };
        let name = &own.name.name;
        if e.kind() == ErrorKind::Closed {
            log::warn!("{name:?} is left as it is: {}", e.chain());
            own.warn_of_a_leak();
        } else {
            log::warn!("{name:?} stays as it is for now: {}", e.chain());
        }
    }

    /// [`undo`](Self::undo) for a caller that must not log. Returns the oldest undo, if it was
    /// dropped because there were too many.
    ///
    /// # Errors
    /// When the thread cannot be started: the next call that can start it does. `Closed` if it has
    /// ended: nobody will undo it.
    pub(crate) fn remember(self: &Arc<Self>, undo: Undo) -> (Option<Undo>, Result<(), Error>) {
        let mut table = self.table.lock();
        let oldest = self.add_undo(&mut table, undo);
        (oldest, self.ensure_runs(&mut table))
    }

    /// Returns the oldest undo, if it was dropped because there were too many.
    pub(super) fn add_undo(&self, table: &mut RenewalTable, undo: Undo) -> Option<Undo> {
        let oldest = table.undos.add(undo);
        self.changed.notify_all();
        oldest
    }

    /// The undos that are not done, including those that the thread is resolving.
    pub(crate) fn unresolved(&self) -> Vec<Undo> {
        self.table.lock().undos.all()
    }

    /// See [`Undos::dropped_until`].
    pub(crate) fn dropped_until(&self) -> Option<Moment> {
        self.table.lock().undos.dropped_until()
    }

    /// How many undos are not [done](Self::unresolved).
    pub(crate) fn open_undos(&self) -> usize {
        self.table.lock().undos.open()
    }

    /// Asks the thread to end after a last attempt to resolve what is unresolved, and waits for it
    /// until `deadline`. Returns false if it is still blocked in I/O; it ends afterwards.
    pub(crate) fn stop(&self, deadline: Instant) -> bool {
        let mut table = self.table.lock();
        table.resolve_until = Some(deadline);
        self.worker.stop(table, |table| &mut table.phase, &self.changed, deadline)
    }

    /// Removes the announcement of this client. Called after the thread has ended, because the
    /// thread could write it anew. `answers`: the server has just answered other requests. Blocks
    /// for the I/O timeout of renewals if the server hangs.
    pub(crate) fn withdraw(&self, answers: bool) {
        if let Some(announcer) = &self.announcer {
            announcer.withdraw(&*self.store, self.now(), answers);
        }
    }

    /// A call of this client waits where others can see it: announces who the client is, if it does
    /// so at once. If that fails, only people miss it.
    pub(crate) fn introduce(self: &Arc<Self>) {
        if self.announcer.as_ref().is_some_and(|announcer| announcer.is_unknown(self.now()))
            && self.begin().is_ok()
        {
            self.changed.notify_all();
        }
    }

    /// Starts the thread now, for a store that needs maintenance before anything is held.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<(), Error> {
        self.ensure_runs(&mut self.table.lock())
    }

    /// # Errors
    /// The thread has ended, or cannot be started.
    fn ensure_runs(self: &Arc<Self>, table: &mut RenewalTable) -> Result<(), Error> {
        if matches!(table.phase, Phase::Running) {
            return Ok(());
        }
        let watchdog = self.clone();
        let phase = &mut table.phase;
        self.worker
            .start(phase, format_args!("lh-renew-{}", self.client_name), move || watchdog.run())
    }
}

impl Caretaker for Watchdog {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn give_up(&self, hold: &Arc<StoreHold>) {
        // In the same order as every release: a renewal that is answered later revives nothing.
        hold.lease.release(self.now());
        let mut table = self.table.lock();
        table.due.leave(hold);
        let undo = hold.undo(HoldCounts::NONE, UnknownOutcomes::default());
        let _ = self.add_undo(&mut table, undo);
        drop(table);
        self.holds.remove_unused(hold);
        (self.on_end)(&hold.asked.name.key);
    }
}

/// Call it without the table's mutex: a logger may block, and nothing would be renewed until it
/// returned.
pub(super) fn log_dropped(undo: Option<Undo>) {
    if let Some(undo) = undo {
        let name = &undo.name.name;
        log::warn!("too many unknown outcomes: that of {name:?} is left as it is");
        undo.warn_of_a_leak();
    }
}

#[cfg(test)]
#[path = "watchdog_tests.rs"]
pub(super) mod tests;
