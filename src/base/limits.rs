//! Limits of leases, counts and names, checked before anything is sent.

use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};

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
    Err(Error::new(ErrorKind::InvalidInput, format!("{count} is not between 1 and {most}")))
}

pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("a lease of {lease:?} is not between {SHORTEST_LEASE:?} and 365 days"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

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
