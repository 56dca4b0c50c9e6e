//! Requests that travel together: what becomes of callers that find no free connection.
//!
//! Whoever returns a connection first sends the whole queue over it in one write. The first caller
//! of the queue is the leader of the new batch: it reads the replies, distributes them, and then
//! returns the connection in the same way. In this order, because a server that is near is kept
//! busy by the other connections, and the callers that get their replies queue their next requests
//! meanwhile: the batches are fewer and larger by half. When the leader of the next batch has woken
//! up, its replies have often come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::{Answer, Batch, Outcome, QueuedRequest, RequestState, SentBatch};
use super::connection::{Connection, InFlight};
use super::pool::{Borrowed, Pool, closed};
use super::unknown_outcome::RedisFailure;
use crate::base::error::{Error, ErrorKind};

/// After a SIGSTOP and SIGCONT the callers that wait for a connection find their time over, while
/// the thread that has one is about to read its reply and return it. This is what they wait longer.
const AFTER_A_STOP: Duration = Duration::from_millis(10);

/// Limits how long the last request of a batch waits for the first.
const BATCH: usize = 128;

impl Pool {
    /// Sends the queue over the connection, or makes the connection free if nobody queues.
    pub(super) fn give_back(&self, mut connection: Connection) {
        connection.mark_idle();
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            drop(connection);
            return self.lose_place(Some(&closed()));
        }
        if state.queue.is_empty() {
            state.free.push(connection);
            return;
        }
        let queued = take_batch(&mut state.queue, BATCH);
        drop(state);
        let mut batch = Batch::new(queued);
        // After a failure all of them have it, the leader too.
        if let Ok((connection, flight)) = send(Borrowed::new(self, connection), &mut batch)
            && let Some(leader) = batch.requests.pop_front()
        {
            let connection = connection.hand_on();
            leader.set(RequestState::Read(SentBatch { connection, flight, batch }));
        }
    }

    /// Blocks until a queued request has an outcome, as the leader of its batch if it is the first
    /// of it.
    pub(super) fn await_reply(&self, queued_request: &Arc<QueuedRequest>) -> Outcome {
        let mut give_up = Instant::now() + self.connector.io_timeout;
        let mut last_chance = Some(AFTER_A_STOP);
        let mut state = queued_request.state.lock();
        loop {
            match std::mem::replace(&mut *state, RequestState::Taken) {
                RequestState::Done(outcome) => return outcome,
                RequestState::Lead => {
                    drop(state);
                    return self.lead(queued_request);
                }
                RequestState::Read(SentBatch { connection, flight, batch }) => {
                    drop(state);
                    return read(Borrowed::new(self, connection), &flight, batch);
                }
                waiting => *state = waiting,
            }
            if matches!(*state, RequestState::Queued) {
                if queued_request.changed.wait_until(&mut state, give_up).timed_out()
                    && matches!(*state, RequestState::Queued)
                {
                    if let Some(more) = last_chance.take() {
                        give_up = Instant::now() + more;
                        continue;
                    }
                    drop(state);
                    if self.leave_queue(queued_request) {
                        return Err(RedisFailure::NotSent(self.all_busy()));
                    }
                    // Another thread has just taken the request from the queue and will set its
                    // state in a moment.
                    state = queued_request.state.lock();
                    if matches!(*state, RequestState::Queued) {
                        queued_request.changed.wait_for(&mut state, Duration::from_millis(1));
                    }
                }
            } else {
                // The threads that send and read are bounded by their own I/O timeouts.
                queued_request.changed.wait(&mut state);
            }
        }
    }

    /// Sends its own request and the queue behind it over a connection that it makes, where the
    /// last one broke.
    fn lead(&self, own: &Arc<QueuedRequest>) -> Outcome {
        let connection = self.make().map_err(RedisFailure::NotSent)?;
        let mut requests = take_batch(&mut self.state.lock().queue, BATCH - 1);
        requests.push_front(own.clone());
        let mut batch = Batch::new(requests);
        let sent = send(connection, &mut batch);
        // Its outcome is returned, not set.
        batch.requests.pop_front();
        match sent {
            Ok((connection, flight)) => read(connection, &flight, batch),
            Err(failure) => {
                batch.outcomes.pop_front();
                Err(failure)
            }
        }
    }

    fn leave_queue(&self, queued_request: &Arc<QueuedRequest>) -> bool {
        let mut state = self.state.lock();
        let place = state.queue.iter().position(|other| Arc::ptr_eq(other, queued_request));
        place.map(|at| state.queue.remove(at)).is_some()
    }

    #[cold]
    fn all_busy(&self) -> Error {
        let why =
            format!("all {} connections to {:?} were busy for the I/O timeout", self.most, self.connector.endpoint);
        Error::new(ErrorKind::Unreachable, why)
    }
}

fn take_batch(queue: &mut VecDeque<Arc<QueuedRequest>>, most: usize) -> VecDeque<Arc<QueuedRequest>> {
    let count = queue.len().min(most);
    let rest = queue.split_off(count);
    std::mem::replace(queue, rest)
}

/// Sends all requests of the batch in one write.
fn send<'p>(
    mut connection: Borrowed<'p>,
    batch: &mut Batch,
) -> std::result::Result<(Borrowed<'p>, InFlight), RedisFailure> {
    connection.in_flight = true;
    match connection.get().send(batch.requests.iter().map(|queued| &queued.request)) {
        Ok(flight) => {
            batch.unknown = Some(flight.unknown.clone());
            Ok((connection, flight))
        }
        Err(failure) => {
            connection.broken();
            Err(batch.fail(failure))
        }
    }
}

/// As the leader: reads its own reply and those of the batch behind it, distributes them, and
/// returns the connection.
fn read(mut connection: Borrowed<'_>, flight: &InFlight, mut batch: Batch) -> Outcome {
    connection.in_flight = true;
    let sent_at = flight.sent_at;
    let own_outcome = match connection.recv(flight) {
        Ok(reply) => Ok(Answer { reply, sent_at }),
        Err(failure) => {
            connection.broken();
            return Err(batch.fail(failure));
        }
    };
    for _ in 0..batch.requests.len() {
        match connection.recv(flight) {
            Ok(reply) => batch.outcomes.push_back(Ok(Answer { reply, sent_at })),
            Err(failure) => {
                connection.broken();
                batch.fail(failure);
                return own_outcome;
            }
        }
    }
    connection.in_flight = false;
    let replies = batch.outcomes.iter().chain(std::iter::once(&own_outcome));
    if replies.flatten().any(|answer| answer.reply.is_demotion()) {
        // First: callers that try again must not get another connection to this server.
        connection.broken();
        drop(batch);
    } else {
        drop(batch);
        drop(connection);
    }
    own_outcome
}
