//! Windows: the events of the console, and its size.

use std::io::{self, IsTerminal, stdout};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crossbeam_channel::{Receiver, unbounded};
use leasehold::observe::HolderOwner;
use ratatui::crossterm::terminal;
use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close,
    ctrl_logoff, ctrl_shutdown,
};

use super::ScreenSignal;
use crate::failure::Failure;
use crate::looks::no_thread;

/// The events have the numbers of the signals that they are like: those of C's runtime, and that of
/// Unix for a terminal that is gone.
const INTERRUPTED: i32 = 2;
const BREAK: i32 = 21;
const HUNG_UP: i32 = 1;
pub(crate) const TERMINATED: i32 = 15;

/// From now on, the events that end a program arrive on a channel. Windows ends it all the same a
/// few seconds after its console was closed, or its user has logged off.
pub(crate) fn take_in() -> Result<Receiver<i32>, Failure> {
    receive(|signal| signal)
}

/// The same for a program with a live screen, where Ctrl-C is a key.
pub(crate) fn take_in_those_of_a_screen() -> Result<Receiver<ScreenSignal>, Failure> {
    receive(ScreenSignal::End)
}

/// `meaning` is called on the thread that receives.
pub(crate) fn receive<T: Send + 'static>(
    mut meaning: impl FnMut(i32) -> T + Send + 'static,
) -> Result<Receiver<T>, Failure> {
    let mut events = ConsoleEvents::new().map_err(|e| no_thread(&e))?;
    let (sender, received) = unbounded();
    let listen = move || while sender.send(meaning(events.next())).is_ok() {};
    let thread = std::thread::Builder::new().name("lh-signals".into());
    thread.spawn(listen).map_err(|e| no_thread(&e))?;
    Ok(received)
}

/// The handler is tokio's, because it does not return when the console is closed or the user logs
/// off: Windows would end the process at once, with its locks. It needs no runtime.
struct ConsoleEvents {
    interrupt: CtrlC,
    ctrl_break: CtrlBreak,
    close: CtrlClose,
    log_off: CtrlLogoff,
    shutdown: CtrlShutdown,
}

impl ConsoleEvents {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            ctrl_break: ctrl_break()?,
            close: ctrl_close()?,
            log_off: ctrl_logoff()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// Blocks until the next event.
    fn next(&mut self) -> i32 {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match self.poll(&mut context) {
                Poll::Ready(signal) => return signal,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<i32> {
        let happened = [
            (INTERRUPTED, self.interrupt.poll_recv(context).is_ready()),
            (BREAK, self.ctrl_break.poll_recv(context).is_ready()),
            (HUNG_UP, self.close.poll_recv(context).is_ready()),
            (TERMINATED, self.log_off.poll_recv(context).is_ready()),
            (TERMINATED, self.shutdown.poll_recv(context).is_ready()),
        ];
        let first = happened.iter().find(|(_, has_happened)| *has_happened);
        first.map_or(Poll::Pending, |(signal, _)| Poll::Ready(*signal))
    }
}

/// Continues the thread that waits for an event.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The processes that this one was started under. No safe interface lists them, so a run under
/// another is recognized only by the token in its environment.
pub(crate) struct Ancestors;

impl Ancestors {
    pub(crate) fn of_this_process() -> Self {
        Self
    }

    pub(crate) fn include(&self, _: &HolderOwner) -> bool {
        false
    }
}

/// There are no shells that stop and continue programs.
pub(crate) fn stop() {}

/// `None` if stdout is not a console.
pub(crate) fn columns_of_stdout() -> Option<usize> {
    // The size is that of the console, whatever stdout is.
    let (columns, _) = terminal::size().ok().filter(|_| stdout().is_terminal())?;
    (columns > 0).then_some(columns.into())
}
