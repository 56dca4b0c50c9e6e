//! What a client remembers of its requests: the places of its waiters, and marks that are no longer
//! needed.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::base::holder::Holder;

/// The places of this client's waiters in the queues of fair locks, by holder, because each waiter
/// has a fresh one. By its place, a waiter that was taken for dead gets its position back.
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

    /// It got the lock, or has left the queue.
    pub(super) fn forget(&self, holder: &Holder) {
        self.0.lock().remove(holder);
    }
}

/// The marks of changes of counts that are no longer needed.
///
/// A mark allows a change of a count to be repeated. Once its answer has come, the change is not
/// repeated, and the next request about a count removes the mark. Otherwise each permit that was
/// ever taken would leave a row for a sweep.
#[derive(Debug, Default)]
pub(super) struct UsedMarks(Mutex<Vec<String>>);

/// Marks beyond this number stay until a sweep removes them, and so do those of a failed request.
const MOST: usize = 256;

impl UsedMarks {
    /// No request with this id is under way, and none will be sent.
    pub(super) fn add(&self, id: &str) {
        let mut ids = self.0.lock();
        if ids.len() < MOST {
            ids.push(id.to_owned());
        }
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}
