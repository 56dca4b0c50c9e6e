//! A pool of connections to the primary. Acquires of plain locks that queue for a connection share
//! one transaction: one flush of the server's log then serves all of them.

use std::convert::Infallible;
use std::time::Duration;

use super::batch::Flight;
use super::connection::Connection;
use super::connector::Connector;
use super::outcome::{Answer, Outcome, PostgresFailure, UnknownOutcome};
use super::request::{Batching, Request};
use crate::base::error::Result;
use crate::store::net::{self, Callers, PooledConnection, PooledConnector};

pub(crate) type Pool = net::Pool<Connector>;

impl PooledConnector for Connector {
    type Connection = Connection;
    /// A server process flushes what it commits before it runs the next transaction. Others do that
    /// at the same time, or with the same flush.
    type Sender = Infallible;
    type Request = Request;
    type Flight = Flight;
    type Answer = Answer;
    type Unknown = UnknownOutcome;

    fn connect(&self) -> Result<Connection> {
        self.connect()
    }

    fn io_timeout(&self) -> Duration {
        self.io_timeout
    }

    fn address(&self) -> String {
        format!("{:?}", self.server.url)
    }

    fn held_up_by(&self) -> Option<String> {
        self.server.known.held_up_within(self.io_timeout)
    }

    fn is_urgent(request: &Request) -> bool {
        request.is_urgent
    }

    fn share_a_write(one: &Request, other: &Request) -> bool {
        !one.goes_alone() && !other.goes_alone()
    }

    /// If the transaction of its batch failed, it is sent again by itself.
    fn again(&self, request: &Request, answer: &Answer) -> Option<Request> {
        if let Err(error) = &answer.rows
            && let Some(who) = &error.blocker
        {
            self.server.known.note_held_up(who);
        }
        answer.not_together.then(|| request.clone().batched(Batching::Alone))
    }

    fn is_last(answer: &Answer) -> bool {
        answer.is_last()
    }

    fn unknown(flight: &Flight) -> UnknownOutcome {
        flight.in_flight.sent.unknown.clone()
    }
}

impl PooledConnection<Connector> for Connection {
    /// It has not ended, and leads to the server that is the primary now.
    fn is_usable(&mut self, connector: &Connector) -> bool {
        connector.leads_to_the_primary(self) && self.link().is_alive()
    }

    fn say_goodbye(&mut self) {
        self.link().goodbye();
    }

    fn prepare<'r>(
        &mut self,
        requests: impl Iterator<Item = &'r Request>,
    ) -> std::result::Result<Flight, PostgresFailure> {
        Flight::prepare(self, &requests.collect::<Vec<_>>())
    }

    fn transmit(&mut self, flight: &Flight) -> std::result::Result<(), PostgresFailure> {
        self.send_out(&flight.in_flight)
    }

    fn receive(
        &mut self,
        flight: &mut Flight,
        outcomes: &mut [Option<Outcome>],
        _callers: Option<&Callers>,
    ) -> std::result::Result<(), PostgresFailure> {
        flight.receive(self, outcomes)
    }
}
