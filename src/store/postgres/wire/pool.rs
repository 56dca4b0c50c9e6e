//! A pool of connections to the primary. Acquires of plain locks that queue for a connection share
//! one transaction: one flush of the server's log then serves all of them.

use std::convert::Infallible;
use std::time::Duration;

use super::batch::Flight;
use super::connection::Connection;
use super::connector::Connector;
use super::outcome::{Answer, Outcome, PostgresFailure, UnknownOutcome};
use super::request::Request;
use crate::base::error::Result;
use crate::store::net::{self, PooledConnector};

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

    /// It has not ended, and leads to the server that is the primary now.
    fn is_usable(&self, connection: &mut Connection) -> bool {
        self.leads_to_the_primary(connection) && connection.link().is_alive()
    }

    fn say_goodbye(connection: &mut Connection) {
        connection.link().say_goodbye();
    }

    fn is_urgent(request: &Request) -> bool {
        request.is_urgent
    }

    fn share_a_write(one: &Request, other: &Request) -> bool {
        !one.goes_alone() && !other.goes_alone()
    }

    fn prepare<'r>(
        &self,
        connection: &mut Connection,
        requests: impl Iterator<Item = &'r Request>,
    ) -> std::result::Result<Flight, PostgresFailure> {
        Flight::prepare(connection, &requests.collect::<Vec<_>>())
    }

    fn transmit(
        &self,
        connection: &mut Connection,
        flight: &Flight,
    ) -> std::result::Result<(), PostgresFailure> {
        connection.transmit(&flight.in_flight)
    }

    fn receive(
        &self,
        connection: &mut Connection,
        flight: &mut Flight,
        outcomes: &mut [Option<Outcome>],
    ) -> std::result::Result<(), PostgresFailure> {
        flight.receive(connection, outcomes)?;
        let answers = outcomes.iter().filter_map(|outcome| outcome.as_ref()?.as_ref().ok());
        let blockers = answers.filter_map(|answer| answer.rows.as_ref().err()?.blocker.as_ref());
        for who in blockers {
            self.server.known.note_held_up(who);
        }
        Ok(())
    }

    fn is_last(answer: &Answer) -> bool {
        answer.is_last()
    }

    fn unknown(flight: &Flight) -> UnknownOutcome {
        flight.in_flight.sent.unknown.clone()
    }
}
