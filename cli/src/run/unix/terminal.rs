//! The terminal at stdin: which process group has it, and how a command at it is stopped.

use std::cell::Cell;
use std::io::{IsTerminal, stderr, stdin, stdout};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, Signal, getpgrp, getsid, kill_current_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Blocks SIGTTOU. Call it before threads are started, which inherit the mask: a process in the
/// background that takes the terminal back, or writes to it (with `stty tostop`), would be stopped
/// by SIGTTOU, and renewal would stop with it.
pub(crate) fn may_write_in_the_background() {
    // Cannot fail with a mask that is one.
    let _ = SigSet::from(Blocked::SIGTTOU).thread_block();
}

/// Starts a command by `start`, so that it does not inherit [the blocked
/// signal](may_write_in_the_background).
pub(super) fn without_that<T>(start: impl FnOnce() -> T) -> T {
    let _ = SigSet::from(Blocked::SIGTTOU).thread_unblock();
    let started = start();
    may_write_in_the_background();
    started
}

/// Whether somebody could continue this process once it is stopped: at a terminal a shell, if there
/// is one; without a terminal whoever stops it.
pub(super) fn somebody_continues() -> bool {
    !stdin().is_terminal() || getsid(None).is_ok_and(|session| session != getpgrp())
}

/// The terminal at stdin, for a command in the process group `command`.
///
/// The terminal is lent to it at once if this process is alone at the terminal. If stdout or stderr
/// is not a terminal, the rest of a pipeline may be in this process's group: the kernel stops a
/// pager that reads the terminal while it is lent, with all of its group. So the terminal is then
/// lent only when the command asks for it, and taken back when the others do. The command thus does
/// not ask in vain: it may want a password while its output goes to a file.
pub(super) struct Terminal {
    command: Pid,
    own: Pid,
    is_shared: Cell<bool>,
}

impl Terminal {
    /// `None` if stdin is not a terminal.
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

    /// Others in this process's group were stopped because they asked for the terminal: gives it to
    /// them, and continues them. Returns whether it did: not if another group has the terminal,
    /// such as the shell above a background job.
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

    /// Passes it on only if `from` has it: any other group keeps it.
    fn pass(&self, from: Pid, to: Pid) {
        if self.foreground() == Some(from) {
            // It fails if the terminal is gone, and then nobody needs it.
            let _ = tcsetpgrp(stdin(), to);
        }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.foreground() == Some(self.command)
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(stdin()).ok()
    }

    /// Whether there is a shell that could continue this process once it is stopped. The process
    /// group of the session's leader has none: it would stay stopped for ever.
    pub(super) fn has_job_control(&self) -> bool {
        getsid(None).is_ok_and(|session| session != self.own)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.is_lent() && self.is_shared.get() {
            // Others in this group may have been stopped, and their signal may not have been
            // handled yet.
            self.leave_to_others();
        } else {
            self.take_back();
        }
    }
}
