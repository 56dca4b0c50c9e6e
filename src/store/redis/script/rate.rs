//! Scripts of a rate limiter. Taking permits, and undoing that, is a request of
//! [`lock`](super::lock) as for all that is taken.

use std::time::Duration;

use super::{
    RATE_ACQUIRE, RATE_DELETE, RATE_GIVE_BACK, RATE_LOOK, RATE_SET, fail_on_error, pair, unexpected,
};
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::base::lock_name::LockName;
use crate::store::redis::keys::RedisKeys;
use crate::store::redis::wire::{Reply, Request, Script};
use crate::store::{Rate, RateChange};

/// A request of a script whose first keys are those of the limiter.
fn of_limiter(script: &'static Script, name: &LockName, id: Option<&str>) -> Request {
    let keys = RedisKeys::of(name);
    let [free, taken] = keys.rate();
    let mark = id.map(|id| keys.idempotency_key(id));
    let limiter = [keys.lock, &free, &taken].into_iter().chain(mark.as_deref());
    Request::script(script, &limiter.map(str::as_bytes).collect::<Vec<_>>())
}

pub(super) fn acquire(name: &LockName, holder: &Holder, permits: u32) -> Request {
    let request = of_limiter(&RATE_ACQUIRE, name, None).arg(holder.permit_bytes());
    request.number(u64::from(permits)).with_limit()
}

pub(super) fn give_back(name: &LockName, holder: &Holder, permits: u32) -> Request {
    let request = of_limiter(&RATE_GIVE_BACK, name, None).arg(holder.permit_bytes());
    request.number(u64::from(permits))
}

/// The script stores its reply under `id`, so that a repeat does nothing.
pub(crate) fn change_rate(name: &LockName, change: RateChange, id: &str) -> Request {
    let set = |rate: Rate, replaces: u64| {
        let request = of_limiter(&RATE_SET, name, Some(id)).number(rate.permits);
        request.number(ceil_millis(rate.per)).number(replaces)
    };
    let request = match change {
        RateChange::Set(rate) => set(rate, 0),
        RateChange::Replace(rate) => set(rate, 1),
        RateChange::Delete => of_limiter(&RATE_DELETE, name, Some(id)),
    };
    request.number(ceil_millis(IDEMPOTENCY_TTL)).with_limit()
}

pub(crate) fn change_rate_answer(reply: Reply) -> Result<bool> {
    match pair(reply, "a change of a rate")? {
        (done @ (0 | 1), 0) => Ok(done == 1),
        other => Err(unexpected("a change of a rate", &format!("{other:?}"))),
    }
}

pub(crate) fn rate_question(name: &LockName) -> Request {
    of_limiter(&RATE_LOOK, name, None)
}

pub(crate) fn rate_answer(reply: Reply) -> Result<Option<(Rate, i64)>> {
    let reply = fail_on_error(reply)?;
    if let Reply::Array(parts) = &reply
        && let [Reply::Int(status), Reply::Int(permits), Reply::Int(per), Reply::Int(free)] =
            parts[..]
    {
        let per = Duration::from_millis(per.unsigned_abs());
        match status {
            0 => return Ok(None),
            1 => return Ok(Some((Rate { permits: permits.unsigned_abs(), per }, free))),
            5 => return Err(per_client()),
            _ => {}
        }
    }
    Err(unexpected("a question about a rate", &format!("{reply:?}")))
}

/// Redisson keeps the permits of each client under a key of that client, and nothing removes the
/// keys of a client that has ended.
#[cold]
pub(super) fn per_client() -> Error {
    let why = "this rate limiter of Redisson has the type PER_CLIENT, a rate for each client; only OVERALL, one rate \
               for all clients, is supported";
    Error::new(ErrorKind::Unsupported, why).advise("use one name for each client instead")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_typed() {
        let list = |numbers: [i64; 4]| Reply::Array(numbers.map(Reply::Int).to_vec());
        let rate = Rate { permits: 5, per: Duration::from_millis(700) };
        assert_eq!(rate_answer(list([1, 5, 700, 3])).unwrap(), Some((rate, 3)));
        assert_eq!(rate_answer(list([0; 4])).unwrap(), None);
        let kind = |reply| rate_answer(reply).unwrap_err().kind();
        assert_eq!(kind(list([5, 0, 0, 0])), ErrorKind::Unsupported);
        assert_eq!(kind(list([2, 0, 0, 0])), ErrorKind::Protocol);
        assert_eq!(kind(Reply::Pair(1, 5)), ErrorKind::Protocol);
        assert!(change_rate_answer(Reply::Pair(1, 0)).unwrap());
        assert!(!change_rate_answer(Reply::Pair(0, 0)).unwrap());
        let other = change_rate_answer(Reply::Pair(4, 0)).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Protocol);
    }
}
