//! A share: one read hold in the store that several threads of one client have at the same time.
//!
//! A thread that begins to read while another thread of its client reads joins that hold, and asks
//! nobody. Each member has a grant of its own: guard, callbacks, `max_hold`, renewals. What they
//! share is the holder, which the store knows once. The hold is given up there by the member that
//! leaves last, so nothing else may take it from the store before that: a member that leaves
//! earlier, whatever became of its lease, sends nothing.
//!
//! **The lease.** A member begins with the lease that the store has confirmed for the one whose
//! hold it joins, and from then on believes only in its own renewals.
//!
//! **Others.** A writer elsewhere that waits is known only to the store, which lets no new reader
//! in. So a share is open for a short time; who comes later asks the store again. A writer of this
//! client that waits closes it at once: it stands in the local queue, and readers queue behind it.
//!
//! **Losses.** What one member learns of the loss of the hold, all are told.

use std::time::Duration;

use crate::base::lease::Moment;
use crate::os::atomic::{AtomicU32, AtomicU64, Ordering};

/// How long a share is open. A writer elsewhere waits so much longer at most.
const OPEN: Duration = Duration::from_millis(4);

/// What the grants of all members have in common.
#[derive(Debug)]
pub(super) struct Share {
    open_until: Moment,
    members: AtomicU32,
    /// The longest lease that any member asked for, in nanoseconds.
    longest: AtomicU64,
}

impl Share {
    /// With one member, for a hold that was granted at this moment.
    pub(super) fn new(granted_at: Moment) -> Self {
        Self { open_until: granted_at.plus(OPEN), members: AtomicU32::new(1), longest: AtomicU64::new(0) }
    }

    pub(super) fn is_open(&self, now: Moment) -> bool {
        now < self.open_until
    }

    /// Counts one more member; false if the last has left. Whoever counts it must see to it that it
    /// [leaves](Self::leave).
    pub(super) fn count_one(&self) -> bool {
        let one_more = |members: u32| if members == 0 { None } else { members.checked_add(1) };
        self.members.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// Takes back a [`count_one`](Self::count_one). Only a member may call it: so the count stays
    /// above zero.
    pub(super) fn take_back_one(&self) {
        self.members.fetch_sub(1, Ordering::AcqRel);
    }

    /// For a member, once. True for the last: it gives up the hold in the store.
    pub(super) fn leave(&self) -> bool {
        self.members.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(super) fn asks_for(&self, nanos: u64) {
        self.longest.fetch_max(nanos, Ordering::AcqRel);
    }

    pub(super) fn longest(&self) -> u64 {
        self.longest.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_leave_is_told_and_nobody_joins_after_it() {
        let share = Share::new(Moment::from_nanos(0));
        assert!(share.count_one() && !share.leave() && share.leave());
        assert!(!share.count_one());
    }

    #[test]
    fn it_is_open_for_a_short_time() {
        let granted_at = Moment::from_nanos(5_000_000);
        let share = Share::new(granted_at);
        assert!(share.is_open(granted_at) && !share.is_open(granted_at.plus(OPEN)));
    }
}
