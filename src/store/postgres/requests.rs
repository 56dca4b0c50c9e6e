//! Requests about one lock, and what their answers mean. Each statement is one call of a function
//! in the schema `leasehold_v1`, except those that list what is in the tables.

use std::time::Duration;

use super::wire::{Batching, Request, Row, Statement};
use crate::base::data::HoldData;
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::limits::{IDEMPOTENCY_TTL, TAKEN_TTL};
use crate::base::lock_name::{Kind, LockName};
use crate::store::database::another_kind;
use crate::store::{
    Acquire, Acquired, FenceStatements, Granted, HoldCounts, LastHold, LockStatus, NextUp,
    REMEMBERED, Release, Released, Renewal, Renewed, TokenRule, Waiting,
};

/// The channel of a name. If two names share one, that costs a needless try.
pub(super) fn channel_of(key: &str) -> String {
    format!("leasehold_{:016x}", fnv(key))
}

/// The channel of a client, for its waiters in queues.
pub(super) fn channel_of_client(client_id: &str) -> String {
    format!("leasehold_client_{:016x}", fnv(client_id))
}

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

const NOT_HERE: &str = "no handle of a rate limiter is made, and the record of a job is no lock";
const NOBODY: &str = "nobody holds a latch, or the record of a job";

/// The letter in the column `kind`.
pub(super) fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex | Kind::Fair | Kind::Job => "x",
        Kind::Read | Kind::Write => "r",
        Kind::Semaphore => "s",
        Kind::CountingSemaphore => "c",
        Kind::Latch => "l",
        Kind::RateLimiter | Kind::Done => unreachable!("{NOT_HERE}"),
    }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(ceil_millis(duration)).unwrap_or(i64::MAX)
}

/// What an acquire needs besides its own arguments.
pub(super) struct AcquireContext<'a> {
    /// How long a place in a queue, or the marker of a waiting writer, is kept without another try.
    pub(super) timeout: Duration,
    /// Its place in the queue, if it has one.
    pub(super) place: i64,
    /// The channel of the client.
    pub(super) channel: &'a str,
    /// Marks of counts to be removed.
    pub(super) used_marks: &'a [String],
}

pub(super) fn acquire(request: &Acquire<'_>, waiter: &AcquireContext<'_>) -> Request {
    let Acquire { name, holder, permits, lease, held, tokens, waiting, .. } = *request;
    let waits = waiting != Waiting::No;
    let told = i64::from(waits);
    let kept = if waits { millis(waiter.timeout) } else { 0 };
    let lock = |statement| Request::new(statement).arg(&*name.key).arg(holder.as_str());
    // Of a mutex or a fair lock.
    if let Some(data) = holder.data() {
        let is_fair = name.kind == Kind::Fair;
        return lock(&DATA_ACQUIRE)
            .number(millis(lease))
            .number(held)
            .number(if is_fair { kept } else { told })
            .arg(hex(data.bytes()))
            .flag(is_fair)
            .number(waiter.place)
            .arg(waiter.channel);
    }
    match name.kind {
        Kind::Mutex | Kind::Job => {
            let request =
                lock(&ACQUIRE).number(millis(lease)).number(held).number(told).number(tokens);
            request.batched(Batching::Acquire(&ACQUIRE_IN_BATCH))
        }
        Kind::Fair => lock(&FAIR_ACQUIRE)
            .number(millis(lease))
            .number(held)
            .number(kept)
            .number(waiter.place)
            .arg(waiter.channel),
        Kind::Write => lock(&WRITE_ACQUIRE).number(millis(lease)).number(held).number(kept),
        Kind::Read => lock(&READ_ACQUIRE).number(millis(lease)).number(held).number(told),
        Kind::Semaphore => lock(&PERMIT_ACQUIRE).number(permits).number(millis(lease)).number(told),
        Kind::CountingSemaphore => {
            let (id, marks) = (holder.as_str(), waiter.used_marks);
            count(name, "take", permits.into(), id, TAKEN_TTL, told, marks)
        }
        Kind::Latch | Kind::Done => unreachable!("{NOBODY}"),
        Kind::RateLimiter => unreachable!("{NOT_HERE}"),
    }
}

/// A change of a count; `id` is that of the change, and its mark is kept for `keep`.
pub(super) fn count(
    name: &LockName,
    what: &str,
    number: i64,
    id: &str,
    keep: Duration,
    told: i64,
    used_marks: &[String],
) -> Request {
    let request = Request::new(&COUNT)
        .arg(&*name.key)
        .arg(letter(name.kind))
        .arg(what)
        .number(number)
        .arg(id);
    request.number(millis(keep)).number(told).list(used_marks.iter().map(String::as_str))
}

pub(super) fn acquire_answer(
    rows: &[Row],
    request: &Acquire<'_>,
    sent_at: Moment,
) -> Result<Acquired> {
    let row = one(rows, "an acquire")?;
    let value = integer(row, 1).unwrap_or(0);
    match integer(row, 0) {
        Some(1) => {
            let token = if request.token == TokenRule::Off { 0 } else { value.unsigned_abs() };
            let token = if request.name.kind.is_exclusive() { token } else { 0 };
            let next =
                if request.name.kind.has_queue() { text(row, 3).map(str::to_owned) } else { None };
            Ok(Acquired::Granted(Granted { token, sent_at, session: None, next }))
        }
        Some(0) => Ok(Acquired::Busy { ttl: hint(value) }),
        Some(2) => Ok(Acquired::Gone),
        Some(4) => Ok(Acquired::TooFew { permits: u64::try_from(value).unwrap_or(0) }),
        Some(5) => Err(another_kind()),
        other => Err(unexpected("an acquire", other)),
    }
}

/// How long the lock stays taken.
pub(super) fn hint(millis: i64) -> Option<Duration> {
    let millis = u64::try_from(millis).ok().filter(|millis| *millis > 0)?;
    Some(Duration::from_millis(millis))
}

/// The place in the queue that a waiter was given; 0 for none.
pub(super) fn place_of(rows: &[Row]) -> i64 {
    rows.first().and_then(|row| integer(row, 2)).unwrap_or(0)
}

/// Notifies the waiters of other clients.
pub(super) fn tell<'n>(names: impl Iterator<Item = &'n LockName> + Clone) -> Request {
    let wakes: Vec<String> = names.clone().map(|name| channel_of(&name.key)).collect();
    Request::new(&TELL).list(names.map(|name| &*name.key)).list(wakes.iter().map(String::as_str))
}

/// Whether this release commits synchronously if it is sent now, and so notifies nobody: [`tell`]
/// has to follow.
pub(super) fn is_told_apart(request: &Release<'_>, now: impl FnOnce() -> Moment) -> bool {
    request.name.kind == Kind::CountingSemaphore || request.keeps_for(now).is_some()
}

/// `told`: whether waiters of other clients are notified. `now`: the time at which it is sent.
pub(super) fn release(
    request: &Release<'_>,
    place: i64,
    told: bool,
    used_marks: &[String],
    now: impl FnOnce() -> Moment,
) -> Request {
    let Release { name, holder, permits, left, granted, .. } = *request;
    let wake = if told { channel_of(&name.key) } else { String::new() };
    let lock = |statement| Request::new(statement).arg(&*name.key).arg(holder.as_str());
    if let Some(rest) = request.keeps_for(now) {
        return lock(&KEEP).number(millis(rest));
    }
    match name.kind {
        Kind::Mutex | Kind::Fair if holder.data().is_some() => lock(&DATA_RELEASE)
            .number(left.main)
            .flag(name.kind == Kind::Fair)
            .number(place)
            .arg(wake)
            .flag(granted),
        Kind::Mutex | Kind::Job => {
            lock(&RELEASE).number(left.main).arg(wake).batched(Batching::Release)
        }
        Kind::Fair => lock(&FAIR_RELEASE).number(left.main).number(place).arg(wake),
        Kind::Read | Kind::Write => {
            lock(&RW_RELEASE).number(left.main).number(left.reads).arg(wake)
        }
        Kind::Semaphore => lock(&PERMIT_RELEASE).arg(wake),
        Kind::CountingSemaphore => {
            let what = if granted { "return" } else { "back" };
            count(name, what, permits.into(), holder.as_str(), IDEMPOTENCY_TTL, 0, used_marks)
        }
        Kind::Latch | Kind::Done => unreachable!("{NOBODY}"),
        Kind::RateLimiter => unreachable!("{NOT_HERE}"),
    }
}

/// `repeated`: an earlier attempt of the same release may have run.
pub(super) fn release_answer(
    rows: &[Row],
    request: &Release<'_>,
    repeated: bool,
) -> Result<Released> {
    let row = one(rows, "a release")?;
    // The number of waiters, whether they were notified or not.
    let others = integer(row, 1).and_then(|others| u64::try_from(others).ok());
    let freed = |next| Ok(Released::Freed { listeners: others, next });
    match integer(row, 0) {
        // Permits without leases that were already given back.
        Some(0) if request.name.kind == Kind::CountingSemaphore && request.granted => freed(None),
        // The attempt whose answer was lost has freed it. A release that leaves counts removes no
        // holder: if the holder is missing, an earlier attempt cannot be the reason.
        Some(0) if repeated && request.left == HoldCounts::NONE => freed(None),
        Some(0) => Ok(Released::NotHeld),
        Some(1) => Ok(Released::StillHeld),
        Some(2) if request.name.kind.has_queue() => {
            let told = |holder: &str| NextUp { holder: holder.to_owned(), grant: None };
            freed(text(row, 2).map(told))
        }
        Some(2) => freed(None),
        Some(5) => Err(another_kind()),
        other => Err(unexpected("a release", other)),
    }
}

/// Renews holds of any kind. A lease of zero only checks whether the holder is still there.
/// `waits`: for rows that others have locked.
pub(super) fn renew<'a>(holds: impl Iterator<Item = &'a Renewal> + Clone, waits: bool) -> Request {
    let lease = |hold: &Renewal| if hold.lease.is_zero() { 0 } else { millis(hold.lease) };
    let has_data = holds.clone().any(|hold| hold.holder.data().is_some());
    Request::new(if has_data { &DATA_RENEW } else { &RENEW })
        .list(holds.clone().map(|hold| &*hold.name.key))
        .list(holds.clone().map(|hold| hold.holder.as_str()))
        .numbers(holds.map(lease))
        .flag(waits)
}

/// One answer for each hold; `None`: its row is locked at the moment.
pub(super) fn renew_answers(
    rows: &[Row],
    count: usize,
    sent_at: Moment,
) -> Result<Vec<Option<Renewed>>> {
    let answers = integers(one(rows, "a renewal")?, 0, "a renewal")?;
    if answers.len() != count {
        return Err(unexpected("a renewal", None));
    }
    let outcome = |answer: i64| match answer {
        1 => Ok(Some(Renewed::Held { sent_at, again: false, beside: None, asked: 0 })),
        // Somebody asks for the lock.
        id @ ..=-2 => Ok(Some(Renewed::Held {
            sent_at,
            again: false,
            beside: None,
            asked: id.unsigned_abs(),
        })),
        0 => Ok(Some(Renewed::Gone)),
        2 => Ok(None),
        other => Err(unexpected("a renewal", Some(other))),
    };
    answers.into_iter().map(outcome).collect()
}

/// Which of these names have a row that somebody has locked at the moment.
pub(super) fn locked<'n>(names: impl Iterator<Item = &'n str>) -> Request {
    Request::new(&LOCKED).list(names)
}

/// One answer for each name.
pub(super) fn locked_answers(rows: &[Row], count: usize) -> Result<Vec<bool>> {
    let answers = integers(one(rows, "a look at rows")?, 0, "a look at rows")?;
    if answers.len() != count {
        return Err(unexpected("a look at rows", None));
    }
    Ok(answers.into_iter().map(|answer| answer != 0).collect())
}

pub(super) fn inspect(name: &LockName) -> Request {
    Request::new(&INSPECT).arg(&*name.key)
}

pub(super) fn inspect_answer(rows: &[Row]) -> Result<Option<LockStatus>> {
    let mut holders = Vec::new();
    let mut data = None;
    let mut longest = 0;
    for row in rows {
        let kind = text(row, 0).ok_or_else(|| unexpected("an inspection", None))?;
        let (Some(holder), "x" | "r") = (text(row, 1), kind) else { return Err(another_kind()) };
        let level = integer(row, 2).unwrap_or(0);
        longest = integer(row, 3).unwrap_or(0).max(longest);
        holders.push((holder.to_owned(), level.unsigned_abs()));
        data = data.or(data_in(row, 4));
    }
    let ttl = Some(Duration::from_millis(longest.unsigned_abs()));
    Ok((!holders.is_empty()).then_some(LockStatus { ttl, holders, owners: Vec::new(), data }))
}

pub(super) fn set_data(name: &LockName, holder: &Holder, number: u64, data: &HoldData) -> Request {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    let request = Request::new(&DATA_SET).arg(&*name.key).arg(holder.as_str());
    request.number(number).arg(hex(data.bytes()))
}

pub(super) fn ask_for(name: &LockName) -> Request {
    Request::new(&DATA_ASK).arg(&*name.key)
}

/// False: the holder does not have the lock, or nobody with data has it.
pub(super) fn set_data_answer(rows: &[Row]) -> Result<bool> {
    match integer(one(rows, "a change of data")?, 0) {
        Some(1) => Ok(true),
        Some(0) => Ok(false),
        other => Err(unexpected("a change of data", other)),
    }
}

pub(super) fn last_hold(name: &LockName) -> Request {
    let seconds = i64::try_from(REMEMBERED.as_secs()).expect("an hour");
    Request::new(&DATA_LAST).arg(&*name.key).number(seconds)
}

pub(super) fn last_hold_answer(rows: &[Row]) -> Result<Option<LastHold>> {
    let Some(row) = rows.first() else { return Ok(None) };
    let bad = || unexpected("a question about the last holder", None);
    let ended = integer(row, 2).ok_or_else(bad)?;
    Ok(Some(LastHold {
        holder: text(row, 0).ok_or_else(bad)?.to_owned(),
        data: data_in(row, 1).ok_or_else(bad)?,
        ended: u64::try_from(ended).ok().map(Duration::from_millis),
    }))
}

/// Bytes in the text form of a parameter.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("\\x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// Data in hexadecimal.
pub(super) fn data_in(row: &Row, column: usize) -> Option<HoldData> {
    let digits = text(row, column)?.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect::<Option<Vec<u8>>>().map(|bytes| HoldData::new(&bytes))
}

pub(super) fn force(name: &LockName) -> Request {
    Request::new(&FORCE).arg(&*name.key).arg(letter(name.kind))
}

pub(super) fn force_answer(rows: &[Row]) -> Result<bool> {
    match integer(one(rows, "a forced release")?, 0) {
        Some(1) => Ok(true),
        Some(0) => Ok(false),
        Some(5) => Err(another_kind()),
        other => Err(unexpected("a forced release", other)),
    }
}

pub(super) fn one<'r>(rows: &'r [Row], what: &str) -> Result<&'r Row> {
    match rows {
        [row] => Ok(row),
        _ => Err(unexpected(what, None)),
    }
}

pub(super) fn text(row: &Row, column: usize) -> Option<&str> {
    row.get(column)?.as_deref()
}

pub(super) fn integer(row: &Row, column: usize) -> Option<i64> {
    text(row, column)?.parse().ok()
}

/// An array of numbers in its text form.
pub(super) fn integers(row: &Row, column: usize, what: &str) -> Result<Vec<i64>> {
    let inner = text(row, column).and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
    let inner = inner.ok_or_else(|| unexpected(what, None))?;
    let numbers = inner.split(',').filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().map_err(|_| unexpected(what, None))).collect()
}

#[cold]
pub(super) fn unexpected(what: &str, status: Option<i64>) -> Error {
    let status = status.map_or_else(|| "nothing that fits".to_owned(), |status| status.to_string());
    Error::new(
        ErrorKind::Protocol,
        format!("the functions in leasehold_v1 are of another release: {what} answered {status}"),
    )
}

/// For transactions of users.
pub(super) const FENCE: FenceStatements = FenceStatements {
    at_once: "SELECT leasehold_v1.fence($1, $2)",
    at_commit: "SELECT leasehold_v1.fence_at_commit($1, $2)",
};

/// Gives each statement its number.
macro_rules! statements {
    ($($name:ident = $id:literal: $sql:literal;)*) => {
        $(pub(super) static $name: Statement = Statement { id: $id, sql: $sql };)*

        #[cfg(test)]
        static ALL: &[&Statement] = &[$(&$name),*];
    };
}

statements! {
    ACQUIRE = 0: "SELECT status, value FROM leasehold_v1.acquire($1, $2, $3, $4, $5, $6, true)";
    ACQUIRE_IN_BATCH = 1: "SELECT status, value FROM leasehold_v1.acquire($1, $2, $3, $4, $5, $6, false)";
    RELEASE = 2: "SELECT status, value FROM leasehold_v1.release($1, $2, $3, $4)";
    RENEW = 3: "SELECT leasehold_v1.renew($1, $2, $3, $4)";
    FAIR_ACQUIRE = 4: "SELECT status, value, place, next FROM leasehold_v1.fair_acquire($1, $2, $3, $4, $5, $6, $7)";
    FAIR_RELEASE = 5: "SELECT status, value, next FROM leasehold_v1.fair_release($1, $2, $3, $4, $5)";
    MULTI_ACQUIRE = 6: "SELECT status, value, at, tokens FROM leasehold_v1.multi_acquire($1, $2, $3, $4, $5, $6)";
    MULTI_RELEASE = 7: "SELECT leasehold_v1.multi_release($1, $2, $3, $4, $5)";
    READ_ACQUIRE = 8: "SELECT status, value FROM leasehold_v1.read_acquire($1, $2, $3, $4, $5)";
    WRITE_ACQUIRE = 9: "SELECT status, value FROM leasehold_v1.write_acquire($1, $2, $3, $4, $5)";
    RW_RELEASE = 10: "SELECT status, value FROM leasehold_v1.rw_release($1, $2, $3, $4, $5)";
    PERMIT_ACQUIRE = 11: "SELECT status, value FROM leasehold_v1.permit_acquire($1, $2, $3, $4, $5)";
    PERMIT_RELEASE = 12: "SELECT status, value FROM leasehold_v1.permit_release($1, $2, $3)";
    COUNT = 13: "SELECT status, value FROM leasehold_v1.count($1, $2, $3, $4, $5, $6, $7, $8)";
    INSPECT = 14: "SELECT kind, holder, level, ms, data FROM leasehold_v1.inspect($1)";
    COUNTED = 15: "SELECT status, number, more FROM leasehold_v1.counted($1, $2)";
    QUEUE = 16: "SELECT length, ahead FROM leasehold_v1.queue($1, $2)";
    FORCE = 17: "SELECT leasehold_v1.force($1, $2)";
    SWEEP = 18: "SELECT leasehold_v1.sweep($1, $2)";
    // Process ids are reused; the start time identifies the backend.
    KILL = 19: "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE pid = $1::int AND (extract(epoch FROM backend_start) * 1000000.0)::bigint = $2::bigint";
    IS_THERE = 20: "SELECT count(*) FROM pg_stat_activity \
                    WHERE pid = $1::int AND (extract(epoch FROM backend_start) * 1000000.0)::bigint = $2::bigint";
    KEEP = 21: "SELECT status, value FROM leasehold_v1.keep($1, $2, $3)";
    ANNOUNCE = 22: "SELECT leasehold_v1.announce($1, $2, $3)";
    WITHDRAW = 23: "SELECT leasehold_v1.withdraw($1)";
    ANNOUNCED = 24: "SELECT owner, ms FROM leasehold_v1.announced($1)";
    LIST = 25: "WITH page AS MATERIALIZED (SELECT * FROM leasehold.lock WHERE name >= $1 AND name > $2 ORDER BY name LIMIT $3::bigint) \
                SELECT p.name, 0 AS part, p.kind::text, p.holder, p.level, \
                CASE WHEN p.ends > greatest(p.since, clock_timestamp()) THEN leasehold_v1.ms(p.ends - greatest(p.since, clock_timestamp())) END, \
                p.number, p.token, (p.barred > greatest(p.since, clock_timestamp()))::int, 0::bigint AS place, encode(d.data, 'hex') \
                FROM page p LEFT JOIN leasehold.data d ON d.name = p.name AND d.holder = p.holder \
                UNION ALL SELECT s.name, 1, NULL, s.holder, s.level, leasehold_v1.ms(s.ends - greatest(s.since, clock_timestamp())), NULL, NULL, NULL, 0, NULL \
                FROM page JOIN leasehold.share s USING (name) WHERE s.ends > clock_timestamp() \
                UNION ALL SELECT w.name, 2, NULL, w.holder, 0, leasehold_v1.ms(w.deadline - greatest(w.since, clock_timestamp())), NULL, NULL, NULL, w.place, NULL \
                FROM page JOIN leasehold.waiter w USING (name) WHERE w.deadline > clock_timestamp() \
                ORDER BY name, part, place, holder";
    ANNOUNCED_BY_ALL = 26: "SELECT id, owner, leasehold_v1.ms(ends - clock_timestamp()) FROM leasehold.client \
                            WHERE ends > clock_timestamp() LIMIT $1::bigint";
    TELL = 27: "SELECT leasehold_v1.tell_apart(n, w) FROM unnest($1::text[], $2::text[]) AS t(n, w)";
    // The transaction that has locked the row, if it is not one of a client: those are short. For
    // roles that may not see since when it runs it counts as long.
    ROW_BLOCKER = 28: "SELECT format('the process %s (role %s, application %s%s) has locked the row of %s', \
                       l.pid, a.usename, a.application_name, \
                       ', ' || a.state || ' for ' || round(extract(epoch FROM clock_timestamp() - a.state_change))::text || ' s', \
                       quote_literal(k.name)) \
                       FROM leasehold.lock k JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = k.xmax \
                       LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
                       WHERE k.name = ANY ($1::text[]) AND ($2::bool OR k.holder IS NULL OR k.ends <= clock_timestamp()) \
                       AND coalesce(clock_timestamp() - a.xact_start > current_setting('lock_timeout')::interval, true) LIMIT 1";
    SWEEP_LOCKS = 29: "SELECT leasehold_v1.sweep_locks($1, $2)";
    DATA_ACQUIRE = 30: "SELECT status, value, place, next FROM leasehold_v1.data_acquire($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    DATA_RELEASE = 31: "SELECT status, value, next FROM leasehold_v1.data_release($1, $2, $3, $4, $5, $6, $7)";
    DATA_RENEW = 32: "SELECT leasehold_v1.data_renew($1, $2, $3, $4)";
    DATA_SET = 33: "SELECT leasehold_v1.data_set($1, $2, $3, $4)";
    DATA_LAST = 34: "SELECT holder, data, ms FROM leasehold_v1.data_last($1, $2)";
    DATA_ASK = 35: "SELECT leasehold_v1.data_ask($1)";
    TIME = 36: "SELECT leasehold_v1.micros(clock_timestamp())";
    JOB_LOOK = 37: "SELECT status, value, who, label FROM leasehold_v1.job_look($1, $2, $3)";
    JOB_BEGIN = 38: "SELECT status, value, who FROM leasehold_v1.job_begin($1, $2, $3, $4, $5, $6)";
    JOB_END = 39: "SELECT leasehold_v1.job_end($1, $2, $3, $4, $5, $6)";
    JOB_FORGET = 40: "SELECT leasehold_v1.job_forget($1, $2, $3)";
    LOCKED = 41: "SELECT leasehold_v1.locked($1)";
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
