//! What a user wants to have run when a lease is lost.

use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// Runs when a lease is lost. It runs once, even if it was registered with several leases.
pub(crate) struct OnLost(pub(super) Arc<Place>);

/// Empty once a thread has taken the callback to run it, or its guard has taken it back.
pub(super) type Place = Mutex<Option<Callback>>;

impl OnLost {
    pub(crate) fn new(callback: impl FnOnce() + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(callback)))))
    }
}

/// The callbacks that were set through one guard.
#[derive(Default)]
pub(crate) struct Callbacks(Mutex<Vec<OnLost>>);

impl Callbacks {
    pub(crate) fn add(&self, callback: OnLost) {
        self.0.lock().push(callback);
    }

    /// Takes those that have not run. From here on no other thread runs them: taken before a guard
    /// is given up, they run if and only if that finds a loss, and otherwise they are dropped here,
    /// not by the thread that keeps deadlines.
    pub(crate) fn take(&mut self, is_forked: impl FnOnce() -> bool) -> Vec<Callback> {
        let all = std::mem::take(self.0.get_mut());
        if !all.is_empty() && is_forked() {
            // They are the parent's: neither run nor dropped here, where a place may be locked for
            // ever.
            std::mem::forget(all);
            return Vec::new();
        }
        all.into_iter().filter_map(|OnLost(place)| place.lock().take()).collect()
    }
}
