//! A latched wake-up for the one waiter of a name.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Notified by release messages, by local releases, and when the client closes.
///
/// Latched: a notification between the reply "busy" and the wait is not lost. The waiter clears the
/// latch *before* it sends an attempt, because a message that arrives while the attempt is under
/// way may be about a later release.
#[derive(Debug, Default)]
pub(crate) struct Event {
    state: Mutex<State>,
    notified: Condvar,
}

#[derive(Debug, Default)]
struct State {
    latched: bool,
    /// Messages received so far, including those that releases of this client caused.
    messages: u64,
    /// When the store last answered a waiter of this queue.
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

    /// Waits for a notification, at most for `timeout`; false if there was none. Does not clear the
    /// latch.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let give_up = Instant::now() + timeout;
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

    /// Records that the store has answered an attempt.
    pub(crate) fn answered(&self) {
        self.state.lock().answered = Some(Instant::now());
    }

    /// Whether the store has answered an attempt within `age`.
    pub(crate) fn is_answered_within(&self, age: Duration) -> bool {
        self.state.lock().answered.is_some_and(|at| at.elapsed() < age)
    }

    /// Waits until `count` messages have been received; false after `timeout`.
    pub(crate) fn wait_for_message(&self, count: u64, timeout: Duration) -> bool {
        let give_up = Instant::now() + timeout;
        let mut state = self.state.lock();
        while state.messages < count {
            if self.notified.wait_until(&mut state, give_up).timed_out() {
                return state.messages >= count;
            }
        }
        true
    }
}
