//! How long a lock stays taken at least, whenever it is given up (`min_hold`).

use std::time::Duration;

use crate::base::lease::Moment;
use crate::os::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

#[derive(Debug, Default)]
pub(crate) struct MinHold {
    /// Set when its user has got it.
    until: OnceLock<Moment>,
    /// Its user wants none any more.
    is_over: AtomicBool,
}

impl MinHold {
    /// From now on the lock stays taken until `least` has passed.
    ///
    /// Counted from when its user got it and not from the request before that: at the server the
    /// hold began in between.
    pub(crate) fn begin(&self, now: Moment, least: Duration) {
        let _ = self.until.set(now.plus(least));
    }

    /// From now on the lock is free as soon as the hold is given up.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Until when the lock stays taken.
    pub(super) fn until(&self) -> Option<Moment> {
        self.until.get().copied().filter(|_| !self.is_over.load(Ordering::Acquire))
    }
}
