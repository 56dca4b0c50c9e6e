//! The holds of a client by lock key.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::holder::Holder;
use crate::base::lease::{LeaseState, Moment};
use crate::base::lock_name::LockName;
use crate::lease::records::{Owner, StoreHold, Tenure};
use crate::lease::store_hold::Admission;
use crate::os::{
    HashMap, Mutex,
    thread::{Thread, ThreadId},
};

/// The holds under one key: nearly always one, so that a lock call allocates no list.
type Entries = SmallVec<[Arc<StoreHold>; 1]>;

/// A hold is in the table from its grant until its release is over, and as long as a guard of it
/// lives.
#[derive(Debug)]
pub(crate) struct HoldTable {
    map: Mutex<HashMap<Arc<str>, Entries>>,
    io_timeout: Duration,
    /// Permits without leases that are taken, by holder: no lease returns them to the semaphore, so
    /// closing the client has to.
    pub(crate) outstanding_permits: Mutex<HashMap<Holder, OutstandingPermits>>,
}

/// Permits without leases that one call has taken.
#[derive(Debug, Clone)]
pub(crate) struct OutstandingPermits {
    pub(crate) name: Arc<LockName>,
    pub(crate) permits: u32,
    pub(crate) since: Moment,
    /// The thread that took them.
    pub(crate) thread: Thread,
}

impl HoldTable {
    /// `io_timeout`: how long a release that is under way is assumed to take.
    pub(crate) fn new(io_timeout: Duration) -> Self {
        Self { map: Mutex::default(), io_timeout, outstanding_permits: Mutex::default() }
    }

    pub(crate) fn insert(&self, hold: &Arc<StoreHold>) {
        self.map.lock().entry(hold.asked.name.key.clone()).or_default().push(hold.clone());
    }

    /// The last guard of the tenure has been given up: the hold leaves the table with its last
    /// user.
    pub(crate) fn remove(&self, tenure: &Tenure) {
        let mut map = self.map.lock();
        // Nobody is admitted to an unused hold.
        if tenure.store_hold.forget(tenure) {
            Self::take_out(&mut map, &tenure.store_hold);
        }
    }

    /// Removes a hold whose last user never began, unless it has others.
    pub(super) fn remove_unused(&self, hold: &Arc<StoreHold>) {
        let mut map = self.map.lock();
        if hold.is_unused() {
            Self::take_out(&mut map, hold);
        }
    }

    fn take_out(map: &mut HashMap<Arc<str>, Entries>, hold: &Arc<StoreHold>) {
        if let Some(holds) = map.get_mut(&hold.asked.name.key) {
            holds.retain(|other| !Arc::ptr_eq(other, hold));
            if holds.is_empty() {
                map.remove(&hold.asked.name.key);
            }
        }
    }

    /// The tenure that a call on this thread re-enters.
    pub(crate) fn of_thread(&self, key: &str, thread: ThreadId) -> Option<Arc<Tenure>> {
        let map = self.map.lock();
        map.get(key)?
            .iter()
            .find_map(|hold| hold.tenures().into_iter().find(|tenure| is_of(tenure, thread)))
    }

    /// How long a thread of this client holds the lock exclusively, or is still giving it up:
    /// during that time no request of another thread can succeed. Fair locks are never blocked
    /// here, because each of their waiters must reach the queue at the server.
    pub(crate) fn blocks(&self, name: &LockName) -> Option<Duration> {
        if !name.kind.is_lock() || name.kind.has_queue() {
            return None;
        }
        let map = self.map.lock();
        let holds = map.get(&name.key)?.iter();
        // A hold of another kind is no reason to wait: the store says that the kinds differ.
        let in_the_way = holds.filter(|hold| hold.asked.name.kind.is_same_lock_as(name.kind));
        in_the_way.filter_map(|hold| self.blocks_for(hold)).max()
    }

    /// How long the hold is certain to keep other threads of the client from the lock. This
    /// includes the time while its release is under way: the releasing thread notifies the local
    /// queue afterwards.
    fn blocks_for(&self, hold: &StoreHold) -> Option<Duration> {
        if !hold.asked.name.kind.is_exclusive() {
            return None;
        }
        // A write hold that only reads now keeps no readers out.
        let only_reads = || {
            hold.tenures()
                .iter()
                .any(|tenure| tenure.counts().reads > 0 && tenure.counts().main == 0)
        };
        match hold.state() {
            LeaseState::Held | LeaseState::Suspect if only_reads() => None,
            LeaseState::Held | LeaseState::Suspect => Some(hold.remaining()),
            LeaseState::Released | LeaseState::Closed => Some(self.io_timeout),
            LeaseState::Lost => None,
        }
    }

    /// Admits one more reader, with this lease, to a hold under a lock key.
    pub(crate) fn admit_reader(&self, key: &str, lease: Duration) -> Option<Admission> {
        self.map.lock().get(key)?.iter().find_map(|hold| hold.admit_reader(lease))
    }

    /// The holds under a lock key.
    pub(crate) fn under(&self, key: &str) -> Vec<Arc<StoreHold>> {
        self.map.lock().get(key).map_or_else(Vec::new, |holds| holds.to_vec())
    }

    pub(super) fn all_holds(&self) -> Vec<Arc<StoreHold>> {
        self.map.lock().values().flatten().cloned().collect()
    }

    /// All tenures, including those whose release is under way.
    pub(crate) fn all(&self) -> Vec<Arc<Tenure>> {
        self.map.lock().values().flatten().flat_map(|hold| hold.tenures()).collect()
    }

    /// How many are held now, without lost ones, whose guards may still live, and without those
    /// whose release is under way.
    pub(crate) fn live(&self) -> usize {
        let is_live =
            |tenure: &Arc<Tenure>| matches!(tenure.state(), LeaseState::Held | LeaseState::Suspect);
        self.all().iter().filter(|tenure| is_live(tenure)).count()
    }

    /// All tenures that are bound to the thread.
    pub(crate) fn all_of(&self, thread: ThreadId) -> Vec<Arc<Tenure>> {
        self.all().into_iter().filter(|tenure| is_of(tenure, thread)).collect()
    }

    pub(crate) fn take_all(&self) -> Vec<Arc<StoreHold>> {
        std::mem::take(&mut *self.map.lock()).into_values().flatten().collect()
    }
}

/// Whether the thread holds it; false if it was passed on, or its release is under way.
fn is_of(tenure: &Tenure, thread: ThreadId) -> bool {
    tenure.user.owner == Owner::Thread(thread) && tenure.state() != LeaseState::Released
}
