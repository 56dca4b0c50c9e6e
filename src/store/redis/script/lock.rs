//! The scripts of leases: take, give up, renew; for each kind of lock its own, with answers of one shape.

use std::time::Duration;

use super::{
    COUNT_ACQUIRE, COUNT_RELEASE, FAIR_ACQUIRE, FAIR_RELEASE, LEASE_RENEW, MUTEX_ACQUIRE, MUTEX_RELEASE,
    PERMIT_ACQUIRE, PERMIT_RELEASE, PERMIT_RENEW, READ_ACQUIRE, RW_RELEASE, RW_RENEW, WRITE_ACQUIRE, fail_on_error,
    pair, unexpected,
};
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, Result};
use crate::base::holder::Holder;
use crate::base::key::{Kind, LockKeys};
use crate::base::limits::{ONCE, TAKEN};
use crate::store::redis::wire::{Reply, Request, Shape};

/// What becomes of the fencing token of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRule {
    /// None is given.
    Off,
    /// The counter is never given a TTL, because Java's fenced lock shares the name.
    KeptForEver,
    /// A counter of our own, which Redis may forget a day after the last grant: the floor does not need it.
    Expires,
}

const TOKEN_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether whoever asks will ask again, and so leaves a sign that it waits: a fair lock's queue entry, a writer's marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    No,
    /// A try of a fair lock: it takes no place, and still puts the deadlines right of those who have one.
    NoPlace {
        java_ttl: Duration,
    },
    /// `ttl`: how long the sign stands without another try. `java_ttl`: that of a Java waiter. `again`: it was left before.
    Yes {
        ttl: Duration,
        java_ttl: Duration,
        again: bool,
    },
}

/// One acquisition, outermost (`held` = 0) or one level more.
#[derive(Debug, Clone)]
pub(crate) struct Acquire<'a> {
    pub(crate) keys: &'a LockKeys,
    pub(crate) holder: &'a Holder,
    pub(crate) lease: Duration,
    pub(crate) held: u32,
    pub(crate) token: TokenRule,
    pub(crate) waiting: Waiting,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireAnswer {
    /// `next`: who waits next for a fair lock.
    Granted { token: u64, next: Option<String> },
    /// Held by another. `None`: for ever, or for an unknown time.
    Busy { ttl: Option<Duration> },
    /// The holder had it and has lost it.
    Gone,
    /// It reached the server after its not-after; nothing was done.
    TooLate,
    /// There are only so many permits in all.
    TooFew { permits: u64 },
}

pub(crate) fn acquire(request: &Acquire<'_>) -> Request {
    let Acquire { keys, holder, lease, held, token, waiting } = *request;
    let (lock, lease, held) = (keys.lock.as_bytes(), ceil_millis(lease), u64::from(held));
    let (ttl, java_ttl, again) = match waiting {
        Waiting::No => (0, 0, false),
        Waiting::NoPlace { java_ttl } => (0, ceil_millis(java_ttl), false),
        Waiting::Yes { ttl, java_ttl, again } => (ceil_millis(ttl), ceil_millis(java_ttl), again),
    };
    match keys.kind {
        Kind::Mutex => {
            let request = Request::script(&MUTEX_ACQUIRE, &[lock, keys.token.as_bytes()]);
            with_token(request.arg(holder.as_str()).number(lease).number(held), token).with_floor_and_limit()
        }
        Kind::Fair => {
            let (queue, deadlines) = (keys.queue(), keys.deadlines());
            let names = [lock, queue.as_bytes(), deadlines.as_bytes(), keys.token.as_bytes()];
            let request = Request::script(&FAIR_ACQUIRE, &names).arg(holder.as_str()).number(lease).number(held);
            let request = with_token(request, token).number(ttl).number(u64::from(again)).number(java_ttl);
            request.arg(&*keys.channel).with_floor_and_limit()
        }
        Kind::Write => {
            let request = Request::script(&WRITE_ACQUIRE, &[lock, keys.token.as_bytes(), keys.marker().as_bytes()]);
            with_token(request.arg(holder.as_str()).number(lease).number(held), token)
                .number(ttl)
                .with_floor_and_limit()
        }
        Kind::Read => {
            let request = Request::script(&READ_ACQUIRE, &[lock, keys.marker().as_bytes()]);
            request.arg(holder.as_str()).number(lease).number(held).arg(&*keys.tag).with_limit()
        }
        Kind::Permits(permits) => {
            let request = Request::script(&PERMIT_ACQUIRE, &[lock, keys.leases().as_bytes()]);
            let request = request.arg(holder.permit_bytes()).number(u64::from(permits)).number(lease);
            request.arg(&*keys.channel).with_limit()
        }
        Kind::Counting { permits, .. } => {
            let request = Request::script(&COUNT_ACQUIRE, &[lock, keys.once(holder.as_str()).as_bytes()]);
            request.number(u64::from(permits)).number(ceil_millis(TAKEN)).with_limit()
        }
        Kind::Latch => unreachable!("a latch has no holders"),
    }
}

pub(super) fn with_token(request: Request, rule: TokenRule) -> Request {
    match rule {
        TokenRule::Off => request.arg("-1"),
        TokenRule::KeptForEver => request.number(0),
        TokenRule::Expires => request.number(ceil_millis(TOKEN_TTL)),
    }
}

pub(crate) fn acquire_answer(reply: Reply) -> Result<AcquireAnswer> {
    let reply = fail_on_error(reply)?;
    if let Reply::Array(parts) = &reply
        && let [Reply::Int(1), Reply::Int(token), Reply::Bytes(next)] = &parts[..]
    {
        let next = Some(String::from_utf8_lossy(next).into_owned());
        return Ok(AcquireAnswer::Granted { token: token.unsigned_abs(), next });
    }
    match pair(reply, "an acquire")? {
        (1, token) => Ok(AcquireAnswer::Granted { token: token.unsigned_abs(), next: None }),
        (0, ttl) => {
            Ok(AcquireAnswer::Busy { ttl: u64::try_from(ttl).ok().filter(|t| *t > 0).map(Duration::from_millis) })
        }
        (2, _) => Ok(AcquireAnswer::Gone),
        (3, _) => Ok(AcquireAnswer::TooLate),
        (4, permits) => Ok(AcquireAnswer::TooFew { permits: u64::try_from(permits).unwrap_or(0) }),
        other => Err(unexpected("an acquire", &format!("{other:?}"))),
    }
}

/// The levels of a hold: what stands, or what a release leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HoldCounts {
    /// Of the lock itself; of a read-write lock, for writing.
    pub(crate) main: u32,
    /// Of a read-write lock, for reading.
    pub(crate) reads: u32,
}

impl HoldCounts {
    pub(crate) const NONE: Self = Self { main: 0, reads: 0 };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReleaseAnswer {
    NotHeld,
    /// Levels stay, or other readers do.
    StillHeld,
    /// Freed; this many subscribers were reached. `next`: the waiter of a fair lock whose turn it is.
    Freed {
        receivers: u64,
        next: Option<String>,
    },
}

/// Leaves a hold with the levels of `left`.
pub(crate) fn release(keys: &LockKeys, holder: &Holder, left: HoldCounts) -> Request {
    let lock = keys.lock.as_bytes();
    match keys.kind {
        Kind::Mutex => Request::script(&MUTEX_RELEASE, &[lock])
            .arg(holder.as_str())
            .number(u64::from(left.main) + 1)
            .arg(&*keys.channel),
        Kind::Fair => {
            let (queue, deadlines) = (keys.queue(), keys.deadlines());
            Request::script(&FAIR_RELEASE, &[lock, queue.as_bytes(), deadlines.as_bytes()])
                .arg(holder.as_str())
                .number(u64::from(left.main) + 1)
                .arg(&*keys.channel)
        }
        Kind::Read | Kind::Write => Request::script(&RW_RELEASE, &[lock, keys.marker().as_bytes()])
            .arg(holder.as_str())
            .number(u64::from(left.main))
            .number(u64::from(left.reads))
            .arg(&*keys.channel)
            .arg(&*keys.tag),
        Kind::Permits(permits) => Request::script(&PERMIT_RELEASE, &[lock, keys.leases().as_bytes()])
            .arg(holder.permit_bytes())
            .number(u64::from(permits))
            .arg(&*keys.channel),
        Kind::Counting { permits, taken } => {
            Request::script(&COUNT_RELEASE, &[lock, keys.once(holder.as_str()).as_bytes()])
                .number(u64::from(permits))
                .number(ceil_millis(ONCE))
                .arg(&*keys.channel)
                .number(u64::from(taken))
        }
        Kind::Latch => unreachable!("a latch has no holders"),
    }
}

pub(crate) fn release_answer(reply: Reply) -> Result<ReleaseAnswer> {
    let Reply::Array(parts) = fail_on_error(reply)? else { return Err(unexpected("a release", "no list")) };
    match &parts[..] {
        [Reply::Int(0), ..] => Ok(ReleaseAnswer::NotHeld),
        [Reply::Int(1), ..] => Ok(ReleaseAnswer::StillHeld),
        [Reply::Int(2), Reply::Int(receivers), next @ ..] => {
            let next = match next {
                [Reply::Bytes(head)] => Some(String::from_utf8_lossy(head).into_owned()),
                _ => None,
            };
            Ok(ReleaseAnswer::Freed { receivers: receivers.unsigned_abs(), next })
        }
        other => Err(unexpected("a release", &format!("{other:?}"))),
    }
}

#[derive(Debug)]
pub(crate) enum RenewAnswer {
    /// `beside`: a reader of Java's reads too, and may leave the lock this long when it renews.
    Held {
        beside: Option<Duration>,
    },
    Gone,
    Failed(Error),
}

/// The kinds whose holds one script renews together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Hash,
    ReadWrite,
    Permits,
}

impl Family {
    pub(crate) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Mutex | Kind::Fair => Self::Hash,
            Kind::Read | Kind::Write => Self::ReadWrite,
            Kind::Permits(_) => Self::Permits,
            Kind::Counting { .. } | Kind::Latch => unreachable!("nothing of it is renewed"),
        }
    }
}

/// Holds of one family. `lease` zero only looks whether the holder still stands.
pub(crate) fn renew<'a>(
    family: Family,
    holds: impl Iterator<Item = (&'a LockKeys, &'a Holder, Duration)> + Clone,
) -> Request {
    let leases: Vec<String>;
    let (script, keys): (_, Vec<&[u8]>) = match family {
        Family::Hash => (&LEASE_RENEW, holds.clone().map(|(k, ..)| k.lock.as_bytes()).collect()),
        Family::ReadWrite => (&RW_RENEW, holds.clone().map(|(k, ..)| k.lock.as_bytes()).collect()),
        Family::Permits => {
            leases = holds.clone().map(|(k, ..)| k.leases()).collect();
            (&PERMIT_RENEW, leases.iter().map(String::as_bytes).collect())
        }
    };
    let mut request = Request::script(script, &keys).answered_by(Shape::Each(keys.len() as u32));
    for (_, holder, _) in holds.clone() {
        request = match family {
            Family::Permits => request.arg(holder.permit_bytes()),
            _ => request.arg(holder.as_str()),
        };
    }
    for (_, _, lease) in holds.clone() {
        request = request.number(ceil_millis(lease));
    }
    for (keys, ..) in holds {
        request = match keys.kind {
            Kind::Permits(permits) => request.number(u64::from(permits)),
            Kind::Read | Kind::Write => request.arg(&*keys.tag),
            _ => request,
        };
    }
    request
}

pub(crate) fn renew_answers(reply: Reply) -> Result<Vec<RenewAnswer>> {
    let Reply::Array(answers) = fail_on_error(reply)? else { return Err(unexpected("a renewal", "no list")) };
    Ok(answers
        .into_iter()
        .map(|answer| match answer {
            Reply::Int(1) => RenewAnswer::Held { beside: None },
            Reply::Int(0) => RenewAnswer::Gone,
            Reply::Int(millis @ 2..) => {
                RenewAnswer::Held { beside: Some(Duration::from_millis(millis.unsigned_abs())) }
            }
            other => RenewAnswer::Failed(match fail_on_error(other) {
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
        let ints = |a, b| Reply::Array(vec![Reply::Int(a), Reply::Int(b)]);
        assert_eq!(acquire_answer(ints(1, 7)).unwrap(), AcquireAnswer::Granted { token: 7, next: None });
        assert_eq!(acquire_answer(ints(0, 5)).unwrap(), AcquireAnswer::Busy { ttl: Some(Duration::from_millis(5)) });
        for no_hint in [0, -1, -2] {
            assert_eq!(acquire_answer(ints(0, no_hint)).unwrap(), AcquireAnswer::Busy { ttl: None });
        }
        assert_eq!(acquire_answer(ints(4, -3)).unwrap(), AcquireAnswer::TooFew { permits: 0 });
        assert_eq!(acquire_answer(ints(9, 0)).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(acquire_answer(Reply::Nil).unwrap_err().kind(), ErrorKind::Protocol);
        let head = Reply::Array(vec![Reply::Int(2), Reply::Int(1), Reply::Bytes(b"u:1".to_vec())]);
        assert_eq!(release_answer(head).unwrap(), ReleaseAnswer::Freed { receivers: 1, next: Some("u:1".into()) });
        assert_eq!(release_answer(ints(2, 1)).unwrap(), ReleaseAnswer::Freed { receivers: 1, next: None });
        assert_eq!(release_answer(ints(7, 1)).unwrap_err().kind(), ErrorKind::Protocol);
    }
}
