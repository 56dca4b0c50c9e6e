//! The command, in a process group of its own.

use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, wait};

use super::backstop::{Backstop, for_runs_below};
use super::{group, terminal};
use crate::failure::{Failure, say};
use crate::run::args::RunArgs;
use crate::run::command::{Environment, cannot_start, under_lock};

/// Longer than anybody waits, and short enough not to overflow.
const LONGEST_GRACE: Duration = Duration::from_secs(365 * 86_400);

/// If it is dropped while the command runs, it ends the command, and the drop waits for that: a run
/// whose thread panics must not release the lock earlier.
pub(crate) struct Child {
    /// The id of the process, and of its group.
    pid: Pid,
    /// Ends the group if this process is killed.
    backstop: Option<Backstop>,
    /// The name of the lock, for messages.
    name: String,
    /// The time between SIGTERM and SIGKILL.
    grace: Duration,
    /// Whether [`change`](Self::change) has reported the end of the process.
    has_ended: bool,
}

/// A change of the command's state.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Stopped(Signal),
    Exited(u8),
    Killed(i32),
}

impl From<WaitStatus> for Change {
    fn from(status: WaitStatus) -> Self {
        if let Some(signal) = status.stopping_signal() {
            return Self::Stopped(Signal::from_named_raw(signal).unwrap_or(Signal::STOP));
        }
        if let Some(signal) = status.terminating_signal() {
            return Self::Killed(signal);
        }
        let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
        Self::Exited(code.unwrap_or(u8::MAX))
    }
}

impl Child {
    pub(crate) fn start(
        args: &RunArgs,
        guard: &dyn leasehold::Held,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let mut backstop = backstop(args);
        let mut command = under_lock(args, guard, environment);
        let (name, value) = for_runs_below(args);
        command.env(name, value).process_group(0);
        if let Some(backstop) = &mut backstop {
            let (name, mark) = backstop.mark();
            command.env(name, mark);
            backstop.protect(None, guard.remaining());
        }
        let child = terminal::without_that(|| command.spawn()).map_err(|e| {
            if let Some(backstop) = backstop.take() {
                backstop.dismiss();
            }
            cannot_start(&args.command, &e)
        })?;
        // `wait` takes the place of this handle, which cannot report that a child was stopped.
        let pid = Pid::from_child(&child);
        let grace = args.kill_after.min(LONGEST_GRACE);
        let mut child =
            Self { pid, backstop, name: args.name().to_owned(), grace, has_ended: false };
        child.protect(guard.remaining());
        Ok(child)
    }

    /// If this process is killed, the command has ended when a lease has that ends in `left`.
    pub(super) fn protect(&mut self, left: Duration) {
        if let Some(backstop) = &mut self.backstop {
            backstop.protect(Some(self.pid), left);
        }
    }

    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// Signals the whole group. Not to be called once [`change`](Self::change) has reported the end
    /// of the process: the id may belong to another one by then.
    pub(super) fn signal(&self, signal: Signal) {
        // It fails if no process is left.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Asks the whole group to end. Returns when to kill what is left of it.
    pub(super) fn ask_to_end(&self) -> Instant {
        group::ask_to_end(self.pid);
        Instant::now() + self.grace
    }

    /// Blocks until the whole group has ended; kills what is left of it at `kill_at`.
    pub(super) fn end_group(&mut self, kill_at: Instant) {
        // Processes that this one has inherited stay in the group until they are waited for.
        group::end(self.pid, || Instant::now() >= kill_at, || drop(self.change()));
    }

    /// What has happened to the process since the last call; `None` if nothing has. Waits for all
    /// other processes that have ended, too: as the first process of a container, this one
    /// inherits those whose parents have ended, and nobody else would ever wait for them. So this
    /// is the only place that waits for any process while a command runs: two would take each
    /// other's.
    pub(super) fn change(&mut self) -> std::io::Result<Option<Change>> {
        while let Some((pid, status)) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
            if pid == self.pid {
                self.has_ended = !status.stopped();
                return Ok(Some(status.into()));
            }
            if !status.stopped() {
                self.other_has_ended(pid);
            }
        }
        Ok(None)
    }

    fn other_has_ended(&mut self, pid: Pid) {
        if self.backstop.take_if(|backstop| backstop.pid() == pid).is_some() {
            let name = &self.name;
            say(format_args!(
                "{name}: lh-backstop has ended: if this run is killed, its command goes on without a lock"
            ));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.has_ended {
            let kill_at = self.ask_to_end();
            self.end_group(kill_at);
        }
        if let Some(backstop) = self.backstop.take() {
            backstop.dismiss();
        }
    }
}

/// As the first process of a container, this one needs none: all others end with it.
fn backstop(args: &RunArgs) -> Option<Backstop> {
    if getpid().is_init() {
        return None;
    }
    let cannot = |e| {
        say(format_args!(
            "{}: if this process is killed, the command goes on without a lock: {e}",
            args.name()
        ));
    };
    Backstop::start(args).map_err(cannot).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use rustix::process::test_kill_process_group;

    use super::*;

    /// As when the thread that watches it panics, also without a backstop. It does not end when
    /// it is asked to.
    #[test]
    #[allow(clippy::zombie_processes, reason = "the drop waits for it")]
    fn a_command_that_is_dropped_has_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo ready; read line"]);
        let mut child =
            command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = Pid::from_child(&child);
        let grace = Duration::from_millis(100);
        drop(Child { pid, backstop: None, name: "job".to_owned(), grace, has_ended: false });
        let is_left = test_kill_process_group(pid).is_ok();
        let _ = kill_process_group(pid, Signal::KILL);
        assert!(!is_left);
    }
}
