//! Names that other clients held recently. A try asks whether such a name is free before it makes a
//! node, because a node that is made and deleted in vain is two changes that every server writes to
//! disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::lease::Moment;
use crate::base::lock_name::LockName;

/// Maximum number of names that are remembered. The next try of a forgotten one costs a node.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct BusyNames {
    seen_at: Mutex<HashMap<Arc<str>, Moment>>,
}

impl BusyNames {
    pub(super) fn note(&self, name: &LockName, now: Moment) {
        let mut seen_at = self.seen_at.lock();
        if seen_at.len() >= MOST {
            seen_at.clear();
        }
        seen_at.insert(name.key.clone(), now);
    }

    pub(super) fn forget(&self, name: &LockName) {
        self.seen_at.lock().remove(&name.key);
    }

    pub(super) fn was_busy(&self, name: &LockName, now: Moment, within: Duration) -> bool {
        self.seen_at.lock().get(&name.key).is_some_and(|seen| now.since(*seen) <= within)
    }
}
