//! The capabilities that not every store has: several locks as one, queues, counts, data of holds.

use super::PostgresStore;
use super::requests::{self, channel_of, hint, integer, integers, letter, millis, one, unexpected};
use super::requests::{COUNTED, MULTI_ACQUIRE, MULTI_RELEASE, QUEUE};
use super::wire::{Request, ServerError};
use crate::base::data::HoldData;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::base::lock_name::LockName;
use crate::store::database::{LOCKED, another_kind, sorted, waits_for};
use crate::store::{
    AcquireAll, AcquiredAll, Count, CountAnswer, CountStore, DataStore, HoldCounts, LastHold,
    MultiStore, QueueStore, Release, Released, TokenRule, UnknownOutcomes, out_of_range,
};

impl PostgresStore {
    /// A request has waited for a row in vain, and its answer does not contain for which.
    fn locked_at(&self, acquire: &AcquireAll<'_>, error: &ServerError) -> Result<AcquiredAll> {
        let keys: Vec<&str> = acquire.parts.iter().map(|part| &*part.name.key).collect();
        self.ensure_contended(error, &keys, acquire.goes_on)?;
        let look = requests::locked(keys.iter().copied()).urgent();
        let rows = self.server.ask_freely(&look)?.rows.map_err(|e| e.to_error())?;
        let locked = requests::locked_answers(&rows, keys.len())?;
        let is_locked =
            |key: &str| keys.iter().zip(&locked).any(|(k, locked)| *locked && *k == key);
        let at = waits_for(&acquire.parts, is_locked).ok_or_else(|| self.refused(error, &keys))?;
        Ok(AcquiredAll::Busy { at, ttl: Some(LOCKED) })
    }
}

impl MultiStore for PostgresStore {
    fn acquire_all(
        &self,
        acquire: &AcquireAll<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<AcquiredAll> {
        let AcquireAll { parts, lease, token, waits, .. } = acquire;
        let order = sorted(parts.iter().map(|part| &*part.name.key));
        let request = |again: bool| {
            Request::new(&MULTI_ACQUIRE)
                .list(order.iter().map(|&place| &*parts[place].name.key))
                .list(order.iter().map(|&place| parts[place].holder.as_str()))
                .numbers(order.iter().map(|&place| i64::from(parts[place].held)))
                .number(millis(*lease))
                .number(i64::from(*waits))
                .arg(if again { "true" } else { "false" })
        };
        let answer = self.server.ask_with(request, unknowns)?;
        let rows = match answer.rows {
            Ok(rows) => rows,
            Err(error) if error.is_lock_timeout() => return self.locked_at(acquire, &error),
            Err(error) => return Err(error.to_error()),
        };
        let row = one(&rows, "a multi-lock")?;
        // The first one has number 1.
        let at = integer(row, 2)
            .and_then(|at| usize::try_from(at - 1).ok())
            .and_then(|at| order.get(at).copied());
        let at = || at.ok_or_else(|| unexpected("a multi-lock", None));
        let acquired = match integer(row, 0) {
            Some(1) => {
                let granted = integers(row, 3, "a multi-lock")?;
                if granted.len() != order.len() {
                    return Err(unexpected("a multi-lock", Some(1)));
                }
                let mut tokens = vec![0; order.len()];
                if *token != TokenRule::Off {
                    for (&place, token) in order.iter().zip(granted) {
                        tokens[place] = token.unsigned_abs();
                    }
                }
                AcquiredAll::Granted { tokens, sent_at: answer.sent_at, session: None }
            }
            Some(0) => AcquiredAll::Busy { at: at()?, ttl: hint(integer(row, 1).unwrap_or(0)) },
            Some(2) => AcquiredAll::Gone { at: at()? },
            Some(5) => return Err(another_kind().for_name(&parts[at()?].name.name)),
            other => return Err(unexpected("a multi-lock", other)),
        };
        // Not after an error: earlier attempts may still have taken the locks.
        unknowns.clear();
        Ok(acquired)
    }

    fn release_all(
        &self,
        releases: &[Release<'_>],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Vec<Result<Released>>> {
        let order = sorted(releases.iter().map(|release| &*release.name.key));
        let wakes: Vec<String> =
            order.iter().map(|&place| channel_of(&releases[place].name.key)).collect();
        let now = self.clock.now();
        let kept = |place: usize| releases[place].keeps_for(|| now).map_or(0, millis);
        // One that stays taken makes the commit synchronous.
        let keeps = order.iter().any(|&place| kept(place) > 0);
        let silent = || vec![String::new(); wakes.len()];
        let request = |wakes: &[String]| {
            Request::new(&MULTI_RELEASE)
                .list(order.iter().map(|&place| &*releases[place].name.key))
                .list(order.iter().map(|&place| releases[place].holder.as_str()))
                .numbers(order.iter().map(|&place| i64::from(releases[place].left.main)))
                .numbers(order.iter().map(|&place| kept(place)))
                .list(wakes.iter().map(String::as_str))
        };
        let first = if keeps { silent() } else { wakes.clone() };
        let mut answer = self.server.ask(&request(&first), unknowns)?;
        if answer.rows.as_ref().is_err_and(super::wire::ServerError::is_full_of_messages) {
            answer = self.server.ask(&request(&silent()), unknowns)?;
        }
        let repeated = !unknowns.is_empty();
        let keys = || releases.iter().map(|release| &*release.name.key).collect::<Vec<_>>();
        let rows = answer.rows.map_err(|e| self.refused(&e, &keys()))?;
        let answers = integers(one(&rows, "a release")?, 0, "a release")?;
        if answers.len() != order.len() {
            return Err(unexpected("a release", None));
        }
        unknowns.clear();
        if keeps {
            let left = releases.iter().filter(|release| release.left == HoldCounts::NONE);
            self.tell_all(left.map(|release| release.name));
        }
        let mut outcomes: Vec<Result<Released>> =
            releases.iter().map(|_| Ok(Released::NotHeld)).collect();
        for (&place, answer) in order.iter().zip(answers) {
            outcomes[place] = match answer {
                0 if repeated && releases[place].left == HoldCounts::NONE => {
                    Ok(Released::Freed { listeners: None, next: None })
                }
                0 => Ok(Released::NotHeld),
                1 => Ok(Released::StillHeld),
                2 => Ok(Released::Freed { listeners: None, next: None }),
                other => Err(unexpected("a release", Some(other))),
            };
        }
        Ok(outcomes)
    }
}

impl DataStore for PostgresStore {
    fn set_data(
        &self,
        name: &LockName,
        holder: &Holder,
        number: u64,
        data: &HoldData,
    ) -> Result<bool> {
        let answer = self.server.ask_freely(&requests::set_data(name, holder, number, data))?;
        requests::set_data_answer(&answer.rows.map_err(|e| self.refused(&e, &[&name.key]))?)
    }

    fn ask_for(&self, name: &LockName) -> Result<bool> {
        let answer = self.server.ask_freely(&requests::ask_for(name))?;
        requests::set_data_answer(&answer.rows.map_err(|e| self.refused(&e, &[&name.key]))?)
    }

    fn last_hold(&self, name: &LockName) -> Result<Option<LastHold>> {
        let answer = self.server.ask_freely(&requests::last_hold(name))?;
        requests::last_hold_answer(&answer.rows.map_err(|e| e.to_error())?)
    }
}

impl QueueStore for PostgresStore {
    fn queue_of(&self, name: &LockName, _client: &str) -> Result<(usize, Option<usize>)> {
        let request = Request::new(&QUEUE).arg(&*name.key).arg(&*self.channel);
        let rows = self.server.ask_freely(&request)?.rows.map_err(|e| e.to_error())?;
        let row = one(&rows, "a look at a queue")?;
        let number = |column| integer(row, column).and_then(|number| usize::try_from(number).ok());
        Ok((number(0).unwrap_or(0), number(1)))
    }
}

impl CountStore for PostgresStore {
    fn count(
        &self,
        name: &LockName,
        change: Count,
        id: &str,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<CountAnswer> {
        let (what, number) = match change {
            Count::Set(count) => ("begin", count.into()),
            Count::Add(more) => ("add", more),
            Count::Down => ("down", 1),
            Count::Delete => ("drop", 0),
        };
        let used = self.used_marks.take();
        let request = requests::count(name, what, number, id, IDEMPOTENCY_TTL, 0, &used);
        let answer = self.server.ask(&request, unknowns)?;
        let rows = answer.rows.map_err(|e| self.refused(&e, &[&name.key]))?;
        let row = one(&rows, "a count")?;
        let value = integer(row, 1).unwrap_or(0);
        let answer = match integer(row, 0) {
            Some(status @ (0 | 1)) => CountAnswer { done: status == 1, value },
            Some(2) => {
                // An undo has marked the id as used: this change must not run any more.
                let why = "the change was given up before: it did not run";
                return Err(Error::new(ErrorKind::Unreachable, why));
            }
            Some(5) => return Err(another_kind()),
            Some(7) => return Err(out_of_range(value)),
            other => return Err(unexpected("a count", other)),
        };
        unknowns.clear();
        self.used_marks.add(id);
        let gives = match change {
            Count::Set(_) | Count::Delete => true,
            Count::Add(more) => more > 0,
            Count::Down => answer.value == 0,
        };
        if answer.done && gives {
            self.tell(name);
        }
        Ok(answer)
    }

    fn counted(&self, name: &LockName) -> Result<(i64, i64)> {
        let request = Request::new(&COUNTED).arg(&*name.key).arg(letter(name.kind));
        let rows = self.server.ask_freely(&request)?.rows.map_err(|e| e.to_error())?;
        let row = one(&rows, "a count")?;
        match integer(row, 0) {
            Some(1) => Ok((integer(row, 1).unwrap_or(0), integer(row, 2).unwrap_or(0))),
            Some(5) => Err(another_kind()),
            other => Err(unexpected("a count", other)),
        }
    }
}
