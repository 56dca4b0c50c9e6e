//! Several plain locks as one: one transaction, which locks their rows in the order of names before
//! it looks at any of them, and then writes all or none.

use std::collections::{HashMap, HashSet};

use super::kinds::{decisive, release_answer};
use super::requests::{
    self, NOW, hex, insert, kind_of, list, micros, number, span, text, unexpected,
};
use super::shares::{lock_fence, move_fence};
use super::wire::{Answer, Request, Row, ServerError, Set};
use super::{MysqlStore, STEPS};
use crate::base::error::Result;
use crate::base::lock_name::Kind;
use crate::store::database::{LOCKED, another_kind, sorted, waits_for};
use crate::store::{
    AcquireAll, AcquiredAll, MultiStore, Part, Release, Released, TokenRule, UnknownOutcomes,
};

/// What is under the names. Locks nothing.
///
/// Answers for each name: `all`, the name, its holder, what is left of its time, whether it has a
/// fence, its token.
fn look(parts: &[&Part<'_>], all: &str) -> String {
    format!(
        "SELECT {all},name,holder,ends-{NOW},fenced,token FROM leasehold_lock WHERE name IN ({})",
        list(parts.iter().map(|part| &*part.name.key))
    )
}

/// Takes all that the holders do not have yet, and enters the others once more; or none, and then
/// gives up what an earlier run has taken: somebody may have forced one of its locks open.
/// `fenced`: the names that have a fence, whose rows are locked as well.
///
/// Answers (the last statement) as [`look`], with `all` 1: they are taken; 2: a transaction is
/// fenced by this name. Repeat-safe: what the holders have is free for them, levels are set, and
/// the tokens of an earlier run were not told.
fn take(parts: &[&Part<'_>], acquire: &AcquireAll<'_>, fenced: &HashSet<String>) -> Request {
    let end = format!("@now+{}", micros(acquire.lease));
    let has_fence = |part: &Part<'_>| part.held == 0 && fenced.contains(&*part.name.key);
    let of_fences = || parts.iter().filter(|part| has_fence(part)).map(|part| part.name);
    let free: Vec<String> = (0..parts.len()).map(|place| format!("@free{place}")).collect();
    let begin = format!("SET @now={NOW},@bar=NULL,{}=0", free.join("=0,"));
    let fences = of_fences().map(|name| {
        let (lock, name) = (lock_fence(name), hex(&name.key));
        format!("{lock};SET @bar=IF(@bar IS NULL AND @fence IS NULL,{name},@bar)")
    });
    let check = parts.iter().zip(&free).map(|(part, free)| {
        let (name, own) = (hex(&part.name.key), hex(part.holder.as_str()));
        let is_free = match part.held {
            0 => format!(
                "fenced={} AND (holder IS NULL OR ends<=@now OR holder={own})",
                u8::from(has_fence(part))
            ),
            _ => format!("COALESCE(holder={own},0) AND ends>@now"),
        };
        format!("SELECT {is_free} INTO {free} FROM leasehold_lock WHERE name={name} FOR UPDATE")
    });
    // The variable stays a text: a number is found in no index of names.
    let all =
        format!("SET @all=@bar IS NULL AND {};SET @fence=IF(@all,@fence,NULL)", free.join(" AND "));
    let write = parts.iter().map(|part| {
        let (name, own) = (hex(&part.name.key), hex(part.holder.as_str()));
        match part.held {
            0 => format!(
                "UPDATE leasehold_lock SET token=IF(@all,GREATEST(token+1,@now),token),tokens=1,level=@all,\
                 ends=IF(@all,{end},0),holder=IF(@all,{own},NULL) WHERE name={name} AND (@all OR holder={own})"
            ),
            held => format!(
                "UPDATE leasehold_lock SET level={},ends=GREATEST(ends,{end}) WHERE name={name} AND @all",
                held + 1
            ),
        }
    });
    let statements = [begin].into_iter().chain(check).chain(fences).chain([all]).chain(write);
    let look = look(parts, "IF(name<=>@bar,2,@all)");
    Request::transaction(statements.chain(of_fences().map(move_fence)).chain([look]))
}

/// The rows of an answer, by their names.
type Rows<'s> = HashMap<&'s str, &'s Row>;

fn rows(set: &Set) -> Rows<'_> {
    set.rows.iter().filter_map(|row| Some((text(row, 1)?, row))).collect()
}

/// The tokens, if all are taken. One that was held before has none.
fn tokens(rows: &Rows<'_>, acquire: &AcquireAll<'_>) -> Option<Vec<u64>> {
    let token = |part: &Part<'_>| {
        let row = rows.get(&*part.name.key)?;
        let is_new = part.held == 0 && acquire.token != TokenRule::Off;
        let token = number(row, 5).filter(|_| is_new).map_or(0, i64::unsigned_abs);
        (text(row, 0) == Some("1")).then_some(token)
    };
    acquire.parts.iter().map(token).collect()
}

/// Why this one cannot be had; `None`: it can.
fn obstacle(row: Option<&Row>, at: usize, part: &Part<'_>) -> Result<Option<AcquiredAll>> {
    let left = row.map_or(Some(0), |row| number(row, 3)).ok_or_else(|| unexpected("a look"))?;
    let holder = row.and_then(|row| text(row, 2)).filter(|_| left > 0);
    Ok(match holder {
        Some(holder) if holder == part.holder.as_str() => None,
        _ if part.held > 0 => Some(AcquiredAll::Gone { at }),
        Some(holder) if kind_of(holder) != Kind::Mutex => {
            return Err(another_kind().for_name(&part.name.name));
        }
        Some(_) => Some(AcquiredAll::Busy { at, ttl: Some(span(left)) }),
        None if row.and_then(|row| text(row, 0)) == Some("2") => {
            Some(AcquiredAll::Busy { at, ttl: Some(LOCKED) })
        }
        None => None,
    })
}

impl MysqlStore {
    /// A request has waited for a row in vain, or met a deadlock: the name to wait for.
    fn locked_at(&self, acquire: &AcquireAll<'_>, error: &ServerError) -> Result<AcquiredAll> {
        let names = acquire.parts.iter().map(|part| &*part.name.key);
        let look = self.server.ask_freely(&requests::lockable(names))?.all()?;
        let locked = requests::locked(&look);
        let at = waits_for(&acquire.parts, |name| locked.contains(name));
        let at = at.ok_or_else(|| error.to_error())?;
        Ok(AcquiredAll::Busy { at, ttl: Some(LOCKED) })
    }
}

impl MultiStore for MysqlStore {
    /// Whoever waits looks first, as for one lock.
    fn acquire_all(
        &self,
        acquire: &AcquireAll<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<AcquiredAll> {
        let order = sorted(acquire.parts.iter().map(|part| &*part.name.key));
        let parts: Vec<&Part<'_>> = order.iter().map(|&place| &acquire.parts[place]).collect();
        let mut fenced = HashSet::new();
        let takes = !acquire.waits || !unknowns.is_empty();
        let mut request =
            if takes { take(&parts, acquire, &fenced) } else { Request::new(look(&parts, "0")) };
        for _ in 0..STEPS {
            let Answer { sets, sent_at, .. } = self.server.ask(&request, unknowns)?;
            let sets = match sets {
                Err(error) if error.is_contended() && (!error.is_timeout() || acquire.goes_on) => {
                    return self.locked_at(acquire, &error);
                }
                sets => sets.map_err(|e| e.to_error())?,
            };
            let rows = rows(decisive(&sets).ok_or_else(|| unexpected("a multi-lock"))?);
            if let Some(tokens) = tokens(&rows, acquire) {
                unknowns.clear();
                return Ok(AcquiredAll::Granted { tokens, sent_at, session: None });
            }
            for (&at, part) in order.iter().zip(&parts) {
                let row = rows.get(&*part.name.key).copied();
                if let Some(obstacle) = obstacle(row, at, part)? {
                    unknowns.clear();
                    return Ok(obstacle);
                }
                if row.is_none() {
                    self.server.ask_freely(&insert(part.name))?.all()?;
                }
                fenced.extend(
                    row.filter(|row| text(row, 4) == Some("1")).map(|_| part.name.key.to_string()),
                );
            }
            request = take(&parts, acquire, &fenced);
        }
        // Others took some of them and gave them up between all of these steps.
        let at = waits_for(&acquire.parts, |_| false).ok_or_else(|| unexpected("a multi-lock"))?;
        Ok(AcquiredAll::Busy { at, ttl: Some(LOCKED) })
    }

    fn release_all(
        &self,
        releases: &[Release<'_>],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Vec<Result<Released>>> {
        let order = sorted(releases.iter().map(|release| &*release.name.key));
        let now = self.clock.now();
        let statements = order
            .iter()
            .map(|&at| requests::give_up(&releases[at], releases[at].keeps_for(|| now)));
        let answer = self.server.ask(&Request::transaction(statements), unknowns)?;
        let sets = answer.all()?;
        let repeated = !unknowns.is_empty();
        let mut outcomes: Vec<Result<Released>> =
            releases.iter().map(|_| Ok(Released::NotHeld)).collect();
        // Behind the begin of the transaction.
        for (&at, set) in order.iter().zip(sets.get(1..).unwrap_or_default()) {
            let kept = releases[at].keeps_for(|| now).is_some();
            outcomes[at] = Ok(release_answer(set, &releases[at], kept, repeated));
        }
        unknowns.clear();
        Ok(outcomes)
    }
}
