//! Leases in this process: the smallest store, the reference for the others, and the store for
//! users' tests.
//!
//! It has no thread and no timer. The next request for a name removes what has expired there.
//! Waiters sleep until a lease can have ended, as they do over a server.

mod answers;
mod counts;
mod data;
mod entry;
mod fair;
pub(crate) mod faults;
mod job_records;
mod jobs;
mod keep;
mod limiter;
mod listing;
mod multi;
mod mutex;
mod permits;
mod queue;
mod rate;
mod rw;
mod state;
mod subscription;
mod subscriptions;
#[cfg(feature = "testing")]
mod testing;
#[cfg(shuttle)]
mod unconfirmed;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use self::faults::{Failure, Operation};
#[cfg(feature = "testing")]
pub(crate) use self::state::ClientInTest;
pub(crate) use self::state::Memory;
use self::state::MemoryState;
use crate::base::data::HoldData;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::job_name::JobName;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::base::log;
use crate::base::node_status::{NodeState, NodeStatus};
use crate::os::{
    MutexGuard,
    atomic::{AtomicBool, Ordering},
};
use crate::report::diagnosis::{Check, Finding};
use crate::signal::clock::Clock;
use crate::store::{
    Acquire, AcquireAll, Acquired, AcquiredAll, BeginJob, Count, CountAnswer, CountStore,
    DataStore, Diagnose, EndJob, FenceAnswer, FenceStore, Found, HandedOver, HoldCounts, JobState,
    JobStore, LastHold, ListingStore, LockStatus, LockStore, MultiStore, NameFilter, OwnerStore,
    QueueStore, Rate, RateChange, RateStore, Release, Released, Renewal, Renewed, Subscriber,
    SubscriptionSender, Undo, UnknownOutcomes, has,
};

/// The node's address in [`LockStore::nodes`].
const ADDRESS: &str = "memory";

/// The store of one client.
pub(crate) struct MemoryStore {
    memory: Arc<Memory>,
    /// Distinguishes the clients of one memory.
    id: u64,
    /// How long a dead waiter can delay others.
    waiter_timeout: Duration,
    closed: AtomicBool,
    /// Behaves like a store in which every waiter has a place.
    #[cfg(test)]
    pub(crate) queues_all: bool,
}

impl MemoryStore {
    pub(crate) fn new(memory: &Arc<Memory>, waiter_timeout: Duration) -> Self {
        let id = memory.next_store.fetch_add(1, Ordering::Relaxed);
        Self {
            memory: memory.clone(),
            id,
            waiter_timeout,
            closed: AtomicBool::new(false),
            #[cfg(test)]
            queues_all: false,
        }
    }

    /// The shared state behind the store; `None` for a store of another kind.
    pub(crate) fn memory_of(store: &dyn LockStore) -> Option<&Arc<Memory>> {
        (store as &dyn Any).downcast_ref().map(|store: &Self| &store.memory)
    }

    fn lock_state(&self) -> Result<MutexGuard<'_, MemoryState>> {
        let state = self.memory.state.lock();
        // Under the mutex, so that no request runs after `close`.
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        Ok(state)
    }

    /// One request, with the faults that a test has requested. Any answer resolves the unknown
    /// outcomes: earlier attempts have run or have not, and none can run later.
    fn ask<T>(
        &self,
        operation: Operation,
        unknowns: &mut UnknownOutcomes,
        run: impl FnOnce(&mut MemoryState, Moment) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock_state()?;
        let now = self.memory.clock.now();
        if let Some((failure, error)) = state.faults.next(operation, now) {
            if failure == Failure::AfterItRan {
                let _lost = run(&mut state, now);
                unknowns.set(failure);
            }
            #[cfg(shuttle)]
            let hangs = state.faults.hangs(now);
            // Logged after the mutex is unlocked: a logger is foreign code.
            drop(state);
            #[cfg(shuttle)]
            if !hangs.is_zero() {
                crate::os::thread::sleep(hangs);
            }
            log::debug!("a request fails, as the test wants it: {error}");
            return Err(error);
        }
        run(&mut state, now).inspect(|_| unknowns.clear())
    }

    /// A request that changes nothing, or may run twice.
    fn ask_freely<T>(
        &self,
        operation: Operation,
        run: impl FnOnce(&mut MemoryState, Moment) -> Result<T>,
    ) -> Result<T> {
        self.ask(operation, &mut UnknownOutcomes::default(), run)
    }

    fn renew_all(&self, operation: Operation, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        self.ask_freely(operation, |state, now| {
            Ok(renewals.iter().map(|one| state.renew(one, now)).collect())
        })
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("id", &self.id).finish_non_exhaustive()
    }
}

impl LockStore for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn check(&self, _name: &LockName) -> Result<()> {
        Ok(())
    }

    fn acquire(&self, acquire: &Acquire<'_>, unknowns: &mut UnknownOutcomes) -> Result<Acquired> {
        #[cfg(shuttle)]
        if let Some(error) = self.grant_unconfirmed(acquire, unknowns) {
            return Err(error);
        }
        self.ask(Operation::Acquire, unknowns, |state, now| {
            state.acquire(acquire, self.waiter_timeout, now)
        })
    }

    fn release(&self, release: &Release<'_>, unknowns: &mut UnknownOutcomes) -> Result<Released> {
        let repeated = !unknowns.is_empty();
        let released =
            self.ask(Operation::Release, unknowns, |state, now| state.release(release, now))?;
        Ok(confirm_repeat(released, repeated && release.left == HoldCounts::NONE))
    }

    fn hand_over(
        &self,
        release: &Release<'_>,
        next: &Acquire<'_>,
        _unknowns: &mut UnknownOutcomes,
    ) -> Option<HandedOver> {
        let mut state = self.lock_state().ok()?;
        let now = self.memory.clock.now();
        // The caller then sends two separate requests, and each fails as the test requested.
        if state.faults.apply_to(&[Operation::Release, Operation::Acquire], now) {
            return None;
        }
        let released = state.release(release, now);
        let acquired = state.acquire(next, self.waiter_timeout, now);
        Some(HandedOver { released, acquired, unknowns: UnknownOutcomes::default() })
    }

    #[cfg(test)]
    fn queues_all(&self) -> bool {
        self.queues_all
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        let renewed = self.renew_all(Operation::Renew, batch);
        renewed
            .unwrap_or_else(|error| batch.iter().map(|_| Renewed::Failed(error.clone())).collect())
    }

    fn resolve(&self, undos: &mut Vec<Undo>) {
        let asked_at = self.memory.clock.now();
        undos.retain_mut(|undo| {
            let no_lease = undo.permits_without_lease().is_some();
            if asked_at >= undo.expires && no_lease {
                // The answer may be forgotten by now, and then a repeat could return the permits
                // twice.
                undo.warn_of_a_leak();
                return false;
            }
            let release = undo.release();
            let mut unknowns = UnknownOutcomes::default();
            match self
                .ask(Operation::Release, &mut unknowns, |state, now| state.release(&release, now))
            {
                Ok(_) => false,
                Err(e) => {
                    log::debug!(
                        "an unknown outcome of {:?} cannot be resolved yet: {e}",
                        undo.name.name
                    );
                    if !unknowns.is_empty() {
                        undo.note_possible_run(asked_at);
                    } else if !e.kind().is_outage() {
                        undo.note_refusal(asked_at);
                    }
                    no_lease || !undo.unknowns.is_empty() || asked_at < undo.expires
                }
            }
        });
    }

    fn extend(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        self.renew_all(Operation::Extend, renewals)
    }

    fn inspect(&self, name: &LockName) -> Result<Option<LockStatus>> {
        self.ask_freely(Operation::Inspect, |state, now| state.inspect(&name.key, now))
    }

    fn force_unlock(&self, name: &LockName) -> Result<bool> {
        self.ask_freely(Operation::ForceUnlock, |state, now| {
            state.force_unlock(name.kind, &name.key, now)
        })
    }

    fn subscribe(
        &self,
        read_timeout: Duration,
    ) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)> {
        self.ask_freely(Operation::Subscribe, |_, _| Ok(()))?;
        Ok(subscription::subscribe(&self.memory, self.id, read_timeout))
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        let is_cut = self.memory.state.lock().faults.is_cut(self.memory.clock.now());
        let state = if is_cut { NodeState::Down } else { NodeState::Voting };
        vec![NodeStatus {
            address: ADDRESS.to_owned(),
            state,
            latency: None,
            last_error: None,
            slots: Vec::new(),
        }]
    }

    fn diagnose(&self, _asked: &Diagnose<'_>) -> Vec<Finding> {
        let found = "the locks live in the memory of this process: no other process sees them, and they end with it";
        vec![Finding::note(Check::Reachable, found)]
    }

    has! {
        multi: MultiStore, queue: QueueStore, counts: CountStore, rates: RateStore,
        data: DataStore, jobs: JobStore, fence: FenceStore
    }

    fn listing(&self) -> &dyn ListingStore {
        self
    }

    fn owners(&self) -> Option<&dyn OwnerStore> {
        Some(self)
    }

    fn close(&self) {
        let mut state = self.memory.state.lock();
        self.closed.store(true, Ordering::Release);
        let why = Error::new(ErrorKind::Closed, "the client was closed");
        state.subscriptions.end(Some(self.id), &why);
    }
}

/// `repeated`: an earlier attempt of the same release ran, and its reply was lost. So the release
/// succeeded, although the repeat finds no hold.
fn confirm_repeat(released: Released, repeated: bool) -> Released {
    match released {
        Released::NotHeld if repeated => Released::Freed { listeners: None, next: None },
        released => released,
    }
}

impl MultiStore for MemoryStore {
    fn acquire_all(
        &self,
        acquire: &AcquireAll<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<AcquiredAll> {
        let again = !unknowns.is_empty();
        self.ask(Operation::Acquire, unknowns, |state, now| state.acquire_all(acquire, again, now))
    }

    fn release_all(
        &self,
        releases: &[Release<'_>],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Vec<Result<Released>>> {
        let repeated = !unknowns.is_empty();
        let released = self
            .ask(Operation::Release, unknowns, |state, now| Ok(state.release_all(releases, now)))?;
        let outcome = |(released, one): (Released, &Release<'_>)| {
            Ok(confirm_repeat(released, repeated && one.left == HoldCounts::NONE))
        };
        Ok(released.into_iter().zip(releases).map(outcome).collect())
    }
}

impl QueueStore for MemoryStore {
    fn queue_of(&self, name: &LockName, client: &str) -> Result<(usize, Option<usize>)> {
        self.ask_freely(Operation::Inspect, |state, _| Ok(state.queue_of(&name.key, client)))
    }
}

impl CountStore for MemoryStore {
    fn count(
        &self,
        name: &LockName,
        change: Count,
        id: &str,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<CountAnswer> {
        self.ask(Operation::Count, unknowns, |state, now| state.count(name, change, id, now))
    }

    fn counted(&self, name: &LockName) -> Result<(i64, i64)> {
        self.ask_freely(Operation::Inspect, |state, now| state.counted(name, now))
    }
}

impl RateStore for MemoryStore {
    fn change_rate(
        &self,
        name: &LockName,
        change: RateChange,
        id: &str,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<bool> {
        self.ask(Operation::Count, unknowns, |state, now| state.change_rate(name, change, id, now))
    }

    fn rate_of(&self, name: &LockName) -> Result<Option<(Rate, i64)>> {
        self.ask_freely(Operation::Inspect, |state, now| state.rate_of(name, now))
    }
}

impl DataStore for MemoryStore {
    fn set_data(
        &self,
        name: &LockName,
        holder: &Holder,
        number: u64,
        data: &HoldData,
    ) -> Result<bool> {
        self.ask_freely(Operation::Data, |state, now| {
            Ok(state.set_data(name, holder, number, data, now))
        })
    }

    fn ask_for(&self, name: &LockName) -> Result<bool> {
        self.ask_freely(Operation::Data, |state, now| Ok(state.ask_for(name, now)))
    }

    fn last_hold(&self, name: &LockName) -> Result<Option<LastHold>> {
        self.ask_freely(Operation::Inspect, |state, now| Ok(state.last_hold(name, now)))
    }
}

impl JobStore for MemoryStore {
    fn time(&self, _job: &JobName) -> Result<Duration> {
        self.ask_freely(Operation::Inspect, |state, _| Ok(state.clock.wall()))
    }

    fn look_at_job(&self, job: &JobName, attempts: u32) -> Result<JobState> {
        self.ask_freely(Operation::Inspect, |state, now| state.look_at_job(job, attempts, now))
    }

    fn begin_job(&self, begin: &BeginJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<JobState> {
        self.ask(Operation::Acquire, unknowns, |state, now| state.begin_job(begin, now))
    }

    fn end_job(&self, end: &EndJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<bool> {
        self.ask(Operation::Release, unknowns, |state, now| state.end_job(end, now))
    }

    fn forget_job(&self, job: &JobName, keep: Duration) -> Result<bool> {
        self.ask_freely(Operation::Count, |state, now| Ok(state.forget_job(job, keep, now)))
    }
}

impl ListingStore for MemoryStore {
    fn list(&self, wanted: &NameFilter) -> Result<Vec<Found>> {
        self.ask_freely(Operation::Inspect, |state, now| Ok(state.list(wanted, now)))
    }

    fn look_at(&self, name: &LockName) -> Result<Vec<Found>> {
        self.ask_freely(Operation::Inspect, |state, now| state.look_at(name, now))
    }
}

impl FenceStore for MemoryStore {
    fn check_key(&self, _key: &str) -> Result<()> {
        Ok(())
    }

    fn claim(&self, key: &str, token: u64) -> Result<FenceAnswer> {
        self.ask_freely(Operation::Fence, |state, now| state.claim(&key.into(), token, now))
    }

    fn write(
        &self,
        key: &str,
        token: u64,
        value: &[u8],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<FenceAnswer> {
        self.ask(Operation::Fence, unknowns, |state, now| state.write(key, token, value, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::holder::{ClientId, Holder};
    use crate::base::lock_name::Kind;
    use crate::signal::clock::FakeClock;
    use crate::store::{TokenRule, Waiting};

    pub(super) const SECOND: Duration = Duration::from_secs(1);
    pub(super) const LEASE: Duration = SECOND;
    pub(super) const PLACE: Duration = Duration::from_millis(300);

    /// A state with a clock that moves only by hand, and a client that asks it.
    pub(super) struct Bench {
        pub(super) clock: Arc<FakeClock>,
        pub(super) state: MemoryState,
        pub(super) client: ClientId,
    }

    impl Bench {
        pub(super) fn new() -> Self {
            let clock = Arc::new(FakeClock::default());
            Self { state: MemoryState::new(clock.clone()), clock, client: ClientId::random(PLACE) }
        }

        pub(super) fn now(&self) -> Moment {
            self.clock.now()
        }

        pub(super) fn name(&self, name: &str, kind: Kind) -> Arc<LockName> {
            Arc::new(LockName::new("", name, kind).unwrap())
        }

        pub(super) fn holder(&self) -> Holder {
            self.client.fresh_holder()
        }

        fn ask(
            &mut self,
            name: &Arc<LockName>,
            holder: &Holder,
            held: u32,
            waiting: Waiting,
            place: Duration,
        ) -> Result<Acquired> {
            let acquire = Acquire {
                name,
                holder,
                permits: 1,
                lease: LEASE,
                held,
                token: TokenRule::On,
                tokens: 1,
                waiting,
                goes_on: false,
            };
            let now = self.now();
            self.state.acquire(&acquire, place, now)
        }

        pub(super) fn acquire(
            &mut self,
            name: &Arc<LockName>,
            holder: &Holder,
        ) -> Result<Acquired> {
            self.ask(name, holder, 0, Waiting::No, PLACE)
        }

        pub(super) fn wait(
            &mut self,
            name: &Arc<LockName>,
            holder: &Holder,
            waiting: Waiting,
        ) -> Result<Acquired> {
            self.wait_with(name, holder, waiting, PLACE)
        }

        /// Its place lasts this long.
        pub(super) fn wait_with(
            &mut self,
            name: &Arc<LockName>,
            holder: &Holder,
            waiting: Waiting,
            place: Duration,
        ) -> Result<Acquired> {
            self.ask(name, holder, 0, waiting, place)
        }

        pub(super) fn reenter(
            &mut self,
            name: &Arc<LockName>,
            holder: &Holder,
            held: u32,
        ) -> Result<Acquired> {
            self.ask(name, holder, held, Waiting::No, PLACE)
        }

        /// A fresh holder that was granted the lock.
        pub(super) fn granted(&mut self, name: &Arc<LockName>) -> Holder {
            let holder = self.holder();
            let acquired = self.acquire(name, &holder).unwrap();
            assert!(matches!(acquired, Acquired::Granted(_)), "{acquired:?}");
            holder
        }

        pub(super) fn acquire_permits(
            &mut self,
            name: &Arc<LockName>,
            holder: &Holder,
            permits: u32,
        ) -> Result<Acquired> {
            let token = TokenRule::Off;
            let waiting = Waiting::No;
            let now = self.now();
            let acquire = Acquire {
                name,
                holder,
                permits,
                lease: LEASE,
                held: 0,
                token,
                tokens: 1,
                waiting,
                goes_on: false,
            };
            self.state.acquire(&acquire, PLACE, now)
        }

        pub(super) fn release_to(
            &mut self,
            name: &LockName,
            holder: &Holder,
            left: HoldCounts,
        ) -> Released {
            let now = self.now();
            self.state.release(&Release { left, ..Release::of_all(name, holder, 1) }, now).unwrap()
        }

        pub(super) fn release(&mut self, name: &LockName, holder: &Holder) -> Released {
            self.release_to(name, holder, HoldCounts::NONE)
        }

        pub(super) fn count(&mut self, name: &LockName, change: Count, id: &str) -> CountAnswer {
            let now = self.now();
            self.state.count(name, change, id, now).unwrap()
        }

        pub(super) fn counted(&mut self, name: &LockName) -> (i64, i64) {
            let now = self.now();
            self.state.counted(name, now).unwrap()
        }
    }
}
