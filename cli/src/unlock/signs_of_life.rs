//! Whether the holders of a lock still renew it.
//!
//! A watchdog renews at a third of the lease, so what lives has more than two thirds left. How long
//! the lease is, though, only some holders say. Of the others it is watched whether what is left
//! grows: within half of it that must happen, because at least two thirds were left.

use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold::observe::{LockHolder, LockSummary};

use crate::failure::{Failure, say};
use crate::holders::who;
use crate::text::{time, visible};

/// That of Redisson and of this library, if nobody sets another: who does not say another is
/// expected to have no longer one.
const USUAL_LEASE: Duration = Duration::from_secs(30);
/// A third of that, and what a busy holder may be late by.
const LONGEST_WATCH: Duration = Duration::from_secs(11);
const LOOK: Duration = Duration::from_millis(100);
/// Less is the noise of two requests.
const NOISE: Duration = Duration::from_millis(50);

/// Why a holder lives, or may live; `None` if none does. Blocks for eleven seconds at most, besides
/// requests.
pub(super) fn sign_of_life(client: &LockClient, name: &str, lock: &LockSummary) -> Result<Option<String>, Failure> {
    let (mut watch, mut doubt) = (Duration::ZERO, None);
    for holder in lock.holders().iter().filter(|holder| !holder.is_kept()) {
        match look_at(holder) {
            Look::Lives(sign) => return Ok(Some(sign)),
            Look::Unclear(longest) => watch = watch.max(longest),
            Look::Unknown(why) => (watch, doubt) = (LONGEST_WATCH, Some(why)),
        }
    }
    if watch > NOISE {
        say(format_args!("{}: looking for up to {} whether it is renewed", visible(name), time(watch)));
    }
    let mut before: Vec<LockHolder> = lock.holders().to_vec();
    let until = Instant::now() + watch;
    while Instant::now() < until {
        std::thread::sleep(LOOK);
        let report = client.inspect(name)?;
        let locks = report.iter().flat_map(|report| report.locks());
        let now: Vec<LockHolder> = locks.flat_map(|lock| lock.holders().iter().cloned()).collect();
        if let Some(sign) = renewed_since(&before, &now) {
            return Ok(Some(sign));
        }
        if now.is_empty() {
            return Ok(None);
        }
        before = now;
    }
    Ok(doubt)
}

enum Look {
    Lives(String),
    /// To be watched for so long: if nothing is renewed, it is gone.
    Unclear(Duration),
    /// To be watched, and not known even if nothing is renewed.
    Unknown(String),
}

fn look_at(holder: &LockHolder) -> Look {
    let Some(left) = holder.remaining() else {
        let why = format!("{} holds it without a lease, or as long as its session lives", who(holder));
        return Look::Lives(why);
    };
    match holder.lease() {
        Some(lease) if left <= lease && lease - left < lease / 3 => {
            Look::Lives(format!("{} was renewed {} ago", who(holder), time(lease - left)))
        }
        Some(lease) if left <= lease => Look::Unclear((left / 2 + NOISE).min(LONGEST_WATCH)),
        _ if left > USUAL_LEASE => {
            let why = format!("its lease is longer than {} and not known", time(USUAL_LEASE));
            Look::Unknown(format!("{} may live: {why}", who(holder)))
        }
        _ => Look::Unclear((left / 2 + NOISE).min(LONGEST_WATCH)),
    }
}

/// Whether one of them has more left than at the look before.
pub(super) fn renewed_since(before: &[LockHolder], now: &[LockHolder]) -> Option<String> {
    let left_before = |id: &str| before.iter().find(|one| one.id() == id).and_then(LockHolder::remaining);
    let is_renewed = |holder: &&LockHolder| {
        left_before(holder.id()).zip(holder.remaining()).is_some_and(|(before, now)| now > before + NOISE)
    };
    now.iter().find(is_renewed).map(|holder| format!("{} has just renewed it", who(holder)))
}
