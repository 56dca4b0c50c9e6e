//! What tests share because starting it takes longer than most of them.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// It ends when the last test drops it, so that nothing keeps running. The next test starts another
/// one.
pub struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    pub fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.0.lock();
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(start());
        *shared = Arc::downgrade(&started);
        started
    }
}
