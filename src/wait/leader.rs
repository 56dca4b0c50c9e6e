//! A thread's membership in a [local queue](crate::wait::local_queue), and the role of its
//! leader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::holder::Holder;
use crate::os::{self, Mutex};
use crate::signal::event::{Awaited, Event};
use crate::wait::fairness::{BLIND_GAP, LONGEST_GAP};
use crate::wait::piggyback::{Piggyback, PiggybackOutcome};
use crate::wait::queue_map::{LocalQueue, QueueMap, QueuesByHolder};
use crate::wait::waiter::{Became, Waiter};

/// A thread's membership in a local queue. The queue is kept while it has members.
#[derive(Debug)]
pub(super) struct Membership<'s> {
    pub(super) table: QueueTable<'s>,
    pub(super) local_queue: Arc<LocalQueue>,
    /// The lock's key; for a waiter that queues at the server, which has a local queue of its own,
    /// its holder id.
    pub(super) name: Arc<str>,
}

/// Where a local queue is found.
#[derive(Debug)]
pub(super) enum QueueTable<'s> {
    ByKey(&'s Mutex<QueueMap>),
    /// The waiter queues at the server.
    ByHolder(&'s Mutex<QueuesByHolder>),
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        match self.table {
            QueueTable::ByKey(map) => self.leave(map),
            QueueTable::ByHolder(at_server) => drop(at_server.lock().remove(&self.name)),
        }
    }
}

/// The role of the leader of a local queue. When this is dropped, the next waiter becomes leader.
#[derive(Debug)]
pub(crate) struct Leader<'s> {
    pub(super) membership: Membership<'s>,
    /// It waited in the queue before it became leader.
    pub(crate) has_waited: bool,
    /// The acquire that it has left in the queue, until it takes it back or gets its outcome.
    pub(super) piggyback: Option<Arc<Piggyback>>,
}

impl Leader<'_> {
    pub(crate) fn event(&self) -> &Arc<Event> {
        &self.membership.local_queue.event
    }

    /// Whether its place is in a queue at the server.
    pub(crate) fn is_at_server(&self) -> bool {
        matches!(self.membership.table, QueueTable::ByHolder(_))
    }

    /// From now on the waiter asks under another holder, by which a releasing thread finds it. True
    /// if its place is in a queue at the server and it had another holder there.
    pub(crate) fn ask_as(&mut self, holder: &Holder) -> bool {
        let Membership { table: QueueTable::ByHolder(queues), local_queue, name } =
            &mut self.membership
        else {
            return false;
        };
        if **name == *holder.as_str() {
            return false;
        }
        let mut queues = queues.lock();
        queues.remove(name);
        *name = holder.as_str().into();
        queues.insert(name.clone(), local_queue.clone());
        true
    }

    /// How many fencing tokens an acquire draws.
    pub(crate) fn tokens(&self) -> u32 {
        let state = self.membership.local_queue.state.lock();
        state.fairness.tokens(!state.waiters.is_empty())
    }

    /// Whether it has left an acquire in the queue and has not taken it back.
    pub(crate) fn has_piggyback(&self) -> bool {
        self.piggyback.is_some()
    }

    /// Leaves an acquire in the queue, for the thread of this client that frees the lock.
    pub(crate) fn leave_piggyback(&mut self, piggyback: Piggyback) {
        let piggyback = Arc::new(piggyback);
        self.membership.local_queue.state.lock().piggyback = Some(piggyback.clone());
        self.piggyback = Some(piggyback);
    }

    /// What threads of this client have done for the leader: the outcome of the acquire that it
    /// left in the queue, if a thread has taken it (waiting for that is bounded by the I/O
    /// timeouts), or a parked hold.
    pub(crate) fn collect(&mut self) -> Option<PiggybackOutcome> {
        // Nothing is parked for a leader that has left no acquire.
        if self.piggyback.as_ref()?.is_taken() {
            return self.piggyback.take().map(|piggyback| piggyback.wait());
        }
        let mut state = self.membership.local_queue.state.lock();
        let parked = state.parking.keep()?;
        state.piggyback = None;
        self.piggyback = None;
        Some(PiggybackOutcome::Parked(parked))
    }

    /// Takes back the acquire that the leader left in the queue, and returns what threads of this
    /// client have done for it by then; `None`: nothing, and they will not. Call it before the
    /// leader sends a request of its own, and before it leaves: otherwise a hold that is parked for
    /// it would be given up.
    pub(crate) fn withdraw(&mut self) -> Option<PiggybackOutcome> {
        let piggyback = self.piggyback.take()?;
        let mut state = self.membership.local_queue.state.lock();
        state.piggyback = None;
        if piggyback.is_taken() {
            drop(state);
            return Some(piggyback.wait());
        }
        // It was still in the queue, or was never put there because this client has to yield.
        state.parking.keep().map(PiggybackOutcome::Parked)
    }

    /// The store has answered that a holder elsewhere has the lock.
    pub(crate) fn note_busy(&self) {
        self.membership.local_queue.state.lock().fairness.note_busy();
    }

    /// A thread of this client has had the lock since: a later outage is a new one.
    pub(crate) fn forget_outage(&self) {
        self.membership.local_queue.state.lock().outage = None;
    }

    /// Records the latest error of an outage. Returns when the outage began.
    pub(crate) fn note_outage(&self, error: &Error) -> Instant {
        let mut state = self.membership.local_queue.state.lock();
        let since = state.outage.as_ref().map_or_else(os::now, |(since, _)| *since);
        state.outage = Some((since, error.clone()));
        since
    }

    /// How long the store could not be asked, and the latest error.
    pub(crate) fn outage(&self) -> Option<(Duration, Error)> {
        let state = self.membership.local_queue.state.lock();
        state.outage.as_ref().map(|(since, error)| (os::since(*since), error.clone()))
    }

    pub(crate) fn end_outage(&self) {
        self.event().answered();
        self.membership.local_queue.state.lock().outage = None;
    }

    /// Whether other clients must get the lock before this client asks again.
    pub(crate) fn must_yield(&self) -> bool {
        self.membership.local_queue.state.lock().comes_later()
    }

    /// Whether clients that have waited longer should go first.
    pub(crate) fn comes_last(&self) -> bool {
        let state = self.membership.local_queue.state.lock();
        state.comes_later() || state.courtesy(self.event()).is_some()
    }

    /// If this client owes a [`BLIND_GAP`], waits for that. If it is the turn of other clients,
    /// waits until one of them has released the lock, or for [`LONGEST_GAP`]; and then for as long
    /// as others may still need to go first. `patience`: the part of a pause that the caller has
    /// time for. Returns sooner if the wait is ended.
    pub(crate) fn let_others_first(
        &self,
        patience: impl Fn(Duration) -> Duration,
        wait_for: impl FnOnce(Awaited, Duration) -> bool,
    ) {
        let state = || self.membership.local_queue.state.lock();
        let owes_blind_gap = state().fairness.owes_blind_gap();
        if owes_blind_gap {
            self.event().wait_for(Awaited::Nothing, patience(BLIND_GAP));
            if self.event().is_ended() {
                // The next leader leaves the gap.
                return;
            }
            state().fairness.left_blind_gap();
        }
        let owes_gap = state().fairness.owes_gap();
        if owes_gap {
            let messages = state().fairness.next_message();
            let taken = wait_for(Awaited::Messages(messages), patience(LONGEST_GAP));
            if self.event().is_ended() {
                // The next leader leaves the gap.
                return;
            }
            state().fairness.left_gap(taken, self.event().messages());
        }
        let messages = self.event().messages();
        let courtesy = state().courtesy(self.event());
        if let Some(courtesy) = courtesy {
            self.event().wait_for(Awaited::Nothing, patience(courtesy));
            state().fairness.showed_courtesy(messages);
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        // Declared first and dropped last: if the leader leaves by a panic, the hold that is parked
        // for it is given up, which locks other mutexes.
        let _parked;
        let mut state = self.membership.local_queue.state.lock();
        state.piggyback = None;
        _parked = state.parking.keep();
        state.pass_on_lead();
    }
}

impl Membership<'_> {
    fn leave(&self, map: &Mutex<QueueMap>) {
        let mut map = map.lock();
        let mut state = self.local_queue.state.lock();
        state.members -= 1;
        if state.members == 0 && state.fairness.is_forgotten() {
            drop(state);
            map.local_queues.remove(&self.name);
        }
    }

    /// Leaves the queue, unless another thread has taken the waiter out: then returns what it is
    /// now. One step, under the mutex under which that thread did both: a waiter that looked first
    /// and left later could be let in between the two, and take itself for a second leader.
    pub(super) fn leave_or_become(&self, waiter: &Arc<Waiter>) -> Option<Became> {
        let mut state = self.local_queue.state.lock();
        match state.waiters.iter().position(|other| Arc::ptr_eq(other, waiter)) {
            Some(place) => {
                state.waiters.remove(place);
                None
            }
            None => waiter.became(),
        }
    }
}
