//! A few connections for many threads: who gets one, who makes one, and who waits. What is under
//! way on them is in [`flights`](super::flights).
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
use std::time::Duration;

use super::batch::{Batch, QueuedRequest, Reading, RequestState, brings_last, take_batch};
use super::failure::Failure;
use super::nearness::Nearness;
use super::places::{LATE, Maker, PoolState, Sharing, fail_queue};
use super::pooled::{FailureOf, Outcome, PooledConnector};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::node_status::{NodeState, NodeStatus};
use crate::os::atomic::{AtomicUsize, Ordering};
use crate::os::{self, Mutex, MutexGuard};

/// After a SIGSTOP and a SIGCONT, callers that wait for a connection find that their deadline has
/// passed, while the thread with the connection is about to read its answer and return it. They
/// wait this much longer.
const AFTER_A_STOP: Duration = Duration::from_millis(10);

pub(crate) struct Pool<C: PooledConnector> {
    connector: C,
    pub(super) most: usize,
    pub(super) state: Mutex<PoolState<C>>,
    /// How many threads call now.
    callers: AtomicUsize,
    nearness: Nearness,
    /// Held by whoever has a connection [aside](super::aside).
    pub(super) aside: Mutex<()>,
    own: Weak<Self>,
}

impl<C: PooledConnector> Pool<C> {
    pub(crate) fn new(connector: C, most: usize) -> Arc<Self> {
        let state = Mutex::new(PoolState::new(connector.io_timeout()));
        let aside = Mutex::new(());
        let callers = AtomicUsize::new(0);
        let nearness = Nearness::default();
        Arc::new_cyclic(|own| Self {
            connector,
            most,
            state,
            callers,
            nearness,
            aside,
            own: own.clone(),
        })
    }

    pub(crate) fn connector(&self) -> &C {
        &self.connector
    }

    pub(super) fn sharing(&self) -> Sharing {
        Sharing::of(self.callers.load(Ordering::Relaxed), self.nearness.is_near())
    }

    /// How many connections it has at most.
    pub(crate) fn most(&self) -> usize {
        self.most
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
    /// made, unless that is under way. `judge` gets the outcome when the connection has been
    /// returned, and may repeat the request.
    ///
    /// # Errors
    /// The failure says whether the request can have run. Blocks at most the I/O timeout for a
    /// connection (and for the pause after a failed connect), and the I/O timeout for the answer.
    pub(crate) fn ask(
        &self,
        request: C::Request,
        most: usize,
        judge: impl FnOnce(&C::Request, Outcome<C>) -> Outcome<C>,
    ) -> Outcome<C> {
        let _calls = Calls::begin(&self.callers);
        let mut state = match self.take_free(!C::may_follow(&request)) {
            Ok(connection) => {
                let [outcome] = self.exchange(connection, [&request]);
                return judge(&request, outcome);
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
        match state.reserve(most, self.sharing()) {
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
        judge(&queued.request, outcome)
    }

    /// Sends two requests in one write if a connection is free now. Each has its own outcome: the
    /// second answer may be lost after the first has come.
    pub(crate) fn ask_two(
        &self,
        first: &C::Request,
        second: &C::Request,
    ) -> Option<[Outcome<C>; 2]> {
        let connection = self.borrow_free()?;
        Some(self.exchange(connection, [first, second]))
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
            let taken = if any { state.take_any_idle() } else { state.take_idle(self.sharing()) };
            let Some((line, connection)) = taken else { return Err(state) };
            drop(state);
            let mut borrowed = Borrowed::new(self, line, connection);
            if self.connector.is_usable(borrowed.get()) {
                return Ok(borrowed);
            }
            borrowed.broken(None);
        }
    }

    fn exchange<const N: usize>(
        &self,
        mut connection: Borrowed<'_, C>,
        requests: [&C::Request; N],
    ) -> [Outcome<C>; N] {
        connection.in_flight = true;
        let began = os::now();
        let mut outcomes = [const { None }; N];
        let prepared = self.connector.prepare(connection.get(), requests.into_iter());
        let exchanged = prepared.and_then(|mut flight| {
            self.connector.transmit(connection.get(), &flight)?;
            self.note_sent(connection.line, requests.into_iter().all(C::may_follow));
            self.connector.receive(connection.get(), &mut flight, &mut outcomes)
        });
        match &exchanged {
            Ok(()) => {
                self.nearness.measured(os::since(began));
                connection.end(brings_last::<C>(&outcomes));
            }
            Err(failure) => connection.broken(Some(failure)),
        }
        outcomes.map(|outcome| {
            outcome.or_else(|| exchanged.clone().err().map(Err)).expect("an outcome or a failure")
        })
    }

    pub(super) fn connect_after_pause(&self) -> Result<C::Connection> {
        let pause = self.state.lock().pace.pause();
        if !pause.is_zero() {
            os::thread::sleep(pause);
        }
        if self.state.lock().closed {
            return Err(closed());
        }
        let connected = self.connector.connect();
        let pace = &mut self.state.lock().pace;
        match &connected {
            Ok(_) => pace.succeeded(),
            Err(error) => pace.failed(error.clone()),
        }
        connected
    }

    /// Closes every idle connection; the others are closed when they are returned. Later calls fail
    /// with `Closed`.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let idle = state.remove_idle();
        drop(state);
        for mut connection in idle {
            C::say_goodbye(&mut connection);
        }
    }

    /// Makes the connection for a reserved place, for the caller of `own` if there is one. After a
    /// failure the place is returned, and `own` has an outcome or is in the queue again.
    fn make(&self, own: Option<&Arc<QueuedRequest<C>>>) -> Option<Borrowed<'_, C>> {
        let mut place = Place { pool: Some(self), own };
        let connected = self.connect_after_pause();
        place.pool = None;
        match connected {
            Ok(connection) => {
                let mut state = self.state.lock();
                state.connecting = false;
                let line = state.add(&connection);
                drop(state);
                Some(Borrowed::new(self, line, connection))
            }
            Err(error) => {
                self.without_place(error, own.cloned());
                None
            }
        }
    }

    /// Makes the connection for a reserved place on a thread of its own, which sends the queue.
    fn grow(&self) {
        let own = self.own.clone();
        let grown = os::thread::Builder::new().name("lh-connect".into()).spawn(move || {
            let Some(pool) = own.upgrade() else { return };
            // Many may have begun to queue at once, and one connection does not serve all of them.
            while let Some(made) = pool.make(None) {
                drop(made);
                let mut state = pool.state.lock();
                if state.queue.is_empty() || state.reserve(pool.most, pool.sharing()).is_none() {
                    break;
                }
            }
        });
        if let Err(e) = grown {
            self.pass_place_on(
                Error::new(ErrorKind::Unreachable, "no thread can be started to connect")
                    .caused_by(e),
            );
        }
    }

    /// The connection of a reserved place cannot be made. The queue waits for the others; if there
    /// are none, all queued callers fail at once with the same error.
    fn without_place(&self, error: Error, own: Option<Arc<QueuedRequest<C>>>) {
        if let Some(own) = &own {
            own.set(RequestState::Queued);
        }
        let mut state = self.state.lock();
        state.connecting = false;
        if let Some(own) = own {
            state.queue.push_front(own);
        }
        if state.open() == 0 {
            let error = if state.closed { closed() } else { error };
            return fail_queue(state, &error);
        }
        // Another thread has put one into the pool during the connect, when `own` was not in the
        // queue, and nobody else would send it.
        self.serve_by_idle(state);
    }

    /// The connect of a reserved place did not take place, or panicked: somebody else makes it.
    fn pass_place_on(&self, error: Error) {
        let mut state = self.state.lock();
        state.pace.failed(error);
        state.connecting = false;
        self.serve_queue(state);
    }

    /// Gives up the place of a connection that has ended. What was sent over it and has no outcome
    /// gets the failure; without one, a thread has panicked.
    pub(super) fn lose_line(&self, line: u64, failure: Option<&FailureOf<C>>) {
        let mut state = self.state.lock();
        let lost = state.remove(line);
        self.serve_queue(state);
        for mut batch in lost.into_iter().flat_map(|line| line.flights) {
            if let Some(failure) = failure {
                batch.fail_behind(failure);
            }
        }
    }

    /// Sends the queue over an idle connection, if there is one.
    pub(super) fn serve_by_idle(&self, mut state: MutexGuard<'_, PoolState<C>>) {
        if !state.queue.is_empty()
            && let Some((line, connection)) = state.take_idle(self.sharing())
        {
            drop(state);
            self.give_back(line, connection);
        }
    }

    /// A place was returned, so the queue may need a connection. In a closed pool none is
    /// made, and without one all queued callers fail.
    pub(super) fn serve_queue(&self, mut state: MutexGuard<'_, PoolState<C>>) {
        if state.closed && state.open() == 0 {
            return fail_queue(state, &closed());
        }
        if state.queue.is_empty() {
            return;
        }
        match state.reserve(self.most, self.sharing()) {
            Some(Maker::Caller) => {
                let next = state.queue.pop_front().expect("the queue is not empty");
                drop(state);
                next.set(RequestState::Lead);
            }
            Some(Maker::Aside) => {
                drop(state);
                self.grow();
            }
            // The other connections serve it, or the one that is being made.
            None => self.serve_by_idle(state),
        }
    }

    /// Closes all idle connections. After one has ended the others have probably ended too (a
    /// restart of the server ends all), and each would fail one more caller.
    fn drop_idle(&self) {
        self.nearness.forget();
        let idle = self.state.lock().remove_idle();
        drop(idle);
    }

    /// Blocks until a queued request has an outcome, and reads the answers of others if it comes to
    /// that.
    fn await_outcome(&self, queued: &Arc<QueuedRequest<C>>) -> Outcome<C> {
        let began = os::now();
        let give_up = began + self.connector.io_timeout();
        let mut until = give_up.min(began + LATE);
        let mut last_chance = Some(AFTER_A_STOP);
        let mut state = queued.state.lock();
        loop {
            match std::mem::replace(&mut *state, RequestState::Taken) {
                RequestState::Done(outcome) => return outcome,
                RequestState::Lead => {
                    drop(state);
                    self.lead(queued);
                    state = queued.state.lock();
                    continue;
                }
                RequestState::Read(reading) => {
                    drop(state);
                    self.read(queued, reading);
                    state = queued.state.lock();
                    continue;
                }
                waiting => *state = waiting,
            }
            if !matches!(*state, RequestState::Queued) {
                // The threads that send and read are bounded by their own I/O timeouts.
                queued.changed.wait(&mut state);
                continue;
            }
            if !queued.changed.wait_until(&mut state, until).timed_out()
                || !matches!(*state, RequestState::Queued)
            {
                continue;
            }
            if os::now() < give_up {
                // The connection that it waits for may have fallen silent: another one is found.
                drop(state);
                self.serve_queue(self.state.lock());
                until = give_up;
                state = queued.state.lock();
                continue;
            }
            if let Some(more) = last_chance.take() {
                until = os::now() + more;
                continue;
            }
            drop(state);
            if self.leave_queue(queued) {
                return Err(Failure::NotSent(self.none_came()));
            }
            // Another thread has just taken the request from the queue and will set its state in a
            // moment.
            state = queued.state.lock();
            if matches!(*state, RequestState::Queued) {
                queued.changed.wait_for(&mut state, Duration::from_millis(1));
            }
        }
    }

    fn leave_queue(&self, queued: &Arc<QueuedRequest<C>>) -> bool {
        let mut state = self.state.lock();
        let place = state.queue.iter().position(|other| Arc::ptr_eq(other, queued));
        place.map(|at| state.queue.remove(at)).is_some()
    }

    /// Makes a connection where there is none, and sends its own request and the queue behind it.
    fn lead(&self, own: &Arc<QueuedRequest<C>>) {
        let Some(connection) = self.make(Some(own)) else { return };
        let requests = take_batch(own.clone(), &mut self.state.lock().queue);
        if let Some(reading) = self.send(connection, Batch::new(requests)) {
            self.read(own, reading);
        }
    }

    /// Why a caller has waited for a connection in vain.
    #[cold]
    fn none_came(&self) -> Error {
        let address = self.connector.address();
        match self.reached() {
            (false, trouble) => {
                let error =
                    format!("no connection to {address} could be made within the I/O timeout");
                let error = Error::new(ErrorKind::Unreachable, error);
                trouble.into_iter().fold(error, Error::caused_by)
            }
            (true, _) => self.in_vain(format!(
                "all {} connections to {address} were busy for the I/O timeout",
                self.most
            )),
        }
    }

    #[cold]
    pub(super) fn in_vain(&self, why: String) -> Error {
        match self.connector.held_up_by() {
            // The server answers, and says what must end.
            Some(reason) => Error::new(ErrorKind::NotReady, format!("{why}: {reason}")),
            None => Error::new(ErrorKind::Unreachable, why),
        }
    }
}

/// A reserved place, until it is known whether it has a connection. Dropped before that
/// if the connect panics.
struct Place<'p, C: PooledConnector> {
    pool: Option<&'p Pool<C>>,
    own: Option<&'p Arc<QueuedRequest<C>>>,
}

impl<C: PooledConnector> Drop for Place<'_, C> {
    fn drop(&mut self) {
        let Some(pool) = self.pool else { return };
        let error = Error::new(ErrorKind::Unreachable, "the thread that connected panicked");
        if let Some(own) = self.own {
            own.set(RequestState::Done(Err(Failure::NotSent(error.clone()))));
        }
        in_drop(|| pool.pass_place_on(error));
    }
}

/// A connection is made aside at its end, for which a place is reserved: also after a panic.
struct Grows<'p, C: PooledConnector>(&'p Pool<C>);

impl<C: PooledConnector> Drop for Grows<'_, C> {
    fn drop(&mut self) {
        in_drop(|| self.0.grow());
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
    }

    /// Closes the connection after an error. What others have sent over it has the failure.
    pub(super) fn broken(mut self, failure: Option<&FailureOf<C>>) {
        if let Some(connection) = self.connection.take() {
            C::shut(&connection);
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
                C::shut(&connection);
                drop(connection);
                self.pool.lose_line(self.line, None);
            } else if self.pool.give_back(self.line, connection) {
                self.pool.send_behind(self.pool.state.lock());
            }
        });
    }
}

/// A thread that calls.
struct Calls<'p>(&'p AtomicUsize);

impl<'p> Calls<'p> {
    fn begin(callers: &'p AtomicUsize) -> Self {
        callers.fetch_add(1, Ordering::Relaxed);
        Self(callers)
    }
}

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

/// For a drop that may send for others: a panic in the middle of another one would end the process.
pub(super) fn in_drop(run: impl FnOnce()) {
    if os::thread::panicking() {
        let _ = catch_unwind(AssertUnwindSafe(run));
    } else {
        run();
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
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

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
