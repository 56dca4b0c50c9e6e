//! A latched wake-up for the one waiter of a name.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Rung by release messages, by local releases, and when the client closes.
///
/// Latched: a ring between "busy" and going to sleep is not lost. The waiter clears it *before* it sends a try, since
/// a message that arrives while the try is under way may tell of a release after it.
#[derive(Debug, Default)]
pub(crate) struct Event {
    state: Mutex<State>,
    notified: Condvar,
}

#[derive(Debug, Default)]
struct State {
    latched: bool,
    /// Messages heard so far, own ones included.
    messages: u64,
    /// When the server last answered somebody of the line.
    answered: Option<Instant>,
}

impl Event {
    pub(crate) fn notify(&self) {
        self.state.lock().latched = true;
        self.notified.notify_all();
    }

    pub(crate) fn notify_by_message(&self) {
        let mut state = self.state.lock();
        state.latched = true;
        state.messages += 1;
        drop(state);
        self.notified.notify_all();
    }

    pub(crate) fn clear(&self) {
        self.state.lock().latched = false;
    }

    /// Waits for a ring, at most for `patience`; false: there was none. Leaves the latch as it is.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let give_up = Instant::now() + patience;
        let mut state = self.state.lock();
        while !state.latched {
            if self.notified.wait_until(&mut state, give_up).timed_out() {
                return state.latched;
            }
        }
        true
    }

    pub(crate) fn is_notified(&self) -> bool {
        self.state.lock().latched
    }

    pub(crate) fn messages(&self) -> u64 {
        self.state.lock().messages
    }

    /// The server has answered a try.
    pub(crate) fn answered(&self) {
        self.state.lock().answered = Some(Instant::now());
    }

    /// Whether the server has answered a try so lately.
    pub(crate) fn is_answered_within(&self, age: Duration) -> bool {
        self.state.lock().answered.is_some_and(|at| at.elapsed() < age)
    }

    /// Waits until the count of messages has reached `count`; false after `patience`.
    pub(crate) fn wait_for_message(&self, count: u64, patience: Duration) -> bool {
        let give_up = Instant::now() + patience;
        let mut state = self.state.lock();
        while state.messages < count {
            if self.notified.wait_until(&mut state, give_up).timed_out() {
                return state.messages >= count;
            }
        }
        true
    }
}
