//! Which statements a request is for each kind of lock, and what their answers mean.

use std::time::Duration;

use super::requests::{self, Step, Stepped, busy, number, unexpected};
use super::shares;
use super::wire::{Request, Set};
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{Acquire, Acquired, Granted, HoldCounts, Release, Released, Renewal, TokenRule};

/// `bar`: for how long a writer that waits keeps new readers out without another try.
pub(super) fn acquire(acquire: &Acquire<'_>, step: &Step, bar: Duration) -> Request {
    let kind = acquire.name.kind;
    let is_fenced = *step == Step::TakeFenced;
    Request::new(match step {
        _ if acquire.held > 0 && kind == Kind::Read => shares::reenter(acquire),
        _ if acquire.held > 0 => requests::reenter(acquire),
        Step::Take | Step::TakeFenced => match kind {
            Kind::Read => return shares::read(acquire, is_fenced),
            Kind::Write => return shares::write(acquire, is_fenced),
            Kind::Semaphore => return shares::permits(acquire),
            _ if is_fenced => {
                return Request::transaction(shares::pass_fence(acquire).into_iter());
            }
            _ => requests::take(acquire),
        },
        Step::Look if kind != Kind::Mutex => shares::look(acquire.name, acquire.holder.as_str()),
        Step::Look => requests::look(acquire.name),
        Step::Insert => return requests::insert(acquire.name),
        Step::Bar(_) => shares::bar(acquire, bar),
    })
}

/// The answer that decides: of a transaction that of the last statement before its end, otherwise
/// that of the one statement.
pub(super) fn decisive(sets: &[Set]) -> Option<&Set> {
    sets.get(sets.len().saturating_sub(2))
}

pub(super) fn acquire_answer(
    sets: &[Set],
    request: &Acquire<'_>,
    step: &Step,
    bar: Duration,
    sent_at: Moment,
) -> Result<Stepped> {
    let set = decisive(sets).ok_or_else(|| unexpected("an acquire"))?;
    let kind = request.name.kind;
    let granted = |last: u64| {
        let first = last.saturating_sub(u64::from(request.tokens.saturating_sub(1)));
        let has_token = request.token != TokenRule::Off && kind.is_exclusive();
        let token = if has_token { first } else { 0 };
        Stepped::Done(Acquired::Granted(Granted { token, sent_at, session: None, next: None }))
    };
    if request.held > 0 {
        let token = sets.get(1).and_then(|set| number(set.rows.first()?, 0));
        return Ok(match (sets[0].affected, token) {
            (1.., Some(token)) => granted(token.unsigned_abs()),
            _ => Stepped::Done(Acquired::Gone),
        });
    }
    Ok(match step {
        Step::Take | Step::TakeFenced => {
            let written = set.rows.first().and_then(|row| number(row, 0)).map(i64::unsigned_abs);
            match written.or((set.affected > 0).then_some(set.id)) {
                Some(token) => granted(token),
                None => Stepped::Next(Step::Look),
            }
        }
        Step::Insert => Stepped::Next(Step::Take),
        Step::Look if kind != Kind::Mutex => shares::look_answer(set.rows.first(), request)?,
        Step::Look => requests::look_answer(set.rows.first(), request)?,
        // It asks again before the others have forgotten it.
        Step::Bar(left) => busy((*left).min(bar / 3)),
    })
}

/// Gives up a hold, or all but some of its levels.
pub(super) fn release(request: &Release<'_>, now: impl FnOnce() -> Moment) -> Request {
    let kept = request.keeps_for(now);
    match request.name.kind {
        Kind::Semaphore => shares::give_back(request),
        Kind::Read | Kind::Write if request.left.main == 0 && kept.is_none() => {
            shares::leave(request)
        }
        _ => Request::new(requests::give_up(request, kept)),
    }
}

/// `kept`: the request left the lock taken. `repeated`: an earlier attempt of the same release may
/// have run.
pub(super) fn release_answer(
    set: &Set,
    request: &Release<'_>,
    kept: bool,
    repeated: bool,
) -> Released {
    let freed = Released::Freed { listeners: None, next: None };
    let leaves_nothing = request.left == HoldCounts::NONE;
    // Of a read-write lock: whether it was held, and is free for others now.
    let said = set.rows.first().map(|row| [0, 1].map(|column| number(row, column) == Some(1)));
    let [was_held, is_free] = said.unwrap_or([set.affected > 0, leaves_nothing && !kept]);
    match (was_held, is_free) {
        (false, _) if repeated && leaves_nothing => freed,
        (false, _) => Released::NotHeld,
        (true, false) => Released::StillHeld,
        (true, true) => freed,
    }
}

/// Extends a hold, or only checks it if its lease is zero. Answers rows, or 0: it is gone.
pub(super) fn renew(hold: &Renewal) -> String {
    if is_shared(hold.name.kind) { shares::renew(hold) } else { requests::renew(hold) }
}

/// Frees a lock, whoever has it. Decisive is 1 row, or 0: it is free, or of another kind.
pub(super) fn force(name: &LockName) -> Request {
    if is_shared(name.kind) { shares::force(name) } else { requests::force(name) }
}

/// Whether a hold may be a share: that of a writer may have become one by a downgrade.
fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Write | Kind::Semaphore)
}
