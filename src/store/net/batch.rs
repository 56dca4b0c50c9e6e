//! Requests that another thread sends: where their callers wait, and how they get an outcome.

use std::collections::VecDeque;
use std::sync::Arc;

use super::failure::Failure;
use super::pooled::{FailureOf, Outcome, PooledConnector};
use crate::base::error::{Error, ErrorKind};
use crate::os::{Condvar, Mutex};

/// Limits how long the last request of a batch waits for the first.
const MOST: usize = 128;

/// A queued request and the place where its caller waits.
pub(super) struct QueuedRequest<C: PooledConnector> {
    pub(super) request: C::Request,
    pub(super) state: Mutex<RequestState<C>>,
    pub(super) changed: Condvar,
}

pub(super) enum RequestState<C: PooledConnector> {
    Queued,
    /// It is in a batch, which sets its outcome.
    InBatch,
    /// The caller makes a connection, for which a place is reserved, and sends the queue.
    Lead,
    /// The caller reads and distributes the answers of all batches up to its own, whose first
    /// request is the caller's.
    Read(Reading<C>),
    Done(Outcome<C>),
    Taken,
}

/// A connection on which answers are due, and its line.
pub(super) struct Reading<C: PooledConnector> {
    pub(super) line: u64,
    pub(super) connection: C::Connection,
    /// The batch whose answers come first, if it is not among the flights of the line.
    pub(super) first: Option<Batch<C>>,
}

impl<C: PooledConnector> QueuedRequest<C> {
    pub(super) fn new(request: C::Request) -> Self {
        Self { request, state: Mutex::new(RequestState::Queued), changed: Condvar::new() }
    }

    pub(super) fn set(&self, state: RequestState<C>) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

/// Requests that are sent together. On drop each gets an outcome, also when the thread that has
/// them panics.
pub(super) struct Batch<C: PooledConnector> {
    pub(super) requests: Vec<Arc<QueuedRequest<C>>>,
    /// One for each request.
    pub(super) outcomes: Vec<Option<Outcome<C>>>,
    /// Set before the first byte is sent: from then on, a request without an answer may have run.
    pub(super) flight: Option<C::Flight>,
}

/// Takes the requests out of the queue that are sent together with the first one.
pub(super) fn take_batch<C: PooledConnector>(
    first: Arc<QueuedRequest<C>>,
    queue: &mut VecDeque<Arc<QueuedRequest<C>>>,
) -> Vec<Arc<QueuedRequest<C>>> {
    let mut requests = Vec::with_capacity((queue.len() + 1).min(MOST));
    requests.push(first);
    let mut place = 0;
    while place < queue.len() && requests.len() < MOST {
        if C::share_a_write(&requests[0].request, &queue[place].request) {
            requests.extend(queue.remove(place));
        } else {
            place += 1;
        }
    }
    requests
}

impl<C: PooledConnector> Batch<C> {
    /// A batch of requests that were just taken from the queue. From now on their callers wait
    /// without a deadline of their own.
    pub(super) fn new(requests: Vec<Arc<QueuedRequest<C>>>) -> Self {
        for queued in &requests {
            *queued.state.lock() = RequestState::InBatch;
        }
        let outcomes = requests.iter().map(|_| None).collect();
        Self { requests, outcomes, flight: None }
    }

    /// All requests without an outcome get the failure of those before them on their connection.
    pub(super) fn fail_behind(&mut self, failure: &FailureOf<C>) {
        if let Some(flight) = &self.flight {
            let (error, ended) = match failure {
                Failure::NotSent(error) => (error.clone(), false),
                Failure::Unknown { error, ended, .. } => (error.clone(), *ended),
            };
            let unknown = C::unknown(flight);
            self.fail(&Failure::Unknown { error, unknown, ended });
        }
    }

    /// Its requests, none of which was sent, for the queue.
    pub(super) fn unsent(mut self) -> Vec<Arc<QueuedRequest<C>>> {
        self.outcomes.clear();
        std::mem::take(&mut self.requests)
    }

    /// All requests without an outcome get the failure.
    pub(super) fn fail(&mut self, failure: &FailureOf<C>) {
        for outcome in self.outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
            *outcome = Some(Err(failure.clone()));
        }
    }
}

impl<C: PooledConnector> Drop for Batch<C> {
    fn drop(&mut self) {
        for (queued, outcome) in self.requests.drain(..).zip(self.outcomes.drain(..)) {
            let outcome = outcome.unwrap_or_else(|| {
                let error = Error::new(
                    ErrorKind::Unreachable,
                    "the thread that carried this request panicked",
                );
                Err(match &self.flight {
                    Some(flight) => {
                        Failure::Unknown { error, unknown: C::unknown(flight), ended: false }
                    }
                    None => Failure::NotSent(error),
                })
            });
            queued.set(RequestState::Done(outcome));
        }
    }
}
