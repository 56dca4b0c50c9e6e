//! The command, in a process group of its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use leasehold::fencing::FencingToken;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpid};

use super::terminal;
use crate::failure::Failure;
use crate::run::command::{cannot_start, under_lock};

pub(crate) struct Child {
    /// The id of the process, and of its group.
    pid: Pid,
}

/// A change of the command's state.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Stopped(Signal),
    Exited(u8),
    Killed(i32),
}

impl Child {
    pub(crate) fn start(words: &[OsString], name: &str, token: Option<FencingToken>) -> Result<Self, Failure> {
        let mut command = under_lock(words, name, token);
        command.process_group(0);
        let child = terminal::without_that(|| command.spawn()).map_err(|e| cannot_start(words, &e))?;
        // `waitpid` takes the place of this handle, which cannot report that a child was stopped.
        Ok(Self { pid: Pid::from_child(&child) })
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

    pub(super) fn has_group(&self) -> bool {
        test_kill_process_group(self.pid).is_ok()
    }

    /// What has happened to the process since the last call; `None` if nothing has.
    pub(super) fn change(&self) -> std::io::Result<Option<Change>> {
        let Some((_, status)) = waitpid(Some(self.pid), WaitOptions::NOHANG | WaitOptions::UNTRACED)? else {
            return Ok(None);
        };
        if let Some(signal) = status.stopping_signal() {
            return Ok(Some(Change::Stopped(Signal::from_named_raw(signal).unwrap_or(Signal::STOP))));
        }
        if let Some(signal) = status.terminating_signal() {
            return Ok(Some(Change::Killed(signal)));
        }
        let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
        Ok(Some(Change::Exited(code.unwrap_or(u8::MAX))))
    }
}
