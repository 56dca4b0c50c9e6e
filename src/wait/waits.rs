//! The calls of a client that wait: who waits for what, since when. Kept for
//! [`LockClient::snapshot`](crate::LockClient::snapshot). Calls that are granted at once do not
//! come here.

use std::sync::Arc;
use std::time::Instant;

use crate::base::deadline::Deadline;
use crate::base::lock_name::LockName;
use crate::base::primitive::Primitive;
use crate::os::{
    self, HashMap, Mutex,
    atomic::{AtomicUsize, Ordering},
    thread::Thread,
};

#[derive(Debug, Default)]
pub(crate) struct Waits {
    table: Mutex<WaitTable>,
    /// How many of them wait for a fair lock.
    places: AtomicUsize,
}

#[derive(Debug, Default)]
struct WaitTable {
    next: u64,
    waits: HashMap<u64, ListedWait>,
}

/// A call that waits.
#[derive(Debug, Clone)]
pub(crate) struct ListedWait {
    /// If several names are asked for, the one that is taken.
    pub(crate) name: Arc<LockName>,
    pub(crate) primitive: Primitive,
    pub(crate) thread: Thread,
    pub(crate) since: Instant,
    pub(crate) deadline: Deadline,
}

/// A place in the table, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitEntry<'w> {
    waits: &'w Waits,
    number: u64,
    has_place: bool,
}

impl Waits {
    /// Enters a wait of the calling thread, which begins now.
    pub(crate) fn begin(
        &self,
        name: &Arc<LockName>,
        primitive: Primitive,
        deadline: Deadline,
    ) -> WaitEntry<'_> {
        let since = os::now();
        let wait = ListedWait {
            name: name.clone(),
            primitive,
            thread: os::thread::current(),
            since,
            deadline,
        };
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        table.waits.insert(number, wait);
        let has_place = primitive == Primitive::Fair;
        self.places.fetch_add(has_place.into(), Ordering::AcqRel);
        WaitEntry { waits: self, number, has_place }
    }

    /// Whether a call waits in the queue of a fair lock. Takes no mutex.
    pub(crate) fn has_place(&self) -> bool {
        self.places.load(Ordering::Acquire) > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.table.lock().waits.len()
    }

    /// All waits, those that have lasted longest first.
    pub(crate) fn all(&self) -> Vec<ListedWait> {
        let mut waits: Vec<_> = self.table.lock().waits.values().cloned().collect();
        waits.sort_by_key(|wait| wait.since);
        waits
    }
}

impl WaitEntry<'_> {
    /// The call waits for another of its names from now on.
    pub(crate) fn set_name(&self, name: &Arc<LockName>) {
        if let Some(wait) = self.waits.table.lock().waits.get_mut(&self.number) {
            wait.name.clone_from(name);
        }
    }
}

impl Drop for WaitEntry<'_> {
    fn drop(&mut self) {
        self.waits.table.lock().waits.remove(&self.number);
        self.waits.places.fetch_sub(self.has_place.into(), Ordering::AcqRel);
    }
}
