//! What the clients of one store in memory share.

use std::sync::Arc;

use super::state::MemoryState;
use crate::base::clock::MovableClock;
use crate::os::{Mutex, atomic::AtomicU64};

/// The state behind the stores of several clients.
pub(crate) struct Memory {
    pub(crate) clock: Arc<MovableClock>,
    pub(super) state: Mutex<MemoryState>,
    pub(super) next_store: AtomicU64,
    /// One for each client: wakes its waiting threads, and returns false when the client is gone.
    #[cfg(feature = "testing")]
    pub(super) clients: Mutex<Vec<Arc<dyn Fn() -> bool + Send + Sync>>>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(MovableClock::default());
        Self {
            state: Mutex::new(MemoryState::new(clock.clone())),
            clock,
            next_store: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            clients: Mutex::default(),
        }
    }
}
