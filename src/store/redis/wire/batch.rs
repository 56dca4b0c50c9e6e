//! Where a caller waits whose request is sent by somebody else.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::connection::{Doubt, Failure, Link};
use super::{Reply, Request};
use crate::base::error::{Error, ErrorKind};
use crate::base::lease::Moment;

/// A reply, and the instant before the first byte of its request went out.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) sent_at: Moment,
}

pub(crate) type Outcome = std::result::Result<Answer, Failure>;

/// A queued request and the place where its caller waits.
pub(super) struct Slot {
    pub(super) request: Request,
    pub(super) state: Mutex<SlotState>,
    pub(super) changed: Condvar,
}

pub(super) enum SlotState {
    Queued,
    /// A leader has sent it and will bring the outcome, whatever happens.
    Sent,
    /// Lead: with this connection, or make one (a place in `open` is reserved).
    Lead(Option<Link>),
    Done(Outcome),
    Taken,
}

impl Slot {
    pub(super) fn new(request: Request) -> Self {
        Self { request, state: Mutex::new(SlotState::Queued), changed: Condvar::new() }
    }

    pub(super) fn set(&self, state: SlotState) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

/// The followers of a leader, each of whom is told something whatever happens to the leader.
pub(super) struct Batch {
    pub(super) followers: Vec<Arc<Slot>>,
    pub(super) outcomes: VecDeque<Outcome>,
    /// What is in doubt once the batch is sent.
    pub(super) doubt: Option<Doubt>,
}

impl Batch {
    pub(super) fn new(followers: Vec<Arc<Slot>>) -> Self {
        Self { followers, outcomes: VecDeque::new(), doubt: None }
    }

    /// Everybody whose reply is missing shares the failure.
    pub(super) fn fail(&mut self, failure: Failure) -> Failure {
        while self.outcomes.len() < self.followers.len() {
            self.outcomes.push_back(Err(copy(&failure)));
        }
        failure
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for slot in self.followers.drain(..) {
            let outcome = self.outcomes.pop_front().unwrap_or_else(|| {
                let error = Error::new(ErrorKind::Unreachable, "the thread that carried this request panicked");
                Err(match &self.doubt {
                    Some(doubt) => Failure::InDoubt { error, doubt: doubt.clone(), stale: false },
                    None => Failure::NotSent(error),
                })
            });
            slot.set(SlotState::Done(outcome));
        }
    }
}

pub(super) fn copy(failure: &Failure) -> Failure {
    match failure {
        Failure::NotSent(error) => Failure::NotSent(error.clone()),
        Failure::InDoubt { error, doubt, stale } => {
            Failure::InDoubt { error: error.clone(), doubt: doubt.clone(), stale: *stale }
        }
    }
}
