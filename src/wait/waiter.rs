//! A thread that waits in a local queue behind its leader.

use std::sync::Arc;

use crate::base::deadline::Deadline;
use crate::lease::store_hold::Admission;
use crate::os::{Condvar, Mutex};
use crate::signal::event::Interrupt;
use crate::wait::piggyback::Piggyback;

#[derive(Debug)]
pub(super) struct Waiter {
    /// Its owner's acquire. A thread that releases sends it along, even while the owner is still
    /// waking up.
    piggyback: Option<Arc<Piggyback>>,
    state: Mutex<WaiterState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaiterState {
    /// Set under the mutex of the local queue, by the step that takes the waiter out of it: so a
    /// waiter is either in the queue, or has become something.
    became: Option<Became>,
    /// The client has stopped waiting, or the call was cancelled.
    is_ended: bool,
}

/// What a waiter that was taken out of the queue by another thread is now.
#[derive(Debug)]
pub(super) enum Became {
    Leader,
    /// Its owner is one more reader of this hold.
    Reader(Admission),
}

/// For a token that is cancelled, and for a client that stops waiting.
impl Interrupt for Waiter {
    fn interrupt(&self) {
        self.state.lock().is_ended = true;
        self.wake();
    }
}

impl Waiter {
    /// Its owner is about to sleep, and runs no code of the user before that: a hold that is passed
    /// to it would lie idle meanwhile.
    pub(super) fn new(piggyback: Option<Arc<Piggyback>>) -> Self {
        Self { piggyback, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn piggyback(&self) -> Option<&Arc<Piggyback>> {
        self.piggyback.as_ref()
    }

    /// Says what its owner is from now on. Called once, under the mutex of the local queue, by the
    /// step that takes it out. The caller then [wakes](Self::wake) the thread.
    pub(super) fn becomes(&self, became: Became) {
        self.state.lock().became = Some(became);
    }

    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Until it was taken out of the queue, its wait was ended, or the deadline has passed. `None`:
    /// it has become nothing yet, and may be in the queue.
    pub(super) fn wait(&self, deadline: Deadline) -> Option<Became> {
        let mut state = self.state.lock();
        while state.became.is_none() && !state.is_ended {
            match deadline {
                Deadline::Never => self.changed.wait(&mut state),
                Deadline::Now => break,
                Deadline::At(at) => {
                    if self.changed.wait_until(&mut state, at).timed_out() {
                        break;
                    }
                }
            }
        }
        state.became.take()
    }

    /// What it has become, if that was not read yet.
    pub(super) fn became(&self) -> Option<Became> {
        self.state.lock().became.take()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state.lock().is_ended
    }
}
