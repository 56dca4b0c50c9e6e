//! A few connections for many threads: who gets one, and what becomes of it afterwards. How they
//! are made is in [`making`](super::making), how callers wait in [`waiting`](super::waiting), and
//! what is under way on the connections in [`flights`](super::flights).
//!
//! A caller that finds no free connection queues its request. The queue is sent by whoever can do
//! so first: its last caller, behind requests of others whose answers are due; or whoever returns a
//! connection that carries one batch at a time. Every queued request gets an outcome. The outcome
//! is "not sent" only if no byte of the request can have been sent:
//!
//! | what happens | what follows |
//! |---|---|
//! | the deadline of a caller passes | the caller removes its request from the queue under the pool's mutex: "not sent". If the request is no longer in the queue, another thread has it, and the caller waits for the outcome |
//! | a connection is returned, or a caller comes | the queue becomes a batch, under the same mutex. The drop of the batch gives an outcome to every request that has none |
//! | the thread that sends or reads a batch panics | answers that have arrived count. The other requests have unknown outcomes if the first byte may have been sent, and are "not sent" before that. The connection is closed |
//! | a connection breaks | the same, with the failure of the connection. Idle connections are closed too, and one connection is made for the queue |
//! | a connect fails | while another connection is open, the queue waits for that one, with the caller that connected at its front: a client that has a connection fails no call because it can get no second one. Otherwise the whole queue is "not sent", with the same error |
//! | a connect panics | one more connection is made for the queue |
//! | the pool is closed | batches under way are read. Returned connections are closed; with the last one, the queue is "not sent" |
//!
//! **One connect at a time**, and after a failure none before a [pause](super::pace): whatever has
//! ended, a restarted, full or starved server meets one connect of a client, and not one of each
//! thread. The first connection is made by its caller, the others [aside](Pool::grow), because
//! another connection is probably free sooner. As long as requests queue, one follows the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use super::batch::{Batch, QueuedRequest, Reading, RequestState};
use super::callers::{ALL, Callers};
use super::failure::Failure;
use super::places::{Maker, Phase, PoolState};
use super::pooled::{FailureOf, Outcome, PooledConnection, PooledConnector};
use crate::base::error::{Error, ErrorKind};
use crate::base::lease::Moment;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::base::node_status::{NodeState, NodeStatus};
use crate::os::{self, Mutex, MutexGuard};
use crate::signal::clock::Clock;

pub(crate) struct Pool<C: PooledConnector> {
    pub(crate) connector: C,
    /// How many connections it has at most.
    pub(crate) most: usize,
    pub(super) state: Mutex<PoolState<C>>,
    pub(super) callers: Callers,
    /// Held by whoever has a connection [aside](super::aside).
    pub(super) aside: Mutex<()>,
    pub(super) own: Weak<Self>,
}

impl<C: PooledConnector> Pool<C> {
    pub(crate) fn new(connector: C, most: usize) -> Arc<Self> {
        let state = Mutex::new(PoolState::new(connector.io_timeout()));
        let callers = Callers::new(connector.may_poll());
        let aside = Mutex::new(());
        Arc::new_cyclic(|own| Self { connector, most, state, callers, aside, own: own.clone() })
    }

    /// Whether it has connections, and why the last connect failed.
    pub(crate) fn reached(&self) -> (bool, Option<Error>) {
        let state = self.state.lock();
        (!state.lines.is_empty(), state.pace.trouble().cloned())
    }

    /// The state of the server. `is_connected`: the client has another connection to it.
    pub(crate) fn status(&self, is_connected: bool) -> NodeStatus {
        let (reached, last_error) = self.reached();
        // Without a connection and without a failure, the server has not been asked yet.
        let state = if reached || is_connected || last_error.is_none() {
            NodeState::Voting
        } else {
            NodeState::Down
        };
        let address = self.connector.address();
        NodeStatus { address, state, latency: None, last_error, slots: Vec::new() }
    }

    /// One request, one answer. If no connection is free and there are fewer than `most`, one is
    /// made, unless that is under way.
    ///
    /// # Errors
    /// The failure says whether the request can have run. Blocks at most the I/O timeout for a
    /// connection (and for the pause after a failed connect), and the I/O timeout for the answer.
    pub(crate) fn ask(&self, request: C::Request, most: usize) -> Outcome<C> {
        let _call = self.callers.begin_call();
        let mut state = match self.take_free(!C::may_follow(&request)) {
            Ok(connection) => {
                let mut outcomes = [None];
                self.exchange(connection, &[&request], &mut outcomes);
                let [outcome] = outcomes;
                return self.judged(&request, outcome.expect("an answer or a failure"), most);
            }
            Err(state) => state,
        };
        if state.closed {
            return Err(Failure::NotSent(closed()));
        }
        let queued = Arc::new(QueuedRequest::new(request));
        if state.open() > 0 {
            if C::is_urgent(&queued.request) {
                state.queue.push_front(queued.clone());
            } else {
                state.queue.push_back(queued.clone());
            }
        }
        let must_wait = MustWait { pool: self, queued: &queued };
        match state.reserve(most, self.callers.share()) {
            Some(Maker::Caller) => {
                drop(state);
                queued.set(RequestState::Lead);
            }
            Some(Maker::Aside) => {
                let _grows = Grows(self);
                self.send_behind(state);
            }
            None => self.send_behind(state),
        }
        let outcome = self.await_outcome(&queued);
        std::mem::forget(must_wait);
        self.judged(&queued.request, outcome, most)
    }

    /// Sends two requests in one write if a connection is free now. Each has its own outcome: the
    /// second answer may be lost after the first has come.
    pub(crate) fn ask_two(
        &self,
        first: &C::Request,
        second: &C::Request,
    ) -> Option<[Outcome<C>; 2]> {
        let _call = self.callers.begin_call();
        let connection = self.borrow_free()?;
        let mut outcomes = [None, None];
        self.exchange(connection, &[first, second], &mut outcomes);
        let [one, other] = outcomes.map(|outcome| outcome.expect("an answer or a failure"));
        let one = self.judged(first, one, self.most);
        Some([one, self.judged(second, other, self.most)])
    }

    /// The outcome, unless another request has to be sent [instead](PooledConnector::again).
    fn judged(&self, request: &C::Request, outcome: Outcome<C>, most: usize) -> Outcome<C> {
        if let Ok(answer) = &outcome
            && let Some(instead) = self.connector.again(request, answer)
        {
            return self.ask(instead, most);
        }
        outcome
    }

    pub(crate) fn borrow_free(&self) -> Option<Borrowed<'_, C>> {
        self.take_free(true).ok()
    }

    /// A free connection that works, also one that does not serve many callers (`any`); or else the
    /// state, in which none is free.
    fn take_free(
        &self,
        any: bool,
    ) -> std::result::Result<Borrowed<'_, C>, MutexGuard<'_, PoolState<C>>> {
        loop {
            let mut state = self.state.lock();
            let share = self.callers.share();
            let taken = if any { state.take_any_idle() } else { state.take_idle(share) };
            let Some((line, connection)) = taken else { return Err(state) };
            drop(state);
            let mut borrowed = Borrowed::new(self, line, connection);
            if borrowed.get().is_usable(&self.connector) {
                return Ok(borrowed);
            }
            borrowed.broken(None);
        }
    }

    /// Sends requests in one write and reads the answers. Each gets an outcome.
    fn exchange(
        &self,
        mut connection: Borrowed<'_, C>,
        requests: &[&C::Request],
        outcomes: &mut [Option<Outcome<C>>],
    ) {
        let began = os::now();
        match self.carry(&mut connection, requests, outcomes) {
            Ok(()) => {
                self.callers.measured(os::since(began));
                connection.end(brings_last::<C>(outcomes));
            }
            Err(failure) => {
                connection.broken(Some(&failure));
                for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
                    *outcome = Some(Err(failure.clone()));
                }
            }
        }
    }

    fn carry(
        &self,
        connection: &mut Borrowed<'_, C>,
        requests: &[&C::Request],
        outcomes: &mut [Option<Outcome<C>>],
    ) -> std::result::Result<(), FailureOf<C>> {
        connection.in_flight = true;
        let line = connection.line;
        let connection = connection.get();
        let mut flight = connection.prepare(requests.iter().copied())?;
        connection.transmit(&flight)?;
        self.note_sent(line, requests.iter().copied().all(C::may_follow));
        connection.receive(&mut flight, outcomes, Some(&self.callers))
    }

    /// A thread has sent over a line on which nothing was due. If others may follow, those that
    /// queue are sent at once.
    pub(super) fn note_sent(&self, line: u64, may_be_followed: bool) {
        if may_be_followed && self.callers.share() == ALL {
            return;
        }
        let mut state = self.state.lock();
        if let Some(line) = state.line(line)
            && !matches!(line.phase, Phase::Ending)
        {
            line.phase = if may_be_followed { Phase::Open } else { Phase::Alone };
        }
        if state.queue.is_empty() {
            return;
        }
        if may_be_followed {
            self.send_behind(state);
        } else {
            // Those who have queued for this connection meanwhile.
            self.serve_by_idle(state);
        }
    }

    /// Has the next caller read from the connection if answers are due; or else sends the queue
    /// over it, or makes it free if nobody queues. Returns whether callers queue while this
    /// connection is read.
    pub(super) fn give_back(&self, line: u64, mut connection: C::Connection) -> bool {
        let mut state = self.state.lock();
        let closed = state.closed;
        let queues = !state.queue.is_empty();
        let Some(place) = state.line(line) else { return false };
        // The last one: until its answer comes it need not be woken for the others.
        if let Some(last) = place.flights.back() {
            let reader = last.requests[0].clone();
            drop(state);
            reader.set(RequestState::Read(Reading { line, connection, first: None }));
            return queues;
        }
        if matches!(place.phase, Phase::Ending) {
            drop(state);
            Borrowed::new(self, line, connection).broken(None);
            return false;
        }
        if place.is_written_to() {
            // Whoever writes finds it there.
            place.connection = Some(connection);
            return false;
        }
        place.waits_since = None;
        place.phase = Phase::Idle;
        connection.mark_idle();
        if closed {
            drop(state);
            connection.say_goodbye();
            drop(connection);
            self.lose_line(line, None);
            return false;
        }
        if !queues {
            place.connection = Some(connection);
            return false;
        }
        let serves = state.serves(line, self.callers.share());
        let Some(place) = state.line(line) else { return false };
        if serves {
            place.waits_since = Some(os::now());
            drop(state);
            self.send_queue(Borrowed::new(self, line, connection));
        } else {
            place.connection = Some(connection);
        }
        false
    }

    /// Closes every idle connection; the others are closed when they are returned. Later calls fail
    /// with `Closed`.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let idle = state.remove_idle();
        drop(state);
        for mut connection in idle {
            connection.say_goodbye();
        }
    }
}

/// A borrowed connection. Drop returns the connection, or its place if it is broken, also on a
/// panic.
pub(crate) struct Borrowed<'p, C: PooledConnector> {
    pool: &'p Pool<C>,
    pub(super) line: u64,
    /// `None`: it is over, and its place was returned or has gone with the connection.
    connection: Option<C::Connection>,
    /// Answers to what this thread has sent or reads are due. If it were returned now, the next
    /// borrower would read them as its own.
    pub(crate) in_flight: bool,
}

impl<'p, C: PooledConnector> Borrowed<'p, C> {
    pub(super) fn new(pool: &'p Pool<C>, line: u64, connection: C::Connection) -> Self {
        Self { pool, line, connection: Some(connection), in_flight: false }
    }

    pub(crate) fn get(&mut self) -> &mut C::Connection {
        self.connection
            .as_mut()
            .expect("a borrowed connection is there until it is given back or broken")
    }

    /// The connection leaves this thread, with its place and the batch that was sent over it.
    pub(super) fn hand_on(mut self, batch: Batch<C>) -> Reading<C> {
        let connection = self
            .connection
            .take()
            .expect("a borrowed connection is there until it is given back or broken");
        Reading { line: self.line, connection, first: Some(batch) }
    }

    /// The answers to this thread have come, or it must not be used again.
    pub(crate) fn end(mut self, is_over: bool) {
        self.in_flight = false;
        if is_over {
            self.pool.end_line(self.line);
        }
        if let Some(connection) = self.connection.take()
            && self.pool.give_back(self.line, connection)
        {
            self.pool.send_behind(self.pool.state.lock());
        }
    }

    /// Closes the connection after an error. What others have sent over it has the failure.
    pub(super) fn broken(mut self, failure: Option<&FailureOf<C>>) {
        if let Some(connection) = self.connection.take() {
            connection.shut();
        }
        self.pool.drop_idle();
        self.pool.lose_line(self.line, failure);
    }
}

impl<C: PooledConnector> Drop for Borrowed<'_, C> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        in_drop(|| {
            if self.in_flight {
                connection.shut();
                drop(connection);
                self.pool.lose_line(self.line, None);
            } else if self.pool.give_back(self.line, connection) {
                self.pool.send_behind(self.pool.state.lock());
            }
        });
    }
}

impl<C: PooledConnector> std::fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Pool")
            .field("server", &self.connector.address())
            .field("open", &state.open())
            .field("idle", &state.lines.iter().filter(|line| line.is_idle()).count())
            .field("queued", &state.queue.len())
            .finish()
    }
}

/// Has a request whose outcome has not come yet.
struct MustWait<'p, C: PooledConnector> {
    pool: &'p Pool<C>,
    queued: &'p Arc<QueuedRequest<C>>,
}

impl<C: PooledConnector> Drop for MustWait<'_, C> {
    /// After a panic while it did something for others. A request that stays in the queue would be
    /// chosen to connect or to read for others some time later, and nobody would do it. One that is
    /// not there any more gets its outcome, or was chosen already.
    fn drop(&mut self) {
        let wait = || drop(self.pool.await_outcome(self.queued));
        // Each further panic has ended a connection, or the request itself.
        while !self.pool.leave_queue(self.queued) && catch_unwind(AssertUnwindSafe(wait)).is_err() {
        }
    }
}

/// A connection is made aside at its end, for which a place is reserved: also after a panic.
struct Grows<'p, C: PooledConnector>(&'p Pool<C>);

impl<C: PooledConnector> Drop for Grows<'_, C> {
    fn drop(&mut self) {
        in_drop(|| self.0.grow());
    }
}

/// Whether a connection that has brought these answers must not be used again.
pub(super) fn brings_last<C: PooledConnector>(outcomes: &[Option<Outcome<C>>]) -> bool {
    outcomes.iter().flatten().flatten().any(C::is_last)
}

/// For a drop that may send for others: a panic in the middle of another one would end the process.
pub(super) fn in_drop(run: impl FnOnce()) {
    if os::thread::panicking() {
        let _ = catch_unwind(AssertUnwindSafe(run));
    } else {
        run();
    }
}

#[cold]
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

/// Every connection of the pool may have ended with the first one. After a long time (the machine
/// slept) the idempotency key may be gone, and a repeat could count twice.
pub(crate) struct Repeats<'c> {
    left: usize,
    clock: &'c dyn Clock,
    until: Moment,
}

impl<'c> Repeats<'c> {
    pub(crate) fn over<C: PooledConnector>(pool: &Pool<C>, clock: &'c dyn Clock) -> Self {
        Self { left: pool.most + 1, clock, until: clock.now().plus(IDEMPOTENCY_TTL / 2) }
    }

    pub(crate) fn one_more(&mut self) -> bool {
        let goes_on = self.left > 0 && self.clock.now() < self.until;
        self.left = self.left.saturating_sub(1);
        goes_on
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
