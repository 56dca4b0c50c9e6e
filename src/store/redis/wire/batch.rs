//! Requests that another thread sends: where their callers wait, and how they get an outcome.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::connection::Connection;
use super::reply::Reply;
use super::request::Request;
use super::unknown_outcome::{Failure, UnknownOutcome};
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
pub(super) struct QueuedRequest {
    pub(super) request: Request,
    pub(super) state: Mutex<RequestState>,
    pub(super) changed: Condvar,
}

pub(super) enum RequestState {
    Queued,
    /// A leader has sent it and sets the outcome, even if it panics.
    Sent,
    /// The caller is the leader now: with this connection, or with one that it makes (a place in
    /// `open` is reserved).
    Lead(Option<Connection>),
    Done(Outcome),
    Taken,
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

/// The followers of a leader. On drop each gets an outcome, also when the leader panics.
pub(super) struct Batch {
    pub(super) followers: Vec<Arc<QueuedRequest>>,
    pub(super) outcomes: VecDeque<Outcome>,
    /// The unknown outcome that all of them have if their replies do not come; set once the batch
    /// is sent.
    pub(super) unknown: Option<UnknownOutcome>,
}

impl Batch {
    pub(super) fn new(followers: Vec<Arc<QueuedRequest>>) -> Self {
        Self { followers, outcomes: VecDeque::new(), unknown: None }
    }

    /// All followers without a reply get the failure.
    pub(super) fn fail(&mut self, failure: Failure) -> Failure {
        while self.outcomes.len() < self.followers.len() {
            self.outcomes.push_back(Err(copy(&failure)));
        }
        failure
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for queued_request in self.followers.drain(..) {
            let outcome = self.outcomes.pop_front().unwrap_or_else(|| {
                let error = Error::new(ErrorKind::Unreachable, "the thread that carried this request panicked");
                Err(match &self.unknown {
                    Some(unknown) => Failure::Unknown { error, unknown: unknown.clone(), stale: false },
                    None => Failure::NotSent(error),
                })
            });
            queued_request.set(RequestState::Done(outcome));
        }
    }
}

pub(super) fn copy(failure: &Failure) -> Failure {
    match failure {
        Failure::NotSent(error) => Failure::NotSent(error.clone()),
        Failure::Unknown { error, unknown, stale } => {
            Failure::Unknown { error: error.clone(), unknown: unknown.clone(), stale: *stale }
        }
    }
}
