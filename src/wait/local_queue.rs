//! The queue of the threads of one client that want the same name, first come, first served.
//!
//! Only the leader of a queue talks to the server: fifty threads cost it as much as one. A thread
//! that comes when there is no queue asks without one, and leads the queue behind it for that time.
//! The role of the leader passes on when the leader is granted the lock or leaves, even by a panic.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::deadline::Deadline;
use crate::base::error::Error;
use crate::base::holder::Holder;
use crate::lease::records::{StoreHold, Tenure};
use crate::lease::store_hold::{Admission, RunLength};
use crate::os::Mutex;
use crate::signal::cancel::CancelToken;
use crate::signal::event::{Event, Interrupt};
use crate::store::TokenRule;
use crate::wait::fairness::Messages;
use crate::wait::leader::{Leader, Membership, QueueTable};
use crate::wait::piggyback::{Piggyback, TakenPiggyback};
pub(crate) use crate::wait::queue_map::Entry;
pub(crate) use crate::wait::queue_map::LocalQueue;
use crate::wait::queue_map::{Placed, QueueMap, QueueState, QueuesByHolder};
use crate::wait::waiter::{Became, Waiter};

#[derive(Debug, Default)]
pub(crate) struct LocalQueues {
    map: Mutex<QueueMap>,
    /// The queues of waiters that queue at the server, by holder.
    at_server: Mutex<QueuesByHolder>,
}

pub(crate) enum EnqueueOutcome<'s> {
    Leader(Leader<'s>),
    /// The caller is one more reader of this hold.
    Joined(Admission),
    /// With the event of the queue, which records when the store last answered.
    TimedOut(Arc<Event>),
    /// The client has stopped waiting, or the call was cancelled.
    Ended,
    /// The leader could not ask the server at its last attempt. The caller asks for itself and does
    /// not wait for the leader's next attempt: a dead server is reported at once, and a connection
    /// that broke under the leader says nothing about the server.
    Outage,
    /// No time is left, and it is not known whether another holder has the lock.
    Unknown(Error),
}

/// A thread asks for the name without a queue, until this is dropped. It leads the queue that comes
/// into being behind it meanwhile: a thread that asked as well would take the hold of the first one
/// for that of another client, and this client would yield to nobody.
pub(crate) struct AskingAtOnce<'s> {
    map: &'s Mutex<QueueMap>,
    name: &'s Arc<str>,
}

impl Drop for AskingAtOnce<'_> {
    fn drop(&mut self) {
        let mut map = self.map.lock();
        map.asking_at_once.remove(self.name);
        if let Some(local_queue) = map.local_queues.get(self.name) {
            // Its lead only if a thread has entered: see `LocalQueues::enter`.
            let mut state = local_queue.state.lock();
            if state.leader {
                state.pass_on_lead();
            }
        }
    }
}

impl LocalQueues {
    /// The leader of a queue of its own, for a waiter whose place is in a queue at the server: that
    /// queue alone decides the order.
    pub(crate) fn at_server(&self, holder: &Holder) -> Leader<'_> {
        let (local_queue, name): (Arc<LocalQueue>, Arc<str>) =
            (Arc::default(), holder.as_str().into());
        self.at_server.lock().insert(name.clone(), local_queue.clone());
        let membership =
            Membership { table: QueueTable::ByHolder(&self.at_server), local_queue, name };
        Leader { membership, has_waited: false, piggyback: None }
    }

    /// The queue of the name. `None`: no thread of this client waits for it, and no turns of other
    /// clients are remembered.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<LocalQueue>> {
        self.map.lock().local_queues.get(name).cloned()
    }

    /// Whether a new caller has to queue: a thread of this client waits for the name, or this
    /// client has to yield to others.
    pub(crate) fn is_occupied(&self, name: &str) -> bool {
        self.find(name).is_some_and(|local_queue| {
            let state = local_queue.state.lock();
            state.leader || state.comes_later()
        })
    }

    /// The caller may ask for the name at once, without a queue: no other thread of this client
    /// does so, none waits, and no turns of other clients are remembered. Many threads that come at
    /// the same moment would otherwise send a request each.
    pub(crate) fn ask_at_once<'s>(&'s self, name: &'s Arc<str>) -> Option<AskingAtOnce<'s>> {
        let mut map = self.map.lock();
        if map.local_queues.contains_key(name) || !map.asking_at_once.insert(name.clone()) {
            return None;
        }
        // Not made for a caller that is not the first: its drop takes the mutex.
        Some(AskingAtOnce { map: &self.map, name })
    }

    /// Blocks until the caller is the leader of the queue with this key, or its wait is over.
    /// `prepare` is called if another thread is the leader, while the caller has no place: it runs
    /// code of the user, which may block or panic, and makes the acquire that the caller leaves in
    /// the queue. `enters` is called once the caller has its place. No mutex is locked then.
    pub(crate) fn queue(
        &self,
        key: &Arc<str>,
        entry: Entry,
        (deadline, cancel): (Deadline, Option<&CancelToken>),
        prepare: impl FnOnce() -> Option<Piggyback>,
        enters: impl FnOnce(),
    ) -> EnqueueOutcome<'_> {
        let membership = self.enter(key);
        let place = |waiter| membership.local_queue.state.lock().place(entry, waiter);
        let mut waiter = None;
        let placed = match place(None) {
            Placed::Behind => {
                place(Some(waiter.insert(Arc::new(Waiter::new(prepare().map(Arc::new))))))
            }
            placed => placed,
        };
        let waiter = match (placed, waiter) {
            (Placed::Behind, Some(waiter)) => waiter,
            (Placed::Outage, _) => return EnqueueOutcome::Outage,
            _ => {
                return EnqueueOutcome::Leader(Leader {
                    membership,
                    has_waited: false,
                    piggyback: None,
                });
            }
        };
        enters();
        let _woken = cancel.map(|token| token.wakes(waiter.clone()));
        match waiter.wait(deadline).or_else(|| membership.leave_or_become(&waiter)) {
            Some(Became::Reader(admission)) => EnqueueOutcome::Joined(admission),
            // If its wait was ended as well, it notices that as the leader.
            Some(Became::Leader) => {
                let piggyback = waiter.piggyback().cloned();
                EnqueueOutcome::Leader(Leader { membership, has_waited: true, piggyback })
            }
            None if waiter.is_ended() => EnqueueOutcome::Ended,
            None => match &membership.local_queue.state.lock().outage {
                Some((_, error)) => EnqueueOutcome::Unknown(error.clone()),
                None => EnqueueOutcome::TimedOut(membership.local_queue.event.clone()),
            },
        }
    }

    fn enter(&self, name: &Arc<str>) -> Membership<'_> {
        let mut map = self.map.lock();
        let is_led = map.asking_at_once.contains(name);
        let local_queue = map.entry(name).clone();
        let mut state = local_queue.state.lock();
        state.members += 1;
        state.leader |= is_led;
        drop(state);
        drop(map);
        Membership { table: QueueTable::ByKey(&self.map), local_queue, name: name.clone() }
    }

    /// Takes the hold that is parked for the leader, for the calling thread, which runs while the
    /// leader wakes up and wants this lease and token rule.
    pub(crate) fn barge(&self, name: &str, lease: Duration, token: TokenRule) -> Option<Admission> {
        let map = self.map.lock();
        let mut state = map.local_queues.get(name)?.state.lock();
        state.parking.barge(|admission| admission.hold.fits(lease, token))
    }

    /// Lets the readers next in the queue join this read hold, which the leader of the queue has
    /// just begun: up to the first writer, so that they do not overtake it.
    pub(crate) fn let_readers_join(&self, hold: &Arc<StoreHold>) {
        let Some(local_queue) = self.find(&hold.asked.name.key) else { return };
        let mut joined = SmallVec::<[Arc<Waiter>; 8]>::new();
        let mut state = local_queue.state.lock();
        while let Some(next) = state.waiters.front() {
            let Some(admission) = next.piggyback().and_then(|piggyback| piggyback.joins(hold))
            else {
                break;
            };
            next.becomes(Became::Reader(admission));
            joined.extend(state.waiters.pop_front());
        }
        drop(state);
        for waiter in &joined {
            waiter.wake();
        }
    }

    /// The acquire of a waiter that queues at the server, if the waiter belongs to this client and
    /// sleeps.
    pub(crate) fn take_piggyback_of(&self, holder: &str) -> Option<TakenPiggyback> {
        let at_server = self.at_server.lock();
        let local_queue = at_server.get(holder)?;
        let piggyback = local_queue.state.lock().take_piggyback()?;
        let event = local_queue.event.clone();
        Some(TakenPiggyback::new(piggyback, 1, event.round(), Some(event)))
    }

    /// The server has answered a new caller: the leader need not wait for its next attempt.
    pub(crate) fn end_outage(&self, name: &str) {
        if let Some(local_queue) = self.find(name) {
            local_queue.state.lock().outage = None;
            local_queue.event.notify();
        }
    }

    /// A thread of this client freed the lock after this run: the leader of its queue need not wait
    /// for the message. `others`: how many other clients are subscribed (a hint: it does not count
    /// those that are reconnecting).
    pub(crate) fn released(
        &self,
        name: &Arc<str>,
        run: RunLength,
        others: u64,
        messages: Messages,
    ) {
        let mut map = self.map.lock();
        let local_queue = match map.local_queues.get(name) {
            Some(local_queue) => local_queue.clone(),
            None if others > 0 => map.entry(name).clone(),
            None => return,
        };
        let mut state = local_queue.state.lock();
        let waiters = state.leader;
        state.fairness.released(run, others, messages, waiters);
        if state.members == 0 && state.fairness.is_forgotten() {
            drop(state);
            map.local_queues.remove(name);
            return;
        }
        drop(state);
        drop(map);
        local_queue.event.notify();
    }

    /// A release of this client has ended, and may not have freed the lock: the leader tries again.
    pub(crate) fn notify(&self, name: &str) {
        if let Some(local_queue) = self.find(name) {
            local_queue.event.notify();
        }
    }

    /// Wakes all leaders, so that they try again.
    #[cfg(feature = "testing")]
    pub(crate) fn notify_all(&self) {
        for local_queue in self.map.lock().local_queues.values() {
            local_queue.event.notify();
        }
        for local_queue in self.at_server.lock().values() {
            local_queue.event.notify();
        }
    }

    /// Ends the waits of all waiters and leaders: the client is closed, or has stopped waiting. A
    /// call that queues from now on notices that once it is the leader.
    pub(crate) fn end_waits(&self) {
        let mut all: Vec<_> = self.map.lock().local_queues.values().cloned().collect();
        all.extend(self.at_server.lock().values().cloned());
        for local_queue in all {
            for waiter in &local_queue.state.lock().waiters {
                waiter.interrupt();
            }
            local_queue.event.end_wait();
        }
    }
}

/// What a thread that gives up the lock does with the threads that wait for it. If the queue has
/// left the map since it was found, nobody waits in it: then all of this does nothing.
impl LocalQueue {
    /// How many messages its waiters have received.
    pub(crate) fn messages(&self) -> u64 {
        self.event.messages()
    }

    /// Whether the messages received before the release of `hold` have to be counted.
    pub(crate) fn counts_messages(&self, hold: &StoreHold) -> bool {
        self.state.lock().fairness.counts_messages(hold.run())
    }

    /// The acquire of the leader, to be sent right behind the release of `hold`. `None` if this
    /// client has to yield to others.
    pub(crate) fn take_piggyback(&self, hold: &StoreHold) -> Option<TakenPiggyback> {
        let mut state = self.state.lock();
        if state.piggyback.is_none() || !state.fairness.begin_hand_over(hold.run()) {
            state.fairness.note_left_free();
            return None;
        }
        let piggyback = state.take_piggyback()?;
        let tokens = state.fairness.tokens(true);
        Some(TakenPiggyback::new(piggyback, tokens, self.event.round(), None))
    }

    /// Parks the hold of `tenure`, whose user has given it up, for the leader. False if no thread
    /// of this client can take it over, or if other clients must come first: then it has to be
    /// released.
    pub(crate) fn park(&self, tenure: &Arc<Tenure>) -> bool {
        let mut state = self.state.lock();
        let QueueState { parking, fairness, piggyback, .. } = &mut *state;
        // A hold that is already parked here was lost, and nobody has noticed yet.
        let Some(piggyback) = piggyback.as_ref().filter(|_| parking.is_free()) else {
            return false;
        };
        let Some(admission) = piggyback.succeeds(tenure, |run| fairness.goes_on(run)) else {
            return false;
        };
        // Beside other clients a run has few turns, so each should go to a different thread.
        if parking.park(admission, fairness.knows_others()) {
            drop(state);
            self.event.notify();
        }
        true
    }
}

#[cfg(test)]
#[path = "local_queue_tests.rs"]
mod tests;
