//! Whether others ask the holder for its lock. Only a hold with data can be asked for.

use std::time::Duration;

use crate::base::lease::Moment;
use crate::lease::records::StoreHold;
use crate::os::atomic::Ordering;

impl StoreHold {
    /// Called with the answer to each renewal. The clocks of two machines are never compared, so a
    /// question counts from when it came here.
    pub(crate) fn note_asked(&self, id: u64) {
        let Some(asked) = &self.visits.asked_for else { return };
        if id != 0 && asked.id.load(Ordering::Acquire) != id {
            asked.at.store(self.now().as_nanos(), Ordering::Release);
            asked.id.store(id, Ordering::Release);
        }
    }

    /// Whether somebody has asked for the lock within this time.
    pub(crate) fn is_asked_for(&self, within: Duration) -> bool {
        self.visits.asked_for.as_ref().is_some_and(|asked| {
            asked.id.load(Ordering::Acquire) != 0
                && self.now().since(Moment::from_nanos(asked.at.load(Ordering::Acquire))) < within
        })
    }
}
