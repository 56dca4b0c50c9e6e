//! The statements about one who has a lock alone, and what their answers mean. Each says why it may
//! run twice: an answer can be lost at any moment, and the request is then repeated with the same
//! holder.
//!
//! All values in them are numbers and hexadecimal literals, so that neither `sql_mode` nor a
//! character set matters. `{NOW}` is the start of the statement, also after it has waited for a
//! row: an end is never seen too early, and a grant ends no later than the client counts.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::wire::{Request, Row, Set};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::store::database::another_kind;
use crate::store::{Acquire, Acquired, FenceStatements, Release, Renewal, Renewed};

/// Microseconds since 1970, in UTC whatever the time zone is.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

pub(super) fn hex(text: &str) -> String {
    let mut literal = String::with_capacity(3 + 2 * text.len());
    literal.push_str("x'");
    for byte in text.bytes() {
        let _ = write!(literal, "{byte:02x}");
    }
    literal.push('\'');
    literal
}

pub(super) fn micros(time: Duration) -> u64 {
    let micros = time.as_nanos().div_ceil(1000);
    // So that the sum with the time of day is still a BIGINT.
    u64::try_from(micros).unwrap_or(u64::MAX).min(1 << 60)
}

/// What the column `holder` says while this holder has the lock, or has a share in it.
pub(super) fn in_row(kind: Kind, holder: &str) -> String {
    match kind {
        Kind::Read => READERS.to_owned(),
        Kind::Semaphore => PERMITS.to_owned(),
        Kind::Write => format!("{holder}{WRITER}"),
        _ => holder.to_owned(),
    }
}

/// Some read.
pub(super) const READERS: &str = "~r";
/// It is a semaphore, also while nobody has a permit.
pub(super) const PERMITS: &str = "~s";
/// How the holder of a write lock ends in its row.
pub(super) const WRITER: &str = ":write";

/// What a taken row is used for.
pub(super) fn kind_of(holder: &str) -> Kind {
    match holder {
        READERS => Kind::Read,
        PERMITS => Kind::Semaphore,
        _ if holder.ends_with(WRITER) => Kind::Write,
        _ => Kind::Mutex,
    }
}

/// What an acquire does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The lock is probably free, and never fenced.
    Take,
    /// The lock is free, and a transaction may have fenced it.
    TakeFenced,
    Look,
    Insert,
    /// Keeps new readers out: they have the lock for so long.
    Bar(Duration),
}

/// Takes a lock that is free, has ended, or is the holder's already. One statement, so it decides
/// and writes under the lock of the row; it is not for a name with a fence, whose row has to be
/// written as well.
///
/// Answers: the rows that it took (0: look why), and the token in `LAST_INSERT_ID`.
/// Repeat-safe: a repeat takes the lock again, with a higher token; the earlier one was not told.
pub(super) fn take(acquire: &Acquire<'_>) -> String {
    let (name, set, free) = (hex(&acquire.name.key), grant(acquire, ""), is_free(acquire, ""));
    format!("UPDATE leasehold_lock SET {set} WHERE name={name} AND fenced=0 AND {free}")
}

/// [`take`], for a name that was fenced once: see [`pass_fence`](super::shares::pass_fence). While
/// a fenced transaction is open it finds nothing, and waits for nobody.
pub(super) fn take_fenced(acquire: &Acquire<'_>) -> String {
    let (set, free) = (grant(acquire, "l."), is_free(acquire, "l."));
    let tokens = acquire.tokens;
    let token = token_after("l.", tokens);
    format!(
        "UPDATE leasehold_fence f STRAIGHT_JOIN leasehold_lock l ON l.name=f.name \
         SET f.token={token},f.tokens={tokens},{set} WHERE f.name=@fence AND {free}"
    )
}

fn token_after(table: &str, tokens: u32) -> String {
    format!("GREATEST({table}token+1,{NOW})+{}", tokens.saturating_sub(1))
}

/// The token comes from the row as it was: it is assigned first.
fn grant(acquire: &Acquire<'_>, table: &str) -> String {
    let Acquire { holder, lease, tokens, .. } = *acquire;
    let holder = hex(&in_row(acquire.name.kind, holder.as_str()));
    let token = token_after(table, tokens);
    format!(
        "{table}token=LAST_INSERT_ID({token}),{table}tokens={tokens},{table}holder={holder},{table}level=1,\
         {table}ends={NOW}+{}",
        micros(lease)
    )
}

fn is_free(acquire: &Acquire<'_>, table: &str) -> String {
    let holder = hex(&in_row(acquire.name.kind, acquire.holder.as_str()));
    format!("({table}holder IS NULL OR {table}ends<={NOW} OR {table}holder={holder})")
}

/// Enters a hold once more. Answers 1 row, or 0: it is gone. Repeat-safe: the level is set.
pub(super) fn reenter(acquire: &Acquire<'_>) -> String {
    let Acquire { name, holder, lease, held, .. } = *acquire;
    format!(
        "UPDATE leasehold_lock SET level={},ends=GREATEST(ends,{NOW}+{}) WHERE name={} AND holder={} AND ends>{NOW};\
         SELECT token FROM leasehold_lock WHERE name={2}",
        held + 1,
        micros(lease),
        hex(&name.key),
        hex(&in_row(name.kind, holder.as_str())),
    )
}

/// Answers who has the lock, what is left of its time, and whether it has a fence. Locks nothing.
pub(super) fn look(name: &LockName) -> String {
    let name = hex(&name.key);
    format!("SELECT holder,ends-{NOW},fenced FROM leasehold_lock WHERE name={name}")
}

/// Makes the row of a name, once in its life. Repeat-safe: a row that exists stays as it is.
pub(super) fn insert(name: &LockName) -> Request {
    Request::new(format!("INSERT IGNORE INTO leasehold_lock (name) VALUES ({})", hex(&name.key)))
}

/// What an acquire knows after the answer to one of its steps.
pub(super) enum Stepped {
    Next(Step),
    Done(Acquired),
}

pub(super) fn busy(left: Duration) -> Stepped {
    Stepped::Done(Acquired::Busy { ttl: Some(left) })
}

/// What a look at a plain lock says.
pub(super) fn look_answer(row: Option<&Row>, request: &Acquire<'_>) -> Result<Stepped> {
    let Some(row) = row else { return Ok(Stepped::Next(Step::Insert)) };
    let left = number(row, 1).ok_or_else(|| unexpected("a look"))?;
    let holder = text(row, 0);
    let is_free = left <= 0 || holder.is_none_or(|it| it == request.holder.as_str());
    Ok(match (is_free, text(row, 2)) {
        (false, _) if holder.map(kind_of) != Some(Kind::Mutex) => return Err(another_kind()),
        (false, _) => busy(span(left)),
        (true, Some("0")) => Stepped::Next(Step::Take),
        (true, _) => Stepped::Next(Step::TakeFenced),
    })
}

/// Gives up a hold, or all but some of its levels. `rest`: for how long the lock stays taken, under
/// another holder, so that a late request of this one finds nothing.
///
/// Answers the rows that it found. Repeat-safe: a repeat finds no such holder; that of a kept lock
/// only makes it end sooner. `ends` is assigned before the holder that it depends on.
pub(super) fn give_up(request: &Release<'_>, rest: Option<Duration>) -> String {
    let Release { name, holder, left, .. } = *request;
    let in_row = |holder: &str| hex(&in_row(name.kind, holder));
    let (own, kept) = (in_row(holder.as_str()), in_row(holder.kept().as_str()));
    let name = hex(&name.key);
    if let Some(rest) = rest {
        let end = format!("{NOW}+{}", micros(rest));
        format!(
            "UPDATE leasehold_lock SET ends=IF(holder={own},{end},LEAST(ends,{end})),holder={kept},level=1 \
             WHERE name={name} AND holder IN ({own},{kept}) AND ends>{NOW}"
        )
    } else if left.main > 0 {
        let level = left.main;
        format!(
            "UPDATE leasehold_lock SET level={level} WHERE name={name} AND holder={own} AND ends>{NOW}"
        )
    } else {
        format!("UPDATE leasehold_lock SET holder=NULL,level=0 WHERE name={name} AND holder={own}")
    }
}

/// Extends a hold, or only checks it if its lease is zero. Answers 1 row, or 0: it is gone.
/// Repeat-safe: an end never moves back.
pub(super) fn renew(hold: &Renewal) -> String {
    format!(
        "UPDATE leasehold_lock SET ends=GREATEST(ends,{NOW}+{}) WHERE name={} AND holder={} AND ends>{NOW}",
        micros(hold.lease),
        hex(&hold.name.key),
        hex(hold.holder.as_str())
    )
}

/// Which of these rows exist, and which of those nobody has locked at the moment; it waits for
/// none.
pub(super) fn lockable<'n>(names: impl Iterator<Item = &'n str>) -> Request {
    let which = format!("SELECT name FROM leasehold_lock WHERE name IN ({})", list(names));
    Request::new(format!("{which};{which} ORDER BY name FOR UPDATE SKIP LOCKED"))
}

/// The answer to [`lockable`]: the names of those rows that somebody has locked.
pub(super) fn locked(sets: &[Set]) -> HashSet<String> {
    let names = |set: usize| {
        let rows = sets.get(set).map_or(&[][..], |set| &set.rows);
        rows.iter().filter_map(|row| text(row, 0)).map(str::to_owned).collect::<HashSet<_>>()
    };
    &names(0) - &names(1)
}

pub(super) fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(hex).collect::<Vec<_>>().join(",")
}

pub(super) fn renewed(set: &Set, sent_at: Moment) -> Renewed {
    match set.affected {
        0 => Renewed::Gone,
        _ => Renewed::Held { sent_at, again: false, beside: None, asked: 0 },
    }
}

/// Frees a lock, whoever has it. Answers 1 row, or 0: it is free, or of another kind. Not
/// repeat-safe: a repeat could free it for the next holder.
pub(super) fn force(name: &LockName) -> Request {
    Request::new(format!(
        "UPDATE leasehold_lock SET holder=NULL,level=0 WHERE name={} AND holder IS NOT NULL AND ends>{NOW} \
         AND LEFT(holder,1)<>'~' AND RIGHT(holder,6)<>{}",
        hex(&name.key),
        hex(WRITER)
    ))
}

/// Which of these names are taken, for those that wait for them; and if several may have it, a
/// number that another one has left since it was read the last time.
pub(super) fn poll<'n>(names: impl Iterator<Item = &'n str>) -> Request {
    Request::new(format!(
        "SELECT name,token,LEFT(holder,1)='~' FROM leasehold_lock WHERE name IN ({}) AND holder IS NOT NULL AND ends>{NOW}",
        list(names)
    ))
}

/// Whether the name has the row that a fence locks.
pub(super) fn is_fenced(name: &LockName) -> Request {
    Request::new(format!("SELECT fenced FROM leasehold_lock WHERE name={}", hex(&name.key)))
}

/// Makes that row, with the tokens of the last grant. The row of the lock is written first, so no
/// grant is under way meanwhile, and every later one sees that there is a fence: the row of the
/// fence never has an older token than the lock.
/// Repeat-safe: a name that is fenced already is left alone.
pub(super) fn make_fence(name: &LockName) -> Request {
    let name = hex(&name.key);
    let statements = [
        format!("UPDATE leasehold_lock SET fenced=1 WHERE name={name} AND fenced=0"),
        "SET @leasehold=ROW_COUNT()".to_owned(),
        format!(
            "REPLACE INTO leasehold_fence (name,token,tokens) SELECT name,token,tokens FROM leasehold_lock \
             WHERE name={name} AND @leasehold=1"
        ),
    ];
    Request::transaction(statements.into_iter())
}

/// For transactions of users: see the procedure.
pub(super) const FENCE: FenceStatements = FenceStatements {
    at_once: "CALL leasehold_fence(?, ?)",
    at_commit: "CALL leasehold_fence(?, ?)",
};

/// Ends the session that has the mark. It may be gone already.
pub(super) fn kill(mark: &str) -> Request {
    Request::to_any(format!("KILL CONNECTION IS_USED_LOCK('{mark}')"))
}

/// Whether nobody has the mark any more.
pub(super) fn is_gone(mark: &str) -> Request {
    Request::to_any(format!("SELECT GET_LOCK('{mark}',0),RELEASE_LOCK('{mark}')"))
}

pub(super) fn text(row: &Row, column: usize) -> Option<&str> {
    row.get(column)?.as_deref()
}

pub(super) fn number(row: &Row, column: usize) -> Option<i64> {
    text(row, column)?.parse().ok()
}

pub(super) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cold]
pub(super) fn unexpected(what: &str) -> Error {
    let why = format!("the tables of leasehold are of another release: {what} has another answer");
    Error::new(ErrorKind::Protocol, why)
}
