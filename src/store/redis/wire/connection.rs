//! One connection with what is known of the server at its other end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connector::Connector;
use super::poll::readable;
use super::request::ConnectionArgs;
use super::{Replicas, Reply, Request, ServerError, Shape, Wire};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::store::redis::keys::probe_names;
use crate::store::redis::script;

/// What a connection learned when it was made.
#[derive(Debug)]
pub(crate) struct Facts {
    /// `CLIENT KILL ID .. ADDR ..` of this connection, where the server may be asked that.
    kill: Option<(u64, String)>,
    /// Which process of the server this is. After a restart connection ids begin again and belong to others.
    run_id: Option<String>,
    /// The server's clock in microseconds, read between these two moments.
    server_micros: u64,
    asked_at: Moment,
    answered_at: Moment,
}

impl Facts {
    /// The server's clock now is at least this (as long as it is not stepped back).
    fn server_now_at_least(&self, now: Moment) -> u64 {
        self.server_micros.saturating_add(micros(now.since(self.answered_at)))
    }

    fn server_now_at_most(&self, now: Moment) -> u64 {
        self.server_micros.saturating_add(micros(now.since(self.asked_at)))
    }

    fn connection_args(&self, now: Moment, io_timeout: Duration) -> ConnectionArgs {
        ConnectionArgs {
            // The first part is above every token given before whatever broke the older connections; the second
            // covers proxies that keep connections over a failover.
            floor: self.server_micros.max(self.server_now_at_least(now).saturating_sub(1_000_000)),
            not_after: if self.kill.is_some() { 0 } else { self.server_now_at_most(now) + micros(io_timeout) },
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A request that went out on a connection which then failed: it can still run, until the connection is known to be
/// gone at the server's end.
#[derive(Debug, Clone)]
pub(crate) struct UnknownOutcome {
    facts: Arc<Facts>,
    /// 0: what was sent may run at any time, and does no harm then.
    not_after: u64,
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing of it has reached the server.
    NotSent(Error),
    /// It may have run, or still run. `stale`: the connection had ended while it lay idle, so the server at its
    /// other end is probably fine and can be asked again at once.
    Unknown { error: Error, unknown: UnknownOutcome, stale: bool },
}

/// What settles a [`UnknownOutcome`].
enum Remedy {
    /// That server process is gone, or the not-after has passed.
    None,
    Kill(Request),
    Wait(Duration),
}

/// A live connection. Any error of it is final: after a timeout its replies could be somebody else's.
pub(crate) struct Connection {
    wire: Box<dyn Wire>,
    facts: Arc<Facts>,
    out: Vec<u8>,
    due: VecDeque<Due>,
    io_timeout: Duration,
    clock: Arc<dyn Clock>,
    /// It has carried a request before, and has lain idle since.
    was_idle: bool,
}

/// A reply that is due: what it must look like, and how many replicas must acknowledge what it answers.
type Due = (Shape, Option<Replicas>);

/// Sent, not yet answered: how many replies are due, and what is in unknown outcome until they are here.
pub(crate) struct InFlight {
    pub(crate) sent_at: Moment,
    pub(crate) unknown: UnknownOutcome,
}

impl Connection {
    /// Shakes hands on a fresh connection: who we are to the server, who it is, what we may do, and the scripts
    /// of the plain lock, in one write.
    pub(super) fn handshake(mut wire: Box<dyn Wire>, connector: &Connector) -> Result<Self> {
        let Connector { clock, io_timeout, .. } = connector;
        let mut requests = vec![
            Request::plain(&["CLIENT", "SETNAME", &connector.client_name]),
            Request::plain(&["CLIENT", "INFO"]),
            // An id that cannot exist: asks for the permission.
            Request::plain(&["CLIENT", "KILL", "ID", "9223372036854775807"]),
            Request::plain(&["INFO", "server"]),
            Request::plain(&["INFO", "replication"]),
        ];
        let told = requests.len();
        requests.extend(script::LOADED.iter().map(|s| Request::plain(&["SCRIPT", "LOAD", s.source])));
        let probe = requests.len();
        // Whether the user may publish is asked here: Redis does not roll back what a script did before a publish that is
        // refused. Under the prefix, because the ACL may permit no more than that.
        let (key, channels) = probe_names(&connector.key_prefix);
        requests.push(script::connect_probe(&key, &channels));
        requests.push(Request::plain(&["TIME"]));
        if !connector.memory_seen.load(Ordering::Relaxed) {
            requests.push(Request::plain(&["INFO", "memory"]));
        }

        let asked_at = clock.now();
        let mut replies = ask_all(&mut *wire, &requests)?;
        let answered_at = clock.now();

        let text = |i: usize| if let Reply::Bytes(b) = &replies[i] { String::from_utf8_lossy(b) } else { "".into() };
        let (server, replication) = (text(3), text(4));
        check_server(&server, &replication)?;
        if replies.len() > probe + 2 {
            warn_of_eviction(&text(probe + 2), connector);
        }
        for reply in &replies[told..probe] {
            script::fail_on_error(reply.clone())?;
        }
        refuse_missing_permissions(replies[probe].clone())?;
        let run_id = field(&server, "run_id:").map(str::to_owned);
        let id = field(&text(1), "id=").and_then(|id| id.parse().ok());
        let addr = field(&text(1), "addr=").map(str::to_owned);
        let may_kill = matches!(replies[2], Reply::Int(_)) && run_id.is_some();
        let facts = Facts {
            kill: id.zip(addr).filter(|_| may_kill),
            run_id,
            server_micros: server_time(script::fail_on_error(replies.swap_remove(probe + 1))?)?,
            asked_at,
            answered_at,
        };
        wire.handshake_done()?;
        let (facts, io_timeout, clock) = (Arc::new(facts), *io_timeout, clock.clone());
        Ok(Self { wire, facts, out: Vec::new(), due: VecDeque::new(), io_timeout, clock, was_idle: false })
    }

    /// Which process of the server is at the other end.
    pub(crate) fn run_id(&self) -> Option<&str> {
        self.facts.run_id.as_deref()
    }

    /// The server's clock now, in microseconds since 1970, or a little less.
    pub(crate) fn server_micros(&self) -> u64 {
        self.facts.server_now_at_least(self.clock.now())
    }

    /// Which of the connections has brought something, or has ended; waits for `timeout` at most until one has.
    pub(crate) fn answered(connections: &[&Self], timeout: Duration) -> Vec<bool> {
        let streams: Vec<_> = connections.iter().map(|connection| connection.wire.stream()).collect();
        readable(&streams, timeout)
    }

    /// From here on an end of the connection may be older than the next request.
    pub(crate) fn mark_idle(&mut self) {
        self.was_idle = true;
    }

    /// Writes the requests in one go.
    pub(crate) fn send<'a>(
        &mut self,
        requests: impl Iterator<Item = &'a Request>,
    ) -> std::result::Result<InFlight, Failure> {
        let sent_at = self.clock.now();
        if self.due.is_empty() && self.wire.has_input() {
            return Err(self.ended_in_its_sleep());
        }
        self.out.clear();
        let connection_args = self.facts.connection_args(sent_at, self.io_timeout);
        let mut not_after = 0;
        for request in requests {
            request.write(&mut self.out, connection_args);
            self.due.push_back((request.shape(), request.replicas()));
            if request.has_limit() {
                not_after = connection_args.not_after;
            }
        }
        let flight = InFlight { sent_at, unknown: UnknownOutcome { facts: self.facts.clone(), not_after } };
        match self.wire.send(&self.out) {
            Ok(()) => Ok(flight),
            Err(error) => Err(self.as_unknown(error, &flight)),
        }
    }

    /// Nobody is owed a reply, and there is something to read: the other end has closed the connection, or has sent a frame
    /// that would be taken for the answer to the next request.
    #[cold]
    fn ended_in_its_sleep(&self) -> Failure {
        log::debug!("a connection that lay idle has ended, or has brought bytes that nobody asked for");
        let error = Error::new(ErrorKind::Unreachable, super::connector::ENDED);
        // What was sent on it before has been answered.
        Failure::Unknown { error, unknown: UnknownOutcome { facts: self.facts.clone(), not_after: 0 }, stale: true }
    }

    pub(crate) fn recv(&mut self, flight: &InFlight) -> std::result::Result<Reply, Failure> {
        let (shape, wanted) = self.due.pop_front().unwrap_or((Shape::Any, None));
        let mut receive = |shape: Shape| self.wire.recv().and_then(|reply| fitting(shape, reply));
        let replies = receive(shape)
            .and_then(|reply| Ok((reply, wanted.map(|wanted| Ok((wanted, receive(Shape::Number)?))).transpose()?)));
        match replies {
            Ok((reply, None)) => Ok(reply),
            Ok((reply, Some((wanted, acknowledged)))) => Ok(reply.acknowledged(wanted, acknowledged)),
            Err(error) => Err(self.as_unknown(error, flight)),
        }
    }

    /// A reply that has come already. `fresh`: the connection was [seen](Self::answered) to have brought something.
    pub(crate) fn recv_now(&mut self, flight: &InFlight, fresh: bool) -> std::result::Result<Option<Reply>, Failure> {
        let Some(reply) = self.wire.recv_now(fresh).map_err(|error| self.as_unknown(error, flight))? else {
            return Ok(None);
        };
        // No master of Redlock has replicas to wait for.
        let (shape, _) = self.due.pop_front().unwrap_or((Shape::Any, None));
        fitting(shape, reply).map(Some).map_err(|error| self.as_unknown(error, flight))
    }

    /// One write, all replies; a script that the server does not know is sent once more with its source, which is
    /// safe because NOSCRIPT guarantees that nothing ran.
    pub(crate) fn exchange(&mut self, requests: &[Request]) -> std::result::Result<(Vec<Reply>, InFlight), Failure> {
        let flight = self.send(requests.iter())?;
        let mut replies = Vec::with_capacity(requests.len());
        for _ in requests {
            replies.push(self.recv(&flight)?);
        }
        for (reply, request) in replies.iter_mut().zip(requests) {
            if reply.is_error("NOSCRIPT")
                && let Some(whole) = request.whole()
            {
                let again = self.send(std::iter::once(&whole))?;
                *reply = self.recv(&again)?;
            }
        }
        Ok((replies, flight))
    }

    fn as_unknown(&self, error: Error, flight: &InFlight) -> Failure {
        let stale =
            self.was_idle && error.kind() == ErrorKind::Unreachable && error.message() == super::connector::ENDED;
        Failure::Unknown { error, unknown: flight.unknown.clone(), stale }
    }

    /// False when another process of the server answers now than the one that the request in unknown outcome was sent to.
    pub(crate) fn may_have_run(&self, unknown: &UnknownOutcome) -> bool {
        let (ours, theirs) = (&self.facts.run_id, &unknown.facts.run_id);
        ours.is_none() || theirs.is_none() || ours == theirs
    }

    fn remedy(&self, unknown: &UnknownOutcome) -> Remedy {
        let (ours, theirs) = (&self.facts, &unknown.facts);
        if !self.may_have_run(unknown) {
            return Remedy::None;
        }
        if let Some((id, addr)) = &theirs.kill {
            return Remedy::Kill(Request::plain(&["CLIENT", "KILL", "ID", &id.to_string(), "ADDR", addr]));
        }
        let late = unknown.not_after.saturating_sub(ours.server_now_at_least(self.clock.now()));
        if late == 0 { Remedy::None } else { Remedy::Wait(Duration::from_micros(late)) }
    }

    /// The kills that must go out in front of a repeat or an undo on this connection, or how long to wait first.
    pub(crate) fn kills_for<'a>(
        &self,
        unknowns: impl IntoIterator<Item = &'a UnknownOutcome>,
    ) -> std::result::Result<Vec<Request>, Duration> {
        let mut kills = Vec::new();
        let mut wait = Duration::ZERO;
        for unknown in unknowns {
            match self.remedy(unknown) {
                Remedy::None => {}
                Remedy::Kill(request) => kills.push(request.answered_by(Shape::Number)),
                Remedy::Wait(time) => wait = wait.max(time),
            }
        }
        if wait.is_zero() { Ok(kills) } else { Err(wait) }
    }
}

/// The reply, if it can be the answer to a request of this shape.
fn fitting(shape: Shape, reply: Reply) -> Result<Reply> {
    if shape.fits(&reply) {
        return Ok(reply);
    }
    Err(match reply {
        Reply::Error(e) => e.into_error(),
        other => Error::new(
            ErrorKind::Protocol,
            format!(
                "the server, or something between, answered with what no request of ours is answered with: {other:?}"
            ),
        ),
    })
}

impl UnknownOutcome {
    /// An earlier request on the same connection may still run as well.
    pub(crate) fn includes(&mut self, earlier: &Self) {
        self.not_after = self.not_after.max(earlier.not_after);
    }

    /// Whether both are unknown outcomes about one connection: one kill settles them.
    pub(crate) fn same_connection(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.facts, &other.facts)
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split([' ', '\r', '\n']).find_map(|part| part.strip_prefix(name))
}

/// One write, all replies.
fn ask_all(wire: &mut dyn Wire, requests: &[Request]) -> Result<Vec<Reply>> {
    let mut out = Vec::new();
    for request in requests {
        request.write_plain(&mut out);
    }
    // A server that refuses the connection says why and ends it, maybe before it was asked anything.
    let sent = wire.send(&out);
    let mut replies = Vec::with_capacity(requests.len());
    for _ in requests {
        match wire.recv() {
            Ok(Reply::Error(e)) if e.is_too_many_clients() => return Err(e.into_error()),
            Ok(reply) => replies.push(reply),
            Err(error) => return Err(sent.err().unwrap_or(error)),
        }
    }
    sent.map(|()| replies)
}

fn check_server(server: &str, replication: &str) -> Result<()> {
    let unsupported = |what: String| Err(Error::new(ErrorKind::Unsupported, what));
    match field(server, "redis_mode:").or_else(|| field(server, "server_mode:")) {
        Some("cluster") => return unsupported("the server is a cluster node; use a standalone server".into()),
        Some("sentinel") => return unsupported("the server is a sentinel; connect to the primary it watches".into()),
        _ => {}
    }
    if let Some(version) = field(server, "redis_version:") {
        let mut numbers = version.split('.').map_while(|n| n.parse::<u32>().ok());
        let version_pair = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version_pair < (6, 2) {
            return unsupported(format!("the server is Redis {version}; 6.2 or later is needed"));
        }
    }
    if field(replication, "role:") == Some("slave") {
        return Err(Error::new(ErrorKind::ReadOnly, "the server is a replica; connect to the primary"));
    }
    Ok(())
}

/// A lock has a TTL, so every policy but `noeviction` may choose it.
fn warn_of_eviction(memory: &str, connector: &Connector) {
    let Some(policy) = field(memory, "maxmemory_policy:") else { return };
    let with_limit = field(memory, "maxmemory:").is_some_and(|bytes| bytes != "0");
    if !connector.memory_seen.swap(true, Ordering::Relaxed) && with_limit && policy != "noeviction" {
        log::warn!(
            "{:?} may throw locks away when its memory is full, because its maxmemory-policy is {policy}; set it to \
             noeviction",
            connector.endpoint
        );
    }
}

fn refuse_missing_permissions(probe: Reply) -> Result<()> {
    // Somebody flushed the scripts between the load and this: nothing was learned, and nothing is wrong.
    if probe.is_error("NOSCRIPT") {
        return Ok(());
    }
    if matches!(&probe, Reply::Error(e) if e.code == "NOPERM" && e.text.contains("key")) {
        return Ok(());
    }
    let refused = script::connect_probe_answer(probe)?;
    // Texts of Redis 7, 6.2 and Valkey. A refusal of the probe's own key says nothing about the keys of the locks.
    let about_commands = |text: &&String| {
        (text.contains("permission") || text.contains("user executing the script")) && !text.contains("keys")
    };
    match refused.iter().find(about_commands) {
        None => Ok(()),
        Some(text) => Err(Error::new(
            ErrorKind::Denied,
            format!("the user lacks a permission that locks need ({text}); see the crate docs for the ACL rule"),
        )),
    }
}

pub(crate) fn server_time(reply: Reply) -> Result<u64> {
    let number = |r: &Reply| match r {
        Reply::Bytes(b) => std::str::from_utf8(b).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    match &reply {
        Reply::Array(parts) if parts.len() == 2 => number(&parts[0]).zip(number(&parts[1])),
        _ => None,
    }
    .map(|(seconds, micros)| seconds * 1_000_000 + micros)
    .ok_or_else(|| Error::new(ErrorKind::Protocol, format!("TIME answered {reply:?}")))
}

impl From<&str> for ServerError {
    fn from(text: &str) -> Self {
        Self { code: text.split(' ').next().unwrap_or_default().to_owned(), text: text.to_owned() }
    }
}
