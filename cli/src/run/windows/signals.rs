//! The events of the console as signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crossbeam_channel::Receiver;
use leasehold::CancelToken;

use crate::failure::Failure;
use crate::platform::receive;

pub(crate) struct Signals {
    received: Receiver<i32>,
    token: CancelToken,
    /// The first signal that ended a wait; 0 if none has.
    first: Arc<AtomicI32>,
}

impl Signals {
    /// Starts to handle the events that end a wait.
    pub(crate) fn take_in() -> Result<Self, Failure> {
        let token = CancelToken::new();
        let first = Arc::new(AtomicI32::new(0));
        let cancelled = token.clone();
        let noted = Arc::clone(&first);
        let received = receive(move |signal| {
            // Set before the cancel, because it is read after that.
            let _ = noted.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire);
            cancelled.cancel();
            signal
        })?;
        Ok(Self { received, token, first })
    }

    /// A running command has no other events.
    pub(crate) fn take_in_those_of_a_command(&self) -> Result<(), Failure> {
        Ok(())
    }

    pub(crate) fn leave_those_of_a_command(&self) {}

    /// Cancelled by the first event that ends a wait.
    pub(crate) fn token(&self) -> &CancelToken {
        &self.token
    }

    /// The signal that cancelled the token.
    pub(crate) fn first(&self) -> i32 {
        self.first.load(Ordering::Acquire)
    }

    pub(super) fn received(&self) -> &Receiver<i32> {
        &self.received
    }
}
