//! The connection of the watchdog thread, for renewals and undos.

use std::collections::HashSet;
use std::time::Instant;

use parking_lot::Mutex;

use super::requests;
use super::server::end_sessions;
use super::wire::{Answer, Connection, Connector, MysqlFailure, Pool, Request, UnknownOutcome};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::store::resolve::Resolution;
use crate::store::{Renewal, Renewed, Undo};

/// Holds renewed by one transaction: with more, one row that somebody has locked would delay more.
const CHUNK: usize = 100;

/// A connection separate from the pool: renewals must not queue behind lock calls.
pub(super) struct Background {
    pub(super) connector: Connector,
    idle: Mutex<Idle>,
}

/// The connection while nobody uses it.
#[derive(Default)]
struct Idle {
    connection: Option<Connection>,
    /// Whether connections are no longer put back.
    closed: bool,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background")
            .field("hosts", &self.connector.server.url)
            .finish_non_exhaustive()
    }
}

impl Background {
    pub(super) fn new(connector: Connector) -> Self {
        Self { connector, idle: Mutex::default() }
    }

    pub(super) fn close(&self) {
        // A connection on which a renewal is under way is not here: the watchdog thread drops it
        // after the answer.
        let mut idle = self.idle.lock();
        idle.closed = true;
        if let Some(mut connection) = idle.connection.take() {
            connection.say_goodbye();
        }
    }

    /// Renews all holds, in the order of their names, as everybody locks several rows. Those whose
    /// rows somebody else has locked at the moment are renewed afterwards, one by one, because a
    /// statement waits a second for a row: it would cost the others their leases.
    pub(super) fn renew(&self, holds: &[Renewal], locks: &Pool) -> Vec<Renewed> {
        let mut outcomes: Vec<Option<Renewed>> = holds.iter().map(|_| None).collect();
        let mut order: Vec<usize> = (0..holds.len()).collect();
        order.sort_by(|&one, &other| holds[one].name.key.cmp(&holds[other].name.key));
        let started = Instant::now();
        let mut late = Vec::new();
        for chunk in order.chunks(CHUNK) {
            let (together, alone) = self.without_locked(holds, chunk, locks);
            late.extend(alone);
            if self.renew_together(holds, &together, &mut outcomes, locks) {
                late.extend(together);
            }
        }
        for place in late {
            if started.elapsed() < self.connector.io_timeout {
                self.renew_together(holds, &[place], &mut outcomes, locks);
            }
        }
        let locked = || {
            let why = "another transaction has locked the row";
            Renewed::Failed(Error::new(ErrorKind::NotReady, why))
        };
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(locked)).collect()
    }

    /// Splits them: those whose rows could be locked now, and the others.
    fn without_locked(
        &self,
        holds: &[Renewal],
        places: &[usize],
        locks: &Pool,
    ) -> (Vec<usize>, Vec<usize>) {
        if places.len() == 1 {
            return (places.to_vec(), Vec::new());
        }
        let names = places.iter().map(|&place| &*holds[place].name.key);
        let answer = self.exchange(&requests::lockable(names), locks).and_then(Answer::last);
        let Ok(set) = answer else { return (places.to_vec(), Vec::new()) };
        let free: HashSet<&str> =
            set.rows.iter().filter_map(|row| requests::text(row, 0)).collect();
        places.iter().partition(|&&place| free.contains(&*holds[place].name.key))
    }

    /// Renews the holds with these indexes in one transaction. True: nothing was done, because one
    /// of their rows is locked by somebody else.
    fn renew_together(
        &self,
        holds: &[Renewal],
        places: &[usize],
        outcomes: &mut [Option<Renewed>],
        locks: &Pool,
    ) -> bool {
        let mut statements = places.iter().map(|&place| requests::renew(&holds[place]));
        let (request, first) = match places {
            [] => return false,
            [_] => (Request::new(statements.next().expect("one hold")), 0),
            _ => (Request::transaction(statements), 1),
        };
        let renewed = match self.exchange(&request, locks) {
            Ok(Answer { sets: Err(error), .. }) if error.is_contended() => return true,
            Ok(answer) => {
                let sent_at = answer.sent_at;
                answer.all().map(|sets| (sets, sent_at))
            }
            Err(error) => Err(error),
        };
        for (at, &place) in places.iter().enumerate() {
            outcomes[place] = Some(match &renewed {
                Ok((sets, sent_at)) => match sets.get(first + at) {
                    Some(set) => requests::renewed(set, *sent_at),
                    None => Renewed::Failed(requests::unexpected("a renewal")),
                },
                Err(error) => Renewed::Failed(error.clone()),
            });
        }
        false
    }

    /// Uses a connection of the pool if it cannot open one (`max_connections`): a hold must not be
    /// lost while its client has a working connection.
    pub(super) fn exchange(&self, request: &Request, locks: &Pool) -> Result<Answer> {
        let started = Instant::now();
        match self.exchange_alone(request) {
            // Not after a connect that timed out: the server hangs, and this request would hang,
            // too.
            Err(MysqlFailure::NotSent(error)) if started.elapsed() < self.connector.io_timeout => {
                log::debug!("renewing over a connection of the locks: {}", error.chain());
                locks.ask(request.clone(), 1, |_, outcome| outcome).map_err(|_| error)
            }
            outcome => outcome.map_err(MysqlFailure::into_error),
        }
    }

    /// A connection that has ended while it was idle says nothing about the server now: it is
    /// replaced once. Every request sent here may run at any time.
    fn exchange_alone(&self, request: &Request) -> std::result::Result<Answer, MysqlFailure> {
        let idle = self.idle.lock().connection.take();
        if let Some(connection) = idle.and_then(Connection::if_alive) {
            match self.ask_over(connection, request) {
                Err(MysqlFailure::Unknown { ended: true, .. }) => {}
                outcome => return outcome,
            }
        }
        self.ask_over(self.connector.connect().map_err(MysqlFailure::NotSent)?, request)
    }

    fn ask_over(
        &self,
        mut connection: Connection,
        request: &Request,
    ) -> std::result::Result<Answer, MysqlFailure> {
        let answer = connection.ask(request)?;
        self.connector.note(&answer);
        if !answer.is_last() {
            self.put_back(connection);
        }
        Ok(answer)
    }

    fn put_back(&self, mut connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.closed {
            connection.say_goodbye();
        } else {
            idle.connection = Some(connection);
        }
    }

    /// Ends the sessions of requests with unknown outcome, then releases.
    pub(super) fn resolve(&self, undos: &[Undo]) -> Result<Vec<Resolution>> {
        let all: Vec<UnknownOutcome> =
            undos.iter().flat_map(|undo| undo.unknowns.list::<UnknownOutcome>().to_vec()).collect();
        let ask =
            |request: Request| self.exchange_alone(&request).map_err(MysqlFailure::into_error);
        // No longer than this, because renewals wait for it.
        end_sessions(&all, self.connector.io_timeout / 2, ask)?;
        let clock = &*self.connector.server.clock;
        let mut resolved = Vec::with_capacity(undos.len());
        for undo in undos {
            let earlier = undo.unknowns.list::<UnknownOutcome>();
            resolved.push(if earlier.iter().all(UnknownOutcome::has_ended) {
                match self.exchange_alone(&requests::release(&undo.release(), || clock.now())) {
                    Ok(answer) => match answer.all() {
                        Ok(_) => Resolution::Done,
                        Err(error) if error.kind().is_outage() => Resolution::NotYet,
                        Err(_) => Resolution::Refused,
                    },
                    Err(MysqlFailure::Unknown { .. }) => Resolution::MayHaveRun,
                    Err(MysqlFailure::NotSent(_)) => Resolution::NotYet,
                }
            } else {
                Resolution::NotYet
            });
        }
        Ok(resolved)
    }
}
