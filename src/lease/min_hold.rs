//! The minimum time for which a lock stays taken, however early it is released (`min_hold`).
//!
//! This file is all that the kernel does for it: it changes the request that releases a hold, so
//! that the store leaves the lock taken for the rest of the time. The paths of a release, an undo
//! and a close do not know about it.
//!
//! The stores need a request of their own for that (`Release::keeps_for`). A renewal with a short
//! lease would leave the holder in place: a late renewal would postpone the end, and the holder's
//! thread could enter the hold again. And waiters would sleep until the end that they know, because
//! only a release notifies them of a different one.

use std::time::Duration;

use crate::base::lease::Moment;
use crate::lease::records::{MinHold, StoreHold};
use crate::os::atomic::Ordering;
use crate::store::Release;

/// The user has not got the hold yet, or asked for no `min_hold`.
const NOT_BEGUN: u64 = 0;
/// The user has ended the `min_hold`.
const OVER: u64 = 1;

impl MinHold {
    fn until(&self) -> Option<Moment> {
        let until = self.0.load(Ordering::Acquire);
        (until > OVER).then(|| Moment::from_nanos(until))
    }
}

impl StoreHold {
    /// The lock stays taken until `least` has passed, unless an earlier call has set that. Zero has
    /// no effect.
    ///
    /// The time counts from when the user got the hold, and not from the earlier request: at the
    /// server the hold began in between.
    pub(crate) fn begin_min_hold(&self, least: Duration) {
        if !least.is_zero() {
            let until = self.now().plus(least).as_nanos().max(OVER + 1);
            let _ = self.min_hold.0.compare_exchange(NOT_BEGUN, until, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// The lock becomes free as soon as the hold is released.
    pub(crate) fn end_min_hold(&self) {
        self.min_hold.0.store(OVER, Ordering::Release);
    }

    /// The release, changed so that the lock stays taken.
    pub(super) fn with_min_hold<'a>(&self, release: Release<'a>) -> Release<'a> {
        Release { kept_until: self.kept_until(), ..release }
    }

    /// Whether the lock would stay taken if the hold were released now: then nobody is next.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept_until().is_some_and(|until| self.now() < until)
    }

    /// Until when the lock stays taken, however early it is released. `None` for a write hold that
    /// was downgraded: a read hold has no `min_hold`.
    pub(super) fn kept_until(&self) -> Option<Moment> {
        self.min_hold.until().filter(|_| !self.has_others())
    }
}
