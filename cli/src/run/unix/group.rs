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

/// Blocks until the group has ended. Kills what is left of it once it `is_time`. `reap` waits for
/// those children that have ended: until then, they count as processes of the group.
///
/// The id of the group cannot belong to another one: the system gives out all other ids first.
pub(super) fn end(group: Pid, is_time: impl Fn() -> bool, mut reap: impl FnMut()) {
    let mut killed_at: Option<Instant> = None;
    loop {
        reap();
        let is_dying_long = killed_at.is_some_and(|at| at.elapsed() >= LONGEST_DEATH);
        if test_kill_process_group(group).is_err() || is_dying_long {
            return;
        }
        if killed_at.is_some() || is_time() {
            killed_at.get_or_insert_with(Instant::now);
            let _ = kill_process_group(group, Signal::KILL);
        }
        std::thread::sleep(LOOK);
    }
}
