//! One master of several: its connections, and when not to ask it.
//!
//! A master runs the requests of one holder in the order in which they were sent, although callers
//! do not wait for every reply: a connection with an unread reply is kept for the next request of
//! the same holder. When such a connection breaks, the next request to this master kills it first.
//!
//! A request has run only if its reply says so. An unread reply that does not come, or that is a
//! refusal, is no evidence of anything, and neither is a connection that can no longer run
//! anything: the request is sent again, by the undo that keeps its [`Evidence`].

mod call;
mod evidence;
mod exchange;

use std::sync::Arc;
use std::time::Duration;

pub(super) use self::call::NodeCall;
use self::evidence::Witness;
pub(super) use self::evidence::{Evidence, has_run};
use self::exchange::Exchange;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::random::Backoff;
use crate::os::{self, Condvar, Mutex};
use crate::signal::clock::Clock;
use crate::store::net::{Pace, PooledConnection};
use crate::store::redis::script;
use crate::store::redis::wire::{Connection, Connector, RedisFailure, Reply, UnknownOutcome};

/// Maximum number of connections to one master with an unread reply. Beyond it connections are
/// given up, with unknown outcome.
const MAX_UNREAD: usize = 16;

/// The part of the I/O timeout for which a request waits for the unread replies and the connects of
/// others.
const PATIENCE: u32 = 4;

/// How often unread replies are looked for by whoever waits for one of them.
const LOOK: Duration = Duration::from_millis(1);

pub(super) struct Node {
    pub(super) connector: Connector,
    state: Mutex<MasterState>,
    /// A connect has ended, or a connection is free.
    changed: Condvar,
}

struct MasterState {
    /// The run id of the server process that accepted the last connection.
    run_id: Option<String>,
    free: Vec<Connection>,
    unread: Vec<UnreadReply>,
    /// Each connection that a call has holds a clone.
    out: Arc<()>,
    /// When a connection beside others may be tried for again.
    pace: Pace,
    /// Requests that may still run on connections that broke, each with the holder for which it was
    /// sent.
    unknowns: Vec<(UnknownOutcome, Option<Holder>)>,
    down: Option<Down>,
    /// Since when a call has been making a connection, see [`Node::take`].
    connecting: Option<Moment>,
    /// The holders for which a reply that nobody waited for did not grant what they asked.
    refused: Vec<Holder>,
    health: NodeHealth,
    closed: bool,
}

impl MasterState {
    /// Whether there is any connection, also one that another call has.
    fn is_connected(&self) -> bool {
        !self.free.is_empty() || !self.unread.is_empty() || Arc::strong_count(&self.out) > 1
    }
}

/// A connection for one call.
struct Taken {
    connection: Connection,
    /// How many replies to earlier requests come before its own.
    missing: usize,
    /// The unknown outcome of those requests.
    earlier: Option<UnknownOutcome>,
    out: Arc<()>,
}

impl Taken {
    fn fresh(connection: Connection, out: Arc<()>) -> Self {
        Self { connection, missing: 0, earlier: None, out }
    }
}

/// A connection whose last caller returned before its reply came.
struct UnreadReply {
    exchange: Exchange,
    holder: Holder,
    since: Moment,
    witness: Witness,
}

/// A master that is down is not asked until the background thread has reached it again.
struct Down {
    error: Error,
    probe_at: Moment,
    pause: Backoff,
}

/// What is done for a connection to a master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Nothing: only an open one is used.
    Open,
    /// It is made, if the master does not look slow or down.
    Connect,
    /// It is made in any case.
    Anyway,
}

/// Whether the replies of a master count.
#[derive(Debug, Clone, Copy)]
pub(super) enum Voting {
    Yes,
    /// The master reports that it has no vote. `until`: when it can be admitted, as far as this
    /// client knows.
    Quarantined {
        until: Option<Moment>,
    },
}

/// What is known of a master, for [`nodes`](crate::LockClient::nodes).
#[derive(Debug, Clone)]
pub(super) struct NodeHealth {
    pub(super) latency: Option<Duration>,
    pub(super) last_error: Option<Error>,
    /// It may have lost its vote and must be inspected: another process answers than before, or an
    /// unread reply reported it.
    pub(super) suspicious: bool,
    pub(super) voting: Voting,
}

impl Node {
    pub(super) fn new(connector: Connector) -> Self {
        let voting = Voting::Quarantined { until: None };
        let health = NodeHealth { latency: None, last_error: None, suspicious: false, voting };
        let state = MasterState {
            run_id: None,
            free: Vec::new(),
            unread: Vec::new(),
            out: Arc::default(),
            pace: Pace::new(connector.io_timeout),
            unknowns: Vec::new(),
            down: None,
            connecting: None,
            refused: Vec::new(),
            health,
            closed: false,
        };
        Self { connector, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.connector.clock
    }

    /// Its health, and the error if it is down.
    pub(super) fn health(&self) -> (NodeHealth, Option<Error>) {
        let state = self.state.lock();
        (state.health.clone(), state.down.as_ref().map(|down| down.error.clone()))
    }

    pub(super) fn set_voting(&self, voting: Voting) {
        self.state.lock().health.voting = voting;
    }

    /// Whether a request needs no connect; also true for a master that is down, because nothing is
    /// sent.
    pub(super) fn has_connection(&self) -> bool {
        let state = self.state.lock();
        !state.free.is_empty() || !state.unread.is_empty() || state.down.is_some()
    }

    /// A connection for the next request of `holder`.
    ///
    /// Calls connect one after the other, and wait for that only for a part of the I/O timeout: a
    /// master that hangs must not keep each of them for all of it, and with them those that wait
    /// for a round. If it refuses one more connection (`maxclients`), they share what there is.
    fn take(&self, holder: Option<&Holder>, effort: Effort) -> Result<Taken> {
        let unreachable = |why| Error::new(ErrorKind::Unreachable, why);
        let patience = self.connector.io_timeout / PATIENCE;
        let began = self.clock().now();
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Err(Error::new(ErrorKind::Closed, "the client was closed"));
            }
            if let Some(down) = &state.down {
                return Err(down.error.clone());
            }
            self.drain(&mut state)?;
            let is_own = |unread: &UnreadReply| Some(&unread.holder) == holder;
            if let Some(at) = state.unread.iter().position(is_own) {
                let unread = state.unread.swap_remove(at);
                let missing = unread.exchange.missing();
                let Exchange { connection, flight, out, .. } = unread.exchange;
                return Ok(Taken { connection, missing, earlier: Some(flight.unknown), out });
            }
            if let Some(connection) = state.free.pop() {
                return Ok(Taken::fresh(connection, state.out.clone()));
            }
            let now = self.clock().now();
            // The master is slow: a connect would most likely take as long.
            if effort != Effort::Anyway
                && let Some(oldest) = state.unread.iter().map(|unread| unread.since).min()
            {
                let silent = now.since(oldest);
                return Err(unreachable(format!("it has not answered for {silent:?}")));
            }
            if effort == Effort::Open {
                return Err(unreachable("no connection to it is open".to_owned()));
            }
            let spent = now.since(began);
            let pause = state.pace.pause();
            if let Some(error) = state.pace.trouble()
                && state.is_connected()
                && (!pause.is_zero() || spent >= patience)
            {
                if spent >= patience {
                    return Err(error.clone());
                }
                // Nobody says when an unread reply comes.
                let look = if state.unread.is_empty() { pause } else { LOOK };
                self.changed.wait_for(&mut state, look.min(pause).min(patience - spent));
                continue;
            }
            let connecting = effort == Effort::Connect;
            if connecting && let Some(since) = state.connecting {
                let spent = now.since(since);
                if spent >= patience {
                    let why = format!("a connection to it has been under way for {spent:?}");
                    return Err(unreachable(why));
                }
                self.changed.wait_for(&mut state, patience - spent);
                continue;
            }
            if connecting {
                state.connecting = Some(now);
            }
            drop(state);
            let connecting = connecting.then(|| Connecting(self));
            if let Some(made) = self.take_new()? {
                return Ok(made);
            }
            drop(connecting);
            state = self.state.lock();
        }
    }

    /// A new connection. `None`: it cannot be made, and there are others.
    fn take_new(&self) -> Result<Option<Taken>> {
        let connected = self.connect();
        let mut state = self.state.lock();
        match connected {
            Ok(connection) => Ok(Some(Taken::fresh(connection, state.out.clone()))),
            // Those that work say more of the master than one that was not made.
            Err(error) if state.is_connected() => {
                state.health.last_error = Some(error.clone());
                state.pace.failed(error);
                Ok(None)
            }
            Err(error) => {
                self.set_down(&mut state, &error);
                Err(error)
            }
        }
    }

    fn connect(&self) -> Result<Connection> {
        let connection = self.connector.connect()?;
        let mut state = self.state.lock();
        state.pace.succeeded();
        if state.run_id.as_deref() != connection.run_id() {
            state.run_id = connection.run_id().map(str::to_owned);
            state.health.suspicious = true;
        }
        Ok(connection)
    }

    /// Whether it must be inspected; resets that flag.
    pub(super) fn take_suspicion(&self) -> bool {
        std::mem::take(&mut self.state.lock().health.suspicious)
    }

    /// Whose holds it may lack, if they were granted before it had answered; forgets them.
    pub(super) fn take_refused(&self) -> Vec<Holder> {
        std::mem::take(&mut self.state.lock().refused)
    }

    /// Reads the unread replies that have arrived, without waiting.
    ///
    /// # Errors
    /// A reply is overdue and there is no other connection: the master hangs, and counts as down
    /// now.
    fn drain(&self, state: &mut MasterState) -> Result<()> {
        if state.unread.is_empty() {
            return Ok(());
        }
        let connections: Vec<&Connection> =
            state.unread.iter().map(|unread| &unread.exchange.connection).collect();
        let answered = Connection::answered(&connections, Duration::ZERO);
        let mut kept = Vec::new();
        let mut gave_up = None;
        let now = self.clock().now();
        for (mut unread, ready) in std::mem::take(&mut state.unread).into_iter().zip(answered) {
            let read = if ready { unread.exchange.read_available() } else { Ok(false) };
            match read {
                Ok(true) => {
                    let replies = self.settle(state, unread.exchange);
                    if !has_run(&replies) || script::says_busy(&replies[0]) {
                        state.refused.push(unread.holder);
                    }
                    unread.witness.tell(&replies);
                }
                Ok(false)
                    if now.since(unread.since) <= self.connector.io_timeout
                        && kept.len() < MAX_UNREAD =>
                {
                    kept.push(unread);
                }
                read => {
                    let failure = read.err();
                    let why = || if kept.len() < MAX_UNREAD { is_late() } else { owes_many() };
                    // One that has ended says nothing about the master.
                    if !matches!(failure, Some(RedisFailure::Unknown { ended: true, .. })) {
                        gave_up = Some(failure.map_or_else(why, RedisFailure::into_error));
                    }
                    state.unknowns.push((unread.exchange.flight.unknown, Some(unread.holder)));
                }
            }
        }
        state.unread = kept;
        match gave_up.filter(|_| !state.is_connected()) {
            Some(error) => {
                self.set_down(state, &error);
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// All replies of an exchange have come: takes back its connection, and returns the replies to
    /// its own requests.
    fn settle(&self, state: &mut MasterState, exchange: Exchange) -> Vec<Reply> {
        let Exchange { connection, mut replies, kills, resolves, quarantined, .. } = exchange;
        let own = replies.split_off(kills);
        state.health.suspicious |= quarantined || own.iter().any(script::says_quarantined);
        if own.iter().any(Reply::is_logged_out) {
            // The kills were refused as well, and the idle connections have the same identity.
            state.free.clear();
            return own;
        }
        // After a refused kill (the master runs somebody's long script, for example) an earlier
        // request can still run: it is killed again before the next request.
        if replies.iter().all(|killed| matches!(killed, Reply::Int(_))) {
            state.unknowns.retain(|(unknown, _)| {
                !resolves.iter().any(|resolved| resolved.same_connection(unknown))
            });
        }
        if !own.iter().any(Reply::is_demotion) {
            self.give_back(state, connection);
        }
        own
    }

    /// Takes back a connection that owes no replies.
    fn give_back(&self, state: &mut MasterState, mut connection: Connection) {
        if !state.closed && state.down.is_none() {
            connection.mark_idle();
            state.free.push(connection);
            self.changed.notify_one();
        }
    }

    /// Records that a connection broke. The idle ones have most likely ended, too.
    fn record_failure(&self, failure: RedisFailure, holder: Option<&Holder>) -> RedisFailure {
        if let RedisFailure::Unknown { error, unknown, ended } = &failure {
            let mut state = self.state.lock();
            // Of one that had ended while it was idle nothing can run.
            if unknown.was_sent() {
                state.unknowns.push((unknown.clone(), holder.cloned()));
            }
            if *ended {
                state.free.clear();
            } else {
                self.set_down(&mut state, error);
            }
        }
        failure
    }

    fn set_down(&self, state: &mut MasterState, error: &Error) {
        state.free.clear();
        for unread in state.unread.drain(..) {
            state.unknowns.push((unread.exchange.flight.unknown, Some(unread.holder)));
        }
        state.health.last_error = Some(error.clone());
        let first = Duration::from_millis(50);
        // The first probe is due at once: usually only a connection has ended, and not the master.
        let probe_at = self.clock().now();
        let pause = Backoff::new(first, Duration::from_secs(1));
        state.down.get_or_insert(Down { error: error.clone(), probe_at, pause });
        self.changed.notify_all();
    }

    /// Tries to reach the master if it is down and a probe is due. Returns whether it tried.
    pub(super) fn probe(&self) -> bool {
        {
            let mut state = self.state.lock();
            // So that a master that hangs counts as down even if nobody asks it.
            let _ = self.drain(&mut state);
            match &state.down {
                Some(down) if down.probe_at <= self.clock().now() => {}
                _ => return false,
            }
        }
        let connected = self.connect();
        let mut state = self.state.lock();
        match connected {
            Ok(connection) => {
                state.down = None;
                self.give_back(&mut state, connection);
            }
            Err(error) => {
                let now = self.clock().now();
                state.health.last_error = Some(error.clone());
                if let Some(down) = &mut state.down {
                    down.error = error;
                    down.probe_at = now.plus(down.pause.next());
                }
            }
        }
        true
    }

    /// Reads the unread replies that have arrived, without waiting.
    pub(super) fn read_unread(&self) {
        // An error is kept as the reason why the master is down.
        let _ = self.drain(&mut self.state.lock());
    }

    /// Waits for a free connection, if all have unread replies: usually these come at once. With a
    /// new connection for each round that was decided without them, a master would soon have more
    /// than it may.
    pub(super) fn await_unread(&self) {
        let until = self.clock().now().plus(self.connector.io_timeout / PATIENCE);
        loop {
            let mut state = self.state.lock();
            let waits =
                self.drain(&mut state).is_ok() && state.free.is_empty() && !state.unread.is_empty();
            if !waits || self.clock().now() >= until {
                return;
            }
            drop(state);
            os::thread::sleep(LOOK);
        }
    }

    /// A request that was sent for several holders together may still run.
    pub(super) fn note_unknown<'h>(
        &self,
        unknown: &UnknownOutcome,
        holders: impl Iterator<Item = &'h Holder>,
    ) {
        let of_each = holders.map(|holder| (unknown.clone(), Some(holder.clone())));
        self.state.lock().unknowns.extend(of_each);
    }

    /// True while a request of `holder` may still execute.
    pub(super) fn may_still_run(&self, holder: &Holder) -> bool {
        let state = self.state.lock();
        state.unread.iter().any(|unread| unread.holder == *holder)
            || state.unknowns.iter().any(|(_, sender)| sender.as_ref() == Some(holder))
    }

    /// When to call [`probe`](Self::probe); `None` if the master is up and has no unread reply.
    pub(super) fn probe_at(&self) -> Option<Moment> {
        let state = self.state.lock();
        let overdue =
            state.unread.iter().map(|unread| unread.since.plus(self.connector.io_timeout)).min();
        state.down.as_ref().map(|down| down.probe_at).or(overdue)
    }

    /// Whether it can be asked, is not late with earlier answers, and has a vote.
    pub(super) fn is_well(&self) -> bool {
        let state = self.state.lock();
        state.down.is_none()
            && state.unread.is_empty()
            && matches!(state.health.voting, Voting::Yes)
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.free.clear();
        state.unread.clear();
    }
}

#[cold]
pub(super) fn is_late() -> Error {
    Error::new(ErrorKind::Unreachable, "it did not answer within its timeout (io_timeout)")
}

#[cold]
fn owes_many() -> Error {
    Error::new(ErrorKind::Unreachable, format!("it owes more than {MAX_UNREAD} answers"))
}

/// The next call may connect as soon as this is dropped.
struct Connecting<'n>(&'n Node);

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().connecting = None;
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("endpoint", &self.connector.endpoint).finish_non_exhaustive()
    }
}

pub(super) fn error_of(failure: &RedisFailure) -> &Error {
    match failure {
        RedisFailure::NotSent(error) | RedisFailure::Unknown { error, .. } => error,
    }
}

/// The first reply; an error reply as an error.
pub(super) fn single(replies: Vec<Reply>) -> Result<Reply> {
    let mut replies = replies.into_iter();
    replies
        .next()
        .ok_or_else(|| Error::new(ErrorKind::Protocol, "no reply"))
        .and_then(script::fail_on_error)
}
