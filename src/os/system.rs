//! A normal build: the operating system's.

pub(crate) use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{self, PoisonError};
pub(crate) use std::sync::{OnceLock, WaitTimeoutResult, atomic, mpsc};
pub(crate) use std::thread_local;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use parking_lot::RwLock;
use rand::TryRng;
use rand::rngs::SysRng;

use super::mutex::MutexGuard;

pub(crate) mod thread {
    pub(crate) use std::thread::{
        Builder, JoinHandle, Thread, ThreadId, current, panicking, sleep,
    };
    #[cfg(feature = "redlock")]
    pub(crate) use std::thread::{ScopedJoinHandle, scope};
}

/// With the interface of `parking_lot`.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    condvar: sync::Condvar,
    /// Changed with the mutex locked, so whoever has changed what is waited for sees each waiter.
    /// Without it each notification would be a system call, most of them for nobody.
    waiters: AtomicU32,
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self { condvar: sync::Condvar::new(), waiters: AtomicU32::new(0) }
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_for(guard, Duration::MAX);
    }

    pub(crate) fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let locked = guard.locked.take().expect("it is unlocked only while it waits");
        self.waiters.fetch_add(1, Relaxed);
        let waited = self.condvar.wait_timeout(locked, timeout);
        self.waiters.fetch_sub(1, Relaxed);
        let (locked, result) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.locked = Some(locked);
        result
    }

    pub(crate) fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait_for(guard, deadline.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn notify_one(&self) {
        if self.waiters.load(Relaxed) > 0 {
            self.condvar.notify_one();
        }
    }

    pub(crate) fn notify_all(&self) {
        if self.waiters.load(Relaxed) > 0 {
            self.condvar.notify_all();
        }
    }
}

/// Waits for a thread that has nothing left to do.
#[cfg(not(windows))]
pub(crate) fn join(thread: thread::JoinHandle<()>, _deadline: Instant) {
    let _ = thread.join();
}

/// The caller may be the destructor of a thread-local. It has the loader lock, and no thread begins
/// or ends entirely meanwhile: this waits for the thread's own code, and not beyond the deadline.
#[cfg(windows)]
pub(crate) fn join(thread: thread::JoinHandle<()>, deadline: Instant) {
    while !thread.is_finished() && now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[inline]
pub(crate) fn since(then: Instant) -> Duration {
    then.elapsed()
}

/// A clock that also counts the time during which the machine sleeps, in nanoseconds. Apple's
/// `CLOCK_MONOTONIC` does, and that of Linux does not; `Instant` is a clock that stops on both.
#[cfg(any(
    target_os = "linux",
    target_os = "android",
    target_os = "openbsd",
    target_vendor = "apple"
))]
pub(crate) fn boot_nanos() -> u64 {
    #[cfg(target_vendor = "apple")]
    const COUNTS_SLEEP: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    #[cfg(not(target_vendor = "apple"))]
    const COUNTS_SLEEP: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    let t = rustix::time::clock_gettime(COUNTS_SLEEP);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// `Instant`, in nanoseconds. On Windows it is the performance counter, which goes on during sleep,
/// hibernation and connected standby (Microsoft: "Acquiring high-resolution time stamps").
/// `QueryUnbiasedInterruptTime` stops then, and `GetTickCount64` advances in steps of 10 to 16 ms,
/// by which a guard would believe too long. On other systems `Instant` does not count sleep, or not
/// certainly, and a machine that slept is noticed a little later by the jump of the wall clock.
#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "openbsd",
    target_vendor = "apple"
)))]
pub(crate) fn boot_nanos() -> u64 {
    use std::sync::LazyLock;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let start = *START;
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
}

/// The wall clock since 1970.
pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// From the operating system, not from the thread-local generator of `rand`. In the destructor of
/// another thread-local that generator may be gone, and using it then aborts the process. A child
/// made by `fork()` has a copy of it, so both processes would make the same ids.
pub(crate) fn random_number() -> u64 {
    SysRng.try_next_u64().expect("the operating system has random numbers")
}
