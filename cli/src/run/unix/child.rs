//! The command, in a process group of its own.

use std::os::unix::process::CommandExt;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, test_kill_process_group, wait,
};

use super::backstop::Backstop;
use super::terminal;
use crate::failure::{Failure, say};
use crate::run::args::RunArgs;
use crate::run::command::{cannot_start, under_lock};
use crate::run::lock::GuardOfAnyKind;

pub(crate) struct Child {
    /// The id of the process, and of its group.
    pid: Pid,
    /// Ends the group if this process is killed, or drops this.
    backstop: Option<Backstop>,
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
    pub(crate) fn start(args: &RunArgs, guard: &dyn GuardOfAnyKind) -> Result<Self, Failure> {
        let mut backstop = backstop(args, guard);
        let mut command = under_lock(args, guard);
        command.process_group(0);
        let child = terminal::without_that(|| command.spawn()).map_err(|e| cannot_start(&args.command, &e))?;
        // `wait` takes the place of this handle, which cannot report that a child was stopped.
        let pid = Pid::from_child(&child);
        if let Some(backstop) = &mut backstop {
            backstop.protect(pid);
        }
        Ok(Self { pid, backstop })
    }

    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// Signals the whole group. Not to be called once [`change`](Self::change) has reported the end
    /// of the process, except while [others of its group live](Self::has_group): the id may belong
    /// to another process by then.
    pub(super) fn signal(&self, signal: Signal) {
        // It fails if no process is left.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Whether processes of the group are left, once [`change`](Self::change) has reported the end
    /// of the first one.
    pub(super) fn has_group(&mut self) -> bool {
        // Those that this process has inherited stay in the group until they are waited for.
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            self.other_has_ended(pid);
        }
        test_kill_process_group(self.pid).is_ok()
    }

    /// What has happened to the process since the last call; `None` if nothing has. Waits for all
    /// other processes that have ended, too: as the first process of a container, this one
    /// inherits those whose parents have ended, and nobody else would ever wait for them. So this
    /// is the only place that waits for any process: two would take each other's.
    pub(super) fn change(&mut self) -> std::io::Result<Option<Change>> {
        while let Some((pid, status)) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
            if pid == self.pid {
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
            say(
                "the process lh-backstop was killed: if this one is killed as well, the command goes on without a lock",
            );
        }
    }

    /// The command has ended, and so has its group if it had to.
    pub(super) fn dismiss_backstop(self) {
        if let Some(backstop) = self.backstop {
            backstop.dismiss();
        }
    }
}

/// As the first process of a container, this one needs none: all others end with it.
fn backstop(args: &RunArgs, guard: &dyn GuardOfAnyKind) -> Option<Backstop> {
    if getpid().is_init() {
        return None;
    }
    let cannot =
        |e| say(format_args!("{}: if this process is killed, the command goes on without a lock: {e}", args.name));
    Backstop::start(args, guard.remaining()).map_err(cannot).ok()
}
