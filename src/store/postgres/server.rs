//! Requests that may be repeated: an earlier attempt must not run after a later one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::requests::{IS_THERE, KILL};
use super::wire::{
    Answer, Connection, Connector, Outcome, Pool, PostgresFailure, Request, UnknownOutcome,
};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::base::random::Backoff;
use crate::signal::clock::Clock;
use crate::store::UnknownOutcomes;

/// The connections for lock calls.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pool: Arc<Pool>,
    io_timeout: Duration,
    /// Held by the thread that ends backends for all: when and why that has failed the last time.
    settling: Mutex<Option<(Instant, Error)>>,
}

impl Server {
    pub(super) fn new(connector: Connector, connections: usize) -> Self {
        let io_timeout = connector.io_timeout;
        Self { pool: Pool::new(connector, connections), io_timeout, settling: Mutex::new(None) }
    }

    /// Sends a request that may be repeated once no earlier attempt can run any more. With unknown
    /// outcomes it is sent after their backends have ended. If its connection ends, that says
    /// nothing about the server now (it was restarted, a router has forgotten the connection), so
    /// it is repeated at once.
    ///
    /// Whoever reads the answer has to look at `unknowns` *afterwards* to know whether an earlier
    /// attempt may have run: otherwise a release that ran, and was repeated here, would be reported
    /// as a lost lock.
    pub(super) fn ask(&self, request: &Request, unknowns: &mut UnknownOutcomes) -> Result<Answer> {
        self.ask_with(|_| request.clone(), unknowns)
    }

    /// [`ask`](Self::ask) for a request that says whether it is a repeat.
    pub(super) fn ask_with(
        &self,
        request: impl Fn(bool) -> Request,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Answer> {
        let mut repeats = self.repeats();
        loop {
            self.settle(unknowns.list())?;
            match self.call(request(!unknowns.is_empty())) {
                Err(PostgresFailure::Unknown { error, unknown, ended }) => {
                    unknowns.push(unknown);
                    if !ended || !repeats.one_more() {
                        return Err(error);
                    }
                }
                outcome => return outcome.map_err(into_error),
            }
        }
    }

    /// Sends a request that may run at any time and any number of times: earlier attempts are left
    /// alone.
    pub(super) fn ask_freely(&self, request: &Request) -> Result<Answer> {
        let mut repeats = self.repeats();
        loop {
            match self.call(request.clone()) {
                Err(PostgresFailure::Unknown { ended: true, .. }) if repeats.one_more() => {}
                outcome => return outcome.map_err(into_error),
            }
        }
    }

    /// Sends a request that must not run twice: on a connection that was just made, because one
    /// that has lain idle may have ended unseen, and nobody would know whether it ran.
    pub(super) fn ask_once(&self, request: &Request) -> Outcome {
        match self.pool.connect_aside() {
            Ok(mut connection) => {
                let answer = connection.ask(request)?;
                if !answer.is_last() {
                    connection.keep();
                }
                Ok(answer)
            }
            // The server is full, and the client has connections.
            Err(error) if error.kind() == ErrorKind::NotReady => self.call(request.clone()),
            Err(error) => Err(PostgresFailure::NotSent(error)),
        }
    }

    fn call(&self, request: Request) -> Outcome {
        match self.pool.call(request.clone()) {
            // That connection was closed with all idle ones, and nothing has run.
            Ok(answer) if answer.is_last() => self.pool.call(request),
            outcome => outcome,
        }
    }

    /// Every connection of the pool may have ended with the first one. After a long time (the
    /// machine slept) the idempotency key may be gone, and a repeat could count twice.
    fn repeats(&self) -> Repeats<'_> {
        let clock = &*self.pool.connector().server.clock;
        Repeats { left: self.pool.most() + 1, clock, until: clock.now().plus(IDEMPOTENCY_TTL / 2) }
    }

    /// Returns when no earlier attempt can run any more. When a write with the requests of many
    /// threads is lost, one of them ends its backend, and the others wait for that. Everything goes
    /// through the pool, so that all of them together make no connection beside it.
    fn settle(&self, earlier: &[UnknownOutcome]) -> Result<()> {
        let runs = |unknown: &&UnknownOutcome| !unknown.has_ended();
        if !earlier.iter().any(|unknown| runs(&unknown)) {
            return Ok(());
        }
        let began = Instant::now();
        let Some(mut trouble) = self.settling.try_lock_for(self.io_timeout) else {
            return Err(Error::new(
                ErrorKind::Unreachable,
                "other threads still wait for earlier attempts to end",
            ));
        };
        // What has failed for another thread meanwhile is not tried again by each: together they
        // would take an I/O timeout each, one after the other.
        if let Some((_, error)) = trouble.as_ref().filter(|(at, _)| *at > began) {
            return Err(error.clone());
        }
        // Another thread may have ended some of them meanwhile.
        let living: Vec<&UnknownOutcome> = earlier.iter().filter(runs).collect();
        let ask = |requests: &[Request]| {
            requests.iter().map(|request| self.ask_freely(request)).collect()
        };
        let settled = end_backends(living, self.io_timeout, ask).and_then(|()| {
            let why = "an earlier attempt may still run: its backend was asked to end and has not ended yet";
            if earlier.iter().any(|unknown| runs(&unknown)) {
                Err(Error::new(ErrorKind::Unreachable, why))
            } else {
                Ok(())
            }
        });
        *trouble = settled.as_ref().err().map(|error| (Instant::now(), error.clone()));
        settled
    }
}

/// How often a request is repeated at once.
struct Repeats<'s> {
    left: usize,
    clock: &'s dyn Clock,
    until: Moment,
}

impl Repeats<'_> {
    fn one_more(&mut self) -> bool {
        let goes_on = self.left > 0 && self.clock.now() < self.until;
        self.left = self.left.saturating_sub(1);
        goes_on
    }
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
        outcome => outcome.map(Some).map_err(into_error),
    }
}

/// Whether one of them may have freed the lock without notifying the waiters of other clients.
pub(super) fn are_untold(unknowns: &UnknownOutcomes) -> bool {
    unknowns.list::<UnknownOutcome>().iter().any(|unknown| unknown.untold)
}

pub(super) fn into_error(failure: PostgresFailure) -> Error {
    match failure {
        PostgresFailure::NotSent(error) | PostgresFailure::Unknown { error, .. } => error,
        PostgresFailure::NotTogether => {
            Error::new(ErrorKind::NotReady, "the row of the lock is locked just now")
        }
    }
}

/// Ends the backends of requests with unknown outcome, and waits until they have ended, but no
/// longer than `patience`: a backend that is committing still commits. Each notes its end.
pub(super) fn end_backends(
    unknowns: Vec<&UnknownOutcome>,
    patience: Duration,
    mut ask: impl FnMut(&[Request]) -> Result<Vec<Answer>>,
) -> Result<()> {
    let mut living: Vec<&UnknownOutcome> = Vec::new();
    for unknown in unknowns {
        if !living.iter().any(|other| other.same_backend(unknown)) {
            living.push(unknown);
        }
    }
    let about = |statement, unknown: &UnknownOutcome| {
        let (pid, started) = Connection::backend(unknown);
        Request::new(statement).number(pid).number(started)
    };
    let kills: Vec<Request> = living.iter().map(|unknown| about(&KILL, unknown)).collect();
    for answer in ask(&kills)? {
        answer.rows.map_err(|e| e.to_error())?;
    }
    let mut pause = Backoff::new(Duration::from_millis(1), Duration::from_millis(20));
    let deadline = Instant::now() + patience;
    loop {
        let looks: Vec<Request> = living.iter().map(|unknown| about(&IS_THERE, unknown)).collect();
        let mut left = Vec::new();
        for (answer, unknown) in ask(&looks)?.into_iter().zip(living) {
            let rows = answer.rows.map_err(|e| e.to_error())?;
            match rows.first().and_then(|row| row.first()?.as_deref()) {
                Some("0") => unknown.note_end(),
                _ => left.push(unknown),
            }
        }
        living = left;
        if living.is_empty() || Instant::now() >= deadline {
            return Ok(());
        }
        std::thread::sleep(pause.next());
    }
}
