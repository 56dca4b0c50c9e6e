//! A pool of connections to one server: how requests are sent over them, how the replies are read
//! and judged, what is sent again, and which replies end a connection.

use std::time::Duration;

use super::connection::{Connection, InFlight};
use super::connector::Connector;
use super::reply::{Reply, Shape};
use super::request::Request;
use super::sender::Sender;
use super::unknown_outcome::{RedisFailure, UnknownOutcome};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::store::net::{self, Callers, KEEPALIVE_PAUSE, PooledConnection, PooledConnector};

pub(crate) type Pool = net::Pool<Connector>;
pub(crate) type Outcome = net::Outcome<Connector>;

/// A reply, and the instant before the first byte of its request went out.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) sent_at: Moment,
    /// An earlier attempt may have run as well, on the data that this answer comes from.
    pub(crate) repeated: bool,
    /// Its connection was made for its request, so another one would bring the same answer.
    pub(crate) is_first: bool,
}

impl PooledConnection<Connector> for Connection {
    /// If it turns out to have ended, that may have happened before the next request was sent.
    fn mark_idle(&mut self) {
        self.was_idle = true;
    }

    /// Nothing has come since the last reply, not even the end, and its server is the one to ask.
    fn is_usable(&mut self, _connector: &Connector) -> bool {
        !self.note_end_while_idle()
    }

    /// The kills of the earlier attempts come first: the server has closed those connections before
    /// it runs the first request.
    fn prepare<'r>(
        &mut self,
        requests: impl Iterator<Item = &'r Request>,
    ) -> std::result::Result<InFlight, RedisFailure> {
        let sent_at = self.clock.now();
        self.after_pause = sent_at.since(self.last_sent) > KEEPALIVE_PAUSE;
        self.last_sent = sent_at;
        self.out.clear();
        let Self { awaited, out, facts, .. } = self;
        let (commands, not_after) = awaited.pack(out, facts, sent_at, self.io_timeout, requests);
        self.transport.stream.meter.requests(commands);
        let unknown = UnknownOutcome { facts: self.facts.clone(), not_after, sent: true };
        Ok(InFlight { sent_at, unknown, behind: None })
    }

    fn transmit(&mut self, flight: &InFlight) -> std::result::Result<(), RedisFailure> {
        match self.transport.send(&self.out) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.as_unknown(error, flight)),
        }
    }

    fn receive(
        &mut self,
        flight: &mut InFlight,
        outcomes: &mut [Option<Outcome>],
        callers: Option<&Callers>,
    ) -> std::result::Result<(), RedisFailure> {
        let is_fenced = match flight.behind.take() {
            Some(behind) => self.begin_behind(flight, *behind)?,
            None => true,
        };
        let mut refused = None;
        for killed in std::mem::take(&mut self.awaited.kills) {
            match self.read(Shape::Number, flight, None)? {
                Reply::Error(e) => refused = Some(e.into_error()),
                _ => killed.has_ended(),
            }
        }
        // These count only when the replicas have the writes that they report.
        let mut held = Vec::new();
        let mut place = 0;
        while let Some(due) = self.awaited.due.pop_front() {
            if due.asking {
                self.read(Shape::Text, flight, callers)?;
            }
            let reply = match self.read(due.shape, flight, callers) {
                Ok(reply) => due.judge(reply),
                Err(failure) => return Err(fail_at(&mut outcomes[place], failure, flight)),
            };
            if !is_fenced && !matches!(reply, Reply::Error(_)) {
                return Err(self.has_received(&reply, flight));
            }
            let mut repeated = false;
            let mut still_runs = None;
            for unknown in due.earlier {
                repeated |= self.may_have_run(&unknown);
                if !unknown.can_no_longer_run(&self.facts) {
                    still_runs = still_runs.or(Some(unknown));
                }
            }
            let sent_at = flight.sent_at;
            let answer = Answer { reply, sent_at, repeated, is_first: !self.was_idle };
            match (still_runs, &refused, due.replicas) {
                // After a refused kill an earlier attempt can still run, so this reply does not
                // count.
                (Some(unknown), Some(error), _) => {
                    let error = error.clone();
                    outcomes[place] =
                        Some(Err(RedisFailure::Unknown { error, unknown, ended: false }));
                }
                (_, _, Some(wanted)) => held.push((place, wanted, answer)),
                (_, _, None) => outcomes[place] = Some(Ok(answer)),
            }
            place += 1;
        }
        if std::mem::take(&mut self.awaited.replicas) {
            // Replicas take longer: the thread sleeps until their answer.
            let acknowledged = self.read(Shape::Number, flight, None)?;
            for (place, wanted, mut answer) in held {
                answer.reply = wanted.check(answer.reply, acknowledged.clone());
                outcomes[place] = Some(Ok(answer));
            }
        }
        Ok(())
    }

    /// `None` if the server does not return the numbers that stand between their replies.
    fn sender(&self) -> Option<Sender> {
        if !self.facts.fences {
            return None;
        }
        let stream = self.transport.stream.twin();
        let endpoint = self.transport.endpoint.clone();
        Some(Sender::new(stream, endpoint, self.facts.clone(), self.clock.clone(), self.io_timeout))
    }

    fn shut(&self) {
        self.transport.stream.shutdown();
    }
}

/// If the failure is a reply that does not fit, it is the outcome of this one request. The others
/// on the connection, which ends, can be sent again at once.
fn fail_at(
    outcome: &mut Option<Outcome>,
    failure: RedisFailure,
    flight: &InFlight,
) -> RedisFailure {
    match &failure {
        RedisFailure::Unknown { error, .. } if error.kind() != ErrorKind::Unreachable => {
            *outcome = Some(Err(failure));
            let why = "a reply before this one did not fit its request";
            let error = Error::new(ErrorKind::Unreachable, why);
            RedisFailure::Unknown { error, unknown: flight.unknown.clone(), ended: true }
        }
        _ => failure,
    }
}

impl PooledConnector for Connector {
    type Connection = Connection;
    type Sender = Sender;
    type Request = Request;
    type Flight = InFlight;
    type Answer = Answer;
    type Unknown = UnknownOutcome;

    fn connect(&self) -> Result<Connection> {
        self.connect()
    }

    fn io_timeout(&self) -> Duration {
        self.io_timeout
    }

    fn address(&self) -> String {
        format!("{:?}", self.endpoint)
    }

    fn may_poll(&self) -> bool {
        self.busy_poll
    }

    /// All replies of a write are distributed together, and what waits for replicas delays them: a
    /// release must not wait until a replica that hangs is given up.
    fn share_a_write(one: &Request, other: &Request) -> bool {
        one.may_follow() == other.may_follow() && one.replicas.is_some() == other.replicas.is_some()
    }

    fn may_follow(request: &Request) -> bool {
        request.may_follow()
    }

    /// A request whose script the server does not know is sent again with the source, which the
    /// server keeps; NOSCRIPT guarantees that nothing ran. It is also sent again where the server
    /// has forgotten who asks, or where the connection was wrong about the server's clock, which
    /// guarantees the same: that connection is closed, so this ends with one that has just logged
    /// in.
    fn again(&self, request: &Request, answer: &Answer) -> Option<Request> {
        let Reply::Error(error) = &answer.reply else { return None };
        if error.code == "NOSCRIPT"
            && let Some(whole) = request.whole()
        {
            return Some(whole);
        }
        (answer.reply.is_refused_here() && !answer.is_first).then(|| request.clone())
    }

    fn is_last(answer: &Answer) -> bool {
        answer.reply.is_demotion()
    }

    fn unknown(flight: &InFlight) -> UnknownOutcome {
        flight.unknown.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Replicas;
    use super::*;

    #[test]
    fn a_release_shares_no_write_with_what_waits_for_replicas() {
        let replicas = Replicas { count: 1, millis: 1000, grant: true };
        let (release, acquire) =
            (Request::plain(&["A"]), Request::plain(&["B"]).acknowledged_by(Some(replicas)));
        assert!(
            Connector::share_a_write(&release, &release)
                && Connector::share_a_write(&acquire, &acquire)
        );
        assert!(
            !Connector::share_a_write(&release, &acquire)
                && !Connector::share_a_write(&acquire, &release)
        );
    }
}
