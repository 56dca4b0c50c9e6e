//! A few connections for many threads: a pool while one is free, batches when none is.
//!
//! A caller that finds no free connection queues its request. A thread that returns a connection
//! gives it to the first queued caller, who becomes the leader: it sends the queue in one write,
//! all acquires of plain locks in one transaction, and distributes the answers. One flush of the
//! server's log then serves all of them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::batch::{Batch, QueuedRequest, RequestState};
use super::connection::{Connection, Section};
use super::connector::Connector;
use super::outcome::{Answer, Outcome, PostgresFailure};
use super::request::{Batching, Request};
use crate::base::error::{Error, ErrorKind, Result};

/// After a SIGSTOP and SIGCONT the callers that wait for a connection find their time over, while
/// the thread that has one is about to read its answer and return it. This is what they wait
/// longer.
const AFTER_A_STOP: Duration = Duration::from_millis(10);

/// Limits how long the last request of a batch waits for the first.
const BATCH: usize = 128;

pub(crate) struct Pool {
    connector: Connector,
    most: usize,
    state: Mutex<PoolState>,
    own: Weak<Self>,
}

/// Invariant: while the queue is not empty, some thread has a connection or is making one, and will
/// return it.
struct PoolState {
    free: Vec<Connection>,
    /// The number of connections that exist or are being made, free ones included; at most `most`.
    open: usize,
    queue: VecDeque<Arc<QueuedRequest>>,
    /// Why the last connect failed; `None` if it succeeded.
    trouble: Option<Error>,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(connector: Connector, most: usize) -> Arc<Self> {
        let state = PoolState { free: Vec::new(), open: 0, queue: VecDeque::new(), trouble: None, closed: false };
        Arc::new_cyclic(|own| Self { connector, most, state: Mutex::new(state), own: own.clone() })
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    /// How many connections it has at most.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Whether it has connections, and why the last connect failed if it has none.
    pub(crate) fn reached(&self) -> (bool, Option<Error>) {
        let state = self.state.lock();
        (state.open > 0, state.trouble.clone())
    }

    /// One request, one answer.
    ///
    /// # Errors
    /// The failure says whether the request can have run. Blocks at most the I/O timeout for a
    /// connection, and the I/O timeout for the answer.
    pub(crate) fn call(&self, request: Request) -> Outcome {
        let again = request.clone().batched(Batching::Alone);
        match self.call_among(request, self.most) {
            Err(PostgresFailure::NotTogether) => self.call_among(again, self.most),
            outcome => outcome,
        }
    }

    /// The same as [`call`](Self::call), but makes a connection only if there is none.
    pub(crate) fn call_over_open(&self, request: &Request) -> Outcome {
        self.call_among(request.clone().batched(Batching::Alone), 1)
    }

    /// Makes a connection if there is none, and lets one more be made if none is free and there are
    /// fewer than `most`.
    fn call_among(&self, request: Request, most: usize) -> Outcome {
        let mut state = loop {
            if let Some(connection) = self.take_free().map_err(PostgresFailure::NotSent)? {
                return self.ask(connection, &request);
            }
            let state = self.state.lock();
            if state.closed {
                return Err(PostgresFailure::NotSent(closed()));
            }
            // One that was returned in the meantime found nobody in the queue, and nobody would
            // lead it.
            if state.free.is_empty() {
                break state;
            }
        };
        if state.open == 0 {
            state.open += 1;
            drop(state);
            return self.ask(self.make().map_err(PostgresFailure::NotSent)?, &request);
        }
        let grows = state.open < most;
        state.open += usize::from(grows);
        let queued = Arc::new(QueuedRequest::new(request));
        state.queue.push_back(queued.clone());
        drop(state);
        if grows {
            self.grow();
        }
        self.await_answer(&queued)
    }

    /// Makes a connection for a place that was reserved in `open`, for the first of the queue. Not
    /// on the thread of a caller, whose deadline may be near: that takes much longer than most
    /// requests, and another connection is free sooner.
    fn grow(&self) {
        let own = self.own.clone();
        let grown = std::thread::Builder::new().name("lh-connect".into()).spawn(move || {
            if let Some(pool) = own.upgrade() {
                drop(pool.make());
            }
        });
        if grown.is_err() {
            drop(self.make());
        }
    }

    /// A free connection that works, if there is one.
    fn take_free(&self) -> Result<Option<Borrowed<'_>>> {
        loop {
            let mut state = self.state.lock();
            if state.closed {
                return Err(closed());
            }
            let Some(connection) = state.free.pop() else { return Ok(None) };
            drop(state);
            let mut borrowed = Borrowed::new(self, connection);
            if borrowed.is_usable() {
                return Ok(Some(borrowed));
            }
            borrowed.broken();
        }
    }

    fn ask(&self, mut connection: Borrowed<'_>, request: &Request) -> Outcome {
        connection.in_flight = true;
        let outcome = connection.get().ask(request);
        connection.end(is_over(&outcome));
        outcome
    }

    /// Sends two requests in one write, each in a transaction of its own, if a connection is free
    /// now. The second answer may be lost after the first has come.
    pub(crate) fn call_two(&self, first: &Request, second: &Request) -> Option<(Outcome, Outcome)> {
        let mut connection = self.take_free().ok()??;
        connection.in_flight = true;
        let sections: [Section<'_>; 2] = [first, second].map(|request| vec![(request, request.statement)]);
        let mut flight = match connection.get().send(&sections) {
            Ok(flight) => flight,
            Err(failure) => {
                connection.end(true);
                return Some((Err(failure.clone()), Err(failure)));
            }
        };
        let mut receive = || -> Outcome {
            let answers = connection.get().recv(&mut flight, 1)?;
            let rows = answers.map(|mut answers| answers.pop().unwrap_or_default());
            Ok(Answer { rows, sent_at: flight.sent_at })
        };
        let first = receive();
        // Any failure is final for the connection, so the second answer is not waited for.
        let second = match &first {
            Ok(_) => receive(),
            Err(failure) => Err(failure.clone()),
        };
        connection.end(is_over(&first) || is_over(&second));
        Some((first, second))
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
    fn make(&self) -> Result<Borrowed<'_>> {
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
    fn lose_place(&self, connect_error: Option<&Error>) {
        let mut state = self.state.lock();
        state.open -= 1;
        match connect_error {
            Some(error) => {
                if state.open == 0 {
                    let stranded = std::mem::take(&mut state.queue);
                    drop(state);
                    for queued in stranded {
                        queued.set(RequestState::Done(Err(PostgresFailure::NotSent(error.clone()))));
                    }
                }
            }
            None => {
                if let Some(next) = state.queue.pop_front() {
                    state.open += 1;
                    drop(state);
                    next.set(RequestState::Lead(None));
                }
            }
        }
    }

    fn give_back(&self, connection: Connection) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            drop(connection);
            return self.lose_place(Some(&closed()));
        }
        match state.queue.pop_front() {
            Some(next) => {
                drop(state);
                next.set(RequestState::Lead(Some(connection)));
            }
            None => state.free.push(connection),
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

    /// As the leader: sends its own request, and those behind it that travel together.
    fn lead(&self, mut connection: Borrowed<'_>, own: &QueuedRequest) -> Outcome {
        let mut followers: Vec<Arc<QueuedRequest>> = Vec::new();
        if !matches!(own.request.batching, Batching::Alone) {
            let mut state = self.state.lock();
            let mut place = 0;
            while place < state.queue.len() && followers.len() < BATCH - 1 {
                if matches!(state.queue[place].request.batching, Batching::Alone) {
                    place += 1;
                } else {
                    followers.extend(state.queue.remove(place));
                }
            }
        }
        for queued in &followers {
            *queued.state.lock() = RequestState::Sent;
        }
        let mut batch = Batch::new(followers);
        connection.in_flight = true;
        let works = batch.run(connection.get(), &own.request);
        let outcome = batch.take_own();
        // The connection is returned first: its next leader can send while this thread still
        // notifies the followers.
        connection.end(!works || is_over(&outcome));
        drop(batch);
        outcome
    }

    fn await_answer(&self, queued: &Arc<QueuedRequest>) -> Outcome {
        let mut give_up = Instant::now() + self.connector.io_timeout;
        let mut last_chance = Some(AFTER_A_STOP);
        let mut state = queued.state.lock();
        loop {
            match std::mem::replace(&mut *state, RequestState::Taken) {
                RequestState::Done(outcome) => return outcome,
                RequestState::Lead(connection) => {
                    drop(state);
                    let mut connection = match connection {
                        Some(connection) => Borrowed::new(self, connection),
                        None => self.make().map_err(PostgresFailure::NotSent)?,
                    };
                    if !connection.is_usable() {
                        connection.connection = None;
                        connection.connection = Some(self.connect().map_err(PostgresFailure::NotSent)?);
                    }
                    return self.lead(connection, queued);
                }
                waiting => *state = waiting,
            }
            if !matches!(*state, RequestState::Queued) {
                // The leader is bounded by its own I/O timeouts.
                queued.changed.wait(&mut state);
                continue;
            }
            if !queued.changed.wait_until(&mut state, give_up).timed_out() || !matches!(*state, RequestState::Queued) {
                continue;
            }
            if let Some(more) = last_chance.take() {
                give_up = Instant::now() + more;
                continue;
            }
            drop(state);
            if self.leave_queue(queued) {
                let why = format!("all {} connections to the server were busy for the I/O timeout", self.most);
                return Err(PostgresFailure::NotSent(Error::new(ErrorKind::Unreachable, why)));
            }
            // A leader has just taken the request from the queue and will set its state in a
            // moment.
            state = queued.state.lock();
            if matches!(*state, RequestState::Queued) {
                queued.changed.wait_for(&mut state, Duration::from_millis(1));
            }
        }
    }

    fn leave_queue(&self, queued: &Arc<QueuedRequest>) -> bool {
        let mut state = self.state.lock();
        let place = state.queue.iter().position(|other| Arc::ptr_eq(other, queued));
        place.map(|at| state.queue.remove(at)).is_some()
    }
}

/// Whether the connection must not be used again.
fn is_over(outcome: &Outcome) -> bool {
    match outcome {
        Ok(Answer { rows: Err(error), .. }) => error.wants_new_connection(),
        Ok(_) | Err(PostgresFailure::NotTogether) => false,
        Err(_) => true,
    }
}

/// A borrowed connection. Drop returns the connection, or its place in `open` if it is broken, also
/// on a panic.
struct Borrowed<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    /// Answers are due. If it were returned now, the next borrower would read them as its own.
    in_flight: bool,
    /// The place in `open` has been returned already.
    returned: bool,
}

impl<'p> Borrowed<'p> {
    fn new(pool: &'p Pool, connection: Connection) -> Self {
        Self { pool, connection: Some(connection), in_flight: false, returned: false }
    }

    fn get(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a borrowed connection is there until it is given back or broken")
    }

    /// It has not ended, and leads to the server that is the primary now.
    fn is_usable(&mut self) -> bool {
        let pool = self.pool;
        let connection = self.get();
        pool.connector.leads_to_the_primary(connection) && connection.is_alive()
    }

    fn end(mut self, is_over: bool) {
        self.in_flight = false;
        if is_over {
            self.broken();
        }
    }

    /// Closes the connection after an error.
    fn broken(mut self) {
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
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Pool")
            .field("open", &state.open)
            .field("free", &state.free.len())
            .field("queued", &state.queue.len())
            .finish_non_exhaustive()
    }
}
