//! Requests that may be repeated: an earlier attempt must not run after a later one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::requests::{IS_THERE, KILL};
use super::wire::{Answer, Connection, Connector, Pool, PostgresFailure, Request, UnknownOutcome};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::random::Backoff;
use crate::store::UnknownOutcomes;

/// The connections for lock calls.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pool: Arc<Pool>,
    io_timeout: Duration,
}

impl Server {
    pub(super) fn new(connector: Connector, connections: usize) -> Self {
        let io_timeout = connector.io_timeout;
        Self { pool: Pool::new(connector, connections), io_timeout }
    }

    /// Without unknown outcomes the request goes through the pool. Otherwise it is sent on a new
    /// connection, after the backends of the earlier ones have ended, so that no earlier attempt
    /// can run after it.
    pub(super) fn ask(&self, request: &Request, unknowns: &mut UnknownOutcomes) -> Result<Answer> {
        if !unknowns.is_empty() {
            return self.ask_again(request, unknowns);
        }
        let outcome = match self.pool.call(request.clone()) {
            // That connection was closed with all idle ones, and nothing has run.
            Ok(Answer { rows: Err(error), .. }) if error.wants_new_connection() => self.pool.call(request.clone()),
            outcome => outcome,
        };
        known(outcome, unknowns)
    }

    /// A request that may run twice, or changes nothing.
    pub(super) fn ask_freely(&self, request: &Request) -> Result<Answer> {
        self.ask(request, &mut UnknownOutcomes::default())
    }

    fn ask_again(&self, request: &Request, unknowns: &mut UnknownOutcomes) -> Result<Answer> {
        let mut connection = self.pool.connect_aside()?;
        let earlier = unknowns.list::<UnknownOutcome>().to_vec();
        let ended = end_backends(&mut connection, &earlier, self.io_timeout).map_err(into_error)?;
        if ended.contains(&false) {
            let why = "an earlier attempt may still run: its backend was asked to end and has not ended yet";
            return Err(Error::new(ErrorKind::Unreachable, why));
        }
        let answer = known(connection.ask(request), unknowns)?;
        connection.keep();
        Ok(answer)
    }
}

/// Adds a request of unknown outcome to the others.
pub(super) fn known(
    outcome: std::result::Result<Answer, PostgresFailure>,
    unknowns: &mut UnknownOutcomes,
) -> Result<Answer> {
    outcome.map_err(|failure| {
        if let PostgresFailure::Unknown { unknown, .. } = &failure {
            unknowns.push(unknown.clone());
        }
        into_error(failure)
    })
}

pub(super) fn into_error(failure: PostgresFailure) -> Error {
    match failure {
        PostgresFailure::NotSent(error) | PostgresFailure::Unknown { error, .. } => error,
        PostgresFailure::NotTogether => Error::new(ErrorKind::NotReady, "the row of the lock is locked just now"),
    }
}

/// Ends the backends of requests with unknown outcome, and waits until they have ended. Returns for
/// each whether it has: a backend that is committing still commits.
pub(super) fn end_backends(
    connection: &mut Connection,
    unknowns: &[UnknownOutcome],
    patience: Duration,
) -> std::result::Result<Vec<bool>, PostgresFailure> {
    let mut living: Vec<&UnknownOutcome> = Vec::new();
    for unknown in unknowns {
        if connection.may_have_run(unknown) && !living.iter().any(|other| other.same_backend(unknown)) {
            living.push(unknown);
        }
    }
    let about = |statement, unknown: &UnknownOutcome| {
        let (pid, started) = Connection::backend(unknown);
        Request::new(statement).number(pid).number(started)
    };
    let kills: Vec<Request> = living.iter().map(|unknown| about(&KILL, unknown)).collect();
    for answer in connection.ask_all(&kills)? {
        answer.rows.map_err(|e| PostgresFailure::NotSent(e.to_error()))?;
    }
    let (mut pause, deadline) =
        (Backoff::new(Duration::from_millis(1), Duration::from_millis(20)), Instant::now() + patience);
    loop {
        let looks: Vec<Request> = living.iter().map(|unknown| about(&IS_THERE, unknown)).collect();
        let mut left = Vec::new();
        for (answer, unknown) in connection.ask_all(&looks)?.into_iter().zip(&living) {
            let rows = answer.rows.map_err(|e| PostgresFailure::NotSent(e.to_error()))?;
            let is_gone = rows.first().and_then(|row| row.first()?.as_deref()) == Some("0");
            left.extend((!is_gone).then_some(*unknown));
        }
        living = left;
        if living.is_empty() || Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(pause.next());
    }
    Ok(unknowns.iter().map(|unknown| !living.iter().any(|other| other.same_backend(unknown))).collect())
}
