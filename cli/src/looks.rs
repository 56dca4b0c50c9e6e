//! Polls a store on a thread of its own, so that a screen does not hang when the store does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::duration;
use crate::failure::{Failure, status};

/// One poll: the store's answer, or why it could not be queried.
pub(crate) struct Look<T> {
    pub(crate) begun: Instant,
    pub(crate) took: Duration,
    pub(crate) answer: leasehold::Result<T>,
}

/// The thread that polls. It ends with the process.
pub(crate) struct Looks<T> {
    pub(crate) received: Receiver<Look<T>>,
    is_paused: Arc<AtomicBool>,
}

impl<T: Send + 'static> Looks<T> {
    /// Polls at once, and then `interval` after the beginning of each poll, or later: after a slow
    /// answer, not before [`rest`] is over.
    pub(crate) fn start(
        interval: Duration,
        ask: impl FnMut() -> leasehold::Result<T> + Send + 'static,
    ) -> Result<Self, Failure> {
        // The thread does not poll again until its last answer has been received.
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
            let begun = Instant::now();
            let mut pause = self.interval;
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

/// The time from the beginning of this poll to that of the next: other clients have the store for
/// ten times as long as it worked for this poll. A poll that failed costs it nothing.
pub(crate) fn rest<T>(interval: Duration, look: &Look<T>) -> Duration {
    if look.answer.is_ok() { interval.max(look.took * 11) } else { interval }
}

#[cold]
pub(crate) fn no_thread(e: &std::io::Error) -> Failure {
    Failure::new(status::UNAVAILABLE, format!("cannot start a thread or handle signals: {e}"))
}

/// The thread that polls has panicked, and its message was printed.
#[cold]
pub(crate) fn asker_has_ended() -> Failure {
    Failure::new(status::UNAVAILABLE, "the thread that polls the store has panicked")
}

/// Parses the time between two polls.
pub(crate) fn interval(text: &str, shortest: Duration) -> Result<Duration, String> {
    let interval = duration::parse(text)?;
    if interval < shortest {
        return Err(format!("{text} is shorter than {shortest:?}, the shortest interval"));
    }
    Ok(interval)
}
