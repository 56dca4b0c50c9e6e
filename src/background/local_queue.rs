//! Where threads of one client that want the same name queue up, first come first served.
//!
//! Only the head of a queue talks to the server: fifty threads cost it what one does. The role of the head passes on
//! when it is granted the lock or leaves, also by a panic.

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

/// Acquisitions in a row, with other clients waiting, before a wake-up of theirs is let pass. A client that releases
/// and takes again on the spot always beats one that a message has to reach first.
const FIRST_BOUND: u32 = 32;
/// A run is over after this long as well (times as much as the bound has grown), if it had a few turns.
const FIRST_SPAN: Duration = Duration::from_millis(4);
const SHORTEST_RUN: u32 = 4;
/// The bound doubles up to this when a turn that was offered was not taken: a subscription that only lingers.
const LAST_BOUND: u32 = 1024;
/// A turn is offered this long: a Java waiter needs up to 5.5 ms from the message to its try.
const LONGEST_YIELD: Duration = Duration::from_millis(10);
/// A place nobody uses keeps its memory of others for this long.
const MEMORY: Duration = Duration::from_secs(1);
/// Places beyond which unused ones are swept.
const SWEEP_AT: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct LocalQueues {
    map: Mutex<Map>,
    /// Those of waiters that queue in Redis, by holder.
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
        // Only once there are twice as many as the last sweep left: with many names in use each entry would look at all.
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
    /// Those behind the head.
    waiters: VecDeque<Arc<Waiter>>,
    /// Somebody is the head, or has been made it and is waking up.
    leader: bool,
    /// The head's try, for whoever of this client frees the lock to send right behind the release.
    piggyback: Option<Arc<Piggyback>>,
    /// Threads that are in the line or about to enter it.
    members: usize,
    fairness: FairnessCounter,
    /// Since when the server cannot be asked, as far as the heads of this line know, and what it said.
    outage: Option<(Instant, Error)>,
}

/// How often this client had the lock in a row while others waited.
#[derive(Debug)]
struct FairnessCounter {
    in_a_row: u32,
    bound: u32,
    /// Messages heard once the one of our own last release has arrived.
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
    /// Its owner's try, which goes out with the release before its turn even while the owner is still waking up.
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

/// A thread's presence at a local queue, which is kept while there is one.
#[derive(Debug)]
struct Membership<'s> {
    local_queues: &'s LocalQueues,
    local_queue: Arc<LocalQueue>,
    /// The lock's; the holder's for one who queues in Redis and has a local queue of its own.
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

/// Being the head of a local queue's line. Dropped, the next one is.
#[derive(Debug)]
pub(crate) struct Leader<'s> {
    membership: Membership<'s>,
    /// It stood in line before.
    pub(crate) has_waited: bool,
    /// The try it brought from there.
    piggyback: Option<Arc<Piggyback>>,
}

pub(crate) enum EnqueueOutcome<'s> {
    Leader(Leader<'s>),
    /// With the event of the line, which knows how old its last answer is.
    TimedOut(Arc<Event>),
    Closed,
    /// The head of the line could not ask the server when it tried last. Whoever comes now asks for itself and does not wait
    /// for the head's next try: a dead server is told at once, and a connection that was cut under the head says nothing
    /// about the server.
    Outage,
    /// No time is left, and nobody knows whether somebody else has it.
    Unknown(Error),
}

impl LocalQueues {
    /// The head of a line of its own: for a waiter whose place is in a queue in Redis, so that the line may not decide.
    pub(crate) fn at_server(&self, holder: &Holder) -> Leader<'_> {
        let (local_queue, name): (Arc<LocalQueue>, Arc<str>) = (Arc::default(), holder.as_str().into());
        self.at_server.lock().insert(name.clone(), local_queue.clone());
        let membership = Membership { local_queues: self, local_queue, name, at_server: true };
        Leader { membership, has_waited: false, piggyback: None }
    }

    /// Whether whoever comes queues up: a thread of this client waits for the name, or others are due a turn.
    pub(crate) fn is_occupied(&self, name: &str) -> bool {
        let map = self.map.lock();
        map.get(name).is_some_and(|local_queue| {
            let state = local_queue.state.lock();
            state.leader || state.fairness.is_yield_due()
        })
    }

    /// Blocks until the caller is the head of the line for the name. `try_of` is asked for a try to leave in the line, if
    /// there is one.
    pub(crate) fn queue(
        &self,
        name: &LockName,
        deadline: Deadline,
        try_of: impl FnOnce() -> Option<Piggyback>,
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
            let piggyback = try_of().map(Arc::new);
            let waiter = Arc::new(Waiter { piggyback, signal: Mutex::default(), changed: Condvar::new() });
            state.waiters.push_back(waiter.clone());
            waiter
        };
        match waiter.wait(deadline) {
            // A call that came meanwhile wins: the role must not be lost with a waiter that is given up.
            Signal::Wait if membership.give_up(&waiter) => match &membership.local_queue.state.lock().outage {
                // Nobody knows whether somebody else has it.
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

    /// The try of the head of the line, to be sent behind the release that is about to go out.
    pub(crate) fn take_piggyback(&self, name: &str) -> Option<TakenPiggyback> {
        let map = self.map.lock();
        let piggyback = map.get(name)?.take_piggyback()?;
        Some(TakenPiggyback::new(piggyback, None))
    }

    /// The try of a waiter that queues in Redis, if it is one of ours and sleeps.
    pub(crate) fn take_piggyback_of(&self, holder: &str) -> Option<TakenPiggyback> {
        let at_server = self.at_server.lock();
        let local_queue = at_server.get(holder)?;
        let piggyback = local_queue.take_piggyback()?;
        Some(TakenPiggyback::new(piggyback, Some(local_queue.event.clone())))
    }

    /// The server has answered one who came: the head of the line need not wait to try again.
    pub(crate) fn outage_is_over(&self, name: &str) {
        let local_queue = self.map.lock().get(name).cloned();
        if let Some(local_queue) = local_queue {
            local_queue.state.lock().outage = None;
            local_queue.event.notify();
        }
    }

    /// How many messages the waiters of a name have heard; `None` when there never were any.
    pub(crate) fn messages(&self, name: &str) -> Option<u64> {
        self.map.lock().get(name).map(|local_queue| local_queue.event.messages())
    }

    /// The lock was released by a thread of this client: its own head need not wait for the message. `others` is how
    /// many other clients listen (a hint: those that are reconnecting do not show), and `messages` the messages that will
    /// have been heard once that of this release is.
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

    /// A release of this client is over without its having freed the lock for sure: the head looks again.
    pub(crate) fn notify(&self, name: &str) {
        let local_queue = self.map.lock().get(name).cloned();
        if let Some(local_queue) = local_queue {
            local_queue.event.notify();
        }
    }

    /// Everybody who is at the head of a line looks again.
    #[cfg(feature = "testing")]
    pub(crate) fn notify_all(&self) {
        self.map.lock().local_queues.values().for_each(|local_queue| local_queue.event.notify());
        self.at_server.lock().values().for_each(|local_queue| local_queue.event.notify());
    }

    /// Wakes everybody, in line and at the head, for good: the client is closed.
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

    /// Leaves a try with the line and waits for a ring, at most for `patience`. `None`: nobody took the try.
    pub(crate) fn wait_with_piggyback(
        &self,
        piggyback: &Arc<Piggyback>,
        patience: Duration,
    ) -> Option<PiggybackOutcome> {
        self.membership.local_queue.state.lock().piggyback = Some(piggyback.clone());
        // Left first, looked second: a release before this has notified already, one after it takes the try along.
        self.membership.local_queue.event.wait(patience);
        let untouched = self.membership.local_queue.state.lock().piggyback.take().is_some();
        // Whoever took it is bounded by the I/O timeouts.
        if untouched { None } else { Some(piggyback.wait()) }
    }

    /// What became of the try that this head left while it stood in line. `None`: nobody took it, and nobody will.
    pub(crate) fn collect_piggyback(&mut self) -> Option<PiggybackOutcome> {
        let piggyback = self.piggyback.take()?;
        // Either it is still there, or it was never put there because a turn is owed, or somebody took it.
        let mut state = self.membership.local_queue.state.lock();
        let untouched = state.piggyback.take().is_some();
        drop(state);
        if untouched || !piggyback.is_taken() { None } else { Some(piggyback.wait()) }
    }

    /// Since when the line has been in an outage, with this error the latest word of it.
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

    /// True once this client has had the lock often enough in a row, with others waiting, that one of them is due.
    pub(crate) fn must_yield(&self) -> bool {
        self.membership.local_queue.state.lock().fairness.is_yield_due()
    }

    /// Lets others try first, until one of them has released the lock or [`LONGEST_YIELD`] is over.
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
    /// Leaves the line unless the role of the head was handed to this waiter already (false).
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
    fn the_role_passes_in_order_and_the_station_goes_with_its_last_member() {
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
    fn closing_wakes_those_in_line() {
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
    fn unused_stations_are_swept_also_by_a_client_that_only_tries() {
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
    fn a_turn_is_owed_after_a_run_with_others_waiting() {
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
