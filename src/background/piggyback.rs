//! An acquire that travels with the release of another thread of this client: one round trip for
//! both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::holder::Holder;
use crate::base::lock_name::LockName;
use crate::store::{Acquire, Acquired, TokenRule, UnknownOutcomes, Waiting};

/// The acquire, left by the thread that waits, for the thread that releases.
#[derive(Debug)]
pub(crate) struct Piggyback {
    name: Arc<LockName>,
    holder: Holder,
    permits: u32,
    lease: Duration,
    token: TokenRule,
    waiting: Waiting,
    outcome: Mutex<Option<PiggybackOutcome>>,
    delivered: Condvar,
    taken: AtomicBool,
}

/// What became of a piggybacked acquire.
#[derive(Debug)]
pub(crate) enum PiggybackOutcome {
    NotSent,
    Sent { acquired: Result<Acquired>, unknowns: UnknownOutcomes },
}

impl Piggyback {
    pub(crate) fn new(request: &Acquire<'_>) -> Self {
        Self {
            name: request.name.clone(),
            holder: request.holder.clone(),
            permits: request.permits,
            lease: request.lease,
            token: request.token,
            waiting: request.waiting,
            outcome: Mutex::new(None),
            delivered: Condvar::new(),
            taken: AtomicBool::new(false),
        }
    }

    pub(crate) fn request(&self) -> Acquire<'_> {
        let Self { name, holder, permits, lease, token, waiting, .. } = self;
        Acquire { name, holder, permits: *permits, lease: *lease, held: 0, token: *token, waiting: *waiting }
    }

    /// Called under the mutex of the local queue, when a releasing thread takes it out of there.
    pub(crate) fn take(&self) {
        self.taken.store(true, Ordering::Release);
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    fn deliver(&self, outcome: PiggybackOutcome) {
        self.outcome.lock().get_or_insert(outcome);
        self.delivered.notify_one();
    }

    /// Blocks until the thread that took it delivers the outcome.
    pub(crate) fn wait(&self) -> PiggybackOutcome {
        let mut outcome = self.outcome.lock();
        loop {
            match outcome.take() {
                Some(outcome) => return outcome,
                None => self.delivered.wait(&mut outcome),
            }
        }
    }
}

/// A piggybacked acquire that a releasing thread took. Its owner waits for an outcome, and gets one
/// even if that thread panics.
#[derive(Debug)]
pub(crate) struct TakenPiggyback {
    piggyback: Arc<Piggyback>,
    /// Set if the release itself does not notify the owner.
    event: Option<Arc<Event>>,
}

impl TakenPiggyback {
    pub(crate) fn new(piggyback: Arc<Piggyback>, event: Option<Arc<Event>>) -> Self {
        Self { piggyback, event }
    }

    pub(crate) fn deliver(self, acquired: Result<Acquired>, unknowns: UnknownOutcomes) {
        self.piggyback.deliver(PiggybackOutcome::Sent { acquired, unknowns });
    }
}

impl std::ops::Deref for TakenPiggyback {
    type Target = Piggyback;

    fn deref(&self) -> &Piggyback {
        &self.piggyback
    }
}

impl Drop for TakenPiggyback {
    fn drop(&mut self) {
        // Without effect after a delivery.
        self.piggyback.deliver(PiggybackOutcome::NotSent);
        if let Some(event) = &self.event {
            event.notify();
        }
    }
}
