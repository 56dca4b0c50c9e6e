//! A request that one thread sends and another finishes. The first does not wait for anything.

use super::batch::Outcome;
use super::connection::{Connection, InFlight};
use super::pool::{Borrowed, Pending, Pool, Stage};
use super::request::Request;
use super::unknown_outcome::Failure;

/// A request that was sent, with the connection on which its reply comes. Whoever has it must give
/// it back to its pool.
pub(crate) struct Detached(Result<Sent, Failure>);

struct Sent {
    connection: Connection,
    flight: InFlight,
    request: Request,
}

impl Pool {
    /// Sends the request if a connection is free now. A free connection has nothing under way, so
    /// a request that fits into the buffer of its socket is written without waiting, even to a
    /// server that hangs.
    pub(crate) fn begin_detached(&self, request: Request) -> Option<Detached> {
        let mut connection = self.take_free()?;
        connection.in_flight = true;
        Some(Detached(match connection.get().send(std::iter::once(&request)) {
            Ok(flight) => Ok(Sent { connection: connection.detach(), flight, request }),
            Err(failure) => {
                connection.broken();
                Err(failure)
            }
        }))
    }

    /// Waits for the reply, as [`call`](Self::call) does.
    pub(crate) fn finish_detached(&self, detached: Detached) -> Outcome {
        let Sent { connection, flight, request } = detached.0?;
        let connection = Borrowed::in_flight(self, connection);
        Pending { pool: self, stage: Stage::Sent { connection, flight, request } }.finish()
    }

    /// Closes the connection: nobody reads the reply.
    pub(crate) fn abandon_detached(&self, detached: Detached) {
        if let Ok(sent) = detached.0 {
            drop(Borrowed::in_flight(self, sent.connection));
        }
    }
}
