//! Whether the holders of a lock still renew it.
//!
//! A watchdog renews at a third of the lease, so a living holder has more than two thirds left. But
//! only some holders announce how long the lease is. For the others, this watches whether the
//! remaining time grows: that must happen within half of the remaining time, because at least two
//! thirds of the lease were left.

use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold::observe::{LockHolder, LockSummary};

use crate::failure::{Failure, say};
use crate::holders::who;
use crate::text::{time, visible};

/// The default lease of Redisson and of this library: a holder that announces no lease is expected
/// to have none that is longer.
const USUAL_LEASE: Duration = Duration::from_secs(30);
/// A third of the usual lease, and the delay that a busy holder may have.
const LONGEST_WATCH: Duration = Duration::from_secs(11);
const LOOK: Duration = Duration::from_millis(100);
/// A smaller difference is the noise of two requests.
const NOISE: Duration = Duration::from_millis(50);

/// Why a holder is alive, or may be; `None` if none is. Blocks for at most eleven seconds, plus
/// requests.
pub(super) fn sign_of_life(
    client: &LockClient,
    name: &str,
    lock: &LockSummary,
) -> Result<Option<String>, Failure> {
    let mut watch = Duration::ZERO;
    let mut doubt = None;
    for holder in lock.holders().iter().filter(|holder| !holder.is_kept()) {
        match look_at(holder) {
            Look::Lives(sign) => return Ok(Some(sign)),
            Look::Unclear(longest) => watch = watch.max(longest),
            Look::Unknown(why) => (watch, doubt) = (LONGEST_WATCH, Some(why)),
        }
    }
    if watch > NOISE {
        say(format_args!(
            "{}: watching for up to {} whether it is renewed",
            visible(name),
            time(watch)
        ));
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
    /// To be watched for this long: if nothing is renewed, the holder is gone.
    Unclear(Duration),
    /// To be watched; if nothing is renewed, it is still not known whether the holder is gone.
    Unknown(String),
}

fn look_at(holder: &LockHolder) -> Look {
    let Some(left) = holder.remaining() else {
        let why = format!("{} holds it without a lease, or until its session ends", who(holder));
        return Look::Lives(why);
    };
    match holder.lease() {
        Some(lease) if left <= lease && lease - left < lease / 3 => {
            Look::Lives(format!("{} renewed it {} ago", who(holder), time(lease - left)))
        }
        Some(lease) if left <= lease => Look::Unclear((left / 2 + NOISE).min(LONGEST_WATCH)),
        _ if left > USUAL_LEASE => {
            let why = format!("its lease is longer than {} and not known", time(USUAL_LEASE));
            Look::Unknown(format!("{} may be alive: {why}", who(holder)))
        }
        _ => Look::Unclear((left / 2 + NOISE).min(LONGEST_WATCH)),
    }
}

/// A holder that has more time left than at the poll before, if there is one.
pub(super) fn renewed_since(before: &[LockHolder], now: &[LockHolder]) -> Option<String> {
    let left_before =
        |id: &str| before.iter().find(|one| one.id() == id).and_then(LockHolder::remaining);
    let is_renewed = |holder: &&LockHolder| {
        left_before(holder.id())
            .zip(holder.remaining())
            .is_some_and(|(before, now)| now > before + NOISE)
    };
    now.iter().find(is_renewed).map(|holder| format!("{} has just renewed it", who(holder)))
}
