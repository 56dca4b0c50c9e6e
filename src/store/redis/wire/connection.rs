//! One connection, and the facts about the server at its other end.

use std::sync::Arc;
use std::time::Duration;

use super::busy_poll::BusyPoll;
use super::packing::{Awaited, Due, InFlight, SentBehind};
use super::reply::{Reply, Shape};
use super::request::Request;
use super::sender::Sender;
use super::transport::Transport;
use super::unknown_outcome::{ConnectionFacts, RedisFailure, Remedy, UnknownOutcome};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::log;
use crate::signal::clock::Clock;
use crate::store::net::{ENDED, KEEPALIVE_PAUSE, readable};

/// A live connection. Any error is final: after a timeout the next reply could belong to an earlier
/// request.
pub(crate) struct Connection {
    transport: Box<Transport>,
    facts: Arc<ConnectionFacts>,
    out: Vec<u8>,
    awaited: Awaited,
    io_timeout: Duration,
    clock: Arc<dyn Clock>,
    /// It has carried a request before and has been idle since.
    was_idle: bool,
    /// When its last requests were sent.
    last_sent: Moment,
    /// They were sent after so long a pause that the connection may have been cut in silence (by a
    /// NAT that has forgotten it, a host that is gone) before.
    after_pause: bool,
}

/// A request, and its earlier attempts, which must have ended before it runs.
#[derive(Debug, Clone)]
pub(crate) struct RequestAfter {
    pub(crate) request: Request,
    pub(crate) earlier: Vec<UnknownOutcome>,
}

impl From<Request> for RequestAfter {
    fn from(request: Request) -> Self {
        Self { request, earlier: Vec::new() }
    }
}

/// A reply to one of several requests that were sent in one write.
pub(super) struct Received {
    pub(super) reply: Reply,
    /// An earlier attempt may have run as well, at the process of the server that has answered.
    pub(super) repeated: bool,
}

impl Connection {
    /// A connection after the handshake, in which `facts` were learned.
    pub(super) fn new(
        transport: Box<Transport>,
        facts: ConnectionFacts,
        io_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let last_sent = facts.answered_at;
        Self {
            transport,
            facts: Arc::new(facts),
            out: Vec::new(),
            awaited: Awaited::default(),
            io_timeout,
            clock,
            was_idle: false,
            last_sent,
            after_pause: false,
        }
    }

    /// Its other half, with which another thread sends while this one reads. `None` if the server
    /// does not return the numbers that stand between their replies.
    pub(super) fn sender(&self) -> Option<Sender> {
        let Self { transport, facts, clock, .. } = self;
        let stream = transport.stream().twin();
        let endpoint = transport.endpoint().clone();
        facts
            .fences
            .then(|| Sender::new(stream, endpoint, facts.clone(), clock.clone(), self.io_timeout))
    }

    /// Ends the connection for a thread that sends over it.
    pub(super) fn shut(&self) {
        self.transport.stream().shutdown();
    }

    /// Whether bytes have been read that are not yet a reply.
    pub(super) fn has_read_ahead(&self) -> bool {
        self.transport.has_unread()
    }

    /// Which process of the server is at the other end.
    pub(crate) fn run_id(&self) -> Option<&str> {
        self.facts.run_id.as_deref()
    }

    /// A lower bound of the server's clock now, in microseconds since 1970.
    pub(crate) fn server_micros(&self) -> u64 {
        self.facts.server_now_at_least(self.clock.now())
    }

    /// Which connections have input or have ended. Waits at most `timeout` for the first.
    pub(crate) fn answered(connections: &[&Self], timeout: Duration) -> Vec<bool> {
        let streams: Vec<_> =
            connections.iter().map(|connection| connection.transport.stream()).collect();
        let is_ahead = |connection: &&Self| connection.transport.has_read_ahead();
        let timeout = if connections.iter().any(is_ahead) { Duration::ZERO } else { timeout };
        let polled = readable(&streams, timeout);
        polled
            .into_iter()
            .zip(connections)
            .map(|(polled, connection)| polled || is_ahead(connection))
            .collect()
    }

    /// Records that it is idle: if it turns out to have ended, that may have happened before the
    /// next request was sent.
    pub(crate) fn mark_idle(&mut self) {
        self.was_idle = true;
    }

    /// Whether it has carried no request before this one.
    pub(super) fn is_new(&self) -> bool {
        !self.was_idle
    }

    /// Sends the requests in one write.
    pub(crate) fn send<'a>(
        &mut self,
        requests: impl Iterator<Item = &'a Request>,
    ) -> std::result::Result<InFlight, RedisFailure> {
        let flight = self.prepare(requests.map(|request| (request, &[][..])))?;
        self.transmit(&flight)?;
        Ok(flight)
    }

    /// Packs the requests, each with its earlier attempts; [`transmit`](Self::transmit) writes them
    /// in one go. The kills of the earlier attempts come first: the server has closed those
    /// connections before it runs the first request.
    pub(super) fn prepare<'a>(
        &mut self,
        requests: impl Iterator<Item = (&'a Request, &'a [UnknownOutcome])>,
    ) -> std::result::Result<InFlight, RedisFailure> {
        let sent_at = self.clock.now();
        if self.awaited.due.is_empty() && (self.facts.is_outdated() || self.transport.has_input()) {
            return Err(self.ended_while_idle());
        }
        self.after_pause = sent_at.since(self.last_sent) > KEEPALIVE_PAUSE;
        self.last_sent = sent_at;
        self.out.clear();
        let Self { awaited, out, facts, .. } = self;
        let (commands, not_after) = awaited.pack(out, facts, sent_at, self.io_timeout, requests);
        self.transport.stream().meter().requests(commands);
        let unknown = UnknownOutcome { facts: self.facts.clone(), not_after, sent: true };
        Ok(InFlight { sent_at, unknown, behind: None })
    }

    pub(super) fn transmit(&mut self, flight: &InFlight) -> std::result::Result<(), RedisFailure> {
        self.transport.send(&self.out).map_err(|error| self.as_unknown(error, flight))
    }

    /// No reply is due, but there is input: the other end has closed the connection, or has sent a
    /// frame that would be read as the reply to the next request.
    #[cold]
    fn ended_while_idle(&self) -> RedisFailure {
        log::debug!(
            "an idle connection or its master has ended, or the connection has received unexpected bytes"
        );
        self.transport.stream().meter().broke();
        // Everything that was sent on it has been answered, so nothing can run late.
        let error = Error::new(ErrorKind::Unreachable, ENDED);
        let unknown = UnknownOutcome { facts: self.facts.clone(), not_after: 0, sent: false };
        RedisFailure::Unknown { error, unknown, ended: true }
    }

    /// The reply to one request, where none of the write waits for replicas.
    pub(crate) fn recv(&mut self, flight: &InFlight) -> std::result::Result<Reply, RedisFailure> {
        debug_assert!(!self.awaited.replicas, "recv_all judges these replies");
        let due = self.next_due();
        self.read_due(&due, flight, None)
    }

    /// Reads all replies of a write, and gives each to `each` with the place of its request. With a
    /// `busy_poll` it polls for a reply for a short while before sleeping.
    ///
    /// # Errors
    /// A request whose reply was not given to `each` may have run.
    pub(super) fn recv_all(
        &mut self,
        flight: &mut InFlight,
        busy_poll: Option<&BusyPoll>,
        mut each: impl FnMut(usize, std::result::Result<Received, RedisFailure>),
    ) -> std::result::Result<(), RedisFailure> {
        let is_fenced = match flight.behind.take() {
            Some(behind) => self.begin_behind(flight, *behind)?,
            None => true,
        };
        let refused = self.recv_kills(flight)?;
        // These count only when the replicas have the writes that they report.
        let mut held = Vec::new();
        for place in 0..self.awaited.due.len() {
            let due = self.next_due();
            let reply = self.read_due(&due, flight, busy_poll)?;
            if !is_fenced && !matches!(reply, Reply::Error(_)) {
                return Err(self.has_received(&reply, flight));
            }
            let repeated = due.earlier.iter().any(|unknown| self.may_have_run(unknown));
            // After a refused kill an earlier attempt can still run, so this reply does not count.
            let still_runs =
                due.earlier.into_iter().find(|unknown| !unknown.can_no_longer_run(&self.facts));
            match (still_runs, due.replicas) {
                (Some(unknown), _) if refused.is_some() => {
                    let error = refused.clone().expect("it was just looked at");
                    each(place, Err(RedisFailure::Unknown { error, unknown, ended: false }));
                }
                (_, Some(wanted)) => held.push((place, wanted, Received { reply, repeated })),
                (_, None) => each(place, Ok(Received { reply, repeated })),
            }
        }
        if std::mem::take(&mut self.awaited.replicas) {
            // Replicas take longer: the thread sleeps until their answer.
            let acknowledged = self.read(Shape::Number, flight, None)?;
            for (place, wanted, Received { reply, repeated }) in held {
                each(
                    place,
                    Ok(Received { reply: wanted.check(reply, acknowledged.clone()), repeated }),
                );
            }
        }
        Ok(())
    }

    /// The replies of a write that another thread has sent behind those of this one begin with the
    /// number of its fence. Returns false if there is an error in its place: a server that refuses
    /// all requests (it is loading its data) refuses these as well, and no other reply counts.
    fn begin_behind(
        &mut self,
        flight: &InFlight,
        behind: SentBehind,
    ) -> std::result::Result<bool, RedisFailure> {
        self.awaited = behind.awaited;
        self.last_sent = flight.sent_at;
        // A reply has come since.
        self.after_pause = false;
        match self.read(Shape::Any, flight, None)? {
            reply if behind.fence.is_answered_by(&reply) => Ok(true),
            Reply::Error(_) => Ok(false),
            reply => Err(self.has_received(&reply, flight)),
        }
    }

    /// It has received what nobody has asked for. The server can be asked again at once.
    #[cold]
    fn has_received(&self, reply: &Reply, flight: &InFlight) -> RedisFailure {
        log::debug!("a connection has received a reply that nobody had asked for: {reply:?}");
        self.transport.stream().meter().broke();
        let why = "the connection to the server has received a reply that nobody had asked for";
        let error = Error::new(ErrorKind::Unreachable, why);
        RedisFailure::Unknown { error, unknown: flight.unknown.clone(), ended: true }
    }

    /// Reads the replies to the kills, and returns why one was refused.
    fn recv_kills(
        &mut self,
        flight: &InFlight,
    ) -> std::result::Result<Option<Error>, RedisFailure> {
        let mut refused = None;
        for killed in std::mem::take(&mut self.awaited.kills) {
            match self.read(Shape::Number, flight, None)? {
                Reply::Error(e) => refused = Some(e.into_error()),
                _ => killed.has_ended(),
            }
        }
        Ok(refused)
    }

    fn read_due(
        &mut self,
        due: &Due,
        flight: &InFlight,
        busy_poll: Option<&BusyPoll>,
    ) -> std::result::Result<Reply, RedisFailure> {
        let busy_poll = busy_poll.filter(|busy_poll| busy_poll.is_alone());
        if due.asking {
            self.read(Shape::Text, flight, busy_poll)?;
        }
        let reply = due.judge(self.read(due.shape, flight, busy_poll)?);
        if let Some(busy_poll) = busy_poll.filter(|busy_poll| busy_poll.is_alone()) {
            busy_poll.measured(self.clock.now().since(flight.sent_at));
        }
        Ok(reply)
    }

    fn read(
        &mut self,
        shape: Shape,
        flight: &InFlight,
        busy_poll: Option<&BusyPoll>,
    ) -> std::result::Result<Reply, RedisFailure> {
        let received = match busy_poll {
            Some(busy_poll) => self.transport.recv_soon(busy_poll),
            None => self.transport.recv(),
        };
        match received.and_then(|reply| fitting(shape, reply)) {
            // A grant that nobody would remember. Checked after the reply has come: a master that
            // was replaced before it answered is not believed.
            Ok(_) if self.facts.is_outdated() => Err(self.replaced(flight)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.as_unknown(error, flight)),
        }
    }

    fn next_due(&mut self) -> Due {
        self.awaited.due.pop_front().unwrap_or_else(Due::unasked)
    }

    /// A reply that has already arrived. `fresh`: [`answered`](Self::answered) has reported input.
    pub(crate) fn recv_now(
        &mut self,
        flight: &InFlight,
        fresh: bool,
    ) -> std::result::Result<Option<Reply>, RedisFailure> {
        let Some(reply) =
            self.transport.recv_now(fresh).map_err(|error| self.as_unknown(error, flight))?
        else {
            return Ok(None);
        };
        // Only Redlock reads in this way, and it has neither replicas nor clusters.
        let due = self.next_due();
        let fitted = fitting(due.shape, reply).map(|reply| due.judge(reply));
        fitted.map(Some).map_err(|error| self.as_unknown(error, flight))
    }

    /// Sends all requests in one write and reads all replies. A script that the server does not
    /// know is sent again with its source, which is safe because NOSCRIPT guarantees that nothing
    /// ran.
    pub(crate) fn exchange(
        &mut self,
        requests: &[Request],
    ) -> std::result::Result<(Vec<Reply>, InFlight), RedisFailure> {
        let mut flight = self.send(requests.iter())?;
        let mut replies = vec![Reply::Nil; requests.len()];
        self.recv_replies(&mut flight, |place, reply| replies[place] = reply)?;
        let is_unknown = |reply: &Reply| reply.is_error("NOSCRIPT");
        let again: Vec<(usize, Request)> = (0..requests.len())
            .filter(|place| is_unknown(&replies[*place]))
            .filter_map(|place| Some((place, requests[place].whole()?)))
            .collect();
        if !again.is_empty() {
            let mut flight_again = self.send(again.iter().map(|(_, whole)| whole))?;
            self.recv_replies(&mut flight_again, |place, reply| replies[again[place].0] = reply)?;
        }
        Ok((replies, flight))
    }

    /// The replies to requests without earlier attempts.
    fn recv_replies(
        &mut self,
        flight: &mut InFlight,
        mut each: impl FnMut(usize, Reply),
    ) -> std::result::Result<(), RedisFailure> {
        self.recv_all(flight, None, |place, received| {
            if let Ok(received) = received {
                each(place, received.reply);
            }
        })
    }

    /// Another server became the master while the request was under way. It can be asked at once.
    #[cold]
    fn replaced(&self, flight: &InFlight) -> RedisFailure {
        let error = Error::new(
            ErrorKind::Unreachable,
            "another server became the master before the reply came",
        );
        RedisFailure::Unknown { error, unknown: flight.unknown.clone(), ended: true }
    }

    fn as_unknown(&self, error: Error, flight: &InFlight) -> RedisFailure {
        // Counted after a timeout as well, because the connection is closed then.
        self.transport.stream().meter().broke();
        let is_silent =
            || self.after_pause && self.clock.now().since(flight.sent_at) >= self.io_timeout;
        let has_ended =
            error.kind() == ErrorKind::Unreachable && (error.message() == ENDED || is_silent());
        let ended = self.was_idle && has_ended;
        RedisFailure::Unknown { error, unknown: flight.unknown.clone(), ended }
    }

    /// False if the request was sent to another (earlier) process of the server than the one at the
    /// other end now.
    pub(crate) fn may_have_run(&self, unknown: &UnknownOutcome) -> bool {
        unknown.may_have_run_at(&self.facts)
    }

    /// The `CLIENT KILL`s that must be sent before a repeat or an undo, or how long to wait first.
    pub(crate) fn kills_for<'a>(
        &self,
        unknowns: impl IntoIterator<Item = &'a UnknownOutcome>,
    ) -> std::result::Result<Vec<Request>, Duration> {
        let mut kills = Vec::new();
        let mut wait = Duration::ZERO;
        for unknown in unknowns {
            match unknown.remedy(&self.facts, self.clock.now()) {
                Remedy::None => {}
                Remedy::Kill(request) => kills.push(request.answered_by(Shape::Number)),
                Remedy::Wait(time) => wait = wait.max(time),
            }
        }
        if wait.is_zero() { Ok(kills) } else { Err(wait) }
    }
}

/// The reply, if it has the shape that its request requires.
fn fitting(shape: Shape, reply: Reply) -> Result<Reply> {
    if shape.fits(&reply) {
        return Ok(reply);
    }
    Err(match reply {
        Reply::Error(e) => e.into_error(),
        other => Error::new(
            ErrorKind::Protocol,
            format!(
                "the server, or a proxy, sent a reply that does not fit its request: {other:?}"
            ),
        ),
    })
}
