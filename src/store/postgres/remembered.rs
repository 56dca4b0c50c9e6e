//! What a client remembers of its requests: the places of its waiters, and marks that nobody needs
//! any more.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::base::holder::Holder;

/// The places of this client's waiters in the queues of fair locks: by holder, because each waiter
/// has a fresh one. A waiter that was thought dead gets its place back by it.
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

/// The marks of changes of counts that nobody needs any more.
///
/// A mark lets a change of a count be repeated. When its answer has come the change is not
/// repeated, and the next request about a count takes the mark along to its removal. Otherwise each
/// permit that was ever taken would leave a row for a sweep.
#[derive(Debug, Default)]
pub(super) struct UsedMarks(Mutex<Vec<String>>);

/// Beyond these, and when the request that takes them along fails, marks stay until a sweep removes
/// them.
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
