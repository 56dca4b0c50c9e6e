//! Whether a thread that is about to write lets others queue first.

use std::time::Duration;

use crate::os;
use crate::os::atomic::{AtomicU32, Ordering};

/// If the processor comes back later than this, another program had it.
const LONG: Duration = Duration::from_micros(500);
/// So many writes go without afterwards.
const WITHOUT: u32 = 1000;

/// A thread that writes for others gives its processor away once: those that were just woken by the
/// same answers queue their next requests meanwhile, and one write serves all of them. Where other
/// programs want the processor as well, they keep it for milliseconds.
#[derive(Default)]
pub(super) struct Gathering {
    /// How many writes go without.
    without: AtomicU32,
}

impl Gathering {
    pub(super) fn let_others_queue(&self) {
        let without = self.without.load(Ordering::Relaxed);
        if without > 0 {
            // Two threads may count one write: it is advice.
            return self.without.store(without - 1, Ordering::Relaxed);
        }
        let began = os::now();
        os::thread::yield_now();
        if os::since(began) > LONG {
            self.without.store(WITHOUT, Ordering::Relaxed);
        }
    }
}
