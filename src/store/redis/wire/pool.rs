//! A pool of connections to one server: what a call sends again, and which replies end a
//! connection.

use std::time::Duration;

use super::connection::{Connection, Received, RequestAfter};
use super::connector::Connector;
use super::packing::InFlight;
use super::reply::Reply;
use super::request::Request;
use super::sender::Sender;
use super::unknown_outcome::{RedisFailure, UnknownOutcome};
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::store::net::{self, PooledConnector, PooledSender};

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
    is_first: bool,
}

impl PooledConnector for Connector {
    type Connection = Connection;
    type Sender = Sender;
    type Request = RequestAfter;
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

    /// All replies of a write are distributed together, and what waits for replicas delays them: a
    /// release must not wait until a replica that hangs is given up.
    fn share_a_write(one: &RequestAfter, other: &RequestAfter) -> bool {
        one.request.may_follow() == other.request.may_follow()
            && one.request.replicas.is_some() == other.request.replicas.is_some()
    }

    fn mark_idle(connection: &mut Connection) {
        connection.mark_idle();
    }

    fn prepare<'r>(
        &self,
        connection: &mut Connection,
        requests: impl Iterator<Item = &'r RequestAfter>,
    ) -> std::result::Result<InFlight, RedisFailure> {
        connection.prepare(requests.map(|asked| (&asked.request, &asked.earlier[..])))
    }

    fn transmit(
        &self,
        connection: &mut Connection,
        flight: &InFlight,
    ) -> std::result::Result<(), RedisFailure> {
        connection.transmit(flight)
    }

    fn receive(
        &self,
        connection: &mut Connection,
        flight: &mut InFlight,
        outcomes: &mut [Option<Outcome>],
    ) -> std::result::Result<(), RedisFailure> {
        let sent_at = flight.sent_at;
        let is_first = connection.is_new();
        let answer = |Received { reply, repeated }| Answer { reply, sent_at, repeated, is_first };
        connection.recv_all(flight, Some(&self.busy_poll), |place, received| {
            outcomes[place] = Some(received.map(answer));
        })
    }

    fn sender(connection: &Connection) -> Option<Sender> {
        connection.sender()
    }

    fn may_follow(asked: &RequestAfter) -> bool {
        asked.request.may_follow()
    }

    fn shut(connection: &Connection) {
        connection.shut();
    }

    fn has_read_ahead(connection: &Connection) -> bool {
        connection.has_read_ahead()
    }

    fn is_last(answer: &Answer) -> bool {
        answer.reply.is_demotion()
    }

    fn unknown(flight: &InFlight) -> UnknownOutcome {
        flight.unknown.clone()
    }
}

impl PooledSender<Connector> for Sender {
    fn is_current(&self) -> bool {
        self.is_current()
    }

    fn prepare<'r>(&mut self, requests: impl Iterator<Item = &'r RequestAfter>) -> InFlight {
        self.prepare(requests.map(|asked| (&asked.request, &asked.earlier[..])))
    }

    fn transmit(&mut self) -> Result<()> {
        self.transmit()
    }

    fn shut(&self) {
        self.shut();
    }
}

impl Pool {
    /// One request, one reply. A script that the server does not know is sent again with its
    /// source.
    ///
    /// # Errors
    /// Same as [`net::Pool::ask`].
    pub(crate) fn call(&self, request: impl Into<RequestAfter>) -> Outcome {
        self.call_among(request.into(), self.most())
    }

    /// The same, but makes a connection only if there is none.
    pub(crate) fn call_over_open(&self, request: Request) -> Outcome {
        self.call_among(request.into(), 1)
    }

    fn call_among(&self, request: RequestAfter, most: usize) -> Outcome {
        let _call = self.connector().busy_poll.begin_call();
        self.ask(request, most, |request, outcome| self.loaded(request, outcome?))
    }

    /// Sends two requests in one write if a connection is free now.
    pub(crate) fn call_two(&self, first: Request, second: Request) -> Option<(Outcome, Outcome)> {
        let _call = self.connector().busy_poll.begin_call();
        let first = first.into();
        let second = second.into();
        let [one, other] = self.ask_two(&first, &second)?;
        let one = one.and_then(|answer| self.loaded(&first, answer));
        Some((one, other.and_then(|answer| self.loaded(&second, answer))))
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
        connection
            .end(outcome.as_ref().map_or(true, |replies| replies.iter().any(Reply::is_demotion)));
        Some(outcome)
    }

    /// Returns the answer, unless the server does not know the script. Then the request is sent
    /// again with the source, which the server keeps; NOSCRIPT guarantees that nothing ran. It is
    /// also sent again where the server has forgotten who asks, or where the connection was wrong
    /// about the server's clock, which guarantees the same: that connection is closed, so this ends
    /// with one that has just logged in.
    fn loaded(&self, asked: &RequestAfter, answer: Answer) -> Outcome {
        if answer.reply.is_error("NOSCRIPT")
            && let Some(whole) = asked.request.whole()
        {
            return self.call(RequestAfter { request: whole, earlier: asked.earlier.clone() });
        }
        if answer.reply.is_refused_here() && !answer.is_first {
            return self.call(asked.clone());
        }
        Ok(answer)
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
        let (release, acquire): (RequestAfter, RequestAfter) = (release.into(), acquire.into());
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
