//! What is under way on the connections of a pool: requests that are sent behind each other, and
//! who reads the answers.
//!
//! One thread writes to a connection and one reads from it, at the same time, and both are callers.
//! The thread that reads distributes the answers of all batches up to its own; then it leaves the
//! reading to the caller of the batch that is the last one by then. Which interleavings that has is
//! in `ARCHITECTURE.md`, "Requests behind each other". A connection without a
//! [sender](super::pooled::PooledConnection::sender) carries one batch at a time: whoever returns
//! it sends the whole queue in one write, before it distributes the answers that it has read. In
//! this order, because the callers that get their answers queue their next requests meanwhile.

use std::sync::Arc;

use super::batch::{Batch, QueuedRequest, Reading, RequestState};
use super::places::{Follower, Phase, PoolState};
use super::pool::{Borrowed, Pool, brings_last, in_drop};
use super::pooled::{PooledConnection, PooledConnector, PooledSender};
use crate::os::MutexGuard;

impl<C: PooledConnector> Pool<C> {
    /// Sends the queue over a connection on which nothing is due.
    pub(super) fn send_queue(&self, mut connection: Borrowed<'_, C>) {
        connection.in_flight = true;
        if !connection.get().is_usable(&self.connector) {
            return connection.broken(None);
        }
        let Some(requests) = self.state.lock().take_batch() else {
            // The last caller in it has given up.
            return connection.end(false);
        };
        // After a failure all of them have it, the first too.
        let first = requests[0].clone();
        if let Some(reading) = self.send(connection, Batch::new(requests)) {
            first.set(RequestState::Read(reading));
        }
    }

    /// Sends the queue behind what is under way, if that is possible now.
    pub(super) fn send_behind(&self, mut state: MutexGuard<'_, PoolState<C>>) {
        let follower = state.begin_to_follow(self.callers.share());
        drop(state);
        if let Some(follower) = follower {
            self.follow(follower);
        }
    }

    /// Sends the queue behind what is under way on a line.
    pub(super) fn follow(&self, follower: Follower<C>) {
        let mut follows = Follows { pool: self, follower: Some(follower), broken: true };
        let Some(Follower { line, sender }) = &mut follows.follower else { return };
        if !sender.is_current() {
            self.end_line(*line);
            return follows.end();
        }
        let Some(requests) = self.state.lock().take_followers() else {
            return follows.end();
        };
        let mut batch = Batch::new(requests);
        batch.flight = Some(sender.prepare(batch.requests.iter().map(|queued| &queued.request)));
        // Before its first byte goes out, because its answers may come at any time after that.
        let mut state = self.state.lock();
        match state.line(*line) {
            Some(place) => place.flights.push_back(batch),
            None => return self.queue_again(state, batch),
        }
        drop(state);
        if sender.transmit().is_ok() {
            follows.end();
        }
    }

    /// The connection has ended before the batch was sent over it.
    fn queue_again(&self, mut state: MutexGuard<'_, PoolState<C>>, batch: Batch<C>) {
        for queued in batch.unsent().into_iter().rev() {
            state.queue.push_front(queued.clone());
            queued.set(RequestState::Queued);
        }
        self.serve_queue(state);
    }

    /// Sends all requests of the batch in one write. After a failure all of them have it.
    pub(super) fn send(
        &self,
        mut connection: Borrowed<'_, C>,
        mut batch: Batch<C>,
    ) -> Option<Reading<C>> {
        connection.in_flight = true;
        let requests = batch.requests.iter().map(|queued| &queued.request);
        let sent = connection.get().prepare(requests).and_then(|flight| {
            let flight = batch.flight.insert(flight);
            connection.get().transmit(flight)
        });
        match sent {
            Ok(()) => {
                let may_be_followed = C::may_follow(&batch.requests[0].request);
                self.note_sent(connection.line, may_be_followed);
                Some(connection.hand_on(batch))
            }
            Err(failure) => {
                connection.broken(Some(&failure));
                batch.fail(&failure);
                None
            }
        }
    }

    /// Reads the answers of all batches up to the caller's own, distributes them, and returns the
    /// connection.
    pub(super) fn read(
        &self,
        own: &Arc<QueuedRequest<C>>,
        Reading { line, connection, mut first }: Reading<C>,
    ) {
        let mut connection = Borrowed::new(self, line, connection);
        connection.in_flight = true;
        while let Some(mut batch) = first.take().or_else(|| self.next_flight(line)) {
            let is_own = Arc::ptr_eq(&batch.requests[0], own);
            let Batch { outcomes, flight, .. } = &mut batch;
            let flight = flight.as_mut().expect("a batch that was sent has a flight");
            // In both cases first the connection, then the callers: those that try again must not
            // get another connection to this server.
            let callers = Some(&self.callers);
            if let Err(failure) = connection.get().receive(flight, outcomes, callers) {
                connection.broken(Some(&failure));
                return batch.fail(&failure);
            }
            if brings_last::<C>(outcomes) {
                self.end_line(line);
            }
            if is_own {
                return connection.end(false);
            }
            // Those of another batch are woken before this thread waits again.
        }
        connection.end(false);
    }

    /// The next batch whose answers are due. Another one is sent behind it, so the server has work
    /// when it has answered this one.
    fn next_flight(&self, line: u64) -> Option<Batch<C>> {
        let mut state = self.state.lock();
        let next = state.line(line)?.next_flight();
        self.send_behind(state);
        next
    }

    /// No request is sent over this connection any more: the queue needs another one.
    pub(super) fn end_line(&self, line: u64) {
        let mut state = self.state.lock();
        if let Some(line) = state.line(line) {
            line.phase = Phase::Ending;
        }
        let idle = state.remove_idle();
        self.serve_queue(state);
        drop(idle);
    }
}

/// Has the sender of a line. Its end returns it; without that, after a failure or a panic, a part
/// of a request may have been sent, and the connection ends.
struct Follows<'p, C: PooledConnector> {
    pool: &'p Pool<C>,
    follower: Option<Follower<C>>,
    broken: bool,
}

impl<C: PooledConnector> Follows<'_, C> {
    fn end(mut self) {
        self.broken = false;
    }
}

impl<C: PooledConnector> Drop for Follows<'_, C> {
    fn drop(&mut self) {
        let Some(Follower { line, sender }) = self.follower.take() else { return };
        let mut state = self.pool.state.lock();
        let Some(place) = state.line(line) else { return };
        // Nobody reads: the last reader had all its answers when this thread was about to write.
        let parked = place.connection.take();
        if self.broken {
            place.phase = Phase::Ending;
            sender.shut();
        } else {
            place.sender = Some(sender);
        }
        drop(state);
        if let Some(connection) = parked {
            // Whoever reads from a connection that was shut finds its end.
            in_drop(|| _ = self.pool.give_back(line, connection));
        }
    }
}
