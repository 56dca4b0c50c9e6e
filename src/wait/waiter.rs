//! A thread that waits in a local queue behind its leader.

use std::sync::Arc;

use crate::base::deadline::Deadline;
use crate::base::event::Interrupt;
use crate::lease::store_hold::Admission;
use crate::os::{Condvar, Mutex, OnceLock};
use crate::wait::piggyback::Piggyback;

#[derive(Debug, Default)]
pub(super) struct Waiter {
    /// Its owner's acquire. A thread that releases sends it along, even while the owner is still
    /// waking up. Set under the mutex of the local queue, once its owner is about to sleep.
    piggyback: OnceLock<Arc<Piggyback>>,
    signal: Mutex<Signal>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) enum Signal {
    #[default]
    Wait,
    Lead,
    /// Its owner is one more reader of this hold.
    Joined(Admission),
    /// The client has stopped waiting, or its call was cancelled.
    Ended,
}

/// For a token that is cancelled.
impl Interrupt for Waiter {
    fn interrupt(&self) {
        self.signal(Signal::Ended);
    }
}

impl Waiter {
    pub(super) fn piggyback(&self) -> Option<&Arc<Piggyback>> {
        self.piggyback.get()
    }

    /// Leaves its owner's acquire in the queue. Called under the mutex of the local queue, under
    /// which a waiter is made the leader: a waiter that is already the leader asks for itself.
    pub(super) fn offer(&self, piggyback: Arc<Piggyback>) {
        if matches!(*self.signal.lock(), Signal::Wait) {
            let _ = self.piggyback.set(piggyback);
        }
    }

    pub(super) fn signal(&self, to: Signal) {
        self.set(to);
        self.wake();
    }

    /// Sets the signal, and leaves it to the caller to [wake](Self::wake) the thread. Returns the
    /// signal if the thread was signalled before.
    pub(super) fn set(&self, to: Signal) -> Option<Signal> {
        let mut signal = self.signal.lock();
        if !matches!(*signal, Signal::Wait) {
            return Some(to);
        }
        *signal = to;
        None
    }

    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Until signalled, or until the deadline ([`Signal::Wait`]). Takes the signal out.
    pub(super) fn wait(&self, deadline: Deadline) -> Signal {
        let mut signal = self.signal.lock();
        while matches!(*signal, Signal::Wait) {
            match deadline {
                Deadline::Never => self.changed.wait(&mut signal),
                Deadline::Now => break,
                Deadline::At(at) => {
                    if self.changed.wait_until(&mut signal, at).timed_out() {
                        break;
                    }
                }
            }
        }
        std::mem::take(&mut signal)
    }
}
