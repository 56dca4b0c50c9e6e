//! One connection with what is known of the server at its other end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::poll::readable;
use super::reply::Reply;
use super::request::{Replicas, Request};
use super::shape::Shape;
use super::transport::{ENDED, Transport};
use super::unknown_outcome::{Facts, Failure, Remedy, UnknownOutcome};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;

/// A live connection. Any error of it is final: after a timeout its replies could be somebody else's.
pub(crate) struct Connection {
    transport: Box<Transport>,
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
    /// After the handshake, in which `facts` were learned.
    pub(super) fn new(transport: Box<Transport>, facts: Facts, io_timeout: Duration, clock: Arc<dyn Clock>) -> Self {
        let facts = Arc::new(facts);
        Self { transport, facts, out: Vec::new(), due: VecDeque::new(), io_timeout, clock, was_idle: false }
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
        let streams: Vec<_> = connections.iter().map(|connection| connection.transport.stream()).collect();
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
        if self.due.is_empty() && self.transport.has_input() {
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
        match self.transport.send(&self.out) {
            Ok(()) => Ok(flight),
            Err(error) => Err(self.as_unknown(error, &flight)),
        }
    }

    /// Nobody is owed a reply, and there is something to read: the other end has closed the connection, or has sent a frame
    /// that would be taken for the answer to the next request.
    #[cold]
    fn ended_in_its_sleep(&self) -> Failure {
        log::debug!("a connection that lay idle has ended, or has brought bytes that nobody asked for");
        let error = Error::new(ErrorKind::Unreachable, ENDED);
        // What was sent on it before has been answered.
        Failure::Unknown { error, unknown: UnknownOutcome { facts: self.facts.clone(), not_after: 0 }, stale: true }
    }

    pub(crate) fn recv(&mut self, flight: &InFlight) -> std::result::Result<Reply, Failure> {
        let (shape, wanted) = self.due.pop_front().unwrap_or((Shape::Any, None));
        let mut receive = |shape: Shape| self.transport.recv().and_then(|reply| fitting(shape, reply));
        let replies = receive(shape)
            .and_then(|reply| Ok((reply, wanted.map(|wanted| Ok((wanted, receive(Shape::Number)?))).transpose()?)));
        match replies {
            Ok((reply, None)) => Ok(reply),
            Ok((reply, Some((wanted, acknowledged)))) => Ok(wanted.check(reply, acknowledged)),
            Err(error) => Err(self.as_unknown(error, flight)),
        }
    }

    /// A reply that has come already. `fresh`: the connection was [seen](Self::answered) to have brought something.
    pub(crate) fn recv_now(&mut self, flight: &InFlight, fresh: bool) -> std::result::Result<Option<Reply>, Failure> {
        let Some(reply) = self.transport.recv_now(fresh).map_err(|error| self.as_unknown(error, flight))? else {
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
        let stale = self.was_idle && error.kind() == ErrorKind::Unreachable && error.message() == ENDED;
        Failure::Unknown { error, unknown: flight.unknown.clone(), stale }
    }

    /// False when another process of the server answers now than the one that the request in unknown outcome was sent to.
    pub(crate) fn may_have_run(&self, unknown: &UnknownOutcome) -> bool {
        unknown.may_have_run_at(&self.facts)
    }

    /// The kills that must go out in front of a repeat or an undo on this connection, or how long to wait first.
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
