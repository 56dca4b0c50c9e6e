//! The command of a run that was killed before it could say which process that is: it has a mark in
//! its environment, which Linux shows in `/proc`.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpgid};

/// In the environment of a command.
pub(super) const VARIABLE: &str = "LEASEHOLD_RUN";
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The process group of the command with this mark. Looks until `deadline`: a process has its mark
/// only when it has become the command, which may be after the death of the run. None on systems
/// without such a `/proc`.
pub(super) fn find(mark: &str, deadline: Instant) -> Option<Pid> {
    let entry = format!("{VARIABLE}={mark}");
    let mut pause = FIRST_PAUSE;
    loop {
        let found = group_with(entry.as_bytes());
        if found.is_some() || Instant::now() + pause > deadline || !cfg!(target_os = "linux") {
            return found;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Processes that the command has started have the mark as well, and may lead groups of their own:
/// the first that was started is the command.
fn group_with(entry: &[u8]) -> Option<Pid> {
    let processes = fs::read_dir("/proc").ok()?;
    let pids = processes.filter_map(|process| process.ok()?.file_name().to_str()?.parse().ok());
    let has_mark = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == entry)
    };
    let leaders = pids
        .filter(has_mark)
        .filter_map(Pid::from_raw)
        .filter(|pid| getpgid(Some(*pid)) == Ok(*pid));
    leaders
        .filter_map(|pid| Some((started_at(pid)?, pid)))
        .min_by_key(|(at, _)| *at)
        .map(|(_, pid)| pid)
}

/// In clock ticks since the system was started.
fn started_at(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name of the program, in parentheses, may contain anything. The start is the 22nd field.
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_leader_of_a_group_is_found_by_its_mark() {
        let mark = format!("{}-marked", std::process::id());
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]).env(VARIABLE, &mark).process_group(0);
        let mut marked = command.spawn().unwrap();
        let group = Pid::from_child(&marked);
        let found = find(&mark, Instant::now() + Duration::from_secs(10));
        let other = find(&format!("{mark}-2"), Instant::now());
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        // Another test of this process may have waited for all children, as a run does.
        let _ = marked.wait();
        assert_eq!((found, other), (Some(group), None));
    }
}
