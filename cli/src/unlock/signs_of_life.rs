//! Whether the holders of a lock live.
//!
//! A watchdog renews at a third of the lease, so a hold that is renewed has more than two thirds
//! left. That must happen within half of the remaining time, and this watches for it.
//!
//! A fixed lease is never renewed: its holder looks like a dead one. So a holder also lives if its
//! client has announced itself within a third of the lease. Of a holder that announces no lease, or
//! has a longer one, nothing is known: it is not taken for dead.

use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold::observe::{LockHolder, LockSummary};

use crate::failure::{Failure, say};
use crate::holders::who;
use crate::text::{time, visible};

/// A third of the default lease, and the delay that a busy holder may have.
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
            Look::Unclear { longest, why_doubt } => {
                watch = watch.max(longest);
                doubt = doubt.or(why_doubt);
            }
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
    /// To be watched for this long. If nothing is renewed, the holder is gone, unless there is a
    /// doubt.
    Unclear {
        longest: Duration,
        why_doubt: Option<String>,
    },
}

fn look_at(holder: &LockHolder) -> Look {
    let who = who(holder);
    let Some(left) = holder.remaining() else {
        return Look::Lives(format!("{who} holds it without a lease, or until its session ends"));
    };
    let longest = (left / 2 + NOISE).min(LONGEST_WATCH);
    let Some((lease, ago)) = holder.lease().zip(holder.announced_ago()) else {
        let why = "its lease is not known, and may be a fixed one, which nobody renews";
        return Look::Unclear { longest, why_doubt: Some(format!("{who} may be alive: {why}")) };
    };
    let unrenewed = lease.saturating_sub(left);
    if left <= lease && unrenewed < lease / 3 {
        Look::Lives(format!("{who} renewed it {} ago", time(unrenewed)))
    } else if ago < lease / 3 {
        let what = "and may have taken it with a fixed lease, which nobody renews";
        Look::Lives(format!("{who} announced itself {} ago, {what}", time(ago)))
    } else {
        let is_longer = left > lease;
        let why = || format!("{who} may be alive: its lease is longer than that of its client");
        Look::Unclear { longest, why_doubt: is_longer.then(why) }
    }
}

/// The sign of a holder that has more time left than at the poll before, or whose client has
/// announced itself since.
pub(super) fn renewed_since(before: &[LockHolder], now: &[LockHolder]) -> Option<String> {
    now.iter().find_map(|holder| {
        let earlier = before.iter().find(|one| one.id() == holder.id())?;
        let grows = |from: Option<Duration>, to: Option<Duration>| {
            from.zip(to).is_some_and(|(from, to)| to > from + NOISE)
        };
        let what = if grows(earlier.remaining(), holder.remaining()) {
            "renewed it"
        } else if grows(holder.announced_ago(), earlier.announced_ago()) {
            "announced itself"
        } else {
            return None;
        };
        Some(format!("{} has just {what}", who(holder)))
    })
}
