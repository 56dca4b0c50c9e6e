//! Scripts that acquire, release and renew leases: one of each per kind of lock, with replies of
//! one shape.

use std::time::Duration;

use super::{
    COUNT_ACQUIRE, COUNT_RELEASE, DATA_ACQUIRE, DATA_FAIR_ACQUIRE, DATA_FAIR_RELEASE, DATA_RELEASE,
    DATA_RENEW, FAIR_ACQUIRE, FAIR_KEEP, FAIR_RELEASE, LEASE_RENEW, LOCK_KEEP, MUTEX_ACQUIRE,
    MUTEX_RELEASE, PERMIT_ACQUIRE, PERMIT_RELEASE, PERMIT_RENEW, READ_ACQUIRE, RW_RELEASE,
    RW_RENEW, WRITE_ACQUIRE, data, fail_on_error, rate, unexpected,
};
use crate::base::deadline::ceil_millis;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::base::limits::{IDEMPOTENCY_TTL, TAKEN_TTL};
use crate::base::lock_name::Kind;
use crate::store::redis::keys::RedisKeys;
use crate::store::redis::wire::{Reply, Request, Shape};
use crate::store::{
    Acquire, Acquired, Granted, NextUp, Release, Released, Renewal, Renewed, TokenRule, Waiting,
};

const NOBODY: &str = "nobody holds a latch, or the record of a job";

const TOKEN_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a wait mark (a place in a fair queue, a writer's marker) is kept without another
/// attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaiterTimeouts {
    pub(crate) own: Duration,
    /// The timeout of Redisson's waiters, which have a configuration of their own.
    pub(crate) redisson: Duration,
}

pub(crate) fn acquire(acquire: &Acquire<'_>, timeouts: WaiterTimeouts) -> Request {
    let Acquire { name, holder, permits, lease, held, token, tokens, waiting, goes_on: _ } =
        *acquire;
    let keys = RedisKeys::of(name);
    let lock = keys.lock.as_bytes();
    let lease = ceil_millis(lease);
    let held = u64::from(held);
    let own_wait = if matches!(waiting, Waiting::No) { 0 } else { ceil_millis(timeouts.own) };
    let request = match name.kind {
        Kind::Mutex | Kind::Job => {
            let names = [lock, keys.token.as_bytes()];
            let request = match holder.data() {
                None => Request::script(&MUTEX_ACQUIRE, &names),
                Some(data) => data::begin_acquire(&DATA_ACQUIRE, acquire, data, &names),
            };
            with_token(request.arg(holder.as_str()).number(lease).number(held), token)
                .number(u64::from(tokens))
                .with_floor_and_limit()
        }
        Kind::Fair => {
            let queue = keys.queue();
            let deadlines = keys.deadlines();
            let names = [lock, queue.as_bytes(), deadlines.as_bytes(), keys.token.as_bytes()];
            let request = match holder.data() {
                None => Request::script(&FAIR_ACQUIRE, &names),
                Some(data) => data::begin_acquire(&DATA_FAIR_ACQUIRE, acquire, data, &names),
            };
            let request = request.arg(holder.as_str()).number(lease).number(held);
            let again = u64::from(waiting == Waiting::Again);
            // Redisson's timeout is needed even without waiting: every attempt corrects the
            // deadlines of the queue.
            let redisson_wait = if held == 0 { ceil_millis(timeouts.redisson) } else { 0 };
            let request =
                with_token(request, token).number(own_wait).number(again).number(redisson_wait);
            request.arg(keys.channel).with_floor_and_limit()
        }
        Kind::Write => {
            let request = Request::script(
                &WRITE_ACQUIRE,
                &[lock, keys.token.as_bytes(), keys.marker().as_bytes()],
            );
            with_token(request.arg(holder.as_str()).number(lease).number(held), token)
                .number(own_wait)
                .with_floor_and_limit()
        }
        Kind::Read => {
            let request = Request::script(&READ_ACQUIRE, &[lock, keys.marker().as_bytes()]);
            request.arg(holder.as_str()).number(lease).number(held).arg(keys.tag).with_limit()
        }
        Kind::Semaphore => {
            let request = Request::script(&PERMIT_ACQUIRE, &[lock, keys.leases().as_bytes()]);
            let request =
                request.arg(holder.permit_bytes()).number(u64::from(permits)).number(lease);
            request.arg(keys.channel).with_limit()
        }
        Kind::CountingSemaphore => {
            let request = Request::script(
                &COUNT_ACQUIRE,
                &[lock, keys.idempotency_key(holder.as_str()).as_bytes()],
            );
            request.number(u64::from(permits)).number(ceil_millis(TAKEN_TTL)).with_limit()
        }
        Kind::RateLimiter => rate::acquire(name, holder, permits),
        Kind::Latch | Kind::Done => unreachable!("{NOBODY}"),
    };
    // A counting semaphore also answers 2 if the permits were already released.
    if held == 0 && name.kind != Kind::CountingSemaphore {
        request.for_fresh_holder()
    } else {
        request
    }
}

pub(super) fn with_token(request: Request, rule: TokenRule) -> Request {
    match rule {
        TokenRule::Off => request.arg("-1"),
        TokenRule::Kept => request.number(0),
        TokenRule::On => request.number(ceil_millis(TOKEN_TTL)),
    }
}

pub(crate) fn acquire_answer(reply: Reply, sent_at: Moment) -> Result<Acquired> {
    let reply = fail_on_error(reply)?;
    if let Reply::Array(parts) = &reply
        && let [Reply::Int(0), Reply::Int(ttl), Reply::Int(is_new)] = parts[..]
    {
        return Ok(Acquired::Queued { ttl: positive_millis(ttl), is_new: is_new == 1 });
    }
    match reply {
        Reply::Pair(1, token) => {
            let token = token.unsigned_abs();
            Ok(Acquired::Granted(Granted { token, sent_at, session: None, next: None }))
        }
        Reply::Pair(0, ttl) => Ok(Acquired::Busy { ttl: positive_millis(ttl) }),
        Reply::Pair(2, _) => Ok(Acquired::Gone),
        Reply::Pair(4, permits) => {
            Ok(Acquired::TooFew { permits: u64::try_from(permits).unwrap_or(0) })
        }
        Reply::Pair(5, 0) => Err(rate::per_client()),
        other => Err(unexpected("an acquire", &format!("{other:?}"))),
    }
}

/// `None` if Redis reported no time.
pub(super) fn positive_millis(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().filter(|ttl| *ttl > 0).map(Duration::from_millis)
}

/// `now`: the time at which it is sent.
pub(crate) fn release(request: &Release<'_>, now: impl FnOnce() -> Moment) -> Request {
    if let Some(rest) = request.keeps_for(now) {
        return keep(request, rest);
    }
    let Release { name, holder, permits, left, granted, has_token, .. } = *request;
    let keys = RedisKeys::of(name);
    let lock = keys.lock.as_bytes();
    match name.kind {
        Kind::Mutex | Kind::Job => {
            let begun = match holder.data() {
                None => Request::script(&MUTEX_RELEASE, &[lock]),
                Some(_) => data::begin_release(&DATA_RELEASE, request, &[lock]),
            };
            begun.arg(holder.as_str()).number(u64::from(left.main) + 1).arg(keys.channel)
        }
        Kind::Fair => {
            let queue = keys.queue();
            let deadlines = keys.deadlines();
            let names = [lock, queue.as_bytes(), deadlines.as_bytes(), keys.token.as_bytes()];
            let begun = match holder.data() {
                None => Request::script(&FAIR_RELEASE, &names),
                Some(_) => data::begin_release(&DATA_FAIR_RELEASE, request, &names),
            };
            begun
                .arg(holder.as_str())
                .number(u64::from(left.main) + 1)
                .arg(keys.channel)
                .number(u64::from(has_token))
                .with_floor()
        }
        Kind::Read | Kind::Write => Request::script(&RW_RELEASE, &[lock, keys.marker().as_bytes()])
            .arg(holder.as_str())
            .number(u64::from(left.main))
            .number(u64::from(left.reads))
            .arg(keys.channel)
            .arg(keys.tag),
        Kind::Semaphore => Request::script(&PERMIT_RELEASE, &[lock, keys.leases().as_bytes()])
            .arg(holder.permit_bytes())
            .number(u64::from(permits))
            .arg(keys.channel),
        Kind::CountingSemaphore => Request::script(
            &COUNT_RELEASE,
            &[lock, keys.idempotency_key(holder.as_str()).as_bytes()],
        )
        .number(u64::from(permits))
        .number(ceil_millis(IDEMPOTENCY_TTL))
        .arg(keys.channel)
        .number(u64::from(granted)),
        Kind::RateLimiter => rate::give_back(name, holder, permits),
        Kind::Latch | Kind::Done => unreachable!("{NOBODY}"),
    }
}

/// Leaves the lock taken for `rest`.
fn keep(request: &Release<'_>, rest: Duration) -> Request {
    let Release { name, holder, .. } = *request;
    let keys = RedisKeys::of(name);
    let kept = holder.kept();
    let lock = keys.lock.as_bytes();
    let of = |request: Request, field: &str, kept: &str| {
        request.arg(field).arg(kept).number(ceil_millis(rest)).arg(keys.channel)
    };
    match name.kind {
        Kind::Fair => {
            let queue = keys.queue();
            let deadlines = keys.deadlines();
            let request =
                Request::script(&FAIR_KEEP, &[lock, queue.as_bytes(), deadlines.as_bytes()]);
            of(request, holder.as_str(), kept.as_str())
        }
        Kind::Write => {
            let [field, kept] = [holder, &kept].map(|holder| format!("{}:write", holder.as_str()));
            // The same messages as in rw_release.
            of(Request::script(&LOCK_KEEP, &[lock]), &field, &kept).arg("1").arg("00")
        }
        _ => of(Request::script(&LOCK_KEEP, &[lock]), holder.as_str(), kept.as_str())
            .arg("0")
            .arg(""),
    }
}

pub(crate) fn release_answer(reply: Reply) -> Result<Released> {
    let reply = fail_on_error(reply)?;
    let (receivers, next) = match (reply.status(), &reply) {
        (Some(0), _) => return Ok(Released::NotHeld),
        (Some(1), _) => return Ok(Released::StillHeld),
        (Some(2), Reply::Pair(_, receivers)) => (receivers, None),
        (Some(2), Reply::Array(parts)) => {
            let [_, Reply::Int(receivers), Reply::Bytes(head), token @ ..] = &parts[..] else {
                return Err(unexpected("a release", &format!("{reply:?}")));
            };
            let holder = String::from_utf8_lossy(head).into_owned();
            let grant = match token {
                [Reply::Int(token)] => Some(token.unsigned_abs()),
                _ => None,
            };
            (receivers, Some(NextUp { holder, grant }))
        }
        _ => return Err(unexpected("a release", &format!("{reply:?}"))),
    };
    Ok(Released::Freed { listeners: Some(receivers.unsigned_abs()), next })
}

/// The kinds whose holds one script renews together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Hash,
    HashWithData,
    ReadWrite,
    Permits,
}

impl Family {
    pub(crate) fn of(hold: &Renewal) -> Self {
        match hold.name.kind {
            Kind::Mutex | Kind::Fair if hold.holder.data().is_some() => Self::HashWithData,
            Kind::Mutex | Kind::Fair | Kind::Job => Self::Hash,
            Kind::Read | Kind::Write => Self::ReadWrite,
            Kind::Semaphore => Self::Permits,
            Kind::CountingSemaphore | Kind::Latch | Kind::RateLimiter | Kind::Done => {
                unreachable!("it is never renewed")
            }
        }
    }
}

/// Renews holds of one family. A lease of zero only checks whether the holder is still there.
pub(crate) fn renew<'a>(
    family: Family,
    holds: impl Iterator<Item = &'a Renewal> + Clone,
) -> Request {
    let keys_of = |hold: &'a Renewal| RedisKeys::of(&hold.name);
    let beside: Vec<String>;
    let (script, keys): (_, Vec<&[u8]>) = match family {
        Family::Hash => {
            (&LEASE_RENEW, holds.clone().map(|hold| keys_of(hold).lock.as_bytes()).collect())
        }
        Family::ReadWrite => {
            (&RW_RENEW, holds.clone().map(|hold| keys_of(hold).lock.as_bytes()).collect())
        }
        Family::HashWithData => {
            beside = holds.clone().map(|hold| keys_of(hold).data()).collect();
            let locks = holds.clone().map(|hold| keys_of(hold).lock.as_bytes());
            (&DATA_RENEW, locks.chain(beside.iter().map(String::as_bytes)).collect())
        }
        Family::Permits => {
            beside = holds.clone().map(|hold| keys_of(hold).leases()).collect();
            (&PERMIT_RENEW, beside.iter().map(String::as_bytes).collect())
        }
    };
    let count = holds.clone().count();
    let mut request = Request::script(script, &keys).answered_by(Shape::Each(count as u32));
    for Renewal { holder, .. } in holds.clone() {
        request = match family {
            Family::Permits => request.arg(holder.permit_bytes()),
            _ => request.arg(holder.as_str()),
        };
    }
    for Renewal { lease, .. } in holds.clone() {
        request = request.number(ceil_millis(*lease));
    }
    for hold in holds {
        request = match family {
            Family::Permits => request.number(u64::from(hold.permits)),
            Family::ReadWrite => request.arg(keys_of(hold).tag),
            Family::Hash | Family::HashWithData => request,
        };
    }
    request
}

/// One answer for each hold of the renewal that was sent at `sent_at`.
pub(crate) fn renew_answers(reply: Reply, sent_at: Moment) -> Result<Vec<Renewed>> {
    let Some(answers) = fail_on_error(reply)?.into_list() else {
        return Err(unexpected("a renewal", "no list"));
    };
    let held = |beside| Renewed::Held { sent_at, again: false, beside, asked: 0 };
    Ok(answers
        .into_iter()
        .map(|answer| match answer {
            Reply::Int(1) => held(None),
            Reply::Int(0) => Renewed::Gone,
            // A Redisson reader holds it as well, and its next renewal may cut the TTL to this.
            Reply::Int(millis @ 2..) => held(Some(Duration::from_millis(millis.unsigned_abs()))),
            // Somebody asks for the lock.
            Reply::Int(id @ ..=-2) => {
                Renewed::Held { sent_at, again: false, beside: None, asked: id.unsigned_abs() }
            }
            other => Renewed::Failed(match fail_on_error(other) {
                Err(e) => e,
                Ok(other) => unexpected("a renewal", &format!("{other:?}")),
            }),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    #[test]
    fn answers_are_typed() {
        let ints = Reply::Pair;
        let sent_at = Moment::from_nanos(5);
        let answer = |reply| acquire_answer(reply, sent_at);
        assert_eq!(
            answer(ints(1, 7)).unwrap(),
            Acquired::Granted(Granted { token: 7, sent_at, session: None, next: None })
        );
        assert_eq!(
            answer(ints(0, 5)).unwrap(),
            Acquired::Busy { ttl: Some(Duration::from_millis(5)) }
        );
        for no_hint in [0, -1, -2] {
            assert_eq!(answer(ints(0, no_hint)).unwrap(), Acquired::Busy { ttl: None });
        }
        assert_eq!(answer(ints(4, -3)).unwrap(), Acquired::TooFew { permits: 0 });
        assert_eq!(answer(ints(9, 0)).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(answer(Reply::Nil).unwrap_err().kind(), ErrorKind::Protocol);
        for (token, grant) in [(None, None), (Some(0), Some(0)), (Some(7), Some(7))] {
            let mut parts = vec![Reply::Int(2), Reply::Int(1), Reply::Bytes(b"u:1".to_vec())];
            parts.extend(token.map(Reply::Int));
            let next = Some(NextUp { holder: "u:1".to_owned(), grant });
            assert_eq!(
                release_answer(Reply::Array(parts)).unwrap(),
                Released::Freed { listeners: Some(1), next }
            );
        }
        assert_eq!(
            release_answer(ints(2, 1)).unwrap(),
            Released::Freed { listeners: Some(1), next: None }
        );
        assert_eq!(release_answer(ints(7, 1)).unwrap_err().kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_release_says_what_is_left() {
        for second in [0, 1, 7] {
            assert_eq!(release_answer(Reply::Pair(0, second)).unwrap(), Released::NotHeld);
            assert_eq!(release_answer(Reply::Pair(1, second)).unwrap(), Released::StillHeld);
        }
    }

    #[test]
    fn each_hold_of_a_renewal_has_its_answer() {
        let sent_at = Moment::from_nanos(5);
        let held = |beside| Renewed::Held { sent_at, again: false, beside, asked: 0 };
        let list = Reply::Array(vec![Reply::Int(1), Reply::Int(0), Reply::Int(2)]);
        let answers = renew_answers(list, sent_at).unwrap();
        let expected = [held(None), Renewed::Gone, held(Some(Duration::from_millis(2)))];
        assert_eq!(format!("{answers:?}"), format!("{expected:?}"));
        let failed = renew_answers(Reply::Array(vec![Reply::Int(-1)]), sent_at).unwrap();
        assert!(matches!(&failed[..], [Renewed::Failed(e)] if e.kind() == ErrorKind::Protocol));
    }
}
