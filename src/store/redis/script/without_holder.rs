//! Scripts of what has no holder: latches, the number of a semaphore's permits, and fenced values
//! (claim with a token, write under a claim).

use super::{
    COUNT_ADD, COUNT_SET, FENCE_CLAIM, FENCE_WRITE, LATCH_COUNT_DOWN, LATCH_DELETE, LATCH_LOOK,
    PERMIT_COUNT, PERMIT_DELETE, fail_on_error, pair, unexpected,
};
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::base::lock_name::{Kind, LockName};
use crate::store::redis::keys::RedisKeys;
use crate::store::redis::wire::{Reply, Request, Shape};
use crate::store::{Count, CountAnswer, FenceAnswer, out_of_range};

/// The script stores its reply under `id`, so that a repeat does nothing.
pub(crate) fn count(name: &LockName, change: Count, id: &str) -> Request {
    let keys = RedisKeys::of(name);
    let (lock, answer, kept) =
        (keys.lock.as_bytes(), keys.idempotency_key(id), ceil_millis(IDEMPOTENCY_TTL));
    let names = [lock, answer.as_bytes()];
    let opened = keys.opened();
    match change {
        Count::Set(n) => {
            let request = Request::script(&COUNT_SET, &names)
                .number(u64::from(n))
                .number(kept)
                .arg(keys.channel);
            // The message: 1 for a latch's waiters, the number of permits for a semaphore's.
            if name.kind == Kind::Latch { request.number(1) } else { request.number(u64::from(n)) }
        }
        Count::Add(n) => {
            Request::script(&COUNT_ADD, &names).arg(n.to_string()).number(kept).arg(keys.channel)
        }
        Count::Down => {
            let names = [lock, answer.as_bytes(), opened.as_bytes()];
            Request::script(&LATCH_COUNT_DOWN, &names).number(kept).arg(keys.channel)
        }
        Count::Delete if name.kind == Kind::Latch => {
            let names = [lock, answer.as_bytes(), opened.as_bytes()];
            Request::script(&LATCH_DELETE, &names).number(kept).arg(keys.channel)
        }
        Count::Delete => {
            // A counting semaphore has no leases, and a key of that name does not belong to
            // leasehold. Its idempotency key, which does not exist yet, is passed instead.
            let leases = if name.kind == Kind::Semaphore { keys.leases() } else { answer.clone() };
            let names = [lock, leases.as_bytes(), answer.as_bytes()];
            Request::script(&PERMIT_DELETE, &names).number(kept).arg(keys.channel)
        }
    }
    .with_limit()
}

pub(crate) fn count_answer(reply: Reply) -> Result<CountAnswer> {
    match pair(reply, "a change of a count")? {
        (0, value) => Ok(CountAnswer { done: false, value }),
        (1, value) => Ok(CountAnswer { done: true, value }),
        (5, value) => Err(out_of_range(value)),
        other => Err(unexpected("a change of a count", &format!("{other:?}"))),
    }
}

/// Asks for the count: what is left or free, and what is held (for a latch: when it was last
/// opened).
pub(crate) fn count_question(name: &LockName) -> Request {
    let keys = RedisKeys::of(name);
    match name.kind {
        Kind::Semaphore => {
            Request::script(&PERMIT_COUNT, &[keys.lock.as_bytes(), keys.leases().as_bytes()])
                .arg(keys.channel)
        }
        Kind::Latch => {
            Request::script(&LATCH_LOOK, &[keys.lock.as_bytes(), keys.opened().as_bytes()])
        }
        _ => Request::plain(&["GET", keys.lock]).answered_by(Shape::Text),
    }
}

pub(crate) fn question_answer(reply: Reply) -> Result<(i64, i64)> {
    let not_a_number = || {
        Error::new(
            ErrorKind::WrongType,
            "the key under this name holds something that is not a count",
        )
    };
    match fail_on_error(reply)? {
        Reply::Nil => Ok((0, 0)),
        Reply::Bytes(text) => {
            let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
            Ok((number.ok_or_else(not_a_number)?, 0))
        }
        Reply::Pair(free, held) => Ok((free, held)),
        other => Err(unexpected("a question about a count", &format!("{other:?}"))),
    }
}

pub(crate) fn fence_claim(key: &str, token: u64) -> Request {
    Request::script(&FENCE_CLAIM, &[key.as_bytes()]).number(token)
}

pub(crate) fn fence_write(key: &str, token: u64, value: &[u8]) -> Request {
    Request::script(&FENCE_WRITE, &[key.as_bytes()]).number(token).arg(value)
}

pub(crate) fn fence_answer(reply: Reply) -> Result<FenceAnswer> {
    let Some(parts) = fail_on_error(reply)?.into_list() else {
        return Err(unexpected("a fenced request", "no list"));
    };
    let mut parts = parts.into_iter();
    let status = parts.next();
    let value = parts.next();
    let value = if let Some(Reply::Bytes(bytes)) = value { Some(bytes) } else { None };
    match status {
        Some(Reply::Int(1)) => Ok(FenceAnswer::Accepted(value)),
        Some(Reply::Int(0)) => Ok(FenceAnswer::Refused {
            standing: value.and_then(|v| String::from_utf8(v).ok()).and_then(|v| v.parse().ok()),
        }),
        other => Err(unexpected("a fenced request", &format!("{other:?}"))),
    }
}
