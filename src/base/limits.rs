//! What a lease and a name may be, checked before anything is sent.

use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};

/// Shorter than this, the margin and one round trip eat the lease up.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(20);
/// Longer than this is a mistake in units, and a lock that a crash leaves behind for good.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long the answer to a request that must not run twice is remembered, and so for how long it may be repeated.
pub(crate) const IDEMPOTENCY_TTL: Duration = Duration::from_secs(60);

/// How long a store remembers that a counting semaphore's permits were taken: for as long the undo of an acquisition whose reply
/// was lost gives them back. Beyond it nobody knows, and they are leaked.
pub(crate) const TAKEN_TTL: Duration = Duration::from_secs(600);

/// Redisson's counts are Java `int`s.
pub(crate) const MOST_PERMITS: u32 = i32::MAX as u32;
/// A script takes permits with leases one by one, and keeps the server from everybody else meanwhile.
pub(crate) const MOST_PERMITS_AT_ONCE: u32 = 10_000;

/// Names of a multi-lock: one script takes them all, 5 to 10 µs each, and keeps the server from everybody else meanwhile.
pub(crate) const MOST_NAMES: usize = 1000;

/// Permits or a count: 1 to `most`.
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
