//! The connection of the watchdog thread, for renewals and undos.

use std::collections::HashSet;
use std::time::Instant;

use super::wire::{Answer, Connector, MysqlFailure, Pool, Request, UnknownOutcome};
use super::{kinds, requests};
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::database::end_sessions;
use crate::store::net;
use crate::store::resolve::Resolution;
use crate::store::{Renewal, Renewed, Undo};

/// Holds renewed by one transaction: with more, one row that somebody has locked would delay more.
const CHUNK: usize = 100;

/// The connection for renewals and undos.
pub(super) type Background = net::Background<Connector>;

impl Background {
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
            // Most of these can be locked now, so they go before those that could not.
            if self.renew_together(holds, &together, &mut outcomes, locks) {
                late.extend(together);
            }
            late.extend(alone);
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
        let answer = self.exchange(&requests::lockable(names), locks).and_then(Answer::all);
        let locked = answer.map(|sets| requests::locked(&sets)).unwrap_or_default();
        places.iter().partition(|&&place| !locked.contains(&*holds[place].name.key))
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
        let mut statements = places.iter().map(|&place| kinds::renew(&holds[place]));
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

    /// Ends the sessions of requests with unknown outcome, then releases. Of those whose rows
    /// somebody else has locked at the moment only the first waits for its row: renewals wait for
    /// all of this, and would come too late. The others have their turn later.
    pub(super) fn resolve(&self, undos: &[Undo]) -> Result<Vec<Resolution>> {
        let patience = self.connector.io_timeout / 2;
        let all = undos.iter().flat_map(|undo| undo.unknowns.list::<UnknownOutcome>());
        end_sessions::<Connector>(all, patience, |requests| {
            self.exchange_alone(requests).map_err(MysqlFailure::into_error)
        })?;
        let began = Instant::now();
        let locked = self.locked_of(undos);
        let mut may_wait = true;
        let resolved = undos.iter().map(|undo| {
            if locked.contains(&*undo.name.key) && !std::mem::take(&mut may_wait)
                || began.elapsed() > patience
            {
                return Resolution::NotYet;
            }
            self.release(undo)
        });
        Ok(resolved.collect())
    }

    /// The names of those whose rows somebody else has locked at the moment.
    fn locked_of(&self, undos: &[Undo]) -> HashSet<String> {
        if undos.len() == 1 {
            return HashSet::new();
        }
        let names = undos.iter().map(|undo| &*undo.name.key);
        match self.exchange_alone(&[requests::lockable(names)]) {
            Ok(mut answers) => {
                answers.remove(0).all().map(|sets| requests::locked(&sets)).unwrap_or_default()
            }
            Err(_) => HashSet::new(),
        }
    }

    fn release(&self, undo: &Undo) -> Resolution {
        let earlier = undo.unknowns.list::<UnknownOutcome>();
        if !earlier.iter().all(UnknownOutcome::has_ended) {
            return Resolution::NotYet;
        }
        let now = || self.connector.server.clock.now();
        match self.exchange_alone(&[kinds::release(&undo.release(), now)]) {
            Ok(mut answers) => match answers.remove(0).all() {
                Ok(_) => Resolution::Done,
                Err(error) if error.kind().is_outage() => Resolution::NotYet,
                Err(_) => Resolution::Refused,
            },
            Err(MysqlFailure::Unknown { .. }) => Resolution::MayHaveRun,
            Err(MysqlFailure::NotSent(_)) => Resolution::NotYet,
        }
    }
}
