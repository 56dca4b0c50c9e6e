//! Unix: signals, and the size of a terminal.

mod ancestors;
mod ignored;

use std::io::stdout;

use crossbeam_channel::{Receiver, unbounded};
use rustix::process::{Signal, getpgrp, getpid, getsid, kill_process};
use rustix::termios::tcgetwinsize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use super::ScreenSignal;
use crate::failure::Failure;
use crate::looks::no_thread;
pub(crate) use ancestors::Ancestors;
use ignored::is_ignored;
pub(crate) use ignored::{ignored, is_in};

/// The signal that asks a program to end.
pub(crate) const TERMINATED: i32 = SIGTERM;

/// From now on, the signals that end a program arrive on a channel.
pub(crate) fn take_in() -> Result<Receiver<i32>, Failure> {
    receive(&[SIGTERM, SIGINT, SIGHUP], |signal| signal)
}

/// The same for a program with a live screen.
pub(crate) fn take_in_those_of_a_screen() -> Result<Receiver<ScreenSignal>, Failure> {
    receive(&[SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH], |signal| match signal {
        SIGWINCH => ScreenSignal::Resized,
        SIGTSTP => ScreenSignal::Suspend,
        other => ScreenSignal::End(other),
    })
}

/// Signals that were ignored when this process started stay ignored.
fn receive<T: Send + 'static>(
    signals: &[i32],
    meaning: fn(i32) -> T,
) -> Result<Receiver<T>, Failure> {
    let mut incoming = Signals::new(signals.iter().filter(|signal| !is_ignored(**signal)))
        .map_err(|e| no_thread(&e))?;
    let (sender, received) = unbounded();
    let listen = move || incoming.forever().all(|signal| sender.send(meaning(signal)).is_ok());
    let thread = std::thread::Builder::new().name("lh-signals".into());
    thread.spawn(listen).map_err(|e| no_thread(&e))?;
    Ok(received)
}

/// Stops this process until a shell continues it; without a shell above, nobody could.
pub(crate) fn stop() {
    if getsid(None).is_ok_and(|session| session != getpgrp()) {
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

/// `None` if stdout is not a terminal, or one that does not report its width.
pub(crate) fn columns_of_stdout() -> Option<usize> {
    let columns = tcgetwinsize(stdout()).ok()?.ws_col;
    (columns > 0).then_some(columns.into())
}
