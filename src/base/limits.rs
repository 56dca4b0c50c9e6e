//! Limits of leases, counts and names, checked before anything is sent.

use std::time::Duration;

use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::lock_name::{Kind, LockName};

/// A shorter lease would be used up by the margin and one round trip.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(20);
/// A longer lease is a mistake in units: after a crash the lock would stay locked for years.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a store keeps the answer to a request that must not run twice, and therefore how long
/// the request may be repeated.
pub(crate) const IDEMPOTENCY_TTL: Duration = Duration::from_secs(60);

/// How long a store remembers which acquisition took permits of a counting semaphore. Until then an
/// undo can return them after a lost reply; later they are leaked.
pub(crate) const TAKEN_TTL: Duration = Duration::from_secs(600);

/// Redisson's counts are Java `int`s.
pub(crate) const MOST_PERMITS: u32 = i32::MAX as u32;
/// A script takes permits with leases one by one, and the server serves nobody else meanwhile.
pub(crate) const MOST_PERMITS_AT_ONCE: u32 = 10_000;

/// Maximum number of names of a multi-lock. One script takes them all, 5 to 10 µs each, and the
/// server serves nobody else meanwhile.
pub(crate) const MOST_NAMES: usize = 1000;

/// Checks that a number of permits or a count is from 1 to `most`.
pub(crate) fn check_count(count: u32, most: u32) -> Result<()> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(invalid(format!("the number {count} is not between 1 and {most}")))
}

/// The error of a call that asks for more permits than there can ever be: 0 if nobody has set how
/// many.
#[cold]
pub(crate) fn too_few(name: &LockName, permits: u64) -> Error {
    let (why, advice) = match (name.kind, permits) {
        (Kind::RateLimiter, 0) => {
            ("nobody has set the rate of the limiter".to_owned(), Some(Advice::SetRate))
        }
        (Kind::RateLimiter, _) => {
            let why =
                format!("the rate of the limiter is {permits} permits, fewer than were asked for");
            (why, None)
        }
        (_, 0) => ("the semaphore has no permits".to_owned(), Some(Advice::SetPermits)),
        _ => {
            (format!("the semaphore has {permits} permits in all, fewer than were asked for"), None)
        }
    };
    let error = Error::named(ErrorKind::Conflict, &name.name, why);
    match advice {
        Some(advice) => error.advise(advice),
        None => error,
    }
}

pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(invalid(format!(
        "a lease of {} is not between {SHORTEST_LEASE:?} and 365 days",
        in_words(lease)
    )))
}

/// The error of a hold that ends at once.
#[cold]
pub(crate) fn zero_max_hold() -> Error {
    let why = "a maximum hold of zero would never let a lock be renewed";
    invalid(why).advise(Advice::FixLease)
}

/// A time as people write it: `0 s` and `400 days` where `Debug` has `0ns` and `34560000s`.
pub(crate) fn in_words(time: Duration) -> String {
    const DAY: u64 = 86_400;
    match time.as_secs() {
        0 if time.is_zero() => "0 s".to_owned(),
        seconds if seconds >= 2 * DAY && seconds.is_multiple_of(DAY) => {
            format!("{} days", seconds / DAY)
        }
        _ => format!("{time:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_write_them() {
        for (time, words) in [
            (Duration::ZERO, "0 s"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::from_secs(86_401), "86401s"),
            (Duration::from_secs(400 * 86_400), "400 days"),
        ] {
            assert_eq!(in_words(time), words);
        }
    }

    #[test]
    fn leases_have_a_range() {
        for good in [SHORTEST_LEASE, Duration::from_secs(30), LONGEST_LEASE] {
            assert!(check_lease(good).is_ok());
        }
        for bad in [Duration::ZERO, Duration::from_millis(19), Duration::MAX] {
            assert_eq!(check_lease(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}
