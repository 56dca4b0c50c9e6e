//! The terminal at stdin: whose it is, and how a command that is stopped at it is stopped.

use std::cell::Cell;
use std::io::{IsTerminal, stderr, stdin, stdout};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, Signal, getpgrp, getsid, kill_current_process_group};
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
///
/// Lent to it at once if this process is alone at the terminal. Where stdout or stderr is something
/// else, the rest of a pipeline may be in this process's group: a pager that reads the terminal
/// while it is lent is stopped by the kernel, with all of its group. So the terminal is lent there
/// only when the command asks for it, and taken back when the others do. The command need not ask
/// in vain then: it may want a password while its output goes to a file.
pub(super) struct Terminal {
    command: Pid,
    own: Pid,
    is_shared: Cell<bool>,
}

impl Terminal {
    /// `None` if stdin is no terminal.
    pub(super) fn for_command(command: Pid) -> Option<Self> {
        if !stdin().is_terminal() {
            return None;
        }
        let is_shared = !stdout().is_terminal() || !stderr().is_terminal();
        let terminal = Self { command, own: getpgrp(), is_shared: Cell::new(is_shared) };
        terminal.lend_unless_shared();
        Some(terminal)
    }

    pub(super) fn lend_unless_shared(&self) {
        if !self.is_shared.get() {
            self.lend();
        }
    }

    /// Lends it to the command if this process has it. Returns whether it is lent.
    pub(super) fn lend(&self) -> bool {
        self.pass(self.own, self.command);
        self.is_lent()
    }

    /// Others of this process's group were stopped because they asked for the terminal: they get
    /// it, and go on. Returns whether they do: not if somebody else has it, such as the shell above
    /// a job in the background.
    pub(super) fn leave_to_others(&self) -> bool {
        self.is_shared.set(true);
        self.take_back();
        let is_own = self.foreground() == Some(self.own);
        if is_own {
            let _ = kill_current_process_group(Signal::CONT);
        }
        is_own
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
        if self.is_lent() && self.is_shared.get() {
            // Others may have been stopped by now, and nobody has heard of it yet.
            self.leave_to_others();
        } else {
            self.take_back();
        }
    }
}
