//! The watchdog of a client, as holds and calls use it. Its thread is in `renewal_thread`.
//!
//! Holds enter and leave a table under a short mutex instead of sending commands over a channel:
//! taking and freeing a lock must not wake the thread each time (two context switches a cycle), and
//! a hold must be able to *leave* before its release is sent, not some time after.

use std::sync::Arc;
use std::time::Instant;

use crate::base::error::Error;
use crate::base::lease::Moment;
use crate::base::log;
use crate::lease::announcer::Announcer;
use crate::lease::hold_table::HoldTable;
use crate::lease::loss_callbacks::LossCallbacks;
use crate::lease::records::{HoldRequest, StoreHold};
#[cfg(feature = "testing")]
use crate::lease::renewal_thread::AT_WORK;
use crate::lease::renewal_thread::{OnEnd, RenewalTable, RenewalThread, log_dropped};
use crate::os::{Condvar, Mutex, atomic::AtomicU64};
use crate::signal::clock::Clock;
#[cfg(feature = "testing")]
use crate::signal::worker::Phase;
use crate::signal::worker::Worker;
use crate::store::{Granted, LockStore, Undo};

pub(crate) struct Watchdog {
    inner: Arc<RenewalThread>,
    worker: Worker,
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
    ) -> Self {
        let inner = Arc::new(RenewalThread {
            client_name,
            announcer,
            store,
            clock,
            loss_callbacks,
            on_end,
            holds,
            generation: AtomicU64::new(0),
            table: Mutex::default(),
            changed: Condvar::new(),
        });
        let told = Arc::downgrade(&inner);
        inner.store.tell_losses(Box::new(move || {
            if let Some(inner) = told.upgrade() {
                inner.visit_all();
            }
        }));
        Self { inner, worker: Worker::default() }
    }

    /// A hold as the store has granted it, for its first user.
    pub(crate) fn granted(&self, asked: HoldRequest, granted: Granted) -> StoreHold {
        StoreHold::granted(asked, granted, self.inner.clone())
    }

    /// From now on the hold is renewed (or inspected, if its lease is fixed), until it leaves or
    /// its lease is no longer live.
    ///
    /// # Errors
    /// When the thread cannot be started: the caller must not rely on a lease that is not renewed.
    pub(crate) fn watch(&self, hold: &Arc<StoreHold>) -> Result<(), Error> {
        let mut table = self.inner.table.lock();
        self.start(&mut table)?;
        self.inner.enter_new(&mut table, hold, hold.first_due());
        Ok(())
    }

    /// The holds under this key may be gone, and so may others that were asked for before now: they
    /// become Suspect, and the store is asked at once.
    pub(crate) fn mistrust(&self, key: &str) {
        self.inner.mistrust_under(key);
    }

    /// Read it before a request, and [store](HoldRequest) it with what the request is granted.
    pub(crate) fn generation(&self) -> u64 {
        self.inner.generation()
    }

    /// Called after the lease left its live states and *before* the release is sent: a renewal that
    /// runs after the release then finds no hold, and its reply finds a lease that nothing revives.
    pub(crate) fn leave(&self, hold: &StoreHold) {
        self.inner.table.lock().due.leave(hold);
    }

    /// From now on the hold only reads, and others may hold the lock as well: its first inspection
    /// comes soon, and the next ones at short intervals.
    pub(crate) fn only_reads(&self, hold: &Arc<StoreHold>) {
        // Set before the table's mutex is taken. If a batch has the hold, it puts the hold back
        // under that mutex, and must see by then that it only reads, to compute when it is due.
        hold.only_reads();
        let mut table = self.inner.table.lock();
        if table.due.leave(hold) {
            self.inner.enter(&mut table, hold, hold.now().plus(hold.first_visit()));
        }
    }

    #[cfg(test)]
    pub(crate) fn now(&self) -> Moment {
        self.inner.clock.now()
    }

    /// Makes everything due now: a test has moved the clock, or changed the content of the store.
    #[cfg(feature = "testing")]
    pub(crate) fn visit_all(&self) {
        self.inner.table.lock().undos.hasten();
        self.inner.visit_all();
    }

    /// Whether its thread has done what is due, and sleeps.
    #[cfg(feature = "testing")]
    pub(crate) fn is_settled(&self) -> bool {
        let now = self.inner.clock.now();
        let table = self.inner.table.lock();
        let is_due = || table.due.is_due(now) || table.undos.due().is_some_and(|due| due <= now);
        match table.phase {
            Phase::NotStarted | Phase::Ended => true,
            Phase::Running | Phase::Stopping => {
                table.planned != Some(AT_WORK) && !table.visit_all && !is_due()
            }
        }
    }

    /// Undoes an acquisition in the background, as soon as the server can be asked.
    pub(crate) fn undo(&self, undo: Undo) {
        let name = undo.name.name.clone();
        match self.remember(undo) {
            Ok(oldest) => log_dropped(oldest),
            Err(e) => log::warn!("{name:?} stays locked until its lease ends: {}", e.chain()),
        }
    }

    /// [`undo`](Self::undo) for a caller that must not log. Returns the oldest undo, if it was
    /// dropped because there were too many.
    ///
    /// # Errors
    /// When the thread cannot be started: the lock stays taken until its lease ends.
    pub(crate) fn remember(&self, undo: Undo) -> Result<Option<Undo>, Error> {
        let mut table = self.inner.table.lock();
        self.start(&mut table)?;
        Ok(self.inner.remember(&mut table, undo))
    }

    /// The undos that wait to be resolved, and until when the last hold can remain of those that
    /// the thread is resolving now.
    pub(crate) fn unresolved(&self) -> (Vec<Undo>, Option<Moment>) {
        let table = self.inner.table.lock();
        (table.undos.waiting().to_vec(), table.undos.standing_until())
    }

    /// How many undos are not done, including those that the thread is resolving.
    pub(crate) fn open_undos(&self) -> usize {
        self.inner.table.lock().undos.open()
    }

    /// Asks the thread to end after a last attempt to resolve what is unresolved, and waits for it
    /// until `deadline`. Returns false if it is still blocked in I/O; it ends afterwards.
    pub(crate) fn stop(&self, deadline: Instant) -> bool {
        let mut table = self.inner.table.lock();
        table.resolve_until = Some(deadline);
        self.worker.stop(table, |table| &mut table.phase, &self.inner.changed, deadline)
    }

    /// Removes the announcement of this client. Called after the thread has ended, because the
    /// thread could write it anew. `answers`: the server has just answered other requests. Blocks
    /// for the I/O timeout of renewals if the server hangs.
    pub(crate) fn withdraw(&self, answers: bool) {
        self.inner.withdraw(answers);
    }

    /// A call of this client waits where others can see it: announces who the client is, if it does
    /// so at once. If that fails, only people miss it.
    pub(crate) fn introduce(&self) {
        if self
            .inner
            .announcer
            .as_ref()
            .is_some_and(|announcer| announcer.is_unknown(self.inner.clock.now()))
        {
            let mut table = self.inner.table.lock();
            if self.start(&mut table).is_ok() {
                self.inner.changed.notify_all();
            }
        }
    }

    /// Starts the thread now, for a store that needs maintenance before anything is held.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.start(&mut self.inner.table.lock())
    }

    fn start(&self, table: &mut RenewalTable) -> Result<(), Error> {
        let inner = self.inner.clone();
        let phase = &mut table.phase;
        self.worker
            .start(phase, format_args!("lh-renew-{}", self.inner.client_name), move || inner.run())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::lease::LeaseState;
    use crate::lease::store_hold::tests::hold_of;
    use crate::report::observer::Observer;
    use crate::signal::clock::FakeClock;
    use crate::store::memory::{Memory, MemoryStore};

    const SPAN: Duration = Duration::from_secs(600);

    /// A watchdog over an empty store: every hold that it visits is lost.
    pub(in crate::lease) fn watchdog(clock: &Arc<FakeClock>) -> Watchdog {
        let store = Arc::new(MemoryStore::new(&Arc::new(Memory::new()), SPAN));
        let losses = Arc::new(LossCallbacks::new(Arc::new(Observer::default())));
        let holds = Arc::new(HoldTable::new(SPAN));
        Watchdog::new("c".to_owned(), None, store, clock.clone(), losses, Box::new(|_| ()), holds)
    }

    fn is_lost_soon(hold: &StoreHold, mut meanwhile: impl FnMut()) -> bool {
        let give_up = Instant::now() + Duration::from_secs(10);
        while hold.state() != LeaseState::Lost && Instant::now() < give_up {
            meanwhile();
            std::thread::sleep(Duration::from_millis(1));
        }
        hold.state() == LeaseState::Lost
    }

    /// Thread A has the hold in hand and is about to enter it here; thread B learns that the lock
    /// was forced open, and finds nothing here. Time does not pass: no renewal is due.
    #[test]
    fn a_hold_that_enters_after_a_forced_unlock_is_asked_for_at_once() {
        let clock = Arc::new(FakeClock::default());
        let watchdog = watchdog(&clock);
        let hold = |name| hold_of(&watchdog, name, SPAN);
        let here = hold("a");
        let late = hold("a");
        let other = hold("b");
        watchdog.watch(&here).unwrap();
        watchdog.watch(&other).unwrap();
        for hold in [&here, &other] {
            watchdog.inner.holds.insert(hold);
        }
        watchdog.mistrust(&late.asked.name.key);
        assert!(is_lost_soon(&here, || ()));
        watchdog.watch(&late).unwrap();
        assert!(is_lost_soon(&late, || ()));
        assert_eq!(other.state(), LeaseState::Held, "it has another name");
        let later = hold("a");
        watchdog.watch(&later).unwrap();
        assert_eq!(later.state(), LeaseState::Held, "it was asked for afterwards");
        assert!(watchdog.stop(Instant::now() + Duration::from_secs(10)));
    }

    /// The same when the machine was paused while the reply was on its way.
    #[test]
    fn a_hold_that_enters_after_a_jump_of_the_clock_is_asked_for_at_once() {
        let clock = Arc::new(FakeClock::default());
        let watchdog = watchdog(&clock);
        let here = hold_of(&watchdog, "a", SPAN);
        let late = hold_of(&watchdog, "b", SPAN);
        watchdog.watch(&here).unwrap();
        watchdog.inner.holds.insert(&here);
        // More than once: the thread may not have read the clock before the first jump.
        assert!(is_lost_soon(&here, || clock.jump_wall(SPAN)));
        watchdog.watch(&late).unwrap();
        assert!(is_lost_soon(&late, || ()));
        assert!(watchdog.stop(Instant::now() + Duration::from_secs(10)));
    }
}
