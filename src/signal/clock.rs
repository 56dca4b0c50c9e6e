//! The clock that leases are counted by, injected so that tests set it.

use std::fmt;
use std::time::Duration;

use crate::base::lease::Moment;
use crate::os;

pub(crate) trait Clock: Send + Sync + fmt::Debug {
    /// Never goes back, and counts the time the machine was suspended, where the system has a clock
    /// that does.
    fn now(&self) -> Moment;

    /// The wall clock since 1970. Only ever *compared* with `now`: a jump ahead of it is a cheap
    /// sign that a virtual machine was paused without its boot-time clock noticing.
    fn wall(&self) -> Duration;
}

/// Both clocks as they were last read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockReading {
    now: Moment,
    wall: Duration,
}

impl ClockReading {
    pub(crate) fn at(clock: &dyn Clock, now: Moment) -> Self {
        Self { now, wall: clock.wall() }
    }

    /// How much further than the boot-time clock the wall clock has advanced since `before`.
    pub(crate) fn jumped_since(&self, before: &Self) -> Duration {
        self.wall.saturating_sub(before.wall).saturating_sub(self.now.since(before.now))
    }
}

#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(os::boot_nanos())
    }

    fn wall(&self) -> Duration {
        os::wall()
    }
}

/// The clocks of the system, plus the offset that a test has set.
#[derive(Debug, Default)]
pub(crate) struct MovableClock {
    ahead_nanos: crate::os::atomic::AtomicU64,
}

impl MovableClock {
    #[cfg(feature = "testing")]
    pub(crate) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let ordering = crate::os::atomic::Ordering::SeqCst;
        let _ = self
            .ahead_nanos
            .fetch_update(ordering, ordering, |ahead| Some(ahead.saturating_add(by)));
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.ahead_nanos.load(crate::os::atomic::Ordering::SeqCst))
    }
}

impl Clock for MovableClock {
    fn now(&self) -> Moment {
        SystemClock.now().plus(self.ahead())
    }

    fn wall(&self) -> Duration {
        SystemClock.wall() + self.ahead()
    }
}

/// A clock that moves only when a test moves it.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct FakeClock {
    now_nanos: crate::os::atomic::AtomicU64,
    wall_nanos: crate::os::atomic::AtomicU64,
}

#[cfg(test)]
impl FakeClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.now_nanos.fetch_add(by.as_nanos() as u64, crate::os::atomic::Ordering::SeqCst);
        self.jump_wall(by);
    }

    /// Moves only the wall clock, as after a pause that the boot-time clock did not count.
    pub(crate) fn jump_wall(&self, by: Duration) {
        self.wall_nanos.fetch_add(by.as_nanos() as u64, crate::os::atomic::Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Clock for FakeClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.now_nanos.load(crate::os::atomic::Ordering::SeqCst))
    }

    fn wall(&self) -> Duration {
        Duration::from_nanos(self.wall_nanos.load(crate::os::atomic::Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_forward() {
        let a = SystemClock.now();
        while SystemClock.now() <= a {
            std::hint::spin_loop();
        }
        assert!(SystemClock.wall() > Duration::from_secs(1_700_000_000));
    }
}
