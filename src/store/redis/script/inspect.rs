//! Scripts for operators: who holds a lock, who waits for it, and freeing it by force.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{
    CLIENT_ENTER, CLIENT_LOOK, FAIR_FORCE_UNLOCK, FAIR_QUEUE, MUTEX_FORCE_UNLOCK, MUTEX_INSPECT,
    RW_FORCE_UNLOCK, fail_on_error, look::looks_like_a_holder, pair, unexpected,
};
use crate::base::advice::Advice;
use crate::base::data::HoldData;
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::{Kind, LockName};
use crate::store::redis::keys::{CLIENT_INDEX, RedisKeys, client_key};
use crate::store::redis::wire::{Reply, Request};
use crate::store::{Announced, LockStatus};

pub(crate) fn inspect(name: &LockName) -> Request {
    let keys = RedisKeys::of(name);
    Request::script(&MUTEX_INSPECT, &[keys.lock.as_bytes(), keys.data().as_bytes()])
}

/// As in `lib/holder.lua`: the scripts that free a lock by force refuse what is no hold.
const HOLD_COUNTS: RangeInclusive<u64> = 1..=9999;

/// `None`: the lock is free.
pub(crate) fn inspect_answer(reply: Reply) -> Result<Option<LockStatus>> {
    let Some(parts) = fail_on_error(reply)?.into_list() else {
        return Err(unexpected("a question about the holder", "no list"));
    };
    let mut parts = parts.into_iter();
    let Some(Reply::Int(pttl)) = parts.next() else {
        return Err(unexpected("a question about the holder", "no TTL"));
    };
    let data = match parts.next() {
        Some(Reply::Bytes(data)) => Some(HoldData::new(&data)),
        _ => None,
    };
    let mut holders = Vec::new();
    while let (Some(Reply::Bytes(field)), Some(Reply::Bytes(value))) = (parts.next(), parts.next())
    {
        if *field == *b"mode" && matches!(&*value, b"read" | b"write") {
            continue;
        }
        let count = std::str::from_utf8(&value).ok().and_then(|v| v.parse().ok());
        // A field of a fenced value, or of a hash of an application.
        let Some(count) =
            count.filter(|count| HOLD_COUNTS.contains(count) && looks_like_a_holder(&field))
        else {
            let why = "something other than a lock has this name";
            return Err(Error::new(ErrorKind::WrongType, why).advise(Advice::ChooseName));
        };
        holders.push((String::from_utf8_lossy(&field).into_owned(), count));
    }
    let ttl = u64::try_from(pttl).ok().map(Duration::from_millis);
    Ok((!holders.is_empty()).then(|| LockStatus { ttl, holders, owners: Vec::new(), data }))
}

/// Enters a client into the index of clients that have announced an owner.
pub(crate) fn enter_client(key: &str, ttl: Duration) -> Request {
    Request::script(&CLIENT_ENTER, &[CLIENT_INDEX.as_bytes()]).arg(key).number(ceil_millis(ttl))
}

/// Asks for what a client wrote about itself.
pub(crate) fn announced(key: &str) -> Request {
    Request::script(&CLIENT_LOOK, &[client_key(key).as_bytes()])
}

/// `None`: nothing, or something that no client of this crate writes.
pub(crate) fn announced_answer(reply: Reply) -> Result<Option<Announced>> {
    let mut parts = fail_on_error(reply)?.into_list().unwrap_or_default().into_iter();
    let (Some(Reply::Int(pttl)), Some(Reply::Bytes(text))) = (parts.next(), parts.next()) else {
        return Ok(None);
    };
    let left = u64::try_from(pttl).ok().map(Duration::from_millis);
    Ok(left.zip(String::from_utf8(text).ok()).map(|(left, text)| Announced { text, left }))
}

pub(crate) fn force_unlock(name: &LockName) -> Request {
    let keys = RedisKeys::of(name);
    let lock = keys.lock.as_bytes();
    match name.kind {
        Kind::Fair => {
            let queue = keys.queue();
            let deadlines = keys.deadlines();
            Request::script(&FAIR_FORCE_UNLOCK, &[lock, queue.as_bytes(), deadlines.as_bytes()])
                .arg(keys.channel)
        }
        Kind::Read | Kind::Write => {
            Request::script(&RW_FORCE_UNLOCK, &[lock]).arg(keys.channel).arg(keys.tag)
        }
        _ => Request::script(&MUTEX_FORCE_UNLOCK, &[lock]).arg(keys.channel),
    }
}

pub(crate) fn force_unlock_answer(reply: Reply) -> Result<bool> {
    match fail_on_error(reply)? {
        Reply::Int(n) => Ok(n == 1),
        other => Err(unexpected("a forced unlock", &format!("{other:?}"))),
    }
}

/// Asks for the length of a fair lock's queue, and for the position of a client's first waiter.
pub(crate) fn queue(name: &LockName, client: &str) -> Request {
    Request::script(&FAIR_QUEUE, &[RedisKeys::of(name).queue().as_bytes()])
        .arg(format!("{client}:"))
}

/// The length, and how many waiters are before the client's first one, if it has one.
pub(crate) fn queue_answer(reply: Reply) -> Result<(usize, Option<usize>)> {
    let (length, before) = pair(reply, "a question about the queue")?;
    Ok((usize::try_from(length).unwrap_or(0), usize::try_from(before).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_holds_a_lock_that_is_not_there() {
        assert_eq!(inspect_answer(Reply::Array(vec![Reply::Int(-2), Reply::Nil])).unwrap(), None);
    }
}
