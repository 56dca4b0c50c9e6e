//! The terminal at stdin: whose it is, and how a command that is stopped at it is stopped.

use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, getpgrp, getsid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// To be called before there are threads, which inherit it: a process in the background that takes
/// the terminal back, or (with `stty tostop`) writes to it, would be stopped by SIGTTOU, and with
/// it renewal.
pub(super) fn may_write_in_the_background() {
    // Cannot fail with a mask that is one.
    let _ = SigSet::from(Blocked::SIGTTOU).thread_block();
}

/// Starts a command by `start`, which does not inherit [that](may_write_in_the_background).
pub(super) fn without_that<T>(start: impl FnOnce() -> T) -> T {
    let _ = SigSet::from(Blocked::SIGTTOU).thread_unblock();
    let started = start();
    may_write_in_the_background();
    started
}

/// The terminal at stdin, for a command in the process group `command`.
pub(super) struct Terminal {
    command: Pid,
    own: Pid,
}

impl Terminal {
    /// Lends the terminal at stdin, if this process has it, to the command. `None` if stdin is no
    /// terminal.
    pub(super) fn lend_to(command: Pid) -> Option<Self> {
        if !stdin().is_terminal() {
            return None;
        }
        let terminal = Self { command, own: getpgrp() };
        terminal.lend();
        Some(terminal)
    }

    pub(super) fn lend(&self) {
        self.pass(self.own, self.command);
    }

    pub(super) fn take_back(&self) {
        self.pass(self.command, self.own);
    }

    /// Only from the one who has it: whoever else has it by now keeps it.
    fn pass(&self, from: Pid, to: Pid) {
        if self.foreground() == Some(from) {
            // A terminal that is gone is nobody's.
            let _ = tcsetpgrp(stdin(), to);
        }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.foreground() == Some(self.command)
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(stdin()).ok()
    }

    /// Whether a shell stands above that could continue this process once it is stopped. The
    /// process group of the session's leader has none: it would be stopped for ever.
    pub(super) fn has_job_control(&self) -> bool {
        getsid(None).is_ok_and(|session| session != self.own)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
