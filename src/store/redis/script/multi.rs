//! Scripts that acquire and release several locks as one.

use super::lock::{positive_millis, with_token};
use super::{MULTI_ACQUIRE, MULTI_RELEASE, fail_on_error, unexpected};
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::store::redis::keys::{LOCK_CHANNEL, RedisKeys};
use crate::store::redis::wire::{Reply, Request, Shape};
use crate::store::{AcquireAll, AcquiredAll, Release, Released};

/// `again`: an earlier run of this request may have been granted.
pub(crate) fn acquire_all(request: &AcquireAll<'_>, again: bool) -> Request {
    let AcquireAll { parts, lease, token, .. } = request;
    let locks = parts.iter().map(|part| RedisKeys::of(part.name).lock.as_bytes());
    let keys: Vec<&[u8]> =
        locks.chain(parts.iter().map(|part| RedisKeys::of(part.name).token.as_bytes())).collect();
    let request = Request::script(&MULTI_ACQUIRE, &keys);
    let request = parts.iter().fold(request, |request, part| request.arg(part.holder.as_str()));
    let request = parts.iter().fold(request, |request, part| request.number(u64::from(part.held)));
    let request = with_token(request.number(ceil_millis(*lease)), *token)
        .arg(format!("{LOCK_CHANNEL}:"))
        .number(u64::from(again))
        .with_floor_and_limit();
    if parts.iter().all(|part| part.held == 0) { request.for_fresh_holder() } else { request }
}

pub(crate) fn acquire_all_answer(
    reply: Reply,
    asked: &AcquireAll<'_>,
    sent_at: Moment,
) -> Result<AcquiredAll> {
    const ASKED: &str = "an acquire of several locks";
    let Some(answer) = fail_on_error(reply)?.into_list() else {
        return Err(unexpected(ASKED, "no list"));
    };
    let number = |reply: &Reply| if let Reply::Int(n) = reply { Some(*n) } else { None };
    let numbers: Option<Vec<i64>> = answer.iter().map(number).collect();
    let index =
        |at: i64| usize::try_from(at).ok()?.checked_sub(1).filter(|at| *at < asked.parts.len());
    let outcome = match numbers.as_deref() {
        Some([1, tokens @ ..]) if tokens.len() == asked.parts.len() => {
            let tokens = tokens.iter().map(|token| token.unsigned_abs()).collect();
            Some(AcquiredAll::Granted { tokens, sent_at, session: None })
        }
        Some(&[0, ttl, at]) => {
            index(at).map(|at| AcquiredAll::Busy { at, ttl: positive_millis(ttl) })
        }
        Some(&[2, _, at]) => index(at).map(|at| AcquiredAll::Gone { at }),
        Some(&[4, _, at]) => match index(at) {
            Some(at) => {
                let why = "something that is not a plain lock has this name";
                return Err(Error::named(ErrorKind::WrongType, &asked.parts[at].name.name, why));
            }
            None => None,
        },
        _ => None,
    };
    outcome.ok_or_else(|| unexpected(ASKED, &format!("{answer:?}")))
}

/// `now`: the time at which it is sent.
pub(crate) fn release_all(releases: &[Release<'_>], now: impl Fn() -> Moment) -> Request {
    let keys: Vec<&[u8]> =
        releases.iter().map(|one| RedisKeys::of(one.name).lock.as_bytes()).collect();
    let request =
        Request::script(&MULTI_RELEASE, &keys).answered_by(Shape::Each(2 * releases.len() as u32));
    let request = releases.iter().fold(request, |request, one| request.arg(one.holder.as_str()));
    let request =
        releases.iter().fold(request, |request, one| request.number(u64::from(one.left.main) + 1));
    let request =
        releases.iter().fold(request, |request, one| request.arg(RedisKeys::of(one.name).channel));
    let keeps: Vec<_> = releases.iter().map(|one| one.keeps_for(&now)).collect();
    if keeps.iter().any(Option::is_some) {
        keeps.into_iter().fold(request, |request, rest| request.number(rest.map_or(0, ceil_millis)))
    } else {
        request
    }
}

/// One answer for each lock, in order.
pub(crate) fn release_all_answer(reply: Reply, holds: usize) -> Result<Vec<Result<Released>>> {
    const ASKED: &str = "a release of several locks";
    let Some(answers) = fail_on_error(reply)?.into_list() else {
        return Err(unexpected(ASKED, "no list"));
    };
    if answers.len() != 2 * holds {
        return Err(unexpected(ASKED, &format!("{} values for {holds} locks", answers.len())));
    }
    let one = |pair: &[Reply]| match pair {
        [Reply::Int(0), _] => Ok(Released::NotHeld),
        [Reply::Int(1), _] => Ok(Released::StillHeld),
        [Reply::Int(2), Reply::Int(receivers)] => Ok(Released::Freed {
            listeners: Some(u64::try_from(*receivers).unwrap_or(0)),
            next: None,
        }),
        [status, _] => Err(match fail_on_error(status.clone()) {
            Err(e) => e,
            Ok(other) => unexpected(ASKED, &format!("{other:?}")),
        }),
        _ => Err(unexpected(ASKED, "half an answer")),
    };
    Ok(answers.chunks(2).map(one).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::holder::ClientId;
    use crate::base::lock_name::{Kind, LockName};
    use crate::store::{Part, TokenRule};

    fn ints(numbers: &[i64]) -> Reply {
        match numbers {
            [first, second] => Reply::Pair(*first, *second),
            _ => Reply::Array(numbers.iter().map(|n| Reply::Int(*n)).collect()),
        }
    }

    #[test]
    fn answers_are_typed() {
        let names = ["a", "b"].map(|name| LockName::new("", name, Kind::Mutex).unwrap());
        let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
        let parts = names.iter().map(|name| Part { name, holder: &holder, held: 0 }).collect();
        let (lease, token, sent_at) =
            (Duration::from_secs(1), TokenRule::On, Moment::from_nanos(5));
        let asked = AcquireAll { parts, lease, token, waits: true, goes_on: true, leads: false };
        let answer = |numbers: &[i64]| acquire_all_answer(ints(numbers), &asked, sent_at);
        assert_eq!(
            answer(&[1, 7, 0]).unwrap(),
            AcquiredAll::Granted { tokens: vec![7, 0], sent_at, session: None }
        );
        let ttl = Some(Duration::from_millis(5));
        assert_eq!(answer(&[0, 5, 2]).unwrap(), AcquiredAll::Busy { at: 1, ttl });
        assert_eq!(answer(&[0, -1, 1]).unwrap(), AcquiredAll::Busy { at: 0, ttl: None });
        assert_eq!(answer(&[2, 0, 2]).unwrap(), AcquiredAll::Gone { at: 1 });
        let wrong = answer(&[4, 0, 1]).unwrap_err();
        assert_eq!((wrong.kind(), wrong.name()), (ErrorKind::WrongType, Some("a")));
        for bad in [
            &[1, 7][..],
            &[0, 5, i64::MIN],
            &[0, 5, 3],
            &[0, 5, 0],
            &[2, 0, -1],
            &[3, 0, 0],
            &[4, 0, 3],
            &[9, 0, 0],
            &[],
        ] {
            assert_eq!(answer(bad).unwrap_err().kind(), ErrorKind::Protocol, "{bad:?}");
        }
        let released = release_all_answer(ints(&[0, 0, 1, 0, 2, 3]), 3).unwrap();
        let released: Vec<_> = released.into_iter().map(Result::unwrap).collect();
        let freed = Released::Freed { listeners: Some(3), next: None };
        assert_eq!(released, [Released::NotHeld, Released::StillHeld, freed]);
        assert_eq!(release_all_answer(ints(&[0, 0]), 2).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(
            release_all_answer(ints(&[7, 0]), 1).unwrap()[0].as_ref().unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }
}
