//! A few connections for many threads: a pool while one is free, batches when none is.
//!
//! A caller that finds no free connection queues its request; what becomes of the queue is in
//! `combine`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::batch::{Answer, Outcome, QueuedRequest, RequestState, copy};
use super::busy_poll::CallUnderWay;
use super::connection::{Connection, InFlight};
use super::connector::Connector;
use super::reply::Reply;
use super::request::Request;
use super::unknown_outcome::RedisFailure;
use crate::base::error::{Error, ErrorKind, Result};

pub(crate) struct Pool {
    pub(super) connector: Connector,
    pub(super) most: usize,
    pub(super) state: Mutex<PoolState>,
}

/// Invariant: while the queue is not empty, some thread has a connection or is making one, and will
/// return it.
pub(super) struct PoolState {
    pub(super) free: Vec<Connection>,
    /// The number of connections that exist or are being made, free ones included; at most `most`.
    open: usize,
    pub(super) queue: VecDeque<Arc<QueuedRequest>>,
    /// Why the last connect failed; `None` if it succeeded.
    trouble: Option<Error>,
    pub(super) closed: bool,
}

/// A request that is sent or queued: [`finish`](Self::finish) returns the outcome.
pub(crate) struct Pending<'p> {
    pool: &'p Pool,
    stage: Stage<'p>,
    _call: CallUnderWay<'p>,
}

// Not boxed, because a box would be one allocation for each call.
enum Stage<'p> {
    Sent { connection: Borrowed<'p>, flight: InFlight, request: Request },
    Queued(Arc<QueuedRequest>),
    Failed(RedisFailure),
}

impl Pool {
    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn new(connector: Connector, most: usize) -> Self {
        let state = PoolState { free: Vec::new(), open: 0, queue: VecDeque::new(), trouble: None, closed: false };
        Self { connector, most, state: Mutex::new(state) }
    }

    pub(crate) fn address(&self) -> String {
        format!("{:?}", self.connector.endpoint)
    }

    /// Whether it has connections, and why the last connect failed if it has none.
    pub(crate) fn reached(&self) -> (bool, Option<Error>) {
        let state = self.state.lock();
        (state.open > 0, state.trouble.clone())
    }

    pub(crate) fn io_timeout(&self) -> Duration {
        self.connector.io_timeout
    }

    /// One request, one reply.
    ///
    /// # Errors
    /// The failure says whether the request can have run. Blocks at most the I/O timeout for a
    /// connection, and the I/O timeout for the reply.
    pub(crate) fn call(&self, request: Request) -> Outcome {
        self.begin(request).finish()
    }

    /// The same as [`call`](Self::call), but makes a connection only if there is none.
    pub(crate) fn call_over_open(&self, request: Request) -> Outcome {
        self.begin_among(request, 1).finish()
    }

    /// The first half of [`call`](Self::call): sends the request if a connection is free or can be
    /// made, else queues it.
    pub(crate) fn begin(&self, request: Request) -> Pending<'_> {
        self.begin_among(request, self.most)
    }

    /// Makes a connection if none is free and there are fewer than `most`.
    fn begin_among(&self, request: Request, most: usize) -> Pending<'_> {
        let call = self.connector.busy_poll.begin_call();
        Pending { pool: self, stage: self.send_or_queue(request, most), _call: call }
    }

    fn send_or_queue(&self, request: Request, most: usize) -> Stage<'_> {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return Stage::Failed(RedisFailure::NotSent(closed()));
        }
        if let Some(connection) = state.free.pop() {
            drop(state);
            return Self::send(Borrowed::new(self, connection), request);
        }
        if state.open < most {
            state.open += 1;
            drop(state);
            return match self.make() {
                Ok(connection) => Self::send(connection, request),
                Err(error) => Stage::Failed(RedisFailure::NotSent(error)),
            };
        }
        let queued_request = Arc::new(QueuedRequest::new(request));
        state.queue.push_back(queued_request.clone());
        Stage::Queued(queued_request)
    }

    fn send(mut connection: Borrowed<'_>, request: Request) -> Stage<'_> {
        connection.in_flight = true;
        match connection.get().send(std::iter::once(&request)) {
            Ok(flight) => Stage::Sent { connection, flight, request },
            Err(failure) => {
                connection.broken();
                Stage::Failed(failure)
            }
        }
    }

    /// Sends two requests in one write if a connection is free now. Each has its own outcome: the
    /// second reply may be lost after the first has come.
    pub(crate) fn call_two(&self, first: &Request, second: &Request) -> Option<(Outcome, Outcome)> {
        let connection = self.state.lock().free.pop()?;
        let mut connection = Borrowed::new(self, connection);
        connection.in_flight = true;
        let flight = match connection.get().send([first, second].into_iter()) {
            Ok(flight) => flight,
            Err(failure) => {
                connection.broken();
                return Some((Err(copy(&failure)), Err(failure)));
            }
        };
        let _call = self.connector.busy_poll.begin_call();
        let mut receive = || {
            let reply = connection.recv(&flight)?;
            Ok(Answer { reply, sent_at: flight.sent_at })
        };
        let first_outcome: Outcome = receive();
        // Any error is final for the connection, so the second reply is not waited for.
        let second_outcome = match &first_outcome {
            Ok(_) => receive(),
            Err(failure) => Err(copy(failure)),
        };
        let mut outcomes = [first_outcome, second_outcome];
        connection.in_flight = false;
        if outcomes.iter().any(|o: &Outcome| o.as_ref().map_or(true, |answer| answer.reply.is_demotion())) {
            connection.broken();
        } else {
            drop(connection);
        }
        for (outcome, request) in outcomes.iter_mut().zip([first, second]) {
            if let Ok(answer) = outcome
                && (answer.reply.is_error("NOSCRIPT") || answer.reply.is_logged_out())
            {
                let answer = Answer { reply: answer.reply.clone(), sent_at: answer.sent_at };
                *outcome = self.loaded(request, answer);
            }
        }
        let [first, second] = outcomes;
        Some((first, second))
    }

    /// Sends several requests in one write and reads all replies, if a connection is free now. For
    /// requests that may be repeated at any time.
    pub(crate) fn exchange_if_free(
        &self,
        requests: &[Request],
    ) -> Option<std::result::Result<Vec<Reply>, RedisFailure>> {
        let connection = self.state.lock().free.pop()?;
        let mut connection = Borrowed::new(self, connection);
        connection.in_flight = true;
        let outcome = connection.get().exchange(requests).map(|(replies, _)| replies);
        connection.in_flight = false;
        match &outcome {
            Ok(replies) if !replies.iter().any(|reply| reply.is_demotion() || reply.is_logged_out()) => {}
            _ => connection.broken(),
        }
        Some(outcome)
    }

    /// Makes a connection outside of the pool.
    pub(crate) fn connect(&self) -> Result<Connection> {
        if self.state.lock().closed {
            return Err(closed());
        }
        let connected = self.connector.connect();
        self.state.lock().trouble = connected.as_ref().err().cloned();
        connected
    }

    /// Puts a connection made by [`connect`](Self::connect) into the pool, if there is a place.
    pub(crate) fn adopt(&self, connection: Connection) {
        let mut state = self.state.lock();
        if !state.closed && state.open < self.most {
            state.open += 1;
            drop(state);
            self.give_back(connection);
        }
    }

    /// Closes every idle connection; the others are closed when they are returned. Later calls fail
    /// with `Closed`.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let free = std::mem::take(&mut state.free);
        state.open -= free.len();
        drop(state);
        drop(free);
    }

    /// Makes the connection for a place that was reserved in `open`.
    pub(super) fn make(&self) -> Result<Borrowed<'_>> {
        // Its drop returns the place if the connect panics.
        let mut place = Borrowed { pool: self, connection: None, in_flight: false, returned: false };
        match self.connector.connect() {
            Ok(connection) => {
                self.state.lock().trouble = None;
                place.connection = Some(connection);
                Ok(place)
            }
            Err(error) => {
                place.returned = true;
                self.state.lock().trouble = Some(error.clone());
                self.lose_place(Some(&error));
                Err(error)
            }
        }
    }

    /// A place in `open` has become empty, and the queue needs another leader: the next caller in
    /// it. After a failed connect there is none; if no thread has a connection then, all queued
    /// callers fail at once with the same error.
    pub(super) fn lose_place(&self, connect_error: Option<&Error>) {
        let mut state = self.state.lock();
        state.open -= 1;
        match connect_error {
            Some(error) => {
                if state.open == 0 {
                    let stranded = std::mem::take(&mut state.queue);
                    drop(state);
                    for queued_request in stranded {
                        queued_request.set(RequestState::Done(Err(RedisFailure::NotSent(error.clone()))));
                    }
                }
            }
            None => {
                if let Some(next) = state.queue.pop_front() {
                    state.open += 1;
                    drop(state);
                    next.set(RequestState::Lead);
                }
            }
        }
    }

    /// A connection has ended: the idle ones have probably ended too (a restart of the server ends
    /// all), and each would fail one more caller.
    fn drop_idle(&self) {
        let mut state = self.state.lock();
        let free = std::mem::take(&mut state.free);
        state.open -= free.len();
        drop(state);
        drop(free);
    }

    /// Returns the answer, unless the server does not know the script. Then the request is sent
    /// again with the source, which the server keeps; NOSCRIPT guarantees that nothing ran. It is
    /// also sent again where the server has forgotten who asks.
    fn loaded(&self, request: &Request, answer: Answer) -> Outcome {
        if answer.reply.is_error("NOSCRIPT")
            && let Some(whole) = request.whole()
        {
            return self.call(whole);
        }
        if answer.reply.is_logged_out() {
            return self.call_logged_in(request);
        }
        Ok(answer)
    }

    /// Sends the request again on a connection that has just logged in: those of the pool may be of
    /// the same expired identity. NOAUTH guarantees that nothing ran.
    #[cold]
    fn call_logged_in(&self, request: &Request) -> Outcome {
        let mut connection = self.connect().map_err(RedisFailure::NotSent)?;
        let (mut replies, flight) = connection.exchange(std::slice::from_ref(request))?;
        let reply = replies.pop().expect("a reply for every request");
        if !reply.is_demotion() {
            self.adopt(connection);
        }
        Ok(Answer { reply, sent_at: flight.sent_at })
    }
}

impl Pending<'_> {
    /// The second half of [`Pool::call`]: reads the reply. A script that the server does not know
    /// is sent again with its source.
    pub(crate) fn finish(self) -> Outcome {
        match self.stage {
            Stage::Failed(failure) => Err(failure),
            Stage::Sent { mut connection, flight, request } => match connection.recv(&flight) {
                Ok(reply) => {
                    connection.in_flight = false;
                    if reply.is_demotion() {
                        connection.broken();
                    } else {
                        drop(connection);
                    }
                    self.pool.loaded(&request, Answer { reply, sent_at: flight.sent_at })
                }
                Err(failure) => {
                    connection.broken();
                    Err(failure)
                }
            },
            Stage::Queued(queued_request) => {
                let answer = self.pool.await_reply(&queued_request)?;
                self.pool.loaded(&queued_request.request, answer)
            }
        }
    }
}

/// A borrowed connection. Drop returns the connection, or its place in `open` if it is broken, also
/// on a panic.
pub(super) struct Borrowed<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    /// Replies are due. If it were returned now, the next borrower would read them as its own.
    pub(super) in_flight: bool,
    /// The place in `open` has been returned already.
    returned: bool,
}

impl<'p> Borrowed<'p> {
    pub(super) fn new(pool: &'p Pool, connection: Connection) -> Self {
        Self { pool, connection: Some(connection), in_flight: false, returned: false }
    }

    pub(super) fn get(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a borrowed connection is there until it is given back or broken")
    }

    /// The connection leaves this thread, with its place in `open` and its replies that are due.
    pub(super) fn hand_on(mut self) -> Connection {
        self.returned = true;
        self.connection.take().expect("a borrowed connection is there until it is given back or broken")
    }

    pub(super) fn recv(&mut self, flight: &InFlight) -> std::result::Result<Reply, RedisFailure> {
        let busy_poll = &self.pool.connector.busy_poll;
        self.get().recv_soon(flight, busy_poll)
    }

    /// Closes the connection after an error.
    pub(super) fn broken(mut self) {
        self.connection = None;
        self.returned = true;
        self.pool.drop_idle();
        self.pool.lose_place(None);
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        match self.connection.take() {
            Some(connection) if self.in_flight => {
                drop(connection);
                self.pool.lose_place(None);
            }
            Some(connection) => self.pool.give_back(connection),
            None if !self.returned => self.pool.lose_place(None),
            None => {}
        }
    }
}

#[cold]
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Pool")
            .field("endpoint", &self.connector.endpoint)
            .field("open", &state.open)
            .field("free", &state.free.len())
            .field("queued", &state.queue.len())
            .finish()
    }
}
