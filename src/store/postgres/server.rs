//! How PostgreSQL is asked, and how its backends are ended; and the parts of a hand-over.

use super::requests::{IS_THERE, KILL, text};
use super::wire::{
    Answer, Backend, Batching, Connection, Connector, Outcome, Pool, PostgresFailure, Request,
    Statement, UnknownOutcome,
};
use crate::base::error::Result;
use crate::signal::clock::Clock;
use crate::store::UnknownOutcomes;
use crate::store::database::{self, Database};

pub(super) type Server = database::Server<Connector>;

impl Database for Connector {
    type SessionId = Backend;

    fn clock(&self) -> &dyn Clock {
        &*self.server.clock
    }

    fn ask_all(
        &self,
        connection: &mut Connection,
        requests: &[Request],
    ) -> std::result::Result<Vec<Answer>, PostgresFailure> {
        connection.ask_all(requests)
    }

    fn ask_over_open(pool: &Pool, request: Request) -> Outcome {
        pool.ask(request.batched(Batching::Alone), 1)
    }

    fn kill(backend: &Backend) -> Request {
        about(&KILL, backend)
    }

    fn check_kill(answer: Answer) -> Result<()> {
        answer.rows.map(|_| ()).map_err(|e| e.to_error())
    }

    fn look_for(backend: &Backend) -> Request {
        about(&IS_THERE, backend)
    }

    fn has_ended(answer: Answer) -> Result<bool> {
        let rows = answer.rows.map_err(|e| e.to_error())?;
        Ok(rows.first().and_then(|row| text(row, 0)) == Some("0"))
    }
}

fn about(statement: &'static Statement, backend: &Backend) -> Request {
    Request::new(statement).number(backend.pid).number(backend.started)
}

/// The answer to a part of a hand-over; `None` if it can be asked for again at once. An unknown
/// outcome is added to the others.
pub(super) fn part(outcome: Outcome, unknowns: &mut UnknownOutcomes) -> Result<Option<Answer>> {
    match outcome {
        Err(PostgresFailure::Unknown { error, mut unknown, ended }) => {
            unknown.untold = true;
            unknowns.push(unknown);
            if ended { Ok(None) } else { Err(error) }
        }
        outcome => outcome.map(Some).map_err(PostgresFailure::into_error),
    }
}

/// Whether one of them may have freed the lock without notifying the waiters of other clients.
pub(super) fn are_untold(unknowns: &UnknownOutcomes) -> bool {
    unknowns.list::<UnknownOutcome>().iter().any(|unknown| unknown.untold)
}
