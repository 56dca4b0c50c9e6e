//! Requests that may be repeated: an earlier attempt must not run after a later one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::requests::{is_gone, kill, text};
use super::wire::{Answer, Connector, MysqlFailure, Outcome, Pool, Request, UnknownOutcome};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::random::Backoff;
use crate::store::UnknownOutcomes;

/// The connections for lock calls.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pool: Arc<Pool>,
    io_timeout: Duration,
    /// Held by the thread that ends sessions for all: when and why that has failed the last time.
    settling: Mutex<Option<(Instant, Error)>>,
}

impl Server {
    pub(super) fn new(connector: Connector, connections: usize) -> Self {
        let io_timeout = connector.io_timeout;
        Self { pool: Pool::new(connector, connections), io_timeout, settling: Mutex::new(None) }
    }

    /// Sends a request that may be repeated once no earlier attempt can run any more. With unknown
    /// outcomes it is sent after their sessions have ended. If its connection ends, that says
    /// nothing about the server now, so it is repeated at once.
    ///
    /// Whoever reads the answer has to look at `unknowns` *afterwards* to know whether an earlier
    /// attempt may have run: otherwise a release that ran, and was repeated here, would be reported
    /// as a lost lock.
    pub(super) fn ask(&self, request: &Request, unknowns: &mut UnknownOutcomes) -> Result<Answer> {
        let mut repeats = self.pool.most() + 1;
        loop {
            self.settle(unknowns.list())?;
            match self.call(request) {
                Err(MysqlFailure::Unknown { error, unknown, ended }) => {
                    unknowns.push(unknown);
                    if !ended || repeats == 0 {
                        return Err(error);
                    }
                    repeats -= 1;
                }
                outcome => return outcome.map_err(MysqlFailure::into_error),
            }
        }
    }

    /// Sends a request that may run at any time and any number of times: earlier attempts are left
    /// alone.
    pub(super) fn ask_freely(&self, request: &Request) -> Result<Answer> {
        let mut repeats = self.pool.most() + 1;
        loop {
            match self.call(request) {
                Err(MysqlFailure::Unknown { ended: true, .. }) if repeats > 0 => repeats -= 1,
                outcome => return outcome.map_err(MysqlFailure::into_error),
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
            Err(error) if error.kind() == ErrorKind::NotReady => self.call(request),
            Err(error) => Err(MysqlFailure::NotSent(error)),
        }
    }

    /// What a server has refused because it takes no writes any more, or has no tables, did not
    /// run: a new connection finds the server that does, and makes them.
    fn call(&self, request: &Request) -> Outcome {
        let ask = || self.pool.ask(request.clone(), self.pool.most(), |_, outcome| outcome);
        match ask() {
            Ok(answer) if answer.is_last() => ask(),
            outcome => outcome,
        }
    }

    /// Returns when no earlier attempt can run any more. One thread ends their sessions, and the
    /// others wait for that.
    fn settle(&self, earlier: &[UnknownOutcome]) -> Result<()> {
        if earlier.iter().all(UnknownOutcome::has_ended) {
            return Ok(());
        }
        let began = Instant::now();
        let Some(mut trouble) = self.settling.try_lock_for(self.io_timeout) else {
            let why = "other threads still wait for earlier attempts to end";
            return Err(Error::new(ErrorKind::Unreachable, why));
        };
        // What has failed for another thread meanwhile is not tried again by each: together they
        // would take an I/O timeout each, one after the other.
        if let Some((_, error)) = trouble.as_ref().filter(|(at, _)| *at > began) {
            return Err(error.clone());
        }
        let settled = end_sessions(earlier, self.io_timeout, |request| self.ask_freely(&request));
        let settled = settled.and_then(|()| {
            if earlier.iter().all(UnknownOutcome::has_ended) {
                return Ok(());
            }
            let why = "an earlier attempt may still run: its session was asked to end and has not ended yet";
            Err(Error::new(ErrorKind::Unreachable, why))
        });
        *trouble = settled.as_ref().err().map(|error| (Instant::now(), error.clone()));
        settled
    }
}

/// Ends the sessions of requests with unknown outcome, and waits until they have ended, but no
/// longer than `patience`: a session that is committing still commits. Each notes its end.
///
/// A session has its mark until it has ended, and what it wrote is behind locks of rows until it is
/// rolled back; whoever takes the mark therefore knows that no statement of it begins any more.
/// A restart frees all marks.
pub(super) fn end_sessions(
    unknowns: &[UnknownOutcome],
    patience: Duration,
    mut ask: impl FnMut(Request) -> Result<Answer>,
) -> Result<()> {
    let living = || unknowns.iter().filter(|unknown| !unknown.has_ended());
    let mut killed: Vec<&str> = Vec::new();
    for unknown in living() {
        if killed.contains(&unknown.mark()) {
            continue;
        }
        killed.push(unknown.mark());
        match ask(kill(unknown.mark()))?.sets {
            Err(error) if !error.is_no_such_thread() => return Err(error.to_error()),
            _ => {}
        }
    }
    let mut pause = Backoff::new(Duration::from_millis(1), Duration::from_millis(20));
    let deadline = Instant::now() + patience;
    loop {
        // Several unknown outcomes may be of one session, which notes its end once.
        for unknown in living() {
            let set = ask(is_gone(unknown.mark()))?.last()?;
            if set.rows.first().and_then(|row| text(row, 0)) == Some("1") {
                unknown.note_end();
            }
        }
        if living().next().is_none() || Instant::now() >= deadline {
            return Ok(());
        }
        std::thread::sleep(pause.next());
    }
}
