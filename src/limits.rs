//! What a lease and a name may be, checked before anything is sent.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Shorter than this, the margin and one round trip eat the lease up.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(20);
/// Longer than this is a mistake in units, and a lock that a crash leaves behind for good.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

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
