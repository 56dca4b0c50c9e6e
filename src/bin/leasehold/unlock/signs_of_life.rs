//! Whether the holders of a lock still renew it.
//!
//! A watchdog renews at a third of the lease, so what lives has more than two thirds left. How long
//! the lease is, though, only some holders say. Of the others it is watched whether what is left
//! grows: within half of it that must happen, because at least two thirds were left.

use std::time::{Duration, Instant};

use leasehold::{LockClient, LockHolder, LockSummary};

use crate::failure::{Failure, say};
use crate::holders::{is_kept, who};
use crate::text::{time, visible};

/// The lease of those that do not say it, unless more is left: that of Redisson and of this
/// library, if nobody sets another.
const USUAL_LEASE: Duration = Duration::from_secs(30);
/// Long enough for every lease that is not refused at once.
const LONGEST_WATCH: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
/// Less is the noise of two requests.
const NOISE: Duration = Duration::from_millis(50);

/// What shows that a holder lives; `None` if none does. Blocks for ten seconds at most, besides
/// requests.
pub(super) fn sign_of_life(client: &LockClient, name: &str, lock: &LockSummary) -> Result<Option<String>, Failure> {
    let mut watch = Duration::ZERO;
    for holder in lock.holders().iter().filter(|holder| !is_kept(holder)) {
        match look_at(holder) {
            Look::Lives(sign) => return Ok(Some(sign)),
            Look::Unclear(longest) => watch = watch.max(longest),
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
        if let Some(renewed) = now.iter().find(|holder| is_renewed(&before, holder)) {
            return Ok(Some(format!("{} has just renewed it", who(renewed))));
        }
        if now.is_empty() {
            return Ok(None);
        }
        before = now;
    }
    Ok(None)
}

enum Look {
    Lives(String),
    /// To be watched for so long.
    Unclear(Duration),
}

fn look_at(holder: &LockHolder) -> Look {
    let Some(left) = holder.remaining() else {
        let why = format!("{} holds it without a lease, or as long as its session lives", who(holder));
        return Look::Lives(why);
    };
    let lease = holder.lease().unwrap_or(USUAL_LEASE).max(left);
    let ago = lease - left;
    if ago < lease / 3 {
        let may = if holder.lease().is_some() { "was" } else { "may have been" };
        return Look::Lives(format!("{} {may} renewed {} ago", who(holder), time(ago)));
    }
    Look::Unclear((left / 2 + NOISE).min(LONGEST_WATCH))
}

/// Whether more is left than at the look before.
fn is_renewed(before: &[LockHolder], holder: &LockHolder) -> bool {
    let earlier = before.iter().find(|one| one.id() == holder.id()).and_then(LockHolder::remaining);
    earlier.zip(holder.remaining()).is_some_and(|(earlier, now)| now > earlier + NOISE)
}
