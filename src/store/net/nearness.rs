//! Whether the server is so near that callers gain by sharing a connection.

use std::time::Duration;

use crate::os::atomic::{AtomicU32, Ordering};

/// Over the loopback interface an answer takes 15 to 60 µs, most of which is work of the
/// processors. From a server that is further away it takes long enough for others to wait in vain.
const NEAR: u32 = 100;
/// How slowly longer times count: on a busy machine most of them are long, also from near.
const SLOWLY: u32 = 64;
const UNKNOWN: u32 = u32::MAX;

/// A low estimate of how long an answer takes, if nothing else is under way on its connection.
pub(super) struct Nearness {
    micros: AtomicU32,
}

impl Default for Nearness {
    fn default() -> Self {
        Self { micros: AtomicU32::new(UNKNOWN) }
    }
}

impl Nearness {
    pub(super) fn is_near(&self) -> bool {
        self.micros.load(Ordering::Relaxed) <= NEAR
    }

    pub(super) fn measured(&self, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(UNKNOWN);
        let before = self.micros.load(Ordering::Relaxed);
        // Two threads may measure at once: it is advice.
        self.micros.store(took.min(before.saturating_add(took / SLOWLY)), Ordering::Relaxed);
    }

    /// The next connection may lead to another server.
    pub(super) fn forget(&self) {
        self.micros.store(UNKNOWN, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(nearness: &Nearness, micros: u64, times: u32) {
        for _ in 0..times {
            nearness.measured(Duration::from_micros(micros));
        }
    }

    #[test]
    fn a_server_is_near_when_an_answer_has_come_soon_and_until_many_come_late() {
        let nearness = Nearness::default();
        assert!(!nearness.is_near());
        measure(&nearness, 900, 10);
        assert!(!nearness.is_near());
        measure(&nearness, 30, 1);
        measure(&nearness, 900, 5);
        assert!(nearness.is_near(), "one late answer among others says nothing");
        measure(&nearness, 900, 10);
        assert!(!nearness.is_near());
        measure(&nearness, 30, 1);
        nearness.forget();
        assert!(!nearness.is_near());
    }
}
