//! A pool of connections to one server: what a call sends again, and which replies end a
//! connection.

use std::time::Duration;

use super::connection::{Connection, InFlight};
use super::connector::Connector;
use super::reply::Reply;
use super::request::Request;
use super::unknown_outcome::RedisFailure;
use crate::base::error::{Error, Result};
use crate::base::lease::Moment;
use crate::store::net::{self, PooledConnector};

pub(crate) type Pool = net::Pool<Connector>;
pub(crate) type Outcome = net::Outcome<Connector>;

/// A reply, and the instant before the first byte of its request went out.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) sent_at: Moment,
}

impl PooledConnector for Connector {
    type Connection = Connection;
    type Request = Request;
    type Flight = InFlight;
    type Answer = Answer;
    type Failure = RedisFailure;

    const GROWS_ASIDE: bool = false;

    fn connect(&self) -> Result<Connection> {
        self.connect()
    }

    fn io_timeout(&self) -> Duration {
        self.io_timeout
    }

    fn address(&self) -> String {
        format!("{:?}", self.endpoint)
    }

    fn mark_idle(connection: &mut Connection) {
        connection.mark_idle();
    }

    fn prepare<'r>(
        &self,
        connection: &mut Connection,
        requests: impl Iterator<Item = &'r Request>,
    ) -> std::result::Result<InFlight, RedisFailure> {
        connection.prepare(requests)
    }

    fn transmit(&self, connection: &mut Connection, flight: &InFlight) -> std::result::Result<(), RedisFailure> {
        connection.transmit(flight)
    }

    fn receive(
        &self,
        connection: &mut Connection,
        flight: &mut InFlight,
        outcomes: &mut [Option<Outcome>],
    ) -> std::result::Result<(), RedisFailure> {
        for outcome in outcomes {
            let reply = connection.recv_soon(flight, &self.busy_poll)?;
            *outcome = Some(Ok(Answer { reply, sent_at: flight.sent_at }));
        }
        Ok(())
    }

    fn is_last(answer: &Answer) -> bool {
        answer.reply.is_demotion()
    }

    fn not_sent(error: Error) -> RedisFailure {
        RedisFailure::NotSent(error)
    }

    fn unknown(error: Error, flight: &InFlight) -> RedisFailure {
        RedisFailure::Unknown { error, unknown: flight.unknown.clone(), stale: false }
    }
}

impl Pool {
    /// One request, one reply. A script that the server does not know is sent again with its
    /// source.
    ///
    /// # Errors
    /// Same as [`net::Pool::ask`].
    pub(crate) fn call(&self, request: Request) -> Outcome {
        self.call_among(request, self.most())
    }

    /// The same, but makes a connection only if there is none.
    pub(crate) fn call_over_open(&self, request: Request) -> Outcome {
        self.call_among(request, 1)
    }

    fn call_among(&self, request: Request, most: usize) -> Outcome {
        let _call = self.connector().busy_poll.begin_call();
        self.ask(request, most, |request, outcome| self.loaded(request, outcome?))
    }

    /// Sends two requests in one write if a connection is free now.
    pub(crate) fn call_two(&self, first: &Request, second: &Request) -> Option<(Outcome, Outcome)> {
        let _call = self.connector().busy_poll.begin_call();
        let [one, other] = self.ask_two(first, second)?;
        let one = one.and_then(|answer| self.loaded(first, answer));
        Some((one, other.and_then(|answer| self.loaded(second, answer))))
    }

    /// Sends several requests in one write and reads all replies, if a connection is free now. For
    /// requests that may be repeated at any time.
    pub(crate) fn exchange_if_free(
        &self,
        requests: &[Request],
    ) -> Option<std::result::Result<Vec<Reply>, RedisFailure>> {
        let mut connection = self.borrow_free()?;
        connection.in_flight = true;
        let outcome = connection.get().exchange(requests).map(|(replies, _)| replies);
        connection.end(outcome.as_ref().map_or(true, |replies| replies.iter().any(Reply::is_demotion)));
        Some(outcome)
    }

    /// Returns the answer, unless the server does not know the script. Then the request is sent
    /// again with the source, which the server keeps; NOSCRIPT guarantees that nothing ran. It is
    /// also sent again where the server has forgotten who asks, or where the connection was wrong
    /// about the server's clock.
    fn loaded(&self, request: &Request, answer: Answer) -> Outcome {
        if answer.reply.is_error("NOSCRIPT")
            && let Some(whole) = request.whole()
        {
            return self.call(whole);
        }
        if answer.reply.is_refused_here() {
            return self.call_logged_in(request);
        }
        Ok(answer)
    }

    /// Sends the request again on a connection that has just logged in: those of the pool may be of
    /// the same expired identity, or as wrong about the clock. The reply guarantees that nothing
    /// ran.
    #[cold]
    fn call_logged_in(&self, request: &Request) -> Outcome {
        let mut connection = self.connect().map_err(RedisFailure::NotSent)?;
        let (mut replies, flight) = connection.exchange(std::slice::from_ref(request))?;
        let reply = replies.pop().expect("a reply for every request");
        if !reply.is_demotion() {
            self.adopt(connection);
        }
        Ok(Answer { reply, sent_at: flight.sent_at })
    }
}
