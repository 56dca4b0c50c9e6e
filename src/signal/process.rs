//! Which process a client belongs to. In a child made by `fork()` the threads are gone, mutexes may
//! stay locked forever, and the connections belong to the parent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::lease::Moment;

/// Reading the process id is a system call, which takes five times as long as the rest of
/// `is_held`. No fork is as fast as this time (it copies the page tables; the fastest take a few
/// times as long), so a caller this soon after a check is not in a child.
const NO_FORK_WITHIN: Duration = Duration::from_micros(10);

/// The process that made a client.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    id: u32,
    /// Only for process 1: a child in a PID namespace of its own usually has the id 1 as well. For
    /// all other processes the check would cost every lock call a microsecond and find nothing.
    namespace: Option<u64>,
    /// When the caller was last found to be in this process, in nanoseconds of the lease clock.
    checked: AtomicU64,
}

impl OwnProcess {
    pub(crate) fn now() -> Self {
        let id = std::process::id();
        Self { id, namespace: namespace_of(id), checked: AtomicU64::new(0) }
    }

    /// Whether the caller is in another process. `now`: the time of the lease clock.
    pub(crate) fn is_other(&self, now: Moment) -> bool {
        let checked = Moment::from_nanos(self.checked.load(Ordering::Relaxed));
        if now.since(checked) < NO_FORK_WITHIN && now >= checked {
            return false;
        }
        let id = std::process::id();
        // Only another process 1 can have the same id.
        let is_other = id != self.id || id == 1 && namespace_of(id) != self.namespace;
        if !is_other {
            self.checked.store(now.as_nanos(), Ordering::Relaxed);
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
