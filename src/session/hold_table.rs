//! The holds of a client by lock key: the source of every hold count.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::background::grant::Grant;
use crate::base::lease::State;
use crate::base::lock_name::{Kind, LockName};
use crate::os::{
    self, HashMap, Mutex,
    atomic::{AtomicU64, Ordering},
    thread::{Thread, ThreadId},
};
use crate::store::HoldCounts;

/// Who a hold belongs to in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Re-entered by methods of this thread.
    Thread(ThreadId),
    /// One owned guard; never re-entered.
    Guard,
}

/// Which side of a hold a guard is a level of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The lock; of a read-write lock, its write side.
    Main,
    /// The read side of a read-write lock.
    Read,
}

impl Side {
    const fn one(self) -> u64 {
        match self {
            Self::Main => 1,
            Self::Read => 1 << 32,
        }
    }
}

/// The data of a hold, which the table and all guards of the hold share.
#[derive(Debug)]
pub(crate) struct HoldEntry {
    pub(crate) grant: Arc<Grant>,
    pub(crate) owner: Owner,
    /// The thread that took it.
    pub(crate) thread: Thread,
    /// Whether methods of its thread may enter it again.
    pub(crate) reentrant: bool,
    /// How many guards of each side there are, reads in the upper half. Sent to the server, never
    /// read from it. Changed only by the one thread that the hold, or its single owned guard,
    /// belongs to.
    counts: AtomicU64,
}

impl HoldEntry {
    /// A hold with one level.
    pub(crate) fn new(grant: Grant, owner: Owner, reentrant: bool) -> Self {
        let side = if grant.name.kind == Kind::Read { Side::Read } else { Side::Main };
        Self {
            grant: Arc::new(grant),
            owner,
            thread: os::thread::current(),
            reentrant,
            counts: AtomicU64::new(side.one()),
        }
    }

    /// Whether the thread has it. Not so if it was passed on and only keeps its place here for the
    /// next turn.
    fn is_of(&self, thread: ThreadId) -> bool {
        self.owner == Owner::Thread(thread) && self.grant.state() != State::Released
    }

    pub(crate) fn counts(&self) -> HoldCounts {
        let word = self.counts.load(Ordering::Acquire);
        HoldCounts { main: word as u32, reads: (word >> 32) as u32 }
    }

    /// Adds a level that was granted.
    pub(crate) fn add_count(&self, side: Side) {
        self.counts.fetch_add(side.one(), Ordering::AcqRel);
    }

    pub(crate) fn remove_count(&self, side: Side) {
        self.counts.fetch_sub(side.one(), Ordering::AcqRel);
    }

    /// How long this hold is certain to keep other threads of the client from the lock. This
    /// includes the time while its release is under way: the releasing thread notifies the local
    /// queue afterwards.
    fn blocks_for(&self, io_timeout: Duration) -> Option<Duration> {
        let released = matches!(self.grant.state(), State::Released | State::Closed);
        if !self.grant.name.kind.is_exclusive() || (self.counts().main == 0 && !released) {
            return None;
        }
        match self.grant.state() {
            State::Held | State::Suspect => Some(self.grant.remaining()),
            State::Released | State::Closed => Some(io_timeout),
            State::Lost => None,
        }
    }
}

/// The holds under one key: nearly always one, so that a lock call allocates no list.
type Entries = SmallVec<[Arc<HoldEntry>; 1]>;

#[derive(Debug)]
pub(crate) struct Holds {
    map: Mutex<HashMap<Arc<str>, Entries>>,
    io_timeout: Duration,
}

impl Holds {
    /// `io_timeout`: how long a release that is under way is given.
    pub(crate) fn new(io_timeout: Duration) -> Self {
        Self { map: Mutex::default(), io_timeout }
    }

    /// Puts the hold of the next turn in the place of the one before.
    pub(crate) fn replace(&self, previous: &Grant, hold: Arc<HoldEntry>) {
        let mut map = self.map.lock();
        let holds = map.entry(hold.grant.name.key.clone()).or_default();
        match holds.iter_mut().find(|other| std::ptr::eq(&*other.grant, previous)) {
            Some(place) => *place = hold,
            // A close has taken it out.
            None => holds.push(hold),
        }
    }

    pub(crate) fn insert(&self, hold: Arc<HoldEntry>) {
        self.map.lock().entry(hold.grant.name.key.clone()).or_default().push(hold);
    }

    pub(crate) fn remove(&self, hold: &HoldEntry) {
        let mut map = self.map.lock();
        if let Some(holds) = map.get_mut(&hold.grant.name.key) {
            holds.retain(|other| !std::ptr::eq(&**other, hold));
            if holds.is_empty() {
                map.remove(&hold.grant.name.key);
            }
        }
    }

    /// The hold that a method of this thread re-enters.
    pub(crate) fn of_thread(&self, key: &str, thread: ThreadId) -> Option<Arc<HoldEntry>> {
        let map = self.map.lock();
        map.get(key)?.iter().find(|hold| hold.is_of(thread)).cloned()
    }

    /// How long a thread of this client has the lock for itself, or is still giving it up: during
    /// that time no request of another thread can succeed. Fair locks are never blocked here,
    /// because each of their waiters must reach the queue at the server.
    pub(crate) fn blocks(&self, name: &LockName) -> Option<Duration> {
        if !matches!(name.kind, Kind::Mutex | Kind::Read | Kind::Write) {
            return None;
        }
        let map = self.map.lock();
        map.get(&name.key)?.iter().filter_map(|hold| hold.blocks_for(self.io_timeout)).max()
    }

    /// A read hold under a lock key that the caller was counted in: as one more reader, with this
    /// lease.
    pub(crate) fn joined(&self, key: &str, lease: Duration) -> Option<Arc<Grant>> {
        let map = self.map.lock();
        map.get(key)?.iter().map(|hold| &hold.grant).find(|grant| grant.admits_one(lease)).cloned()
    }

    /// The live holds under a lock key.
    pub(crate) fn under(&self, key: &str) -> Vec<Arc<HoldEntry>> {
        self.map.lock().get(key).map_or_else(Vec::new, |holds| holds.to_vec())
    }

    /// All holds, with those whose release is under way.
    pub(crate) fn all(&self) -> Vec<Arc<HoldEntry>> {
        self.map.lock().values().flatten().cloned().collect()
    }

    /// How many are held now: without those that are lost, whose guards may live on, and without
    /// those whose release is under way.
    pub(crate) fn live(&self) -> usize {
        let is_live = |hold: &&Arc<HoldEntry>| matches!(hold.grant.state(), State::Held | State::Suspect);
        self.map.lock().values().flatten().filter(is_live).count()
    }

    /// Removes all holds that are bound to the thread.
    pub(crate) fn take_thread(&self, thread: ThreadId) -> Vec<Arc<HoldEntry>> {
        let mut taken = Vec::new();
        self.map.lock().retain(|_, holds| {
            holds.retain(|hold| {
                let theirs = hold.is_of(thread);
                if theirs {
                    taken.push(hold.clone());
                }
                !theirs
            });
            !holds.is_empty()
        });
        taken
    }

    pub(crate) fn take_all(&self) -> Vec<Arc<HoldEntry>> {
        std::mem::take(&mut *self.map.lock()).into_values().flatten().collect()
    }
}
