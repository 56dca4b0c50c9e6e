//! The scripts of several locks taken and given up as one.

use std::time::Duration;

use super::lock::with_token;
use super::{HoldCounts, MULTI_ACQUIRE, MULTI_RELEASE, ReleaseAnswer, TokenRule, fail_on_error, unexpected};
use crate::base::deadline::ceil_millis;
use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::base::key::{LOCK_CHANNEL, LockKeys};
use crate::store::redis::wire::{Reply, Request, Shape};

/// One of several locks that are taken as one, freshly (`held` = 0) or one level more.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    pub(crate) keys: &'a LockKeys,
    pub(crate) holder: &'a Holder,
    pub(crate) held: u32,
}

/// All of them or none.
#[derive(Debug, Clone)]
pub(crate) struct AcquireAll<'a> {
    pub(crate) parts: Vec<Part<'a>>,
    pub(crate) lease: Duration,
    pub(crate) token: TokenRule,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireAllAnswer {
    /// One token for each part, 0 for one that is held already.
    Granted { tokens: Vec<u64> },
    /// The part at `at` is held by another. `None`: for ever, or for an unknown time.
    Busy { at: usize, ttl: Option<Duration> },
    /// The holder had the part at `at` and has lost it.
    Gone { at: usize },
    /// It reached the server after its not-after; nothing was done.
    TooLate,
    /// Something else stands under the name of the part at `at`; nothing was done.
    WrongType { at: usize },
}

/// `again`: an earlier run of it may have been granted.
pub(crate) fn acquire_all(request: &AcquireAll<'_>, again: bool) -> Request {
    let AcquireAll { parts, lease, token } = request;
    let locks = parts.iter().map(|part| part.keys.lock.as_bytes());
    let keys: Vec<&[u8]> = locks.chain(parts.iter().map(|part| part.keys.token.as_bytes())).collect();
    let request = Request::script(&MULTI_ACQUIRE, &keys);
    let request = parts.iter().fold(request, |request, part| request.arg(part.holder.as_str()));
    let request = parts.iter().fold(request, |request, part| request.number(u64::from(part.held)));
    with_token(request.number(ceil_millis(*lease)), *token)
        .arg(format!("{LOCK_CHANNEL}:"))
        .number(u64::from(again))
        .with_floor_and_limit()
}

/// `parts`: how many were asked for.
pub(crate) fn acquire_all_answer(reply: Reply, parts: usize) -> Result<AcquireAllAnswer> {
    let Reply::Array(answer) = fail_on_error(reply)? else {
        return Err(unexpected("an acquire of several locks", "no list"));
    };
    let numbers: Option<Vec<i64>> =
        answer.iter().map(|number| if let Reply::Int(n) = number { Some(*n) } else { None }).collect();
    let index = |at: i64| usize::try_from(at - 1).ok().filter(|at| *at < parts);
    match numbers.as_deref() {
        Some([1, tokens @ ..]) if tokens.len() == parts => {
            Ok(AcquireAllAnswer::Granted { tokens: tokens.iter().map(|token| token.unsigned_abs()).collect() })
        }
        Some(&[0, ttl, at]) if index(at).is_some() => {
            let ttl = u64::try_from(ttl).ok().filter(|ttl| *ttl > 0).map(Duration::from_millis);
            Ok(AcquireAllAnswer::Busy { at: index(at).unwrap_or_default(), ttl })
        }
        Some(&[2, _, at]) if index(at).is_some() => Ok(AcquireAllAnswer::Gone { at: index(at).unwrap_or_default() }),
        Some(&[4, _, at]) if index(at).is_some() => {
            Ok(AcquireAllAnswer::WrongType { at: index(at).unwrap_or_default() })
        }
        Some([3, ..]) => Ok(AcquireAllAnswer::TooLate),
        _ => Err(unexpected("an acquire of several locks", &format!("{answer:?}"))),
    }
}

/// One of several holds that are given up at once, down to the levels of `left`.
#[derive(Debug, Clone)]
pub(crate) struct Leaving<'a> {
    pub(crate) keys: &'a LockKeys,
    pub(crate) holder: &'a Holder,
    pub(crate) left: HoldCounts,
}

pub(crate) fn release_all(leaving: &[Leaving<'_>]) -> Request {
    let keys: Vec<&[u8]> = leaving.iter().map(|one| one.keys.lock.as_bytes()).collect();
    let request = Request::script(&MULTI_RELEASE, &keys).answered_by(Shape::Each(2 * leaving.len() as u32));
    let request = leaving.iter().fold(request, |request, one| request.arg(one.holder.as_str()));
    let request = leaving.iter().fold(request, |request, one| request.number(u64::from(one.left.main) + 1));
    leaving.iter().fold(request, |request, one| request.arg(&*one.keys.channel))
}

/// One answer for each, in order.
pub(crate) fn release_all_answer(reply: Reply, holds: usize) -> Result<Vec<Result<ReleaseAnswer>>> {
    let Reply::Array(answers) = fail_on_error(reply)? else {
        return Err(unexpected("a release of several locks", "no list"));
    };
    if answers.len() != 2 * holds {
        return Err(unexpected("a release of several locks", &format!("{} values for {holds} locks", answers.len())));
    }
    let one = |pair: &[Reply]| match pair {
        [Reply::Int(0), _] => Ok(ReleaseAnswer::NotHeld),
        [Reply::Int(1), _] => Ok(ReleaseAnswer::StillHeld),
        [Reply::Int(2), Reply::Int(receivers)] => {
            Ok(ReleaseAnswer::Freed { receivers: u64::try_from(*receivers).unwrap_or(0), next: None })
        }
        [status, _] => Err(match fail_on_error(status.clone()) {
            Err(e) => e,
            Ok(other) => unexpected("a release of several locks", &format!("{other:?}")),
        }),
        _ => Err(unexpected("a release of several locks", "half an answer")),
    };
    Ok(answers.chunks(2).map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    fn ints(numbers: &[i64]) -> Reply {
        Reply::Array(numbers.iter().map(|n| Reply::Int(*n)).collect())
    }

    #[test]
    fn answers_are_typed() {
        let answer = |numbers: &[i64]| acquire_all_answer(ints(numbers), 2);
        assert_eq!(answer(&[1, 7, 0]).unwrap(), AcquireAllAnswer::Granted { tokens: vec![7, 0] });
        let ttl = Some(Duration::from_millis(5));
        assert_eq!(answer(&[0, 5, 2]).unwrap(), AcquireAllAnswer::Busy { at: 1, ttl });
        assert_eq!(answer(&[0, -1, 1]).unwrap(), AcquireAllAnswer::Busy { at: 0, ttl: None });
        assert_eq!(answer(&[2, 0, 2]).unwrap(), AcquireAllAnswer::Gone { at: 1 });
        assert_eq!(answer(&[4, 0, 1]).unwrap(), AcquireAllAnswer::WrongType { at: 0 });
        assert_eq!(answer(&[3, 0, 0]).unwrap(), AcquireAllAnswer::TooLate);
        for bad in [&[1, 7][..], &[0, 5, 3], &[0, 5, 0], &[2, 0, -1], &[9, 0, 0], &[]] {
            assert_eq!(answer(bad).unwrap_err().kind(), ErrorKind::Protocol, "{bad:?}");
        }
        let released = release_all_answer(ints(&[0, 0, 1, 0, 2, 3]), 3).unwrap();
        let released: Vec<_> = released.into_iter().map(Result::unwrap).collect();
        let freed = ReleaseAnswer::Freed { receivers: 3, next: None };
        assert_eq!(released, [ReleaseAnswer::NotHeld, ReleaseAnswer::StillHeld, freed]);
        assert_eq!(release_all_answer(ints(&[0, 0]), 2).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(release_all_answer(ints(&[7, 0]), 1).unwrap()[0].as_ref().unwrap_err().kind(), ErrorKind::Protocol);
    }
}
