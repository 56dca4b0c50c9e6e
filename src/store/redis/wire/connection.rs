//! One connection, and the facts about the server at its other end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::busy_poll::BusyPoll;
use super::reply::Reply;
use super::request::{Replicas, Request};
use super::shape::Shape;
use super::transport::{ENDED, Transport};
use super::unknown_outcome::{Facts, RedisFailure, Remedy, UnknownOutcome};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::store::net::{KEEPALIVE_PAUSE, readable};

/// A live connection. Any error is final: after a timeout the next reply could belong to an earlier
/// request.
pub(crate) struct Connection {
    transport: Box<Transport>,
    facts: Arc<Facts>,
    out: Vec<u8>,
    due: VecDeque<Due>,
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

/// An unread reply.
struct Due {
    shape: Shape,
    /// The replicas that must acknowledge the write that this reply reports.
    replicas: Option<Replicas>,
    /// The reply to an `ASKING` comes first.
    asking: bool,
    /// The script may refuse to run because it is too late.
    limited: bool,
}

impl Due {
    /// The reply, if it has the shape that the request requires.
    fn fitting(&self, reply: Reply) -> Result<Reply> {
        let reply = fitting(self.shape, reply)?;
        Ok(if self.limited { reply.unless_too_late() } else { reply })
    }
}

/// Sent and not yet answered: the unknown outcome of the requests until their replies are read.
pub(crate) struct InFlight {
    pub(crate) sent_at: Moment,
    pub(crate) unknown: UnknownOutcome,
}

impl Connection {
    /// A connection after the handshake, in which `facts` were learned.
    pub(super) fn new(transport: Box<Transport>, facts: Facts, io_timeout: Duration, clock: Arc<dyn Clock>) -> Self {
        let facts = Arc::new(facts);
        let (out, due, last_sent) = (Vec::new(), VecDeque::new(), facts.answered_at);
        Self { transport, facts, out, due, io_timeout, clock, was_idle: false, last_sent, after_pause: false }
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
        let streams: Vec<_> = connections.iter().map(|connection| connection.transport.stream()).collect();
        let is_ahead = |connection: &&Self| connection.transport.has_read_ahead();
        let timeout = if connections.iter().any(is_ahead) { Duration::ZERO } else { timeout };
        let polled = readable(&streams, timeout);
        polled.into_iter().zip(connections).map(|(polled, connection)| polled || is_ahead(connection)).collect()
    }

    /// Records that it is idle: if it turns out to have ended, that may have happened before the
    /// next request was sent.
    pub(crate) fn mark_idle(&mut self) {
        self.was_idle = true;
    }

    /// Sends the requests in one write.
    pub(crate) fn send<'a>(
        &mut self,
        requests: impl Iterator<Item = &'a Request>,
    ) -> std::result::Result<InFlight, RedisFailure> {
        let flight = self.prepare(requests)?;
        self.transmit(&flight)?;
        Ok(flight)
    }

    /// Packs the requests, which [`transmit`](Self::transmit) writes in one go.
    pub(super) fn prepare<'a>(
        &mut self,
        requests: impl Iterator<Item = &'a Request>,
    ) -> std::result::Result<InFlight, RedisFailure> {
        let sent_at = self.clock.now();
        if self.due.is_empty() && (self.facts.is_outdated() || self.transport.has_input()) {
            return Err(self.ended_while_idle());
        }
        self.after_pause = sent_at.since(self.last_sent) > KEEPALIVE_PAUSE;
        self.last_sent = sent_at;
        self.out.clear();
        let connection_args = self.facts.connection_args(sent_at, self.io_timeout);
        let (mut not_after, mut commands) = (0, 0);
        for request in requests {
            request.write(&mut self.out, connection_args);
            let (shape, replicas, asking) = (request.shape(), request.replicas(), request.is_asking());
            self.due.push_back(Due { shape, replicas, asking, limited: request.has_limit() });
            commands += 1 + u64::from(asking) + u64::from(replicas.is_some());
            if request.has_limit() {
                not_after = connection_args.not_after;
            }
        }
        self.transport.stream().meter().requests(commands);
        Ok(InFlight { sent_at, unknown: UnknownOutcome { facts: self.facts.clone(), not_after, sent: true } })
    }

    pub(super) fn transmit(&mut self, flight: &InFlight) -> std::result::Result<(), RedisFailure> {
        self.transport.send(&self.out).map_err(|error| self.as_unknown(error, flight))
    }

    /// No reply is due, but there is input: the other end has closed the connection, or has sent a
    /// frame that would be read as the reply to the next request.
    #[cold]
    fn ended_while_idle(&self) -> RedisFailure {
        log::debug!("an idle connection or its master has ended, or the connection has received unexpected bytes");
        self.transport.stream().meter().broke();
        let error = Error::new(ErrorKind::Unreachable, ENDED);
        // Everything that was sent on it has been answered, so nothing can run late.
        RedisFailure::Unknown {
            error,
            unknown: UnknownOutcome { facts: self.facts.clone(), not_after: 0, sent: false },
            stale: true,
        }
    }

    pub(crate) fn recv(&mut self, flight: &InFlight) -> std::result::Result<Reply, RedisFailure> {
        self.receive(flight, None)
    }

    /// [`recv`](Self::recv), but polls for the reply for a short while before sleeping.
    pub(super) fn recv_soon(
        &mut self,
        flight: &InFlight,
        busy_poll: &BusyPoll,
    ) -> std::result::Result<Reply, RedisFailure> {
        if !busy_poll.is_alone() {
            return self.receive(flight, None);
        }
        let received = self.receive(flight, Some(busy_poll));
        if received.is_ok() && busy_poll.is_alone() {
            busy_poll.measured(self.clock.now().since(flight.sent_at));
        }
        received
    }

    fn receive(&mut self, flight: &InFlight, busy_poll: Option<&BusyPoll>) -> std::result::Result<Reply, RedisFailure> {
        let due = self.next_due();
        let mut receive = |busy_poll: Option<&BusyPoll>| match busy_poll {
            Some(busy_poll) => self.transport.recv_soon(busy_poll),
            None => self.transport.recv(),
        };
        let mut receive_all = || {
            if due.asking {
                fitting(Shape::Text, receive(busy_poll)?)?;
            }
            let reply = due.fitting(receive(busy_poll)?)?;
            // Replicas take longer: the thread sleeps until their answer.
            let acknowledged = due.replicas.map(|wanted| Ok((wanted, fitting(Shape::Number, receive(None)?)?)));
            Ok((reply, acknowledged.transpose()?))
        };
        let replies = receive_all();
        match replies {
            // A grant that nobody would remember. Checked after the reply has come: a master that
            // was replaced before it answered is not believed.
            Ok(_) if self.facts.is_outdated() => Err(self.replaced(flight)),
            Ok((reply, None)) => Ok(reply),
            Ok((reply, Some((wanted, acknowledged)))) => Ok(wanted.check(reply, acknowledged)),
            Err(error) => Err(self.as_unknown(error, flight)),
        }
    }

    fn next_due(&mut self) -> Due {
        self.due.pop_front().unwrap_or(Due { shape: Shape::Any, replicas: None, asking: false, limited: false })
    }

    /// A reply that has already arrived. `fresh`: [`answered`](Self::answered) has reported input.
    pub(crate) fn recv_now(
        &mut self,
        flight: &InFlight,
        fresh: bool,
    ) -> std::result::Result<Option<Reply>, RedisFailure> {
        let Some(reply) = self.transport.recv_now(fresh).map_err(|error| self.as_unknown(error, flight))? else {
            return Ok(None);
        };
        // Only Redlock reads in this way, and it has neither replicas nor clusters.
        let fitted = self.next_due().fitting(reply);
        fitted.map(Some).map_err(|error| self.as_unknown(error, flight))
    }

    /// Sends all requests in one write and reads all replies. A script that the server does not
    /// know is sent again with its source, which is safe because NOSCRIPT guarantees that nothing
    /// ran.
    pub(crate) fn exchange(
        &mut self,
        requests: &[Request],
    ) -> std::result::Result<(Vec<Reply>, InFlight), RedisFailure> {
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

    /// Another server became the master while the request was under way. It can be asked at once.
    #[cold]
    fn replaced(&self, flight: &InFlight) -> RedisFailure {
        let error = Error::new(ErrorKind::Unreachable, "another server became the master before the reply came");
        RedisFailure::Unknown { error, unknown: flight.unknown.clone(), stale: true }
    }

    fn as_unknown(&self, error: Error, flight: &InFlight) -> RedisFailure {
        // Counted after a timeout as well, because the connection is closed then.
        self.transport.stream().meter().broke();
        let is_silent = || self.after_pause && self.clock.now().since(flight.sent_at) >= self.io_timeout;
        let has_ended = error.kind() == ErrorKind::Unreachable && (error.message() == ENDED || is_silent());
        let stale = self.was_idle && has_ended;
        RedisFailure::Unknown { error, unknown: flight.unknown.clone(), stale }
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
            format!("the server, or a proxy, sent a reply that does not fit its request: {other:?}"),
        ),
    })
}
