//! Deadlines of callers, and durations in whole milliseconds.

use std::time::{Duration, Instant};

/// When a call must give up waiting. The current time is an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// One attempt, without waiting.
    Now,
    At(Instant),
    Never,
}

impl Deadline {
    /// `timeout` from `now`. Never, if that overflows the clock.
    pub(crate) fn after(now: Instant, timeout: Duration) -> Self {
        now.checked_add(timeout).map_or(Self::Never, Self::At)
    }

    /// The time that is left; `None` if it is unlimited.
    pub(crate) fn remaining(self, now: Instant) -> Option<Duration> {
        match self {
            Self::Now => Some(Duration::ZERO),
            Self::At(at) => Some(at.saturating_duration_since(now)),
            Self::Never => None,
        }
    }

    pub(crate) fn has_passed(self, now: Instant) -> bool {
        self.remaining(now) == Some(Duration::ZERO)
    }
}

/// Whole milliseconds, rounded up: a lease must not become shorter when it is sent.
pub(crate) fn ceil_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_never_ends() {
        let now = Instant::now();
        assert_eq!(Deadline::after(now, Duration::MAX), Deadline::Never);
        assert_eq!(Deadline::Never.remaining(now), None);
        assert!(!Deadline::Never.has_passed(now));
    }

    #[test]
    fn passes_at_its_instant() {
        let now = Instant::now();
        let d = Deadline::after(now, Duration::from_millis(5));
        assert_eq!(d.remaining(now), Some(Duration::from_millis(5)));
        assert!(!d.has_passed(now) && d.has_passed(now + Duration::from_millis(5)));
        assert!(Deadline::Now.has_passed(now));
    }

    #[test]
    fn millis_round_up() {
        assert_eq!(ceil_millis(Duration::from_nanos(1)), 1);
        assert_eq!(ceil_millis(Duration::from_millis(7)), 7);
        assert_eq!(ceil_millis(Duration::MAX), u64::MAX);
    }
}
