//! Changes that queue for a connection, and the joint requests that they become. When they do, says
//! [`together`](super::together).

use std::collections::VecDeque;
use std::sync::Arc;

use super::slot::Slot;
use crate::base::error::Error;
use crate::base::lease::Moment;
use crate::store::zookeeper::wire::{Reply, Request};

/// How many bytes the changes of one transaction have at most: a quarter of what servers take.
const LONGEST: usize = 256 * 1024;

/// What a call asks: a change, and what it wants to read behind it.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) requests: Vec<Request>,
    pub(super) slot: Arc<Slot>,
    /// A transaction with it was refused.
    pub(super) is_alone: bool,
}

impl Change {
    /// Nothing was sent.
    pub(super) fn refuse(self, reply: &Reply) {
        for place in 0..self.requests.len() {
            self.slot.answer(place, reply.clone());
        }
    }

    pub(super) fn fail(&self, why: &Error) {
        self.slot.fail(why);
    }
}

/// Changes that are one transaction.
#[derive(Debug)]
pub(super) struct Together {
    pub(super) changes: Vec<Change>,
    /// How many requests behind it read for them.
    pub(super) looks: usize,
}

impl Together {
    pub(super) fn refuse(self, reply: &Reply) {
        for change in self.changes {
            change.slot.answer(0, reply.clone());
        }
    }

    pub(super) fn fail(&self, why: &Error) {
        for change in &self.changes {
            change.fail(why);
        }
    }
}

/// What a call wants to read behind its change.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) request: Request,
    pub(super) slot: Arc<Slot>,
    pub(super) place: usize,
}

/// A reply for a call.
pub(super) struct Answer {
    pub(super) slot: Arc<Slot>,
    pub(super) place: usize,
    pub(super) reply: Reply,
}

impl Answer {
    pub(super) fn give(self) {
        self.slot.answer(self.place, self.reply);
    }
}

/// What earlier connections have shown about joint looks.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct JointLooks {
    /// A server has answered one.
    pub(super) work: bool,
    /// A connection has ended in the first one, or by its answer.
    pub(super) end_connections: bool,
}

/// How a server reads for several calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looking {
    /// It may not know the request for it, and would end the connection.
    #[default]
    Unknown,
    Together,
    /// One request for each.
    Apart,
}

/// The changes of a connection.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// In order of arrival. While there are any, others are under way, whose answers let them go.
    pub(super) queue: VecDeque<Change>,
    /// How many have no answer yet.
    pub(super) under_way: usize,
    apart_until: Option<Moment>,
    pub(super) looking: Looking,
    pub(super) joint_looks: JointLooks,
}

impl Changes {
    pub(super) fn new(joint_looks: JointLooks) -> Self {
        let looking = if joint_looks.end_connections { Looking::Apart } else { Looking::Unknown };
        Self { looking, joint_looks, ..Self::default() }
    }

    pub(super) fn is_apart(&self, now: Moment) -> bool {
        self.apart_until.is_some_and(|until| now < until)
    }

    pub(super) fn join_nothing_until(&mut self, until: Moment) {
        self.apart_until = self.apart_until.max(Some(until));
    }

    /// Takes those that can be one transaction from the queue, in order.
    pub(super) fn take_together(&mut self, now: Moment) -> Vec<Change> {
        let Some(first) = self.queue.pop_front() else { return Vec::new() };
        if first.is_alone || self.is_apart(now) {
            return vec![first];
        }
        let mut length = first.requests[0].length();
        let mut draws_in = first.requests[0].draws_in().to_vec();
        let mut together = vec![first];
        for change in std::mem::take(&mut self.queue) {
            let request = &change.requests[0];
            let is_other = |queue: &String| !draws_in.contains(queue);
            if !change.is_alone
                && length + request.length() <= LONGEST
                && request.draws_in().iter().all(is_other)
            {
                length += request.length();
                draws_in.extend_from_slice(request.draws_in());
                together.push(change);
            } else {
                self.queue.push_back(change);
            }
        }
        together
    }
}

#[cfg(test)]
#[path = "joint_tests.rs"]
mod tests;
