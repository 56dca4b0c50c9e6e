//! What the watchdog knows of its visits to a hold, and how often a clock is read for a lease.

use std::time::Duration;

use crate::os::atomic::AtomicU64;

/// The watchdog does not visit the hold.
pub(super) const NOT_SCHEDULED: u64 = u64::MAX;

/// How often a thread that keeps the deadline of a lease reads the clock: condition variables do
/// not count the time that the machine is suspended.
pub(crate) fn tick(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(1)).max(Duration::from_millis(1))
}

/// What the watchdog knows of its visits to a hold.
#[derive(Debug)]
pub(super) struct Visits {
    /// When the next one is, in nanoseconds, or [`NOT_SCHEDULED`]. Changed only under the mutex of
    /// the watchdog's table.
    pub(super) due: AtomicU64,
    /// When the renewal was sent that has not been answered, in nanoseconds; 0 for none.
    pub(super) sent: AtomicU64,
}

impl Default for Visits {
    fn default() -> Self {
        Self { due: AtomicU64::new(NOT_SCHEDULED), sent: AtomicU64::new(0) }
    }
}
