//! The local queues of a client by name, and the state of each. How threads queue is in
//! [`local_queue`](crate::wait::local_queue).

use std::collections::VecDeque;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::os::{HashMap, HashSet, Mutex};
use crate::signal::event::Event;
use crate::wait::fairness::Fairness;
use crate::wait::parking::Parking;
use crate::wait::piggyback::Piggyback;
use crate::wait::waiter::{Became, Waiter};

/// With this many queues or more, unused ones are swept.
pub(super) const SWEEP_AT: usize = 256;

#[derive(Debug, Default)]
pub(super) struct QueueMap {
    pub(super) local_queues: HashMap<Arc<str>, Arc<LocalQueue>>,
    /// The names for which a thread asks without a queue.
    pub(super) asking_at_once: HashSet<Arc<str>>,
    /// How many queues the last sweep left.
    pub(super) after_sweep: usize,
}

impl QueueMap {
    /// The local queue of the name, made if there is none.
    pub(super) fn entry(&mut self, name: &Arc<str>) -> &Arc<LocalQueue> {
        // Only when there are twice as many as the last sweep left: with many names in use, every
        // new queue would otherwise check all others.
        if self.local_queues.len() >= SWEEP_AT.max(2 * self.after_sweep) {
            self.local_queues.retain(|_, local_queue| {
                let state = local_queue.state.lock();
                state.members > 0 || !state.fairness.is_forgotten()
            });
            self.after_sweep = self.local_queues.len();
        }
        self.local_queues.entry(name.clone()).or_default()
    }
}

/// The queues of waiters that queue at the server.
pub(super) type QueuesByHolder = HashMap<Arc<str>, Arc<LocalQueue>>;

#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    pub(super) event: Arc<Event>,
    pub(super) state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
pub(super) struct QueueState {
    /// The waiters behind the leader.
    pub(super) waiters: VecDeque<Arc<Waiter>>,
    /// Whether there is a leader, or a waiter that was made the leader and is waking up.
    pub(super) leader: bool,
    /// The leader's acquire, for the thread of this client that frees the lock to send right behind
    /// the release.
    pub(super) piggyback: Option<Arc<Piggyback>>,
    /// A hold that was parked for the leader, or for a thread that barges in before it.
    pub(super) parking: Parking,
    /// Threads that are in the queue or about to enter it.
    pub(super) members: usize,
    pub(super) fairness: Fairness,
    /// Since when the server cannot be asked, as far as the leaders of this queue know, and the
    /// latest error.
    pub(super) outage: Option<(Instant, Error)>,
}

/// Where a caller enters a local queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// In an outage it asks for itself instead.
    AtTheEnd,
    /// At the end, also in an outage: it has had a reply, and waits the outage out. If one reply
    /// could end any number of outages, its caller and a leader that fails at once would wake each
    /// other without a pause.
    WithAReply,
    /// It was the leader, and gave up the role to run code of the user.
    AtTheFront,
}

/// What a caller that enters a queue is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placed {
    Leads,
    /// It asks for itself.
    Outage,
    Behind,
}

impl QueueState {
    /// Makes the caller the leader if there is none. Otherwise it has a place from now on, unless
    /// it has no `waiter` yet.
    pub(super) fn place(&mut self, entry: Entry, waiter: Option<&Arc<Waiter>>) -> Placed {
        if !self.leader {
            self.leader = true;
            return Placed::Leads;
        }
        match (entry, waiter.cloned()) {
            (Entry::AtTheEnd, _) if self.outage.is_some() => return Placed::Outage,
            (Entry::AtTheEnd | Entry::WithAReply, waiter) => self.waiters.extend(waiter),
            (Entry::AtTheFront, Some(waiter)) => self.waiters.push_front(waiter),
            (Entry::AtTheFront, None) => {}
        }
        Placed::Behind
    }

    /// How long to wait before the next attempt, so that clients that have waited longer go first.
    pub(super) fn courtesy(&self, event: &Event) -> Option<Duration> {
        self.fairness.courtesy(|| event.messages())
    }

    /// Whether other clients must get the lock before this client asks again.
    pub(super) fn comes_later(&self) -> bool {
        self.fairness.owes_gap() || self.fairness.owes_blind_gap()
    }

    /// The next waiter becomes the leader.
    pub(super) fn pass_on_lead(&mut self) {
        match self.waiters.pop_front() {
            Some(next) => {
                if !self.comes_later() {
                    self.piggyback = next.piggyback().cloned();
                }
                next.becomes(Became::Leader);
                next.wake();
            }
            // Nobody asks the server any more, so nobody knows how long an outage lasts.
            None => {
                self.leader = false;
                self.outage = None;
            }
        }
    }

    pub(super) fn take_piggyback(&mut self) -> Option<Arc<Piggyback>> {
        let piggyback = self.piggyback.take()?;
        piggyback.take();
        Some(piggyback)
    }
}
