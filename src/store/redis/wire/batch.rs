//! Requests that another thread sends: where their callers wait, and how they get an outcome.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::connection::{Connection, InFlight};
use super::reply::Reply;
use super::request::Request;
use super::unknown_outcome::{RedisFailure, UnknownOutcome};
use crate::base::error::{Error, ErrorKind};
use crate::base::lease::Moment;

/// A reply, and the instant before the first byte of its request went out.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) sent_at: Moment,
}

pub(crate) type Outcome = std::result::Result<Answer, RedisFailure>;

/// A queued request and the place where its caller waits.
pub(super) struct QueuedRequest {
    pub(super) request: Request,
    pub(super) state: Mutex<RequestState>,
    pub(super) changed: Condvar,
}

pub(super) enum RequestState {
    Queued,
    /// A leader has sent it and sets the outcome, even if it panics.
    Sent,
    /// The caller makes a connection, for which a place in `open` is reserved, and sends the queue.
    Lead,
    /// The batch was sent, the caller's request in front: the caller reads and distributes the
    /// replies.
    Read(SentBatch),
    Done(Outcome),
    Taken,
}

/// A batch on its way, for its leader, whose request was the first and is not in `batch` any more.
pub(super) struct SentBatch {
    pub(super) connection: Connection,
    pub(super) flight: InFlight,
    pub(super) batch: Batch,
}

impl QueuedRequest {
    pub(super) fn new(request: Request) -> Self {
        Self { request, state: Mutex::new(RequestState::Queued), changed: Condvar::new() }
    }

    pub(super) fn set(&self, state: RequestState) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

/// Requests that are sent together. On drop each gets an outcome, also when the thread that has
/// them panics.
pub(super) struct Batch {
    pub(super) requests: VecDeque<Arc<QueuedRequest>>,
    pub(super) outcomes: VecDeque<Outcome>,
    /// The unknown outcome that all of them have if their replies do not come; set once the batch
    /// is sent.
    pub(super) unknown: Option<UnknownOutcome>,
}

impl Batch {
    /// Of requests that were taken from the queue just now: their callers wait for as long as it
    /// takes from here on.
    pub(super) fn new(requests: VecDeque<Arc<QueuedRequest>>) -> Self {
        requests.iter().for_each(|request| *request.state.lock() = RequestState::Sent);
        Self { requests, outcomes: VecDeque::new(), unknown: None }
    }

    /// All requests without a reply get the failure.
    pub(super) fn fail(&mut self, failure: RedisFailure) -> RedisFailure {
        while self.outcomes.len() < self.requests.len() {
            self.outcomes.push_back(Err(copy(&failure)));
        }
        failure
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for queued_request in self.requests.drain(..) {
            let outcome = self.outcomes.pop_front().unwrap_or_else(|| {
                let error = Error::new(ErrorKind::Unreachable, "the thread that carried this request panicked");
                Err(match &self.unknown {
                    Some(unknown) => RedisFailure::Unknown { error, unknown: unknown.clone(), stale: false },
                    None => RedisFailure::NotSent(error),
                })
            });
            queued_request.set(RequestState::Done(outcome));
        }
    }
}

pub(super) fn copy(failure: &RedisFailure) -> RedisFailure {
    match failure {
        RedisFailure::NotSent(error) => RedisFailure::NotSent(error.clone()),
        RedisFailure::Unknown { error, unknown, stale } => {
            RedisFailure::Unknown { error: error.clone(), unknown: unknown.clone(), stale: *stale }
        }
    }
}
