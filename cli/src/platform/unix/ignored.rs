//! The signals that were ignored when this process started.

use signal_hook::consts::SIGCHLD;

pub(crate) fn is_in(mask: u64, signal: i32) -> bool {
    signal != SIGCHLD && (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1
}

/// Whether the signal was ignored when this process started.
pub(super) fn is_ignored(signal: i32) -> bool {
    is_in(ignored(), signal)
}

/// The signals that were ignored when this process started, such as SIGHUP under `nohup`: the
/// command inherits that, as long as this process does not handle them. Bit n - 1 is signal n.
/// Known on Linux only.
pub(crate) fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
