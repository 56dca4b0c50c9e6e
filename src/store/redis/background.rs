//! The connection of the watchdog thread, for renewals and undos.

use std::time::Duration;

use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::log;
use crate::os::{self, Mutex};
use crate::store::Undo;
use crate::store::redis::script;
use crate::store::redis::wire::{
    Connection, Connector, InFlight, Pool, PubSubReader, PubSubWriter, RedisFailure, Reply,
    Request, UnknownOutcome,
};

/// A connection separate from the pool: renewals must not queue behind lock calls.
pub(super) struct Background {
    connector: Connector,
    idle: Mutex<Idle>,
}

/// The connection while nobody uses it.
#[derive(Default)]
struct Idle {
    connection: Option<Connection>,
    /// No more connections are put back: a kept one would stay open until the client's last handle
    /// is dropped.
    closed: bool,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background")
            .field("endpoint", &self.connector.endpoint)
            .finish_non_exhaustive()
    }
}

impl Background {
    pub(super) fn new(connector: Connector) -> Self {
        Self { connector, idle: Mutex::default() }
    }

    pub(super) fn subscribe(&self, read_timeout: Duration) -> Result<(PubSubReader, PubSubWriter)> {
        self.connector.subscribe(read_timeout)
    }

    /// Whether its last exchange succeeded and its connection is kept.
    pub(super) fn is_connected(&self) -> bool {
        self.idle.lock().connection.is_some()
    }

    pub(super) fn close(&self) {
        // A connection on which a renewal is under way is not here: the watchdog thread drops it
        // after the reply.
        let mut idle = self.idle.lock();
        idle.closed = true;
        idle.connection = None;
    }

    /// Uses a connection of the pool if it cannot open one (`maxclients`, open files): a hold must
    /// not be lost while its client has a working connection.
    pub(super) fn exchange(
        &self,
        requests: &[Request],
        locks: &Pool,
    ) -> Result<(Vec<Reply>, Moment)> {
        let started = os::now();
        match self.exchange_alone(requests) {
            Ok(done) => Ok(done),
            // Not after a connect that timed out: the server hangs, and this request would hang,
            // too.
            Err(RedisFailure::NotSent(error)) if os::since(started) < self.connector.io_timeout => {
                log::debug!("renewing over a connection of the locks: {}", error.chain());
                exchange_over(locks, requests).ok_or(error)
            }
            Err(RedisFailure::NotSent(error) | RedisFailure::Unknown { error, .. }) => Err(error),
        }
    }

    fn exchange_alone(
        &self,
        requests: &[Request],
    ) -> std::result::Result<(Vec<Reply>, Moment), RedisFailure> {
        let mut connection = self.take_or_connect().map_err(RedisFailure::NotSent)?;
        let (replies, sent_at) = self.send(&mut connection, requests)?;
        if !replies.iter().any(Reply::is_demotion) {
            self.put_back(connection);
        }
        Ok((replies, sent_at))
    }

    fn take_or_connect(&self) -> Result<Connection> {
        let idle = self.idle.lock().connection.take();
        idle.map_or_else(|| self.connector.connect(), Ok)
    }

    fn put_back(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if !idle.closed {
            idle.connection = Some(connection);
        }
    }

    /// A connection that ended while idle, or whose user the server no longer knows, is replaced
    /// once: every request sent here may be repeated at any time.
    fn send(
        &self,
        connection: &mut Connection,
        requests: &[Request],
    ) -> std::result::Result<(Vec<Reply>, Moment), RedisFailure> {
        connection.mark_idle();
        let outcome = match connection.exchange(requests) {
            outcome if is_of_no_use(&outcome) => {
                *connection = self.connector.connect().map_err(RedisFailure::NotSent)?;
                connection.exchange(requests)
            }
            outcome => outcome,
        };
        outcome.map(|(replies, flight)| (replies, flight.sent_at))
    }

    /// Kills the connections of requests with unknown outcome and then releases, in one write.
    pub(super) fn resolve(&self, undos: &[Undo]) -> Result<Vec<Resolution>> {
        // Always a new connection: its handshake shows which server process answers.
        drop(self.idle.lock().connection.take());
        let mut connection = self.connector.connect()?;
        let mut requests = Vec::new();
        // One kill for each connection with an unknown outcome, and its index in `requests`; `None`
        // if no kill is needed.
        let mut kills: Vec<(&UnknownOutcome, Option<usize>)> = Vec::new();
        let mut plans = Vec::with_capacity(undos.len());
        for undo in undos {
            let mut plan = Plan { ready: true, kills: Vec::new() };
            for unknown in undo.unknowns.list::<UnknownOutcome>() {
                let known = kills
                    .iter()
                    .find(|(other, _)| other.same_connection(unknown))
                    .map(|(_, at)| *at);
                let at = match known {
                    Some(at) => at,
                    None => match connection.kills_for(std::slice::from_ref(unknown)) {
                        Ok(kill) => {
                            let at = (!kill.is_empty()).then_some(requests.len());
                            requests.extend(kill);
                            kills.push((unknown, at));
                            at
                        }
                        Err(_) => {
                            plan.ready = false;
                            None
                        }
                    },
                };
                plan.kills.extend(at);
            }
            plans.push(plan);
        }
        let first_release = requests.len();
        let releases = undos.iter().zip(&plans).filter(|(_, plan)| plan.ready);
        let now = || self.connector.clock.now();
        requests.extend(releases.map(|(undo, _)| script::release(&undo.release(), now)));
        if requests.is_empty() {
            return Ok(undos.iter().map(|_| Resolution::NotYet).collect());
        }
        let (replies, _) = match connection.exchange(&requests) {
            Ok(done) => done,
            Err(RedisFailure::NotSent(error)) => return Err(error),
            Err(RedisFailure::Unknown { error, .. }) => {
                log::debug!("{} unknown outcomes cannot be resolved yet: {error}", undos.len());
                return Ok(undos.iter().map(|_| Resolution::MayHaveRun).collect());
            }
        };
        if !replies.iter().any(Reply::is_demotion) {
            self.put_back(connection);
        }
        let mut releases = replies[first_release..].iter();
        Ok(plans
            .into_iter()
            .map(|plan| {
                if !plan.ready {
                    return Resolution::NotYet;
                }
                let reply = releases.next().expect("a reply for every request");
                if reply.redirect().is_some() {
                    return Resolution::Redirected(reply.clone());
                }
                let released = script::release_answer(reply.clone()).is_ok();
                let killed = plan.kills.iter().all(|at| matches!(replies[*at], Reply::Int(_)));
                match (killed, released) {
                    (true, true) => Resolution::Done,
                    (true, false) => Resolution::NothingUnderWay,
                    (false, _) => Resolution::NotYet,
                }
            })
            .collect())
    }
}

/// Sends one request after the other. The moment is when the first one was sent.
fn exchange_over(locks: &Pool, requests: &[Request]) -> Option<(Vec<Reply>, Moment)> {
    let answers: Vec<_> = requests
        .iter()
        .map(|request| locks.call_over_open(request.clone()).ok())
        .collect::<Option<_>>()?;
    let sent_at = answers.first()?.sent_at;
    Some((answers.into_iter().map(|answer| answer.reply).collect(), sent_at))
}

/// The connection had ended before the requests reached the server.
fn is_of_no_use(outcome: &std::result::Result<(Vec<Reply>, InFlight), RedisFailure>) -> bool {
    match outcome {
        Ok((replies, _)) => replies.iter().any(Reply::is_logged_out),
        Err(failure) => matches!(failure, RedisFailure::Unknown { stale: true, .. }),
    }
}

/// How far an undo has got.
pub(super) enum Resolution {
    Done,
    /// None of its requests can run any more, but the release was refused.
    NothingUnderWay,
    /// The release was sent, and its reply was lost.
    MayHaveRun,
    /// Another node of the cluster has the slot.
    Redirected(Reply),
    NotYet,
}

impl From<Resolution> for crate::store::resolve::Resolution {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Done => Self::Done,
            Resolution::NothingUnderWay => Self::Refused,
            Resolution::MayHaveRun => Self::MayHaveRun,
            // Whether the kills were refused is not known after a redirect.
            Resolution::NotYet | Resolution::Redirected(_) => Self::NotYet,
        }
    }
}

/// What one undo needs before the reply to its release counts.
struct Plan {
    /// Every unknown outcome can be resolved now.
    ready: bool,
    /// The indexes of the kills whose replies must not be errors.
    kills: Vec<usize>,
}
