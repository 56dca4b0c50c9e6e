//! When a waiter that receives no messages asks again.

use std::time::{Duration, Instant};

use crate::wait::fairness::{BLIND_GAP, LONGEST_UNBROKEN};

const PAUSE: Duration = Duration::from_millis(500);
/// The interval within a burst: two requests fit into one gap.
const IN_BURST: Duration = Duration::from_millis(3);

/// When a waiter that receives no messages asks again.
///
/// Between two pauses comes a burst of requests. A burst lasts longer than a client of this library
/// keeps the lock without a [gap](BLIND_GAP), so one of its requests finds the lock free, however
/// busy it is.
pub(super) struct BlindPoll {
    has_bursts: bool,
    state: Polled,
}

enum Polled {
    /// The next request begins a burst.
    Paused,
    InBurst {
        until: Instant,
    },
    /// It begins with a pause: usually the subscription is confirmed during it.
    Never,
}

impl BlindPoll {
    /// `has_bursts`: the lock can be kept by threads of one client that hand it to each other.
    pub(super) fn new(has_bursts: bool) -> Self {
        Self { has_bursts, state: Polled::Never }
    }

    pub(super) fn pause(&mut self, now: Instant) -> Duration {
        match self.state {
            Polled::InBurst { until } if now < until => return IN_BURST,
            Polled::Paused if self.has_bursts => {
                self.state = Polled::InBurst { until: now + LONGEST_UNBROKEN + 2 * BLIND_GAP };
                return IN_BURST;
            }
            Polled::InBurst { .. } | Polled::Paused | Polled::Never => self.state = Polled::Paused,
        }
        PAUSE
    }
}
