//! What the clients of one store in memory share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use super::state::State;
use crate::base::clock::MovableClock;

/// What several clients have in common, each by a store of its own.
pub(crate) struct Memory {
    pub(crate) clock: Arc<MovableClock>,
    pub(super) state: Mutex<State>,
    pub(super) next_store: AtomicU64,
    /// Called when a test has changed something that those who sleep would find by a timer; false:
    /// not any more.
    #[cfg(feature = "testing")]
    pub(super) clients: Mutex<Vec<Box<dyn Fn() -> bool + Send + Sync>>>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(MovableClock::default());
        Self {
            state: Mutex::new(State::new(clock.clone())),
            clock,
            next_store: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            clients: Mutex::default(),
        }
    }
}
