//! Watches the command while it runs: its end, its lock, and the signals.

use std::cell::Cell;
use std::io::{IsTerminal, stdin};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, at, never, select, tick};
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGINT, SIGTSTP, SIGTTIN, SIGTTOU};

use super::child::{Change, Child};
use super::signals::{Interrupt, Signals, end_by};
use super::terminal::Terminal;
use crate::failure::{Failure, by_signal, say, status};
use crate::run::args::RunArgs;
use crate::{stderr, words};

/// So many times in a lease it is looked at, and the backstop is told when it ends.
const NOTES: u32 = 12;
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// What a command may do after SIGTSTP, such as to put the terminal in order, before it is stopped.
const TIME_TO_STOP: Duration = Duration::from_millis(200);

pub(crate) struct Oversight<'r> {
    child: Child,
    guard: &'r dyn leasehold::Held,
    args: &'r RunArgs,
    signals: &'r Signals,
    terminal: Option<Terminal>,
    /// Whether this process has received a SIGINT, and not only the command.
    is_interrupted: Cell<bool>,
    /// When the rest of the command is killed; set once the lock is lost.
    kill_at: Option<Instant>,
    /// When this process and its command stop; set once they were asked to.
    stop_at: Option<Instant>,
}

/// How the command ended.
pub(crate) struct Ended {
    pub(crate) status: u8,
    /// Whether that is because the lock was lost: a command may have the same status.
    pub(crate) is_lost: bool,
    /// Set if a SIGINT ended a command or a wait at a terminal.
    interrupt: Option<Interrupt>,
}

impl Ended {
    pub(crate) fn with(status: u8) -> Self {
        Self { status, is_lost: false, interrupt: None }
    }

    /// A signal has ended the wait for the lock.
    pub(crate) fn in_a_wait(status: u8) -> Self {
        let is_interrupted = status == by_signal(SIGINT) && stdin().is_terminal();
        let interrupt = is_interrupted.then_some(Interrupt::OfThisProcess);
        Self { interrupt, ..Self::with(status) }
    }

    /// Ends this process by the signal that ended the command or the wait, if a terminal sent it;
    /// otherwise returns.
    pub(crate) fn pass_on(&self) {
        // The kernel lets no signal end the first process of a container, and no script is above.
        if let Some(interrupt) = self.interrupt
            && !getpid().is_init()
        {
            end_by(interrupt);
        }
    }
}

impl<'r> Oversight<'r> {
    pub(crate) fn new(
        child: Child,
        guard: &'r dyn leasehold::Held,
        args: &'r RunArgs,
        signals: &'r Signals,
    ) -> Self {
        let terminal = Terminal::for_command(child.group());
        let is_interrupted = Cell::new(false);
        Self { child, guard, args, signals, terminal, is_interrupted, kill_at: None, stop_at: None }
    }

    /// Blocks until the command has ended; if its lock was lost, until its group has.
    pub(crate) fn until_the_end(mut self) -> Result<Ended, Failure> {
        let mut lost = self.guard.lost();
        let mut kill: Receiver<Instant> = never();
        let note = tick((self.args.lease / NOTES).max(SHORTEST_PAUSE));
        loop {
            let stop = self.stop_at.map_or_else(never, at);
            select! {
                recv(self.signals.received()) -> signal => {
                    if let Some(ended) = self.receive(signal.unwrap_or(SIGCHLD))? {
                        return Ok(ended);
                    }
                }
                // Not only after a renewal: a lease that is not renewed (the store is away,
                // --max-hold is over, this process is stopped) is then known to end.
                recv(note) -> _ => {
                    let left = self.guard.remaining();
                    self.child.protect(left);
                    if self.has_to_end(left) {
                        kill = at(self.end_before_its_lease(left));
                    }
                }
                recv(stop) -> _ => self.stop_now(),
                recv(lost) -> _ => {
                    // The channel stays ready.
                    lost = never();
                    if self.kill_at.is_none() {
                        kill = at(self.end_for_loss());
                    } else if self.args.ends_before_its_lease {
                        // The lease is over, and the grace is not: this machine slept meanwhile.
                        self.kill_at = Some(Instant::now());
                        kill = at(Instant::now());
                    }
                }
                recv(kill) -> _ => self.child.signal(Signal::KILL),
            }
        }
    }

    /// Returns how the command ended, if the signal reports that.
    fn receive(&mut self, signal: i32) -> Result<Option<Ended>, Failure> {
        match signal {
            SIGCHLD => return self.look_after_child(),
            SIGTSTP => self.stop(),
            SIGCONT => self.go_on(),
            SIGTTIN | SIGTTOU => self.others_stopped(),
            other => {
                self.is_interrupted.set(other == SIGINT || self.is_interrupted.get());
                if let Some(signal) = Signal::from_named_raw(other) {
                    self.child.signal(signal);
                }
            }
        }
        Ok(None)
    }

    fn look_after_child(&mut self) -> Result<Option<Ended>, Failure> {
        // One signal may report several changes.
        loop {
            let change = self.child.change();
            let failed =
                |e| Failure::new(status::LOST, format!("cannot wait for the command: {e}"));
            match change.map_err(failed)? {
                None => return Ok(None),
                Some(Change::Stopped(signal)) => self.child_stopped(signal),
                Some(Change::Exited(code)) => return Ok(Some(self.ended(code, false))),
                Some(Change::Killed(signal)) => {
                    return Ok(Some(self.ended(by_signal(signal), signal == SIGINT)));
                }
            }
        }
    }

    fn ended(&mut self, status: u8, is_interrupted: bool) -> Ended {
        let Some(kill_at) = self.kill_at else {
            return Ended {
                interrupt: if is_interrupted { self.interrupt() } else { None },
                ..Ended::with(status)
            };
        };
        // Other processes of its group may still write what the lock protected.
        self.child.end_group(kill_at);
        Ended { is_lost: true, ..Ended::with(status::LOST) }
    }

    fn interrupt(&self) -> Option<Interrupt> {
        let terminal = self.terminal.as_ref()?;
        if self.is_interrupted.get() {
            return Some(Interrupt::OfThisProcess);
        }
        terminal.is_lent().then_some(Interrupt::OfCommand)
    }

    /// Whether only the time is left that the command has to end, and until the next look.
    fn has_to_end(&self, left: Duration) -> bool {
        let look = self.args.lease / NOTES;
        let is_short = left <= self.args.kill_after + look;
        self.args.ends_before_its_lease && self.kill_at.is_none() && is_short
    }

    /// Ends the command because its lease was not renewed, and so will end. Returns when to kill
    /// what is left of it.
    fn end_before_its_lease(&mut self, left: Duration) -> Instant {
        let kill_at = self.child.ask_to_end().min(Instant::now() + left * 9 / 10);
        self.kill_at = Some(kill_at);
        say(format_args!(
            "{}: the lease was not renewed and ends in {left:.1?}, so the command is ended",
            self.args.name()
        ));
        kill_at
    }

    /// Ends the command because the lock is lost. Returns when to kill what is left of it.
    fn end_for_loss(&mut self) -> Instant {
        let kill_at = self.child.ask_to_end();
        self.kill_at = Some(kill_at);
        let why =
            self.guard.loss().map(|loss| format!(": {}", words::loss(&loss))).unwrap_or_default();
        say(format_args!("{}: the lock is lost, so the command is ended{why}", self.args.name()));
        kill_at
    }

    /// Without a terminal, somebody stopped it on purpose, and it keeps its lock. At a terminal,
    /// the user wants the shell back, and the shell waits until this process stops.
    fn child_stopped(&self, signal: Signal) {
        // Both stop already.
        let (Some(terminal), None) = (&self.terminal, self.stop_at) else { return };
        let wants_terminal = [Signal::TTIN, Signal::TTOU].contains(&signal);
        if wants_terminal && terminal.lend() {
            self.child.signal(Signal::CONT);
        } else if !terminal.has_job_control() {
            // No shell could continue this process.
            if terminal.is_lent() {
                self.child.signal(Signal::CONT);
            }
        } else if terminal.is_lent() || wants_terminal {
            terminal.take_back();
            // The terminal would have done the same. This process receives it too, and
            // [stops](Self::stop).
            let _ = kill_current_process_group(Signal::TSTP);
        }
    }

    /// SIGTTIN or SIGTTOU was sent to this process's group: others in it asked for the terminal. If
    /// this process did not handle the signal, it would be stopped with them, and the command would
    /// go on without renewal.
    fn others_stopped(&mut self) {
        if !self.terminal.as_ref().is_some_and(Terminal::leave_to_others) {
            self.stop();
        }
    }

    /// Asks the command to stop, and stops both [soon](Self::stop_now), unless nobody could
    /// continue them: the kernel makes the same exception for processes that do not handle the
    /// signal. Ctrl-Z between the start of the command and the moment when the terminal is lent to
    /// it arrives here.
    fn stop(&mut self) {
        let nobody_continues =
            self.terminal.as_ref().is_some_and(|terminal| !terminal.has_job_control());
        if nobody_continues || self.stop_at.is_some() {
            return;
        }
        self.child.signal(Signal::TSTP);
        self.stop_at = Some(Instant::now() + TIME_TO_STOP);
        if self.terminal.is_some() {
            let left = self.guard.remaining();
            say(format_args!(
                "{}: stopped, and not renewed meanwhile: its lease ends in {left:.0?}",
                self.args.name()
            ));
        }
    }

    fn stop_now(&mut self) {
        self.stop_at = None;
        // Those that ignore SIGTSTP would go on without renewal.
        self.child.signal(Signal::STOP);
        stderr::wait_until_written(TIME_TO_STOP);
        let _ = kill_process(getpid(), Signal::STOP);
    }

    /// This process was continued.
    fn go_on(&mut self) {
        self.stop_at = None;
        // If the lock was lost meanwhile, the command must not run before it receives SIGTERM.
        if self.guard.is_held() || self.kill_at.is_some() {
            if let Some(terminal) = &self.terminal {
                terminal.lend_unless_shared();
            }
            self.child.signal(Signal::CONT);
        }
    }
}
