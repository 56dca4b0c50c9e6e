//! Starts the command of a run that has its lock, and watches it.

use leasehold::Held;

use super::args::RunArgs;
use super::command::Environment;
#[cfg(unix)]
use super::unix as system;
#[cfg(windows)]
use super::windows as system;
use crate::failure::{Failure, by_signal, say, status};
use crate::words;
use system::{Child, Ended, Oversight, Signals};

/// `None` if no signal has ended the wait.
pub(super) fn ended_before_start(args: &RunArgs, signals: &Signals) -> Option<Failure> {
    let signal = signals.first();
    let why = format!("{}: ended by signal {signal} before the command was started", args.name());
    signals.token().is_cancelled().then(|| Failure::new(by_signal(signal), why))
}

/// The exit status. Does not return if a terminal has interrupted the command, or the wait.
pub(super) fn status_after(ended: Result<Ended, Failure>) -> Result<u8, Failure> {
    let ended = match ended {
        Err(failure) if failure.status > status::BY_SIGNAL => {
            say(&failure);
            Ended::in_a_wait(failure.status)
        }
        ended => ended?,
    };
    ended.pass_on();
    Ok(ended.status)
}

pub(super) fn start_command(
    guard: &dyn Held,
    environment: &Environment,
    args: &RunArgs,
    signals: &Signals,
) -> Result<Child, Failure> {
    // The signal may have arrived just as the lock was granted.
    ended_before_start(args, signals).map_or(Ok(()), Err)?;
    guard.ensure_held()?;
    signals.take_in_those_of_a_command()?;
    Child::start(args, guard, environment)
}

/// Blocks until the command has ended.
pub(super) fn oversee(
    guard: &dyn Held,
    child: Child,
    args: &RunArgs,
    signals: &Signals,
) -> Result<Ended, Failure> {
    let name = args.name().to_owned();
    guard.on_renewal_failed(Box::new(move |trouble| {
        say(format_args!("{name}: {}", words::trouble(trouble)));
    }));
    Oversight::new(child, guard, args, signals).until_the_end()
}
