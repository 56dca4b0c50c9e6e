//! Where threads of one client that want the same name queue up, first come first served.
//!
//! Only the leader of a queue talks to the server: fifty threads cost it what one does. The role of
//! the leader passes on when it is granted the lock or leaves, also by a panic.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::background::piggyback::{Piggyback, PiggybackOutcome, TakenPiggyback};
use crate::base::deadline::Deadline;
use crate::base::error::Error;
use crate::base::event::Event;
use crate::base::holder::Holder;
use crate::base::lock_name::LockName;

/// How many acquisitions in a row, with other clients waiting, before this client yields to them. A
/// client that releases and takes again at once always beats one that a message has to reach first.
const FIRST_BOUND: u32 = 32;
/// A run also ends after this long (multiplied as the bound grows), if it had a few acquisitions.
const FIRST_SPAN: Duration = Duration::from_millis(4);
const SHORTEST_RUN: u32 = 4;
/// The bound doubles up to this when no other client takes the lock while this one yields: then the
/// other subscriptions only linger.
const LAST_BOUND: u32 = 1024;
/// How long a client yields: a waiter of another library needs up to 5.5 ms from the message to its
/// request.
const LONGEST_YIELD: Duration = Duration::from_millis(10);
/// How long an idle queue keeps its fairness counter.
const MEMORY: Duration = Duration::from_secs(1);
/// From this many queues on, unused ones are swept.
const SWEEP_AT: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct LocalQueues {
    map: Mutex<Map>,
    /// Those of waiters that queue at the server, by holder.
    at_server: Mutex<HashMap<Arc<str>, Arc<LocalQueue>>>,
}

#[derive(Debug, Default)]
struct Map {
    local_queues: HashMap<Arc<str>, Arc<LocalQueue>>,
    /// How many there were after the last sweep.
    after_sweep: usize,
}

impl Map {
    fn get(&self, name: &str) -> Option<&Arc<LocalQueue>> {
        self.local_queues.get(name)
    }

    /// The local queue of the name, made if there is none.
    fn entry(&mut self, name: &Arc<str>) -> &Arc<LocalQueue> {
        // Only when there are twice as many as the last sweep left: with many names in use, every
        // new queue would otherwise check all others.
        if self.local_queues.len() >= SWEEP_AT.max(2 * self.after_sweep) {
            self.local_queues.retain(|_, local_queue| {
                let state = local_queue.state.lock();
                state.members > 0 || state.fairness.last.is_some_and(|t| t.elapsed() < MEMORY)
            });
            self.after_sweep = self.local_queues.len();
        }
        self.local_queues.entry(name.clone()).or_default()
    }
}

#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    pub(crate) event: Arc<Event>,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Those behind the leader.
    waiters: VecDeque<Arc<Waiter>>,
    /// There is a leader, or a waiter that was made the leader and is waking up.
    leader: bool,
    /// The leader's acquire, for the thread of this client that frees the lock to send right behind
    /// the release.
    piggyback: Option<Arc<Piggyback>>,
    /// Threads that are in the queue or about to enter it.
    members: usize,
    fairness: FairnessCounter,
    /// Since when the server cannot be asked, as far as the leaders of this queue know, and the
    /// latest error.
    outage: Option<(Instant, Error)>,
}

/// How often this client had the lock in a row while others waited.
#[derive(Debug)]
struct FairnessCounter {
    in_a_row: u32,
    bound: u32,
    /// How many messages will have been received when the one of this client's own last release has
    /// arrived.
    messages: u64,
    /// When the run began.
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Default for FairnessCounter {
    fn default() -> Self {
        Self { in_a_row: 0, bound: FIRST_BOUND, messages: 0, first: None, last: None }
    }
}

impl FairnessCounter {
    fn is_yield_due(&self) -> bool {
        let span = FIRST_SPAN * (self.bound / FIRST_BOUND);
        let long = self.in_a_row >= SHORTEST_RUN && self.first.is_some_and(|first| first.elapsed() > span);
        (long || self.in_a_row >= self.bound) && self.last.is_some_and(|last| last.elapsed() < MEMORY)
    }
}

#[derive(Debug)]
struct Waiter {
    /// Its owner's acquire, sent with the release before its turn even while the owner is still
    /// waking up.
    piggyback: Option<Arc<Piggyback>>,
    signal: Mutex<Signal>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Signal {
    #[default]
    Wait,
    Lead,
    Closed,
}

impl Waiter {
    fn signal(&self, to: Signal) {
        let mut signal = self.signal.lock();
        if *signal == Signal::Wait {
            *signal = to;
        }
        drop(signal);
        self.changed.notify_one();
    }

    /// Until signalled, or until the deadline ([`Signal::Wait`]).
    fn wait(&self, deadline: Deadline) -> Signal {
        let mut signal = self.signal.lock();
        while *signal == Signal::Wait {
            match deadline {
                Deadline::Never => self.changed.wait(&mut signal),
                Deadline::Now => break,
                Deadline::At(at) => {
                    if self.changed.wait_until(&mut signal, at).timed_out() {
                        break;
                    }
                }
            }
        }
        *signal
    }
}

/// A thread's membership in a local queue. The queue is kept while it has members.
#[derive(Debug)]
struct Membership<'s> {
    local_queues: &'s LocalQueues,
    local_queue: Arc<LocalQueue>,
    /// The lock's key; for a waiter that queues at the server, which has a local queue of its own,
    /// its holder id.
    name: Arc<str>,
    at_server: bool,
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        if self.at_server {
            self.local_queues.at_server.lock().remove(&self.name);
        } else {
            self.local_queues.leave(&self.name, &self.local_queue);
        }
    }
}

/// The role of the leader of a local queue. When this is dropped, the next waiter becomes leader.
#[derive(Debug)]
pub(crate) struct Leader<'s> {
    membership: Membership<'s>,
    /// It waited in the queue before.
    pub(crate) has_waited: bool,
    /// The acquire that it left there while it waited.
    piggyback: Option<Arc<Piggyback>>,
}

pub(crate) enum EnqueueOutcome<'s> {
    Leader(Leader<'s>),
    /// With the event of the queue, which knows how old the last reply is.
    TimedOut(Arc<Event>),
    Closed,
    /// The leader could not ask the server at its last attempt. The caller asks for itself and does
    /// not wait for the leader's next attempt: a dead server is reported at once, and a connection
    /// that was cut under the leader says nothing about the server.
    Outage,
    /// No time is left, and it is not known whether another holder has the lock.
    Unknown(Error),
}

impl LocalQueues {
    /// The leader of a queue of its own: for a waiter whose place is in a queue at the server,
    /// which alone decides the order.
    pub(crate) fn at_server(&self, holder: &Holder) -> Leader<'_> {
        let (local_queue, name): (Arc<LocalQueue>, Arc<str>) = (Arc::default(), holder.as_str().into());
        self.at_server.lock().insert(name.clone(), local_queue.clone());
        let membership = Membership { local_queues: self, local_queue, name, at_server: true };
        Leader { membership, has_waited: false, piggyback: None }
    }

    /// Whether a new caller has to queue: a thread of this client waits for the name, or this
    /// client has to yield to others.
    pub(crate) fn is_occupied(&self, name: &str) -> bool {
        let map = self.map.lock();
        map.get(name).is_some_and(|local_queue| {
            let state = local_queue.state.lock();
            state.leader || state.fairness.is_yield_due()
        })
    }

    /// Blocks until the caller is the leader of the queue for the name. `piggyback` makes the
    /// acquire that the caller leaves in the queue if it has to wait there.
    pub(crate) fn queue(
        &self,
        name: &LockName,
        deadline: Deadline,
        piggyback: impl FnOnce() -> Option<Piggyback>,
    ) -> EnqueueOutcome<'_> {
        let membership = self.enter(&name.key);
        let waiter = {
            let mut state = membership.local_queue.state.lock();
            if !state.leader {
                state.leader = true;
                drop(state);
                return EnqueueOutcome::Leader(Leader { membership, has_waited: false, piggyback: None });
            }
            if state.outage.is_some() {
                return EnqueueOutcome::Outage;
            }
            let piggyback = piggyback().map(Arc::new);
            let waiter = Arc::new(Waiter { piggyback, signal: Mutex::default(), changed: Condvar::new() });
            state.waiters.push_back(waiter.clone());
            waiter
        };
        match waiter.wait(deadline) {
            // If it was made the leader in the meantime, it stays: the role must not be lost with a
            // waiter that gives up.
            Signal::Wait if membership.give_up(&waiter) => match &membership.local_queue.state.lock().outage {
                Some((_, error)) => EnqueueOutcome::Unknown(error.clone()),
                None => EnqueueOutcome::TimedOut(membership.local_queue.event.clone()),
            },
            Signal::Closed if membership.give_up(&waiter) => EnqueueOutcome::Closed,
            _ => EnqueueOutcome::Leader(Leader { membership, has_waited: true, piggyback: waiter.piggyback.clone() }),
        }
    }

    fn enter(&self, name: &Arc<str>) -> Membership<'_> {
        let mut map = self.map.lock();
        let local_queue = map.entry(name).clone();
        local_queue.state.lock().members += 1;
        drop(map);
        Membership { local_queues: self, local_queue, name: name.clone(), at_server: false }
    }

    fn leave(&self, name: &Arc<str>, local_queue: &LocalQueue) {
        let mut map = self.map.lock();
        let mut state = local_queue.state.lock();
        state.members -= 1;
        if state.members == 0 && state.fairness.last.is_none() {
            drop(state);
            map.local_queues.remove(name);
        }
    }

    /// The acquire of the leader, to be sent behind the release that is about to be sent.
    pub(crate) fn take_piggyback(&self, name: &str) -> Option<TakenPiggyback> {
        let map = self.map.lock();
        let piggyback = map.get(name)?.take_piggyback()?;
        Some(TakenPiggyback::new(piggyback, None))
    }

    /// The acquire of a waiter that queues at the server, if it is one of this client and sleeps.
    pub(crate) fn take_piggyback_of(&self, holder: &str) -> Option<TakenPiggyback> {
        let at_server = self.at_server.lock();
        let local_queue = at_server.get(holder)?;
        let piggyback = local_queue.take_piggyback()?;
        Some(TakenPiggyback::new(piggyback, Some(local_queue.event.clone())))
    }

    /// The server has answered a new caller: the leader need not wait for its next attempt.
    pub(crate) fn outage_is_over(&self, name: &str) {
        let local_queue = self.map.lock().get(name).cloned();
        if let Some(local_queue) = local_queue {
            local_queue.state.lock().outage = None;
            local_queue.event.notify();
        }
    }

    /// How many messages the waiters of a name have received; `None` if the name has no queue.
    pub(crate) fn messages(&self, name: &str) -> Option<u64> {
        self.map.lock().get(name).map(|local_queue| local_queue.event.messages())
    }

    /// A thread of this client freed the lock: its own leader need not wait for the message.
    /// `others`: how many other clients are subscribed (a hint: it misses those that are
    /// reconnecting). `messages`: how many messages will have been received when the one of this
    /// release has arrived.
    pub(crate) fn released(&self, name: &Arc<str>, others: u64, messages: u64) {
        let mut map = self.map.lock();
        let local_queue = match map.get(name) {
            Some(local_queue) => local_queue.clone(),
            None if others > 0 => map.entry(name).clone(),
            None => return,
        };
        let mut state = local_queue.state.lock();
        if others == 0 {
            state.fairness.in_a_row = 0;
            state.fairness.last = None;
            if state.members == 0 {
                drop(state);
                map.local_queues.remove(name);
                return;
            }
        } else {
            if state.fairness.in_a_row == 0 {
                state.fairness.first = Some(Instant::now());
            }
            state.fairness.in_a_row += 1;
            state.fairness.messages = messages;
            state.fairness.last = Some(Instant::now());
        }
        drop(state);
        drop(map);
        local_queue.event.notify();
    }

    /// A release of this client is over, and may not have freed the lock: the leader tries again.
    pub(crate) fn notify(&self, name: &str) {
        let local_queue = self.map.lock().get(name).cloned();
        if let Some(local_queue) = local_queue {
            local_queue.event.notify();
        }
    }

    /// Wakes all leaders, so that they try again.
    #[cfg(feature = "testing")]
    pub(crate) fn notify_all(&self) {
        self.map.lock().local_queues.values().for_each(|local_queue| local_queue.event.notify());
        self.at_server.lock().values().for_each(|local_queue| local_queue.event.notify());
    }

    /// Wakes all waiters and leaders: the client is closed.
    pub(crate) fn close(&self) {
        let all: Vec<_> = self.map.lock().local_queues.values().cloned().collect();
        for local_queue in all {
            local_queue.state.lock().waiters.iter().for_each(|waiter| waiter.signal(Signal::Closed));
            local_queue.event.notify();
        }
    }
}

impl LocalQueue {
    fn take_piggyback(&self) -> Option<Arc<Piggyback>> {
        let piggyback = self.state.lock().piggyback.take()?;
        piggyback.take();
        Some(piggyback)
    }
}

impl Leader<'_> {
    pub(crate) fn event(&self) -> &Arc<Event> {
        &self.membership.local_queue.event
    }

    /// Leaves an acquire in the queue and waits to be notified, for at most `patience`. `None`: no
    /// releasing thread took the acquire.
    pub(crate) fn wait_with_piggyback(
        &self,
        piggyback: &Arc<Piggyback>,
        patience: Duration,
    ) -> Option<PiggybackOutcome> {
        self.membership.local_queue.state.lock().piggyback = Some(piggyback.clone());
        // Left first, waited second: a release before this has notified the event already, one
        // after it takes the acquire along.
        self.membership.local_queue.event.wait(patience);
        let untouched = self.membership.local_queue.state.lock().piggyback.take().is_some();
        // The thread that took it is bounded by the I/O timeouts.
        if untouched { None } else { Some(piggyback.wait()) }
    }

    /// The outcome of the acquire that this leader left while it waited in the queue. `None`: no
    /// thread took it, and none will.
    pub(crate) fn collect_piggyback(&mut self) -> Option<PiggybackOutcome> {
        let piggyback = self.piggyback.take()?;
        // It is still there; or it was never put there, because this client has to yield; or a
        // releasing thread took it.
        let mut state = self.membership.local_queue.state.lock();
        let untouched = state.piggyback.take().is_some();
        drop(state);
        if untouched || !piggyback.is_taken() { None } else { Some(piggyback.wait()) }
    }

    /// Records the latest error of an outage. Returns since when the outage lasts.
    pub(crate) fn outage_goes_on(&self, error: &Error) -> Instant {
        let mut state = self.membership.local_queue.state.lock();
        let since = state.outage.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        state.outage = Some((since, error.clone()));
        since
    }

    pub(crate) fn outage_is_over(&self) {
        self.event().answered();
        self.membership.local_queue.state.lock().outage = None;
    }

    /// True once this client has had the lock so often in a row, with others waiting, that it must
    /// let one of them have it.
    pub(crate) fn must_yield(&self) -> bool {
        self.membership.local_queue.state.lock().fairness.is_yield_due()
    }

    /// Waits until another client has released the lock, or for [`LONGEST_YIELD`].
    pub(crate) fn yield_to_others(&self, patience: Duration) {
        let messages = self.membership.local_queue.state.lock().fairness.messages;
        let taken = self.membership.local_queue.event.wait_for_message(messages + 1, LONGEST_YIELD.min(patience));
        let mut state = self.membership.local_queue.state.lock();
        state.fairness.in_a_row = 0;
        state.fairness.bound = if taken { FIRST_BOUND } else { (state.fairness.bound * 2).min(LAST_BOUND) };
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = self.membership.local_queue.state.lock();
        state.piggyback = None;
        match state.waiters.pop_front() {
            Some(next) => {
                if !state.fairness.is_yield_due() {
                    state.piggyback.clone_from(&next.piggyback);
                }
                next.signal(Signal::Lead);
            }
            None => state.leader = false,
        }
    }
}

impl Membership<'_> {
    /// Leaves the queue. False: this waiter was made the leader already.
    fn give_up(&self, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.local_queue.state.lock();
        let place = state.waiters.iter().position(|other| Arc::ptr_eq(other, waiter));
        place.map(|at| state.waiters.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Acquire, TokenRule, Waiting};

    fn piggyback() -> Option<Piggyback> {
        let holder = crate::base::holder::ClientId::random(Duration::from_secs(5)).fresh_holder();
        let (lease, token, waiting) = (Duration::from_secs(1), TokenRule::Off, Waiting::No);
        Some(Piggyback::new(&Acquire {
            name: &lock_name(),
            holder: &holder,
            permits: 1,
            lease,
            held: 0,
            token,
            waiting,
        }))
    }

    fn lock_name() -> Arc<LockName> {
        Arc::new(LockName::new("", "n", crate::base::lock_name::Kind::Mutex).unwrap())
    }

    #[test]
    fn the_role_passes_in_order_and_the_queue_goes_with_its_last_member() {
        let local_queues = LocalQueues::default();
        let EnqueueOutcome::Leader(first) = local_queues.queue(&lock_name(), Deadline::Never, piggyback) else {
            panic!()
        };
        assert!(!first.has_waited && local_queues.is_occupied("n"));
        std::thread::scope(|s| {
            let second = s.spawn(|| match local_queues.queue(&lock_name(), Deadline::Never, piggyback) {
                EnqueueOutcome::Leader(leader) => leader.has_waited && leader.piggyback.is_some(),
                _ => false,
            });
            while first.membership.local_queue.state.lock().waiters.is_empty() {
                std::thread::yield_now();
            }
            let short = Deadline::after(Instant::now(), Duration::from_millis(1));
            assert!(matches!(local_queues.queue(&lock_name(), short, piggyback), EnqueueOutcome::TimedOut(_)));
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(local_queues.map.lock().local_queues.is_empty());
    }

    #[test]
    fn closing_wakes_the_waiters() {
        let local_queues = LocalQueues::default();
        let EnqueueOutcome::Leader(first) = local_queues.queue(&lock_name(), Deadline::Never, piggyback) else {
            panic!()
        };
        std::thread::scope(|s| {
            let second = s.spawn(|| {
                matches!(local_queues.queue(&lock_name(), Deadline::Never, piggyback), EnqueueOutcome::Closed)
            });
            while first.membership.local_queue.state.lock().waiters.is_empty() {
                std::thread::yield_now();
            }
            local_queues.close();
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn unused_queues_are_swept_also_by_a_client_that_never_waits() {
        let local_queues = LocalQueues::default();
        for n in 0..10_000 {
            local_queues.released(&format!("n{n}").into(), 1, 0);
            if n == 1_000 {
                let long_ago = Instant::now().checked_sub(2 * MEMORY);
                local_queues
                    .map
                    .lock()
                    .local_queues
                    .values()
                    .for_each(|local_queue| local_queue.state.lock().fairness.last = long_ago);
            }
        }
        let map = local_queues.map.lock();
        assert!(
            map.local_queues.len() < 9_900 && map.after_sweep >= SWEEP_AT,
            "{} and {}",
            map.local_queues.len(),
            map.after_sweep
        );
    }

    #[test]
    fn a_client_yields_after_a_run_with_others_waiting() {
        let local_queues = LocalQueues::default();
        let name: Arc<str> = "n".into();
        for _ in 0..FIRST_BOUND {
            local_queues.released(&name, 1, 0);
        }
        let EnqueueOutcome::Leader(leader) = local_queues.queue(&lock_name(), Deadline::Never, piggyback) else {
            panic!()
        };
        assert!(leader.must_yield());
        leader.yield_to_others(Duration::from_millis(1));
        assert!(!leader.must_yield());
        assert_eq!(leader.membership.local_queue.state.lock().fairness.bound, 2 * FIRST_BOUND);
        local_queues.released(&name, 0, 0);
        drop(leader);
        assert!(local_queues.map.lock().local_queues.is_empty());
    }
}
