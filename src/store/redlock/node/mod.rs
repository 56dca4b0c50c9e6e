//! One master of several: its connections, and when it is better not asked.
//!
//! What one holder sends to one master runs there in the order in which it was sent, although the caller does not wait
//! for every reply: a connection whose reply nobody waited for is kept with the holder that is owed it, and when one
//! breaks, the next that goes to this master kills it first.

mod call;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

pub(super) use self::call::Call;
use self::call::Out;
use crate::base::backoff::Backoff;
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::store::redis::script;
use crate::store::redis::wire::{Connection, Connector, Failure, InFlight, Reply, Request, UnknownOutcome};

/// Connections to a master that owe a reply, beyond which it is not asked for more.
const MOST_LATE: usize = 16;

pub(super) struct Node {
    pub(super) connector: Connector,
    /// Counts how often any master came back, whoever found that.
    returns: Arc<AtomicU64>,
    state: Mutex<State>,
}

struct State {
    /// The process that was connected to last.
    run_id: Option<String>,
    free: Vec<Connection>,
    late: Vec<UnreadReply>,
    /// Connections that broke with something unanswered, which may still run, and whose it is.
    unknowns: Vec<(UnknownOutcome, Option<Holder>)>,
    down: Option<Down>,
    health: NodeHealth,
    closed: bool,
}

/// A connection whose reply nobody waited for.
struct UnreadReply {
    connection: Connection,
    flight: InFlight,
    owed: usize,
    holder: Holder,
    since: Moment,
}

impl UnreadReply {
    /// What has come, and no more: nobody waits for a slow master here. True: it says that it has no vote.
    fn read(&mut self) -> std::result::Result<bool, Failure> {
        let (mut fresh, mut forgetful) = (true, false);
        while self.owed > 0
            && let Some(reply) = self.connection.recv_now(&self.flight, std::mem::take(&mut fresh))?
        {
            forgetful |= script::says_quarantined(&reply);
            self.owed -= 1;
        }
        Ok(forgetful)
    }
}

/// Not asked before it has been reached again in the background.
struct Down {
    error: Error,
    again: Moment,
    pause: Backoff,
}

/// What is known of a master, for [`nodes`](crate::LockClient::nodes).
#[derive(Debug, Clone, Default)]
pub(super) struct NodeHealth {
    pub(super) latency: Option<Duration>,
    pub(super) last_error: Option<Error>,
    /// Another process than before, or one that said that it has no vote when nobody listened: to be looked at.
    pub(super) suspicious: bool,
    /// It has said that it has no vote; the moment is when it can be admitted, as far as this client knows.
    pub(super) quarantined: Option<Option<Moment>>,
}

impl Node {
    pub(super) fn new(connector: Connector, returns: Arc<AtomicU64>) -> Self {
        let state = State {
            run_id: None,
            free: Vec::new(),
            late: Vec::new(),
            unknowns: Vec::new(),
            down: None,
            health: NodeHealth { quarantined: Some(None), ..NodeHealth::default() },
            closed: false,
        };
        Self { connector, returns, state: Mutex::new(state) }
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.connector.clock
    }

    pub(super) fn health(&self) -> (NodeHealth, Option<Error>) {
        let state = self.state.lock();
        (state.health.clone(), state.down.as_ref().map(|down| down.error.clone()))
    }

    pub(super) fn quarantine(&self, until: Option<Option<Moment>>) {
        self.state.lock().health.quarantined = until;
    }

    /// Whether a request to it goes out without a connect.
    pub(super) fn has_connection(&self) -> bool {
        let state = self.state.lock();
        !state.free.is_empty() || !state.late.is_empty() || state.down.is_some()
    }

    /// Sends what `make` makes for the connection and the run_id of the process at its other end, in one write. `holder`:
    /// whose requests they are, so that they follow its earlier ones.
    ///
    /// # Errors
    /// Nothing was sent: it is down, or slower than others, or cannot be reached.
    pub(super) fn send(
        &self,
        holder: Option<&Holder>,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<Call<'_>, Failure> {
        match self.send_once(holder, false, &make) {
            // The connection had ended in its sleep, which says nothing about the master.
            Err(Failure::Unknown { stale: true, .. }) => self.send_once(holder, false, &make),
            outcome => outcome,
        }
    }

    /// [`send`](Self::send), also to one that owes others a reply and has no connection free, or that was down when it was
    /// tried last: it is needed.
    pub(super) fn send_anyway(
        &self,
        holder: Option<&Holder>,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<Call<'_>, Failure> {
        self.probe();
        self.send_once(holder, true, make)
    }

    fn send_once(
        &self,
        holder: Option<&Holder>,
        anyway: bool,
        make: impl Fn(&Connection, &str) -> Vec<Request>,
    ) -> std::result::Result<Call<'_>, Failure> {
        let (mut connection, owed, earlier) = self.take(holder, anyway).map_err(Failure::NotSent)?;
        let unknowns: Vec<UnknownOutcome> =
            self.state.lock().unknowns.iter().map(|(unknown, _)| unknown.clone()).collect();
        let mut requests = match connection.kills_for(unknowns.iter()) {
            Ok(kills) => kills,
            Err(wait) => {
                match earlier {
                    // The next to use it would take the replies that it owes for its own.
                    Some(unknown) => self.state.lock().unknowns.push((unknown, holder.cloned())),
                    None => self.give_back(connection),
                }
                let why =
                    format!("an earlier attempt can still reach it for {wait:?}, and CLIENT KILL is not permitted");
                return Err(Failure::NotSent(Error::new(ErrorKind::Unreachable, why)));
            }
        };
        let Some(run_id) = connection.run_id().map(str::to_owned) else {
            self.give_back(connection);
            let why = "INFO does not tell its run_id, which Redlock needs to see restarts";
            return Err(Failure::NotSent(Error::new(ErrorKind::Denied, why)));
        };
        let own = make(&connection, &run_id);
        requests.extend(own.iter().cloned());
        match connection.send(requests.iter()) {
            Ok(mut flight) => {
                let owed = owed + requests.len() - own.len();
                if let Some(earlier) = earlier {
                    flight.unknown.includes(&earlier);
                }
                let out = Some(Out { connection, flight, owed, settles: unknowns });
                Ok(Call { node: self, out, requests: own, holder: holder.cloned(), replies: Vec::new(), failed: None })
            }
            Err(mut failure) => {
                if let (Failure::Unknown { unknown, .. }, Some(earlier)) = (&mut failure, earlier) {
                    unknown.includes(&earlier);
                }
                Err(self.failed(failure, holder))
            }
        }
    }

    /// A connection, how many replies come on it first, and what they belong to.
    fn take(&self, holder: Option<&Holder>, anyway: bool) -> Result<(Connection, usize, Option<UnknownOutcome>)> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        if let Some(down) = &state.down {
            return Err(down.error.clone());
        }
        self.drain(&mut state)?;
        if let Some(at) = holder.and_then(|holder| state.late.iter().position(|late| late.holder == *holder)) {
            let late = state.late.swap_remove(at);
            return Ok((late.connection, late.owed, Some(late.flight.unknown)));
        }
        if let Some(connection) = state.free.pop() {
            return Ok((connection, 0, None));
        }
        // A connect would have to wait for it as well.
        if let Some(oldest) = state.late.iter().map(|late| late.since).min()
            && !anyway
        {
            let late = self.clock().now().since(oldest);
            return Err(Error::new(ErrorKind::Unreachable, format!("it has not answered for {late:?}")));
        }
        drop(state);
        self.connect().inspect_err(|e| self.mark_down(e)).map(|connection| (connection, 0, None))
    }

    fn connect(&self) -> Result<Connection> {
        let connection = self.connector.connect()?;
        let mut state = self.state.lock();
        if state.run_id.as_deref() != connection.run_id() {
            state.run_id = connection.run_id().map(str::to_owned);
            state.health.suspicious = true;
        }
        Ok(connection)
    }

    /// Whether it is to be looked at, asked once.
    pub(super) fn take_suspicion(&self) -> bool {
        std::mem::take(&mut self.state.lock().health.suspicious)
    }

    /// Reads the replies that have come in late. One that is overdue means that the master hangs.
    fn drain(&self, state: &mut State) -> Result<()> {
        if state.late.is_empty() {
            return Ok(());
        }
        let connections: Vec<&Connection> = state.late.iter().map(|late| &late.connection).collect();
        let answered = Connection::answered(&connections, Duration::ZERO);
        let (mut kept, now) = (Vec::new(), self.clock().now());
        for (mut late, ready) in std::mem::take(&mut state.late).into_iter().zip(answered) {
            let read = if ready { late.read() } else { Ok(false) };
            state.health.suspicious |= matches!(read, Ok(true));
            match read {
                Ok(_) if late.owed == 0 => {
                    late.connection.mark_idle();
                    state.free.push(late.connection);
                }
                Ok(_) if now.since(late.since) <= self.connector.io_timeout && kept.len() < MOST_LATE => {
                    kept.push(late);
                }
                _ => state.unknowns.push((late.flight.unknown, Some(late.holder))),
            }
        }
        let lost = !state.unknowns.is_empty() && kept.is_empty() && state.free.is_empty();
        state.late = kept;
        if lost {
            let error = Error::new(ErrorKind::Unreachable, "it did not answer within its timeout (io_timeout)");
            self.put_down(state, &error);
            return Err(error);
        }
        Ok(())
    }

    fn give_back(&self, mut connection: Connection) {
        connection.mark_idle();
        let mut state = self.state.lock();
        if !state.closed && state.down.is_none() {
            state.free.push(connection);
        }
    }

    /// A connection broke. Those that lie idle have most likely ended too.
    fn failed(&self, failure: Failure, holder: Option<&Holder>) -> Failure {
        match &failure {
            Failure::Unknown { stale: true, unknown, .. } => {
                let mut state = self.state.lock();
                state.free.clear();
                state.unknowns.push((unknown.clone(), holder.cloned()));
            }
            Failure::Unknown { error, unknown, .. } => {
                let mut state = self.state.lock();
                state.unknowns.push((unknown.clone(), holder.cloned()));
                self.put_down(&mut state, error);
            }
            Failure::NotSent(_) => {}
        }
        failure
    }

    /// Not asked before it has been reached again in the background.
    pub(super) fn mark_down(&self, error: &Error) {
        self.put_down(&mut self.state.lock(), error);
    }

    fn put_down(&self, state: &mut State, error: &Error) {
        state.free.clear();
        for late in state.late.drain(..) {
            state.unknowns.push((late.flight.unknown, Some(late.holder)));
        }
        state.health.last_error = Some(error.clone());
        let first = Duration::from_millis(50);
        // At once the first time: mostly a connection has ended, and not the master.
        let (again, pause) = (self.clock().now(), Backoff::new(first, Duration::from_secs(1)));
        state.down.get_or_insert(Down { error: error.clone(), again, pause });
    }

    /// Reaches out to a master that is down; false when it was not the time for that.
    pub(super) fn probe(&self) -> bool {
        {
            let mut state = self.state.lock();
            // Also when nobody asks it meanwhile: one that hangs is seen to.
            let _ = self.drain(&mut state);
            match &state.down {
                Some(down) if down.again <= self.clock().now() => {}
                _ => return false,
            }
        }
        let connected = self.connect();
        let mut state = self.state.lock();
        match connected {
            Ok(mut connection) => {
                connection.mark_idle();
                state.down = None;
                if !state.closed {
                    state.free.push(connection);
                }
                self.returns.fetch_add(1, Ordering::AcqRel);
            }
            Err(error) => {
                let now = self.clock().now();
                state.health.last_error = Some(error.clone());
                if let Some(down) = &mut state.down {
                    down.error = error;
                    down.again = now.plus(down.pause.next());
                }
            }
        }
        true
    }

    /// Whether a reply to this holder is still missing, on a connection that stands.
    pub(super) fn owes(&self, holder: &Holder) -> bool {
        let mut state = self.state.lock();
        let _ = self.drain(&mut state);
        state.late.iter().any(|late| late.holder == *holder)
    }

    /// Whether it may still run what this holder sent: it has not answered, and has not been told to forget it.
    pub(super) fn may_still_run(&self, holder: &Holder) -> bool {
        let state = self.state.lock();
        state.late.iter().any(|late| late.holder == *holder)
            || state.unknowns.iter().any(|(_, whose)| whose.as_ref() == Some(holder))
    }

    /// When [`probe`](Self::probe) has something to do; `None`: nothing is wrong.
    pub(super) fn probe_at(&self) -> Option<Moment> {
        let state = self.state.lock();
        let late = state.late.iter().map(|late| late.since.plus(self.connector.io_timeout)).min();
        state.down.as_ref().map(|down| down.again).or(late)
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.free.clear();
        state.late.clear();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("endpoint", &self.connector.endpoint).finish_non_exhaustive()
    }
}

/// An error of one master in a word or two, for the message about all of them.
pub(super) fn in_short(failure: &Failure) -> &Error {
    match failure {
        Failure::NotSent(error) | Failure::Unknown { error, .. } => error,
    }
}

/// Replies that may be errors as a result of one.
pub(super) fn one(replies: Vec<Reply>) -> Result<Reply> {
    let mut replies = replies.into_iter();
    replies.next().ok_or_else(|| Error::new(ErrorKind::Protocol, "no reply")).and_then(script::fail_on_error)
}
