//! The least time for which a lock stays taken, however early it is given up (`min_hold`).
//!
//! Outside the stores, everything it needs is here: it changes the request that gives up a hold, so
//! that the store leaves the lock taken for the rest of the time. The code for a release, an undo
//! or a close is not aware of it.
//!
//! The stores need a separate request for that (`Release::keeps_for`), because no other one does
//! it. A renewal with a short lease would leave the holder in place: a late renewal of it would
//! postpone the end, and its thread could re-enter the hold. And waiters would sleep until the end
//! that they know of, because only a release notifies them of a new one.

use std::time::Duration;

use crate::base::lease::Moment;
use crate::lease::records::{MinHold, StoreHold};
use crate::os::atomic::Ordering;
use crate::store::Release;

/// Its user has not got it, or wants no `min_hold`.
const NOT_BEGUN: u64 = 0;
/// Its user has cancelled it.
const OVER: u64 = 1;

impl MinHold {
    fn until(&self) -> Option<Moment> {
        let until = self.0.load(Ordering::Acquire);
        (until > OVER).then(|| Moment::from_nanos(until))
    }
}

impl StoreHold {
    /// From now on the lock stays taken until `least` has passed, unless such a time has begun
    /// before. Zero has no effect.
    ///
    /// Counted from when its user got it, and not from when the request was sent: at the server the
    /// hold began in between.
    pub(crate) fn begin_min_hold(&self, least: Duration) {
        if !least.is_zero() {
            let until = self.now().plus(least).as_nanos().max(OVER + 1);
            let _ = self.min_hold.0.compare_exchange(
                NOT_BEGUN,
                until,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
    }

    /// From now on the lock is free as soon as the hold is given up.
    pub(crate) fn end_min_hold(&self) {
        self.min_hold.0.store(OVER, Ordering::Release);
    }

    /// The release, changed so that the lock stays taken.
    pub(super) fn with_min_hold<'a>(&self, release: Release<'a>) -> Release<'a> {
        Release { kept_until: self.kept_until(), ..release }
    }

    /// Whether the lock stays taken if the hold is given up now: then it passes to nobody.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept_until().is_some_and(|until| self.now() < until)
    }

    /// Until when the lock stays taken, however early it is given up. `None` for a write hold that
    /// only reads now: a read hold has no `min_hold`.
    pub(super) fn kept_until(&self) -> Option<Moment> {
        self.min_hold.until().filter(|_| !self.has_others())
    }
}
