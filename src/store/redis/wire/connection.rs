//! One connection, and the facts about the server at its other end: requests are packed for one
//! write, with the kills of their earlier attempts, and it is noted which replies are due.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::fence::Fence;
use super::reply::{Reply, Shape};
use super::request::{Replicas, Request};
use super::transport::Transport;
use super::unknown_outcome::{ConnectionFacts, RedisFailure, Remedy, UnknownOutcome};
use crate::base::error::{Error, ErrorKind};
use crate::base::lease::Moment;
use crate::base::log;
use crate::signal::clock::Clock;
use crate::store::net::{Callers, ENDED};

/// A live connection. Any error is final: after a timeout the next reply could belong to an earlier
/// request.
pub(crate) struct Connection {
    pub(super) transport: Box<Transport>,
    pub(super) facts: Arc<ConnectionFacts>,
    pub(super) out: Vec<u8>,
    pub(super) awaited: Awaited,
    pub(super) io_timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
    /// It has carried a request before and has been idle since.
    pub(super) was_idle: bool,
    /// When its last requests were sent.
    pub(super) last_sent: Moment,
    /// They were sent after so long a pause that the connection may have been cut in silence (by a
    /// NAT that has forgotten it, a host that is gone) before.
    pub(super) after_pause: bool,
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

    /// Which process of the server is at the other end.
    pub(crate) fn run_id(&self) -> Option<&str> {
        self.facts.run_id.as_deref()
    }

    /// A lower bound of the server's clock now, in microseconds since 1970.
    pub(crate) fn server_micros(&self) -> u64 {
        self.facts.server_now_at_least(self.clock.now())
    }

    /// No reply is due, but there is input: the other end has closed the connection, or has sent a
    /// frame that would be read as the reply to the next request. Or its master was replaced.
    /// Counts it, and returns whether it is so.
    pub(super) fn note_end_while_idle(&mut self) -> bool {
        let has_ended = self.facts.is_outdated() || self.transport.has_input();
        if has_ended {
            log::debug!(
                "an idle connection or its master has ended, or the connection has received unexpected bytes"
            );
            self.transport.stream.meter.broke();
        }
        has_ended
    }

    /// The replies of a write that another thread has sent behind those of this one begin with the
    /// number of its fence. Returns false if there is an error in its place: a server that refuses
    /// all requests (it is loading its data) refuses these as well, and no other reply counts.
    pub(super) fn begin_behind(
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
    pub(super) fn has_received(&self, reply: &Reply, flight: &InFlight) -> RedisFailure {
        log::debug!("a connection has received a reply that nobody had asked for: {reply:?}");
        self.transport.stream.meter.broke();
        let why = "the connection to the server has received a reply that nobody had asked for";
        let error = Error::new(ErrorKind::Unreachable, why);
        RedisFailure::Unknown { error, unknown: flight.unknown.clone(), ended: true }
    }

    pub(super) fn read(
        &mut self,
        shape: Shape,
        flight: &InFlight,
        callers: Option<&Callers>,
    ) -> std::result::Result<Reply, RedisFailure> {
        let error = match self.transport.recv(callers) {
            Ok(reply) if !shape.fits(&reply) => misfit(reply),
            // A grant that nobody would remember. Checked after the reply has come: a master that
            // was replaced before it answered is not believed.
            Ok(_) if self.facts.is_outdated() => return Err(self.replaced(flight)),
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        Err(self.as_unknown(error, flight))
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

    #[cold]
    pub(super) fn as_unknown(&self, error: Error, flight: &InFlight) -> RedisFailure {
        // Counted after a timeout as well, because the connection is closed then.
        self.transport.stream.meter.broke();
        let has_ended = error.kind() == ErrorKind::Unreachable
            && (error.message() == ENDED || self.is_silent(flight));
        let ended = self.was_idle && has_ended;
        RedisFailure::Unknown { error, unknown: flight.unknown.clone(), ended }
    }

    /// The reply has not come, and the connection may have been cut before it was asked for.
    fn is_silent(&self, flight: &InFlight) -> bool {
        self.after_pause && self.clock.now().since(flight.sent_at) >= self.io_timeout
    }

    /// The failure of such a connection, if it is one.
    pub(crate) fn cut_in_silence(&self, flight: &InFlight) -> Option<RedisFailure> {
        let error = Error::new(ErrorKind::Unreachable, ENDED);
        (self.was_idle && self.is_silent(flight)).then(|| self.as_unknown(error, flight))
    }

    /// False if the request was sent to another (earlier) process of the server than the one at the
    /// other end now.
    pub(crate) fn may_have_run(&self, unknown: &UnknownOutcome) -> bool {
        unknown.may_have_run_at(&self.facts)
    }
}

/// Why a reply that does not have the shape that its request requires ends its connection.
#[cold]
pub(super) fn misfit(reply: Reply) -> Error {
    match reply {
        Reply::Error(e) => e.into_error(),
        other => Error::new(
            ErrorKind::Protocol,
            format!(
                "the server, or a proxy, sent a reply that does not fit its request: {other:?}"
            ),
        ),
    }
}

/// Sent and not yet answered: the unknown outcome of the requests until their replies are read.
pub(crate) struct InFlight {
    pub(crate) sent_at: Moment,
    pub(crate) unknown: UnknownOutcome,
    /// For what was sent while other replies were due.
    pub(super) behind: Option<Box<SentBehind>>,
}

/// What is due for requests that were sent behind others.
pub(super) struct SentBehind {
    pub(super) fence: Fence,
    pub(super) awaited: Awaited,
}

/// An unread reply.
pub(super) struct Due {
    pub(super) earlier: Vec<UnknownOutcome>,
    pub(super) shape: Shape,
    /// The replicas that must acknowledge the write that this reply reports.
    pub(super) replicas: Option<Replicas>,
    /// The reply to an `ASKING` comes first.
    pub(super) asking: bool,
    /// The script may refuse to run because it is too late.
    limited: bool,
}

impl Due {
    /// A reply that nobody has asked for.
    pub(super) fn unasked() -> Self {
        Self {
            earlier: Vec::new(),
            shape: Shape::Any,
            replicas: None,
            asking: false,
            limited: false,
        }
    }

    /// The reply, or an error if the script did not run because it was too late.
    pub(super) fn judge(&self, reply: Reply) -> Reply {
        if self.limited && reply.status() == Some(3) { Reply::too_late() } else { reply }
    }
}

/// The replies that are due on a connection, in their order.
#[derive(Default)]
pub(super) struct Awaited {
    /// Before the replies in `due` come those of the kills of these connections.
    pub(super) kills: Vec<UnknownOutcome>,
    pub(super) due: VecDeque<Due>,
    /// After the replies in `due` comes that of a `WAIT`.
    pub(super) replicas: bool,
}

impl Awaited {
    /// Appends the requests to `out`. The kills of their earlier attempts come
    /// first: the server has closed their connections before it runs the first request. Returns the
    /// number of commands, and the server time in microseconds after which none of the requests
    /// runs (0: no limit).
    pub(super) fn pack<'a>(
        &mut self,
        out: &mut Vec<u8>,
        facts: &ConnectionFacts,
        sent_at: Moment,
        io_timeout: Duration,
        requests: impl Iterator<Item = &'a Request>,
    ) -> (u64, u64) {
        let begin = out.len();
        let mut kills = Vec::new();
        let connection_args = facts.connection_args(sent_at, io_timeout);
        let mut not_after = 0;
        let mut commands = 0;
        let mut wait: Option<Replicas> = None;
        for request in requests {
            for unknown in &request.earlier {
                self.kill(unknown, &mut kills, facts, sent_at);
            }
            request.write(out, connection_args);
            self.due.push_back(Due {
                earlier: request.earlier.clone(),
                shape: request.shape,
                replicas: request.replicas,
                asking: request.asking,
                limited: request.takes_limit,
            });
            commands += 1 + u64::from(request.asking);
            wait = match (wait, request.replicas) {
                (Some(others), Some(own)) => Some(others.and(own)),
                (others, own) => own.or(others),
            };
            if request.takes_limit {
                not_after = connection_args.not_after;
            }
        }
        if !kills.is_empty() {
            out.splice(begin..begin, kills);
        }
        // One for the whole write, because it covers all writes of the connection before it. With
        // one for each request, a replica that hangs would cost the last one the time of all waits.
        if let Some(wait) = wait {
            wait.write_wait(out);
            self.replicas = true;
            commands += 1;
        }
        (commands + self.kills.len() as u64, not_after)
    }

    /// Appends the kill that an earlier attempt needs; one for each connection.
    fn kill(
        &mut self,
        earlier: &UnknownOutcome,
        out: &mut Vec<u8>,
        facts: &ConnectionFacts,
        now: Moment,
    ) {
        if let Remedy::Kill(id) = earlier.remedy(facts, now)
            && !self.kills.iter().any(|killed| killed.same_connection(earlier))
        {
            Request::kill(id).write_plain(out);
            self.kills.push(earlier.clone());
        }
    }
}
