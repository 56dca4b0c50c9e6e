//! Which process a client belongs to: in a child made by `fork()` the threads are gone, mutexes may be locked for ever,
//! and the connections are the parent's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::lease::Moment;

/// Asking who we are is a system call, five times as dear as the rest of `is_held`. No fork is done in so short a time
/// (it copies the page tables; the fastest take a few times as long), so whoever asks again this soon is no child.
const NO_FORK_WITHIN: Duration = Duration::from_micros(10);

/// The process that made a client.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    id: u32,
    /// Of process 1 only: a child in a PID namespace of its own can have the same number, and it is mostly this one. For
    /// all others the look would cost every lock call a microsecond, and find nothing.
    namespace: Option<u64>,
    /// When it was last seen to be this one, in nanoseconds of the lease clock.
    seen: AtomicU64,
}

impl OwnProcess {
    pub(crate) fn now() -> Self {
        let id = std::process::id();
        Self { id, namespace: namespace_of(id), seen: AtomicU64::new(0) }
    }

    /// Whether the caller is in another process; `now` by the lease clock.
    pub(crate) fn is_other(&self, now: Moment) -> bool {
        let seen = Moment::from_nanos(self.seen.load(Ordering::Relaxed));
        if now.since(seen) < NO_FORK_WITHIN && now >= seen {
            return false;
        }
        let id = std::process::id();
        let is_other = id != self.id || namespace_of(id) != self.namespace;
        if !is_other {
            self.seen.store(now.as_nanos(), Ordering::Relaxed);
        }
        is_other
    }
}

#[cfg(target_os = "linux")]
fn namespace_of(process: u32) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    if process != 1 {
        return None;
    }
    std::fs::metadata("/proc/self/ns/pid").ok().map(|file| file.ino())
}

#[cfg(not(target_os = "linux"))]
fn namespace_of(_: u32) -> Option<u64> {
    None
}
