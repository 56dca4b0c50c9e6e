//! How long a lock stays taken at least, whenever it is given up (`min_hold`).

use std::time::Duration;

use crate::base::lease::Moment;
use crate::os::atomic::{AtomicU64, Ordering};

/// Until when, in nanoseconds. A word and no more: each hold has it, and few have a `min_hold`.
#[derive(Debug, Default)]
pub(crate) struct MinHold(AtomicU64);

/// Its user has not got it, or wants no `min_hold`.
const NOT_BEGUN: u64 = 0;
/// Its user wants none any more.
const OVER: u64 = 1;

impl MinHold {
    /// From now on the lock stays taken until `least` has passed.
    ///
    /// Counted from when its user got it and not from the request before that: at the server the
    /// hold began in between.
    pub(crate) fn begin(&self, now: Moment, least: Duration) {
        let until = now.plus(least).as_nanos().max(OVER + 1);
        let _ = self.0.compare_exchange(NOT_BEGUN, until, Ordering::AcqRel, Ordering::Acquire);
    }

    /// From now on the lock is free as soon as the hold is given up.
    pub(crate) fn end(&self) {
        self.0.store(OVER, Ordering::Release);
    }

    /// Until when the lock stays taken.
    pub(super) fn until(&self) -> Option<Moment> {
        let until = self.0.load(Ordering::Acquire);
        (until > OVER).then(|| Moment::from_nanos(until))
    }
}
