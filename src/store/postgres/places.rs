//! The places of this client's waiters in the queues of fair locks.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::base::holder::Holder;

/// By holder, because each waiter has a fresh one. A waiter that was thought dead gets its place
/// back by it.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<Holder, i64>>);

impl Places {
    /// 0 for none.
    pub(super) fn of(&self, holder: &Holder) -> i64 {
        self.0.lock().get(holder).copied().unwrap_or(0)
    }

    pub(super) fn keep(&self, holder: &Holder, place: i64) {
        if place > 0 {
            self.0.lock().insert(holder.clone(), place);
        }
    }

    /// It got the lock, or has left.
    pub(super) fn forget(&self, holder: &Holder) {
        self.0.lock().remove(holder);
    }
}
