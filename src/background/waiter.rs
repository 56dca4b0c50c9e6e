//! A thread that waits in a local queue behind its leader.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::background::piggyback::Piggyback;
use crate::base::deadline::Deadline;

#[derive(Debug)]
pub(super) struct Waiter {
    /// Its owner's acquire, sent with the release before its turn even while the owner is still
    /// waking up.
    pub(super) piggyback: Option<Arc<Piggyback>>,
    signal: Mutex<Signal>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    #[default]
    Wait,
    Lead,
    Closed,
}

impl Waiter {
    pub(super) fn new(piggyback: Option<Arc<Piggyback>>) -> Self {
        Self { piggyback, signal: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn signal(&self, to: Signal) {
        let mut signal = self.signal.lock();
        if *signal == Signal::Wait {
            *signal = to;
        }
        drop(signal);
        self.changed.notify_one();
    }

    /// Until signalled, or until the deadline ([`Signal::Wait`]).
    pub(super) fn wait(&self, deadline: Deadline) -> Signal {
        let mut signal = self.signal.lock();
        while *signal == Signal::Wait {
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
        *signal
    }
}
