//! A second process, which ends the command if this one is killed: by SIGKILL, for want of memory,
//! by a fault. Otherwise the command would go on without renewal, and run beside the next holder of
//! its lock as soon as the lease has ended.
//!
//! It is the same program, which reads a pipe that only the run has open for writing: first the
//! command's process group, then nothing for as long as the command runs. If the pipe ends before
//! the run has said that the command has ended, the run is dead.

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

use crate::duration;
use crate::failure::say;
use crate::run::args::RunArgs;

/// The argument that makes this program a backstop.
const ROLE: &str = "__backstop";
/// Its name for `ps`. `pkill leasehold` and `killall leasehold` do not find it, or SIGKILL from one
/// of them would end both processes, and the command would go on.
const NAME: &str = "lh-backstop";
/// What the run writes when the command has ended.
const ENDED: &str = "ended";
/// How often to check whether the process group has ended, which no signal reports.
const LOOK: Duration = Duration::from_millis(10);

/// The run's end of the pipe. If it is dropped, the command is ended, and the drop waits for that:
/// a run whose thread panics must not release the lock earlier.
pub(super) struct Backstop {
    process: std::process::Child,
    /// `None` once it is closed.
    pipe: Option<ChildStdin>,
}

impl Backstop {
    /// To be called before the command is started, and just after its lock was granted for `lease`.
    pub(super) fn start(args: &RunArgs, lease: Duration) -> std::io::Result<Self> {
        let mut command = Command::new(own_program()?);
        command.arg0(NAME).args([ROLE, &args.name]).arg(format!("{}ms", grace(args, lease).as_millis()));
        // A group of its own: what a shell or a terminal sends to the run is not for it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        // It inherits the mask, so there is no moment at which a signal other than SIGKILL ends it.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let started = command.spawn();
        before.thread_set_mask()?;
        let mut process = started?;
        let pipe = process.stdin.take();
        Ok(Self { process, pipe })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// From now on this process group is ended with this process. To be called as soon as the
    /// command was started: if this process is killed before, in less than a millisecond, the
    /// command goes on.
    pub(super) fn protect(&mut self, group: Pid) {
        self.tell(&group.as_raw_nonzero().to_string());
    }

    /// The command has ended.
    pub(super) fn dismiss(mut self) {
        self.tell(ENDED);
    }

    fn tell(&mut self, line: &str) {
        // It fails if the backstop was killed, which the run notices by the signal.
        let _ = self.pipe.as_mut().map(|pipe| pipe.write_all(format!("{line}\n").as_bytes()));
    }
}

impl Drop for Backstop {
    fn drop(&mut self) {
        self.pipe = None;
        // Somebody may have stopped it. Both fail if it was killed, and was waited for.
        let _ = kill_process(self.pid(), Signal::CONT);
        let _ = self.process.wait();
    }
}

/// The time between SIGTERM and SIGKILL: half a lease at most. The lock is renewed every third, so
/// the command has then ended before others can have the lock.
fn grace(args: &RunArgs, lease: Duration) -> Duration {
    args.kill_after.min(lease / 2)
}

/// Also after the file was replaced or removed, by an upgrade.
fn own_program() -> std::io::Result<OsString> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().map(Into::into)
}

/// If this process was started as a backstop: is one, and returns its exit status.
pub(crate) fn be_backstop() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let mut next = || Some(arguments.next()?.to_string_lossy().into_owned());
    let (name, grace) = (next()?, duration::parse(&next()?).ok()?);
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"lh-backstop");
    if let Some(group) = left_by_a_run(std::io::stdin().lock()) {
        say(format_args!("{name}: this run was killed, so the command is ended"));
        end(group, grace);
    }
    Some(ExitCode::SUCCESS)
}

/// The process group that the run has left behind; `None` if it has ended the normal way. Blocks
/// for as long as the run lives.
fn left_by_a_run(mut pipe: impl BufRead) -> Option<Pid> {
    let mut next = || {
        let mut line = String::new();
        pipe.read_line(&mut line).ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    };
    // Without a group, no command was started.
    let group = next()?.parse().ok().and_then(Pid::from_raw)?;
    (next().as_deref() != Some(ENDED)).then_some(group)
}

/// The id of the group cannot belong to another one: the system gives out all other ids first.
fn end(group: Pid, grace: Duration) {
    let _ = kill_process_group(group, Signal::TERM);
    // A stopped process would not notice SIGTERM.
    let _ = kill_process_group(group, Signal::CONT);
    let kill_at = Instant::now() + grace;
    while test_kill_process_group(group).is_ok() {
        if Instant::now() >= kill_at {
            let _ = kill_process_group(group, Signal::KILL);
            break;
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_has_not_said_how_it_ended_leaves_a_group() {
        for (said, group) in [
            ("", None),
            ("17\nended\n", None),
            ("17\n", Pid::from_raw(17)),
            ("17\nend", Pid::from_raw(17)),
            ("1", None),
        ] {
            assert_eq!(left_by_a_run(said.as_bytes()), group, "{said:?}");
        }
    }
}
