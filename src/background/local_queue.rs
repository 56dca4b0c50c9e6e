//! Where threads of one client that want the same name queue up, first come first served.
//!
//! Only the leader of a queue talks to the server: fifty threads cost it what one does. The role of
//! the leader passes on when it is granted the lock or leaves, also by a panic.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::background::leader::{Leader, Membership, Place, QueueTable};
use crate::background::piggyback::{Piggyback, TakenPiggyback};
use crate::background::queue_map::{LocalQueue, QueueMap, QueueState, QueuesByHolder};
use crate::background::waiter::{Signal, Waiter};
use crate::base::cancel::CancelToken;
use crate::base::deadline::Deadline;
use crate::base::error::Error;
use crate::base::event::Event;
use crate::base::holder::Holder;
use crate::base::lock_name::LockName;
use crate::lease::store_hold::{Admission, RunLength, StoreHold};
use crate::lease::tenure::Tenure;
use crate::os::Mutex;
use crate::store::TokenRule;

#[derive(Debug, Default)]
pub(crate) struct LocalQueues {
    map: Mutex<QueueMap>,
    /// Those of waiters that queue at the server, by holder.
    at_server: Mutex<QueuesByHolder>,
}

pub(crate) enum EnqueueOutcome<'s> {
    Leader(Leader<'s>),
    /// The caller is one more reader of this hold.
    Joined(Admission),
    /// With the event of the queue, which knows how old the last reply is.
    TimedOut(Arc<Event>),
    /// The client waits no more, or the call was cancelled.
    Ended,
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
        let membership = Membership { table: QueueTable::ByHolder(&self.at_server), local_queue, name };
        Leader { membership, has_waited: false, piggyback: None }
    }

    /// Whether a new caller has to queue: a thread of this client waits for the name, or this
    /// client has to yield to others.
    pub(crate) fn is_occupied(&self, name: &str) -> bool {
        let map = self.map.lock();
        map.get(name).is_some_and(|local_queue| {
            let state = local_queue.state.lock();
            state.leader || state.comes_later()
        })
    }

    /// Blocks until the caller is the leader of the queue for the name, or `cancel` is cancelled.
    /// `begins` is called before it waits, without any mutex; the caller has its place by then.
    /// `piggyback` makes the acquire that the caller leaves in the queue. That comes second:
    /// `begins` runs code of the user, and a hold passed to the caller meanwhile would lie idle.
    pub(crate) fn queue(
        &self,
        name: &LockName,
        deadline: Deadline,
        cancel: Option<&CancelToken>,
        piggyback: impl FnOnce() -> Option<Piggyback>,
        begins: impl FnOnce(),
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
            let waiter = Arc::<Waiter>::default();
            state.waiters.push_back(waiter.clone());
            waiter
        };
        let place = Place::new(membership, waiter);
        begins();
        let piggyback = piggyback().map(Arc::new);
        let (membership, waiter) = place.keep();
        piggyback.into_iter().for_each(|piggyback| membership.offer(&waiter, piggyback));
        let _woken = cancel.map(|token| token.wakes(waiter.clone()));
        match waiter.wait(deadline) {
            // If it was made the leader in the meantime, it stays: the role must not be lost with a
            // waiter that gives up.
            Signal::Wait if membership.give_up(&waiter) => match &membership.local_queue.state.lock().outage {
                Some((_, error)) => EnqueueOutcome::Unknown(error.clone()),
                None => EnqueueOutcome::TimedOut(membership.local_queue.event.clone()),
            },
            Signal::Ended if membership.give_up(&waiter) => EnqueueOutcome::Ended,
            // It was taken out of the queue, perhaps between the two looks at the signal.
            _ => match waiter.wait(Deadline::Now) {
                Signal::Joined(admission) => EnqueueOutcome::Joined(admission),
                _ => {
                    let piggyback = waiter.piggyback().cloned();
                    EnqueueOutcome::Leader(Leader { membership, has_waited: true, piggyback })
                }
            },
        }
    }

    fn enter(&self, name: &Arc<str>) -> Membership<'_> {
        let mut map = self.map.lock();
        let local_queue = map.entry(name).clone();
        local_queue.state.lock().members += 1;
        drop(map);
        Membership { table: QueueTable::ByKey(&self.map), local_queue, name: name.clone() }
    }

    /// The acquire of the leader, to be sent behind the release of `hold`, which is about to be
    /// sent. None if this client has to yield to others.
    pub(crate) fn take_piggyback(&self, hold: &StoreHold) -> Option<TakenPiggyback> {
        let map = self.map.lock();
        let local_queue = map.get(&hold.asked.name.key)?;
        let mut state = local_queue.state.lock();
        if state.piggyback.is_none() || !state.fairness.may_hand_over(hold.run()) {
            state.fairness.is_released();
            return None;
        }
        let piggyback = state.take_piggyback()?;
        Some(TakenPiggyback::new(piggyback, state.fairness.tokens(), None))
    }

    /// Whether this client yields to others after the release of `hold`.
    pub(crate) fn is_run_over(&self, hold: &StoreHold) -> bool {
        let map = self.map.lock();
        map.get(&hold.asked.name.key).is_some_and(|local_queue| local_queue.state.lock().fairness.is_over(hold.run()))
    }

    /// Parks the hold of `tenure`, whose user has given it up, for the leader. False if no thread
    /// of this client can take it over, or others have to get in: then it has to be released.
    pub(crate) fn park(&self, tenure: &Arc<Tenure>) -> bool {
        let map = self.map.lock();
        let Some(local_queue) = map.get(&tenure.lock_name().key) else { return false };
        let mut state = local_queue.state.lock();
        let goes_on = state.fairness.goes_on(tenure.store_hold.run());
        let admission = state.piggyback.as_ref().filter(|_| goes_on).and_then(|piggyback| piggyback.succeeds(tenure));
        let Some(admission) = admission else { return false };
        if state.parking.park(admission) {
            let local_queue = local_queue.clone();
            drop(state);
            drop(map);
            local_queue.event.notify();
        }
        true
    }

    /// The hold that is parked for the leader, for the calling thread, which runs while the leader
    /// wakes up: for an acquire with this lease and token rule.
    pub(crate) fn barge(&self, name: &str, lease: Duration, token: TokenRule) -> Option<Admission> {
        let map = self.map.lock();
        let mut state = map.get(name)?.state.lock();
        let QueueState { parking, fairness, .. } = &mut *state;
        // Beside others a run has few turns, and they are for as many threads.
        let goes_on = |hold: &StoreHold| !fairness.knows_others() && fairness.goes_on(hold.run());
        parking.barge(|admission| admission.hold().fits(lease, token) && goes_on(admission.hold()))
    }

    /// Lets the readers next in the queue join this read hold, which the leader of the queue has
    /// just begun: up to the first writer, so that they do not overtake it.
    pub(crate) fn let_readers_join(&self, hold: &Arc<StoreHold>) {
        let Some(local_queue) = self.map.lock().get(&hold.asked.name.key).cloned() else { return };
        let mut joined = SmallVec::<[Arc<Waiter>; 8]>::new();
        let mut state = local_queue.state.lock();
        while let Some(next) = state.waiters.front() {
            let Some(admission) = next.piggyback().and_then(|piggyback| piggyback.joins(hold)) else { break };
            if next.set(Signal::Joined(admission)).is_some() {
                // Its wait was ended, and it leaves the queue by itself. The leader still uses the
                // hold, so the admission is not the last one.
                break;
            }
            joined.extend(state.waiters.pop_front());
        }
        drop(state);
        joined.iter().for_each(|waiter| waiter.wake());
    }

    /// The acquire of a waiter that queues at the server, if it is one of this client and sleeps.
    pub(crate) fn take_piggyback_of(&self, holder: &str) -> Option<TakenPiggyback> {
        let at_server = self.at_server.lock();
        let local_queue = at_server.get(holder)?;
        let piggyback = local_queue.state.lock().take_piggyback()?;
        Some(TakenPiggyback::new(piggyback, 1, Some(local_queue.event.clone())))
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

    /// A thread of this client freed the lock after this run: its own leader need not wait for the
    /// message. `others`: how many other clients are subscribed (a hint: it misses those that are
    /// reconnecting). `messages`: how many messages will have been received when the one of this
    /// release has arrived.
    pub(crate) fn released(&self, name: &Arc<str>, run: RunLength, others: u64, messages: u64) {
        let mut map = self.map.lock();
        let local_queue = match map.get(name) {
            Some(local_queue) => local_queue.clone(),
            None if others > 0 => map.entry(name).clone(),
            None => return,
        };
        let mut state = local_queue.state.lock();
        let waiters = state.leader;
        if others == 0 {
            state.fairness.released_alone(run, waiters);
            if state.members == 0 {
                drop(state);
                map.local_queues.remove(name);
                return;
            }
        } else {
            state.fairness.released_beside(others, run, waiters, messages);
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

    /// Ends the waits of all waiters and leaders: the client is closed, or waits no more. A call
    /// that queues from now on sees that when it is the leader.
    pub(crate) fn end_waits(&self) {
        let mut all: Vec<_> = self.map.lock().local_queues.values().cloned().collect();
        all.extend(self.at_server.lock().values().cloned());
        for local_queue in all {
            local_queue.state.lock().waiters.iter().for_each(|waiter| waiter.signal(Signal::Ended));
            local_queue.event.end_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    use crate::background::queue_map::SWEEP_AT;
    use crate::background::run::{FIRST_BOUND, MEMORY};
    use crate::store::{Acquire, Waiting};

    fn piggyback() -> Option<Piggyback> {
        let holder = crate::base::holder::ClientId::random(Duration::from_secs(5)).fresh_holder();
        let name = lock_name();
        let (lease, token, waiting) = (Duration::from_secs(1), TokenRule::Off, Waiting::No);
        let request = Acquire { name: &name, holder: &holder, permits: 1, lease, held: 0, token, tokens: 1, waiting };
        Some(Piggyback::new(&request, false))
    }

    fn queue<'s>(
        local_queues: &'s LocalQueues,
        deadline: Deadline,
        cancel: Option<&CancelToken>,
    ) -> EnqueueOutcome<'s> {
        local_queues.queue(&lock_name(), deadline, cancel, piggyback, || ())
    }

    fn lock_name() -> Arc<LockName> {
        Arc::new(LockName::new("", "n", crate::base::lock_name::Kind::Mutex).unwrap())
    }

    #[test]
    fn the_role_passes_in_order_and_the_queue_goes_with_its_last_member() {
        let local_queues = LocalQueues::default();
        let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else { panic!() };
        assert!(!first.has_waited && local_queues.is_occupied("n"));
        std::thread::scope(|s| {
            let second = s.spawn(|| match queue(&local_queues, Deadline::Never, None) {
                EnqueueOutcome::Leader(leader) => leader.has_waited && leader.piggyback.is_some(),
                _ => false,
            });
            while first.membership.local_queue.state.lock().waiters.is_empty() {
                std::thread::yield_now();
            }
            let short = Deadline::after(Instant::now(), Duration::from_millis(1));
            assert!(matches!(queue(&local_queues, short, None), EnqueueOutcome::TimedOut(_)));
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(local_queues.map.lock().local_queues.is_empty());
    }

    #[test]
    fn closing_wakes_the_waiters() {
        let local_queues = LocalQueues::default();
        let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else { panic!() };
        std::thread::scope(|s| {
            let second = s.spawn(|| matches!(queue(&local_queues, Deadline::Never, None), EnqueueOutcome::Ended));
            while first.membership.local_queue.state.lock().waiters.is_empty() {
                std::thread::yield_now();
            }
            local_queues.end_waits();
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn a_cancelled_waiter_leaves_and_the_role_goes_to_the_next() {
        let local_queues = LocalQueues::default();
        let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else { panic!() };
        let local_queue = first.membership.local_queue.clone();
        let waiting = || local_queue.state.lock().waiters.len();
        let until = |count| (0..).take_while(|_| waiting() != count).for_each(|_| std::thread::yield_now());
        let token = CancelToken::new();
        std::thread::scope(|s| {
            let second =
                s.spawn(|| matches!(queue(&local_queues, Deadline::Never, Some(&token)), EnqueueOutcome::Ended));
            until(1);
            let third = s.spawn(|| matches!(queue(&local_queues, Deadline::Never, None), EnqueueOutcome::Leader(_)));
            until(2);
            token.cancel();
            assert!(second.join().unwrap());
            assert_eq!(waiting(), 1);
            assert!(matches!(queue(&local_queues, Deadline::Never, Some(&token)), EnqueueOutcome::Ended));
            drop(first);
            assert!(third.join().unwrap());
        });
        assert!(local_queues.map.lock().local_queues.is_empty());
    }

    #[test]
    fn a_leader_that_is_ended_leaves_the_yield_to_the_next() {
        let local_queues = LocalQueues::default();
        (0..FIRST_BOUND).for_each(|_| local_queues.released(&"n".into(), RunLength::ONE, 1, 0));
        let EnqueueOutcome::Leader(leader) = queue(&local_queues, Deadline::Never, None) else { panic!() };
        leader.event().end_wait();
        leader.let_others_first(|pause| pause, |awaited, pause| leader.event().wait_for(awaited, pause));
        assert!(leader.must_yield());
    }

    fn error() -> Error {
        Error::new(crate::base::error::ErrorKind::Unreachable, "the server is away")
    }

    /// The queue is kept, because others listened a moment before.
    #[test]
    fn an_outage_is_forgotten_with_the_last_waiter_that_knew_of_it() {
        let local_queues = LocalQueues::default();
        local_queues.released(&"n".into(), RunLength::ONE, 1, 0);
        let leader = |cancel| match queue(&local_queues, Deadline::Never, cancel) {
            EnqueueOutcome::Leader(leader) => leader,
            _ => panic!(),
        };
        let first = leader(None);
        let since = first.outage_goes_on(&error());
        assert_eq!(first.outage_goes_on(&error()), since);
        drop(first);
        let second = leader(None);
        assert!(second.outage_goes_on(&error()) > since, "an earlier call waited in another outage");
        second.forget_outage();
        assert!(second.outage_goes_on(&error()) > since);
    }

    /// Code of the user runs before a waiter sleeps, and may take any time.
    #[test]
    fn nothing_is_passed_to_a_waiter_before_it_sleeps() {
        let local_queues = LocalQueues::default();
        let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else { panic!() };
        let local_queue = first.membership.local_queue.clone();
        let first = std::cell::RefCell::new(Some(first));
        let begins = || {
            assert_eq!(local_queue.state.lock().waiters.len(), 1, "it has its place");
            drop(first.take());
            assert!(local_queue.state.lock().piggyback.is_none());
        };
        match local_queues.queue(&lock_name(), Deadline::Never, None, piggyback, begins) {
            EnqueueOutcome::Leader(leader) => assert!(leader.has_waited && !leader.has_piggyback()),
            _ => panic!("it was made the leader"),
        }
        assert!(local_queues.map.lock().local_queues.is_empty());
    }

    #[test]
    fn a_panic_before_a_waiter_sleeps_takes_it_out_of_the_queue() {
        use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
        let local_queues = LocalQueues::default();
        for becomes_leader in [false, true] {
            let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else { panic!() };
            let first = std::cell::RefCell::new(Some(first));
            let begins = || {
                if becomes_leader {
                    drop(first.take());
                }
                resume_unwind(Box::new("injected"));
            };
            let queues = || drop(local_queues.queue(&lock_name(), Deadline::Never, None, piggyback, begins));
            assert!(catch_unwind(AssertUnwindSafe(queues)).is_err());
            drop(first.take());
            assert!(local_queues.map.lock().local_queues.is_empty());
        }
    }

    #[test]
    fn unused_queues_are_swept_also_by_a_client_that_never_waits() {
        let local_queues = LocalQueues::default();
        for n in 0..10_000 {
            local_queues.released(&format!("n{n}").into(), RunLength::ONE, 1, 0);
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
    fn a_queue_that_was_left_serves_the_next_name_as_a_new_one() {
        let local_queues = LocalQueues::default();
        let lead = |name: &str| {
            let name = LockName::new("", name, crate::base::lock_name::Kind::Mutex).unwrap();
            match local_queues.queue(&name, Deadline::Never, None, || None, || ()) {
                EnqueueOutcome::Leader(leader) => leader,
                _ => panic!("{name:?} has no other members"),
            }
        };
        let spare = || local_queues.map.lock().spare.take().and_then(LocalQueue::as_new);
        let first = lead("a");
        first.event().notify_by_message();
        first.event().answered();
        drop(first);
        let second = lead("b");
        let event = second.event().clone();
        assert!(spare().is_none(), "it is in use");
        assert!(!event.is_notified() && event.messages() == 0 && !event.is_answered_within(Duration::MAX));
        drop(second);
        assert!(spare().is_none(), "a late message for the name must not wake the leader of another");
        drop(lead("c"));
        assert!(spare().is_some());
    }

    #[test]
    fn a_client_yields_after_a_run_with_others_waiting() {
        let local_queues = LocalQueues::default();
        let name: Arc<str> = "n".into();
        for _ in 0..FIRST_BOUND {
            local_queues.released(&name, RunLength::ONE, 1, 0);
        }
        let EnqueueOutcome::Leader(leader) = queue(&local_queues, Deadline::Never, None) else { panic!() };
        assert!(leader.must_yield());
        leader.let_others_first(|_| Duration::from_millis(1), |_, _| false);
        assert!(!leader.must_yield());
        assert_eq!(leader.membership.local_queue.state.lock().fairness.bound, 2 * FIRST_BOUND);
        local_queues.released(&name, RunLength::ONE, 0, 0);
        drop(leader);
        assert!(local_queues.map.lock().local_queues.is_empty());
    }
}
