//! A try that travels with the release of another thread of this client: one round trip for both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::base::error::Result;
use crate::base::event::Bell;
use crate::base::holder::Holder;
use crate::base::key::LockKeys;
use crate::store::{Acquire, Acquired, Doubts, TokenRule, Waiting};

/// A try that travels with the release of another thread: one round trip for both.
#[derive(Debug)]
pub(crate) struct Relay {
    keys: Arc<LockKeys>,
    holder: Holder,
    lease: Duration,
    token: TokenRule,
    waiting: Waiting,
    outcome: Mutex<Option<Relayed>>,
    delivered: Condvar,
    taken: AtomicBool,
}

/// What became of a relayed try.
#[derive(Debug)]
pub(crate) enum Relayed {
    NotSent,
    Sent { acquired: Result<Acquired>, doubts: Doubts },
}

impl Relay {
    pub(crate) fn new(request: &Acquire<'_>) -> Self {
        Self {
            keys: Arc::new(request.keys.clone()),
            holder: request.holder.clone(),
            lease: request.lease,
            token: request.token,
            waiting: request.waiting,
            outcome: Mutex::new(None),
            delivered: Condvar::new(),
            taken: AtomicBool::new(false),
        }
    }

    pub(crate) fn request(&self) -> Acquire<'_> {
        let Self { keys, holder, lease, token, waiting, .. } = self;
        Acquire { keys, holder, lease: *lease, held: 0, token: *token, waiting: *waiting }
    }

    /// Under the line's mutex, when it leaves the line.
    pub(crate) fn take(&self) {
        self.taken.store(true, Ordering::Release);
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    fn deliver(&self, relayed: Relayed) {
        self.outcome.lock().get_or_insert(relayed);
        self.delivered.notify_one();
    }

    /// Blocks until whoever took it tells what became of it.
    pub(crate) fn wait(&self) -> Relayed {
        let mut outcome = self.outcome.lock();
        loop {
            match outcome.take() {
                Some(relayed) => return relayed,
                None => self.delivered.wait(&mut outcome),
            }
        }
    }
}

/// A relay that somebody took, who owes its owner an outcome, also after a panic.
#[derive(Debug)]
pub(crate) struct TakenRelay {
    relay: Arc<Relay>,
    /// Of an owner that nobody else rings for sure.
    bell: Option<Arc<Bell>>,
}

impl TakenRelay {
    pub(crate) fn new(relay: Arc<Relay>, bell: Option<Arc<Bell>>) -> Self {
        Self { relay, bell }
    }

    pub(crate) fn deliver(self, acquired: Result<Acquired>, doubts: Doubts) {
        self.relay.deliver(Relayed::Sent { acquired, doubts });
    }
}

impl std::ops::Deref for TakenRelay {
    type Target = Relay;

    fn deref(&self) -> &Relay {
        &self.relay
    }
}

impl Drop for TakenRelay {
    fn drop(&mut self) {
        // Does nothing after a delivery.
        self.relay.deliver(Relayed::NotSent);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}
