//! When the next connect may begin: after a failure, all threads of a client try again together,
//! with one growing pause. Each with a pause of its own, two hundred waiters would connect hundreds
//! of times a second to a server that is down, or full.

use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::random::Backoff;
use crate::os;

/// After the first failure, and at most. A call that finds the server back waits for what is left,
/// so it is no more than a part of the I/O timeout, after which that call fails.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

pub(crate) struct Pace {
    pauses: Backoff,
    failed: Option<Failure>,
}

/// The last connect failed.
struct Failure {
    error: Error,
    at: Instant,
    pause: Duration,
}

impl Pace {
    pub(crate) fn new(io_timeout: Duration) -> Self {
        let longest = LONGEST_PAUSE.min(io_timeout / 4);
        Self { pauses: Backoff::new(FIRST_PAUSE.min(longest), longest), failed: None }
    }

    /// How long the next connect has to wait.
    pub(crate) fn pause(&self) -> Duration {
        self.failed
            .as_ref()
            .map_or(Duration::ZERO, |failure| failure.pause.saturating_sub(os::since(failure.at)))
    }

    pub(crate) fn succeeded(&mut self) {
        self.pauses.reset();
        self.failed = None;
    }

    pub(crate) fn failed(&mut self, error: Error) {
        self.failed = Some(Failure { error, at: os::now(), pause: self.pauses.next() });
    }

    /// Why the last connect failed; `None` if it succeeded.
    pub(crate) fn trouble(&self) -> Option<&Error> {
        self.failed.as_ref().map(|failure| &failure.error)
    }

    /// The same, if it failed after `began`.
    pub(crate) fn trouble_since(&self, began: Instant) -> Option<&Error> {
        self.failed.as_ref().filter(|failure| failure.at > began).map(|failure| &failure.error)
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
