//! The signals that the process receives, as messages on a channel.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, unbounded};
use leasehold::CancelToken;
use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{
    Signal, WaitOptions, getpid, kill_current_process_group, kill_process, wait,
};
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGSYS, SIGTERM,
    SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU,
    SIGXFSZ,
};
use signal_hook::iterator::{Handle, Signals as Incoming};
use signal_hook::low_level::emulate_default_handler;

use super::terminal;
use crate::failure::{Failure, status};
use crate::platform::{ignored, is_in};
use crate::stderr;

/// The signals that end a wait for the lock and are passed on to the command: all that would end
/// this process, except those that a fault of its own raises (a handler that returns would raise
/// SIGSEGV, SIGBUS, SIGILL and SIGFPE again, for ever), and real-time signals, which no safe
/// interface sends. Those end this process, and its [backstop](super::backstop) the command.
const ENDING: [i32; 15] = [
    SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGABRT, SIGALRM, SIGIO, SIGPROF, SIGSYS,
    SIGTRAP, SIGVTALRM, SIGXCPU, SIGXFSZ,
];
/// Those of them that not every system has.
#[cfg(all(
    target_os = "linux",
    not(any(target_arch = "mips", target_arch = "mips64", target_arch = "sparc64"))
))]
const ENDING_HERE: &[i32] = &[Signal::POWER.as_raw(), Signal::STKFLT.as_raw()];
#[cfg(not(all(
    target_os = "linux",
    not(any(target_arch = "mips", target_arch = "mips64", target_arch = "sparc64"))
)))]
const ENDING_HERE: &[i32] = &[];

fn ending() -> impl Iterator<Item = i32> {
    ENDING.iter().chain(ENDING_HERE).copied()
}

/// What this process receives while the command runs. A program that handles none of them ignores
/// the last two, so they end no wait.
const OF_A_COMMAND: [i32; 7] = [SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH];

pub(crate) struct Signals {
    received: Receiver<i32>,
    token: CancelToken,
    /// The first signal that ended a wait; 0 if none has.
    first: Arc<AtomicI32>,
    handle: Handle,
    ignored: u64,
    command: Command,
}

/// Whether a command runs or is being started. The listener has it locked while it does what is to
/// be done without one.
#[derive(Clone, Default)]
struct Command(Arc<Mutex<bool>>);

impl Command {
    fn runs(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Signals {
    /// Starts to handle the signals that end a wait.
    pub(crate) fn take_in() -> Result<Self, Failure> {
        let ignored = ignored();
        let wanted = ending().filter(|signal| !is_in(ignored, *signal)).chain([SIGCHLD]);
        let incoming = Incoming::new(wanted).map_err(failed)?;
        let (sender, received) = unbounded();
        let token = CancelToken::new();
        let first = Arc::default();
        let handle = incoming.handle();
        let command = Command::default();
        let listener = Listener {
            sender,
            token: token.clone(),
            first: Arc::clone(&first),
            command: command.clone(),
        };
        let thread = std::thread::Builder::new().name("lh-signals".into());
        thread.spawn(move || listener.listen(incoming)).map_err(failed)?;
        Ok(Self { received, token, first, handle, ignored, command })
    }

    /// Starts to handle the signals of a running command as well. Until then, the process is
    /// stopped and continued like any other.
    pub(crate) fn take_in_those_of_a_command(&self) -> Result<(), Failure> {
        *self.command.runs() = true;
        let mut more = OF_A_COMMAND.into_iter().filter(|one| !is_in(self.ignored, *one));
        more.try_for_each(|one| self.handle.add_signal(one)).map_err(failed)
    }

    /// The command has ended and been waited for, and this process waits for its next lock: it is
    /// stopped like any other again, and what came for this command is not for the next one.
    pub(crate) fn leave_those_of_a_command(&self) {
        let mut runs = self.command.runs();
        *runs = false;
        self.received.try_iter().for_each(without_command);
    }

    /// Cancelled by the first signal that ends a wait.
    pub(crate) fn token(&self) -> &CancelToken {
        &self.token
    }

    /// The signal that cancelled the token.
    pub(crate) fn first(&self) -> i32 {
        self.first.load(Ordering::Acquire)
    }

    pub(super) fn received(&self) -> &Receiver<i32> {
        &self.received
    }
}

struct Listener {
    sender: Sender<i32>,
    token: CancelToken,
    first: Arc<AtomicI32>,
    command: Command,
}

impl Listener {
    fn listen(self, mut incoming: Incoming) {
        // SIGTTOU is blocked in the threads that may write to the terminal. This thread does not
        // write, and is notified when SIGTTOU stops others in the group.
        let _ = SigSet::from(Blocked::SIGTTOU).thread_unblock();
        // Those that have ended before their signal was handled.
        let runs = self.command.runs();
        if !*runs {
            take_away_orphans();
        }
        drop(runs);
        for signal in incoming.forever() {
            if ending().any(|one| one == signal) {
                // Set before the cancel, because it is read after that.
                let _ = self.first.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire);
                self.token.cancel();
                // The command may be about to start.
                let _ = self.sender.send(signal);
                continue;
            }
            let runs = self.command.runs();
            if *runs {
                let _ = self.sender.send(signal);
            } else {
                without_command(signal);
            }
        }
    }
}

/// What the signal does while no command runs.
fn without_command(signal: i32) {
    match signal {
        SIGCHLD => take_away_orphans(),
        SIGTSTP | SIGTTIN | SIGTTOU if terminal::somebody_continues() => {
            let _ = kill_process(getpid(), Signal::STOP);
        }
        _ => {}
    }
}

/// Waits for the processes that this one has inherited and that have ended. As the first process of
/// a container it may wait for its lock for months.
fn take_away_orphans() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

#[cold]
fn failed(e: std::io::Error) -> Failure {
    Failure::new(status::UNAVAILABLE, format!("cannot handle signals: {e}"))
}

/// Who received a SIGINT.
#[derive(Debug, Clone, Copy)]
pub(super) enum Interrupt {
    /// Only the command: the terminal was lent to it.
    OfCommand,
    /// This process, which passed it on. If the terminal sent it, the whole group of this process
    /// received it.
    OfThisProcess,
}

/// Does what the terminal would have done without a process group for the command: if a script runs
/// this process, the script must not go on with its next line. Its shell checks whether it received
/// the signal itself, and whether the signal ended the process that it waited for, so this process
/// ends by the signal. Returns only if that fails.
pub(super) fn end_by(interrupt: Interrupt) {
    stderr::wait_until_written(stderr::PATIENCE);
    match interrupt {
        Interrupt::OfCommand => {
            let _ = kill_current_process_group(Signal::INT);
        }
        // Somebody may have sent it to this process alone: then its script goes on.
        Interrupt::OfThisProcess => {}
    }
    let _ = emulate_default_handler(SIGINT);
}
