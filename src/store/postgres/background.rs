//! The connection of the watchdog thread, for renewals and undos.

use std::time::{Duration, Instant};

use super::requests;
use super::server::are_untold;
use super::wire::{
    Answer, Connection, Connector, Pool, PostgresFailure, Request, ServerError, UnknownOutcome,
};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::store::database::end_sessions;
use crate::store::net;
use crate::store::resolve::Resolution;
use crate::store::{HoldCounts, Renewal, Renewed, Undo};

/// Holds renewed by one statement: with more, others would wait longer, and nothing would be
/// gained.
const CHUNK: usize = 500;
/// How often holds are asked for again whose rows are locked at that moment.
const TRIES: u32 = 4;

/// The connection for renewals and undos.
pub(super) type Background = net::Background<Connector>;

impl Background {
    /// Renews all holds. A row that is locked at the moment is asked for again: an acquire that
    /// finds the lock taken keeps the row locked for one transaction at most.
    pub(super) fn renew(&self, holds: &[Renewal], locks: &Pool) -> Vec<Renewed> {
        let mut outcomes: Vec<Option<Renewed>> = holds.iter().map(|_| None).collect();
        for attempt in 0..TRIES {
            let left: Vec<usize> =
                (0..holds.len()).filter(|&place| outcomes[place].is_none()).collect();
            if left.is_empty() {
                break;
            }
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(u64::from(attempt)));
            }
            self.renew_once(holds, &left, false, &mut outcomes, locks);
        }
        // Each time another transaction had locked the row. Now the renewal waits for it, as the
        // others do: where hundreds of clients ask for one lock, its row is locked nearly all the
        // time. One hold at a time, so that one row does not delay the others.
        let started = Instant::now();
        for place in 0..holds.len() {
            if outcomes[place].is_none() && started.elapsed() < self.connector.io_timeout {
                self.renew_once(holds, &[place], true, &mut outcomes, locks);
            }
        }
        let locked = || {
            Renewed::Failed(Error::new(
                ErrorKind::NotReady,
                "another transaction has locked the row",
            ))
        };
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(locked)).collect()
    }

    /// Renews the holds with these indexes. `waits`: for rows that others have locked.
    fn renew_once(
        &self,
        holds: &[Renewal],
        places: &[usize],
        waits: bool,
        outcomes: &mut [Option<Renewed>],
        locks: &Pool,
    ) {
        let chunks: Vec<&[usize]> = places.chunks(CHUNK).collect();
        let request =
            |chunk: &&[usize]| requests::renew(chunk.iter().map(|&place| &holds[place]), waits);
        let sent: Vec<Request> = chunks.iter().map(request).collect();
        let answers = match self.exchange_all(&sent, locks) {
            Ok(answers) => answers,
            Err(error) => {
                for &place in places {
                    outcomes[place] = Some(Renewed::Failed(error.clone()));
                }
                return;
            }
        };
        for (chunk, answer) in chunks.iter().zip(answers) {
            let rows = answer.rows.map_err(|e| e.to_error());
            let renewed =
                rows.and_then(|rows| requests::renew_answers(&rows, chunk.len(), answer.sent_at));
            match renewed {
                Ok(renewed) => {
                    for (&place, outcome) in chunk.iter().zip(renewed) {
                        outcomes[place] = outcome;
                    }
                }
                Err(error) => {
                    for &place in *chunk {
                        outcomes[place] = Some(Renewed::Failed(error.clone()));
                    }
                }
            }
        }
    }

    /// Ends the backends of requests with unknown outcome, then releases. Of those whose rows
    /// somebody else has locked at the moment only the first waits for its row: renewals wait for
    /// all of this, and would come too late. The others have their turn later.
    pub(super) fn resolve(
        &self,
        undos: &[Undo],
        place_of: impl Fn(&Undo) -> i64,
    ) -> Result<Vec<Resolution>> {
        // Always a new connection: its handshake shows which server process answers.
        let mut connection = self.connect_anew()?;
        let earlier = |undo: &Undo| undo.unknowns.list::<UnknownOutcome>().to_vec();
        let all: Vec<UnknownOutcome> = undos.iter().flat_map(earlier).collect();
        // What another process does never reaches this one.
        let living: Vec<_> =
            all.iter().filter(|unknown| connection.may_have_run(unknown)).collect();
        // No longer than this, because renewals wait for it.
        let patience = self.connector.io_timeout / 2;
        end_sessions::<Connector>(living, patience, |requests| {
            connection.ask_all(requests).map_err(PostgresFailure::into_error)
        })?;
        let is_over =
            |unknown: &UnknownOutcome| unknown.has_ended() || !connection.may_have_run(unknown);
        let mut ready: Vec<bool> =
            undos.iter().map(|undo| earlier(undo).iter().all(is_over)).collect();
        self.leave_out_locked(&mut connection, undos, &mut ready)?;
        let is_ready =
            || undos.iter().zip(&ready).filter(|(_, ready)| **ready).map(|(undo, _)| undo);
        let now = self.connector.server.clock.now();
        let now = || now;
        let release =
            |undo: &Undo, told| requests::release(&undo.release(), place_of(undo), told, &[], now);
        let is_untold = |undo: &&Undo| {
            let release = undo.release();
            // An earlier attempt may have kept the lock, told nobody, and its time may be over.
            let kept = release.kept_until.is_some() && release.left == HoldCounts::NONE;
            kept || are_untold(&undo.unknowns) || requests::is_told_apart(&release, now)
        };
        let tell = |undo: &Undo| requests::tell(std::iter::once(&*undo.name));
        let untold = is_ready().filter(is_untold).map(tell);
        let told = is_ready().map(|undo| release(undo, true)).chain(untold).collect::<Vec<_>>();
        let silent = is_ready().map(|undo| release(undo, false)).collect::<Vec<_>>();
        let mut answers = match free_all(&mut connection, &told, &silent) {
            Ok(answers) => answers,
            Err(PostgresFailure::Unknown { error, .. }) => {
                log::debug!(
                    "{} unknown outcomes cannot be resolved yet: {}",
                    undos.len(),
                    error.chain()
                );
                let resolution =
                    |&ready: &bool| if ready { Resolution::MayHaveRun } else { Resolution::NotYet };
                return Ok(ready.iter().map(resolution).collect());
            }
            Err(PostgresFailure::NotSent(error)) => return Err(error),
        };
        self.put_back_after(connection, &answers);
        let mut answers = answers.drain(..);
        let resolution = |(undo, ready): (&Undo, &bool)| {
            if !*ready {
                return Resolution::NotYet;
            }
            let rows = answers.next().expect("an answer for every request").rows;
            match rows
                .map_err(|e| e.to_error())
                .and_then(|rows| requests::release_answer(&rows, &undo.release(), true))
            {
                Ok(_) => Resolution::Done,
                // Rolled back, because its row was locked for too long.
                Err(error) if error.kind().is_outage() => Resolution::NotYet,
                Err(_) => Resolution::Refused,
            }
        };
        Ok(undos.iter().zip(&ready).map(resolution).collect())
    }

    /// Of the undos whose rows somebody else has locked only the first stays ready.
    fn leave_out_locked(
        &self,
        connection: &mut Connection,
        undos: &[Undo],
        ready: &mut [bool],
    ) -> Result<()> {
        let places: Vec<usize> = (0..undos.len()).filter(|&place| ready[place]).collect();
        if places.len() < 2 {
            return Ok(());
        }
        let names = places.iter().map(|&place| &*undos[place].name.key);
        let answers = connection.ask_all(&[requests::locked(names)]);
        let answer = answers.map_err(PostgresFailure::into_error)?.remove(0);
        let locked = match answer.rows {
            Ok(rows) => requests::locked_answers(&rows, places.len())?,
            // Of the table itself.
            Err(error) if error.is_lock_timeout() => return Err(error.to_error()),
            // The releases say what is wrong.
            Err(_) => return Ok(()),
        };
        let locked =
            places.into_iter().zip(locked).filter_map(|(place, locked)| locked.then_some(place));
        for place in locked.skip(1) {
            ready[place] = false;
        }
        Ok(())
    }
}

/// Sends these requests. Those that failed because nobody can be notified are sent again in the
/// form that notifies nobody, if they have one: the waiters have their timers.
fn free_all(
    connection: &mut Connection,
    told: &[Request],
    silent: &[Request],
) -> std::result::Result<Vec<Answer>, PostgresFailure> {
    let mut answers = connection.ask_all(told)?;
    let is_full =
        |answer: &Answer| answer.rows.as_ref().is_err_and(ServerError::is_full_of_messages);
    let full: Vec<usize> = (0..silent.len()).filter(|&place| is_full(&answers[place])).collect();
    if !full.is_empty() {
        let again: Vec<Request> = full.iter().map(|&place| silent[place].clone()).collect();
        for (place, answer) in full.into_iter().zip(connection.ask_all(&again)?) {
            answers[place] = answer;
        }
    }
    Ok(answers)
}
