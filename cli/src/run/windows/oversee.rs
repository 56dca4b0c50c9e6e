//! Watches the command while it runs: its end, and its lock.

use std::time::Duration;

use crossbeam_channel::{never, select};

use super::child::{Child, End};
use super::signals::Signals;
use crate::failure::{Failure, by_signal, say, status};
use crate::run::args::RunArgs;
use crate::words;

/// How often to check whether the command has ended: no safe interface waits for a process that
/// another thread may have to end.
const LOOK: Duration = Duration::from_millis(20);
const INTERRUPTED: i32 = 2;

pub(crate) struct Oversight<'r> {
    child: Child,
    guard: &'r dyn leasehold::Held,
    args: &'r RunArgs,
    signals: &'r Signals,
    is_lost: bool,
}

/// How the command ended.
pub(crate) struct Ended {
    pub(crate) status: u8,
    /// Whether that is because the lock was lost: a command may have the same status.
    pub(crate) is_lost: bool,
}

impl Ended {
    pub(crate) fn with(status: u8) -> Self {
        Self { status, is_lost: false }
    }

    pub(crate) fn in_a_wait(status: u8) -> Self {
        Self::with(status)
    }

    /// The console has sent Ctrl-C to the script above as well.
    pub(crate) fn pass_on(&self) {}
}

impl<'r> Oversight<'r> {
    pub(crate) fn new(
        child: Child,
        guard: &'r dyn leasehold::Held,
        args: &'r RunArgs,
        signals: &'r Signals,
    ) -> Self {
        Self { child, guard, args, signals, is_lost: false }
    }

    /// Blocks until the command has ended.
    pub(crate) fn until_the_end(mut self) -> Result<Ended, Failure> {
        let mut lost = self.guard.lost();
        loop {
            let failed =
                |e| Failure::new(status::LOST, format!("cannot wait for the command: {e}"));
            if let Some(end) = self.child.end().map_err(failed)? {
                return Ok(self.ended(end));
            }
            select! {
                // The console has sent it to the command as well, which decides what it does.
                recv(self.signals.received()) -> _ => {}
                recv(lost) -> _ => {
                    // The channel stays ready.
                    lost = never();
                    if !self.is_lost {
                        self.end_for_loss();
                    }
                }
                default(LOOK) => {
                    let is_short = self.guard.remaining() <= self.args.kill_after;
                    if self.args.ends_before_its_lease && is_short && !self.is_lost {
                        self.end_for_loss();
                    }
                }
            }
        }
    }

    fn ended(&self, end: End) -> Ended {
        let status = match end {
            _ if self.is_lost => status::LOST,
            End::Exited(status) => status,
            End::Interrupted => by_signal(INTERRUPTED),
        };
        Ended { status, is_lost: self.is_lost }
    }

    /// Ends the command, and what it has started, because the lock is lost. There is no signal that
    /// would ask them to end.
    fn end_for_loss(&mut self) {
        let killed = self.child.kill();
        self.is_lost = true;
        let why =
            self.guard.loss().map(|loss| format!(": {}", words::loss(&loss))).unwrap_or_default();
        say(format_args!("{}: the lock is lost, so the command is ended{why}", self.args.name()));
        if let Err(e) = killed {
            say(format_args!("{}: the command cannot be ended: {e}", self.args.name()));
        }
    }
}
