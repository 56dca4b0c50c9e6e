//! Listeners and callbacks of a program: what they were told, and what they do when they are
//! called.

use std::panic::panic_any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::observe::{Listener, LockInfo};
use leasehold::os::thread::sleep;
use leasehold::{Held, Loss, LossReason};

use super::bounds::BLOCKED;
use super::ledger;
use super::program::Code;
use crate::stage::{OnPurpose, choose};

/// The listener of one client.
pub(crate) struct Ears {
    code: Code,
    /// How many waits come before the one in which it blocks.
    before: u32,
    waits: AtomicU32,
    acquired: AtomicU32,
    ended: AtomicU32,
}

impl Ears {
    pub(crate) fn new(code: Code) -> Arc<Self> {
        let before = if code == Code::Blocks { choose(3) as u32 } else { 0 };
        let none = AtomicU32::default;
        Arc::new(Self { code, before, waits: none(), acquired: none(), ended: none() })
    }

    /// Every hold that was announced has ended once.
    pub(crate) fn check(&self) {
        let (acquired, ended) =
            (self.acquired.load(Ordering::SeqCst), self.ended.load(Ordering::SeqCst));
        assert_eq!(
            acquired, ended,
            "a listener is told once of the end of each hold (left: holds, right: ends)"
        );
    }

    fn count(&self, what: &AtomicU32) {
        what.fetch_add(1, Ordering::SeqCst);
        if self.code == Code::Panics && choose(2) == 0 {
            panic_any(OnPurpose);
        }
    }
}

impl Listener for Ears {
    fn waiting(&self, _: &LockInfo<'_>) {
        let nth = self.waits.load(Ordering::SeqCst);
        self.count(&self.waits);
        if self.code == Code::Blocks && nth == self.before {
            ledger::blocks();
            sleep(BLOCKED);
        }
    }

    fn acquired(&self, _: &LockInfo<'_>, _: Option<Duration>) {
        self.count(&self.acquired);
    }

    fn released(&self, _: &LockInfo<'_>, _: Duration) {
        self.count(&self.ended);
    }

    fn lost(&self, _: &LockInfo<'_>, _: &Loss) {
        self.count(&self.ended);
    }
}

/// The losses that a callback of one guard was told.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<LossReason>>>);

impl Told {
    pub(crate) fn listen(&self, guard: &dyn Held, code: Code) {
        let told = self.clone();
        guard.on_lost(Box::new(move |loss| {
            told.0.lock().unwrap_or_else(PoisonError::into_inner).push(loss.reason());
            match code {
                Code::Calm => {}
                Code::Panics => panic_any(OnPurpose),
                Code::Blocks => sleep(Duration::from_secs(2)),
            }
        }));
    }

    pub(crate) fn reasons(&self) -> Vec<LossReason> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
