//! How a process group is ended.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How often to check whether a group has ended, which no signal reports.
const LOOK: Duration = Duration::from_millis(10);
/// How long a group may take to end after SIGKILL. One is left that has a zombie which nobody waits
/// for.
const LONGEST_DEATH: Duration = Duration::from_secs(1);

/// Asks all processes of the group to end.
pub(super) fn ask_to_end(group: Pid) {
    // Both fail if none is left.
    let _ = kill_process_group(group, Signal::TERM);
    // A stopped process would not notice SIGTERM.
    let _ = kill_process_group(group, Signal::CONT);
}

/// Blocks until the group has ended. Kills what is left of it at `kill_at`. `reap` waits for those
/// children that have ended: until then, they count as processes of the group.
///
/// The id of the group cannot belong to another one: the system gives out all other ids first.
pub(super) fn end(group: Pid, kill_at: Instant, mut reap: impl FnMut()) {
    loop {
        reap();
        let now = Instant::now();
        if test_kill_process_group(group).is_err() || now >= kill_at + LONGEST_DEATH {
            return;
        }
        if now >= kill_at {
            let _ = kill_process_group(group, Signal::KILL);
        }
        std::thread::sleep(LOOK);
    }
}
