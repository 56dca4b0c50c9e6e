//! A store that is asked again and again, on a thread of its own: whoever shows the answers must
//! not hang with it. And the signals that end that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use signal_hook::iterator::Signals;

use crate::duration;
use crate::failure::{Failure, status};
use crate::run::is_ignored;

/// What the store said, or why it could not be asked.
pub(crate) struct Look<T> {
    pub(crate) begun: Instant,
    pub(crate) took: Duration,
    pub(crate) answer: leasehold::Result<T>,
}

/// The thread that asks. It ends with the process.
pub(crate) struct Looks<T> {
    pub(crate) received: Receiver<Look<T>>,
    is_paused: Arc<AtomicBool>,
}

impl<T: Send + 'static> Looks<T> {
    /// Asks at once, and then each time `interval` after it has asked before, or later: after an
    /// answer that took long, not before [`rest`] is over.
    pub(crate) fn start(
        interval: Duration,
        ask: impl FnMut() -> leasehold::Result<T> + Send + 'static,
    ) -> Result<Self, Failure> {
        // An answer that nobody has taken yet keeps the next one back.
        let (sender, received) = bounded(0);
        let is_paused = Arc::new(AtomicBool::new(false));
        let asker = Asker { interval, ask, sender, is_paused: Arc::clone(&is_paused) };
        let thread = std::thread::Builder::new().name("lh-looks".into());
        thread.spawn(move || asker.run()).map_err(|e| no_thread(&e))?;
        Ok(Self { received, is_paused })
    }

    pub(crate) fn pause(&self, pause: bool) {
        self.is_paused.store(pause, Ordering::Relaxed);
    }
}

struct Asker<T, A> {
    interval: Duration,
    ask: A,
    sender: Sender<Look<T>>,
    is_paused: Arc<AtomicBool>,
}

impl<T, A: FnMut() -> leasehold::Result<T>> Asker<T, A> {
    fn run(mut self) {
        loop {
            let (begun, mut pause) = (Instant::now(), self.interval);
            if !self.is_paused.load(Ordering::Relaxed) {
                let answer = (self.ask)();
                let look = Look { begun, took: begun.elapsed(), answer };
                pause = rest(self.interval, &look);
                if self.sender.send(look).is_err() {
                    return;
                }
            }
            std::thread::sleep(pause.saturating_sub(begun.elapsed()));
        }
    }
}

/// From the beginning of this look to that of the next: the store has ten times as long for others
/// as it had to work for this one. What it did not answer costs it nothing.
pub(crate) fn rest<T>(interval: Duration, look: &Look<T>) -> Duration {
    if look.answer.is_ok() { interval.max(look.took * 11) } else { interval }
}

/// From now on these signals come out of a channel, except those that whoever started this process
/// wants ignored.
pub(crate) fn take_in(signals: &[i32]) -> Result<Receiver<i32>, Failure> {
    let mut incoming =
        Signals::new(signals.iter().filter(|signal| !is_ignored(**signal))).map_err(|e| no_thread(&e))?;
    let (sender, received) = unbounded();
    let listen = move || incoming.forever().all(|signal| sender.send(signal).is_ok());
    let thread = std::thread::Builder::new().name("lh-signals".into());
    thread.spawn(listen).map_err(|e| no_thread(&e))?;
    Ok(received)
}

#[cold]
fn no_thread(e: &std::io::Error) -> Failure {
    Failure::new(status::UNAVAILABLE, format!("a thread or signals cannot be had: {e}"))
}

/// The thread that asks has panicked, and has said so.
#[cold]
pub(crate) fn asker_has_ended() -> Failure {
    Failure::new(status::UNAVAILABLE, "the thread that asks the store has ended")
}

/// A time between looks, for an argument.
pub(crate) fn interval(text: &str, shortest: Duration) -> Result<Duration, String> {
    let interval = duration::parse(text)?;
    if interval < shortest {
        return Err(format!("{text} is below {shortest:?}: the store has other things to do"));
    }
    Ok(interval)
}
