//! What all handles of one client share.
//!
//! Lock order, where two mutexes are held together: `Stations::map`, then a station's line, then a seat or its bell;
//! the watchdog's table, then a grant's place; what a grant has to tell, then a bell. The hold table is never held with
//! another.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Hold;
use crate::holder::{ClientId, Holder};
use crate::key::{Kind, LockKeys, waiters_pattern};
use crate::lease::Moment;
use crate::losses::Losses;
use crate::station::Stations;
use crate::store::{Doubts, LeaseStore, Levels, Undo};
use crate::wakeup::{Subscription, Wakeups};
use crate::watchdog::Watchdog;

/// The settings of a client, frozen when it is built.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) lease: Duration,
    pub(crate) io_timeout: Duration,
    pub(crate) key_prefix: String,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) fencing: bool,
    /// How long a call that is already waiting puts up with a server that cannot be asked.
    pub(crate) ride_out: Duration,
    /// How long a waiter that died can hold up others: its place in a fair queue, or a writer's marker.
    pub(crate) waiter_timeout: Duration,
    /// The same of a Java waiter.
    pub(crate) java_waiter_timeout: Duration,
}

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) id: ClientId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) holds: Holds,
    /// Permits without leases that are out, by holder: no lease would give them back if nobody did.
    pub(crate) loans: Mutex<HashMap<Holder, Arc<LockKeys>>>,
    pub(crate) stations: Arc<Stations>,
    pub(crate) watchdog: Watchdog,
    pub(crate) wakeups: Wakeups,
    pub(crate) losses: Arc<Losses>,
    pub(crate) client_name: String,
    closed: AtomicBool,
    /// Acquiring calls that are under way: `close` waits for what they still have to undo.
    calls: Mutex<usize>,
    calls_changed: Condvar,
    /// The process that made the client.
    process: u32,
    /// When it was last seen to be this one, in nanoseconds of the lease clock.
    process_seen: AtomicU64,
}

/// Asking for the process id is a system call, five times as dear as the rest of `is_held`. No fork is done in so short a
/// time (it copies the page tables; the fastest take a few times as long), so whoever asks again this soon is no child.
const NO_FORK_WITHIN: Duration = Duration::from_micros(10);

impl Shared {
    pub(crate) fn new(config: Config, client_name: String, store: Arc<dyn LeaseStore>, clock: Arc<dyn Clock>) -> Self {
        let id = ClientId::random();
        let losses = Arc::new(Losses::default());
        let stations = Arc::new(Stations::default());
        Self {
            watchdog: Watchdog::new(
                client_name.clone(),
                store.clone(),
                clock.clone(),
                losses.clone(),
                stations.clone(),
            ),
            wakeups: Wakeups::new(client_name.clone(), store.clone(), waiters_pattern(id.as_str())),
            config,
            id,
            clock,
            store,
            holds: Holds::default(),
            loans: Mutex::default(),
            stations,
            losses,
            client_name,
            closed: AtomicBool::new(false),
            calls: Mutex::new(0),
            calls_changed: Condvar::new(),
            process: std::process::id(),
            process_seen: AtomicU64::new(0),
        }
    }

    /// In a fork the threads are gone and the mutexes may be locked for ever: nothing of ours may be touched there.
    pub(crate) fn is_forked(&self) -> bool {
        self.is_forked_at(self.clock.now())
    }

    /// [`is_forked`](Self::is_forked) for one who has just read the lease clock.
    pub(crate) fn is_forked_at(&self, now: Moment) -> bool {
        let seen = Moment::from_nanos(self.process_seen.load(Ordering::Relaxed));
        if now.since(seen) < NO_FORK_WITHIN && now >= seen {
            return false;
        }
        let forked = std::process::id() != self.process;
        if !forked {
            self.process_seen.store(now.as_nanos(), Ordering::Relaxed);
        }
        forked
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// # Errors
    /// `Forked` and `Closed`: every verb begins with this.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::new(
                ErrorKind::Forked,
                "this process is a fork of the one that made the client; make a client of its own",
            ));
        }
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Something of this client's was freed, and the message of it reached so many `listeners`: its own waiters need not
    /// wait for that. `heard_before`: the messages that they had heard before it was sent.
    pub(crate) fn tell_freed(&self, keys: &LockKeys, listeners: u64, heard_before: u64) {
        // Few others publish on this channel meanwhile, so our own message is the next, mostly.
        let subscription = Subscription { channel: keys.channel.clone(), by_pattern: false };
        let own = u64::from(listeners > 0 && self.wakeups.hears(&subscription));
        self.stations.released(&keys.lock, listeners - own, heard_before + own * self.store.copies());
    }

    /// Counts an acquiring call in, until the answer is dropped.
    ///
    /// # Errors
    /// `Closed`. Counted first and checked second: a close either sees the call and waits for it, or is seen by it.
    pub(crate) fn begin_call(self: &Arc<Self>) -> Result<Call> {
        *self.calls.lock() += 1;
        let call = Call(self.clone());
        if self.is_closed() { Err(closed()) } else { Ok(call) }
    }

    fn calls_are_over(&self, deadline: Instant) -> bool {
        let mut calls = self.calls.lock();
        while *calls > 0 {
            if self.calls_changed.wait_until(&mut calls, deadline).timed_out() {
                return *calls == 0;
            }
        }
        true
    }

    /// See [`LockClient::close`](crate::LockClient::close).
    pub(crate) fn close(&self, timeout: Duration) -> Result<()> {
        if self.is_forked() {
            return self.check_usable();
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let deadline =
            Instant::now().checked_add(timeout).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400));
        self.stations.close();
        self.wakeups.ring_all();
        let mut failed = Vec::new();
        for hold in self.holds.take_all() {
            if Instant::now() >= deadline {
                hold.abandon();
                failed.push(format!("{:?}: the time was up", hold.grant.keys.name));
            } else if let Err(e) = hold.release_all() {
                failed.push(e.to_string());
            }
        }
        let loans = std::mem::take(&mut *self.loans.lock());
        for (holder, keys) in loans {
            let mut doubts = Doubts::default();
            let asked_at = self.clock.now();
            if Instant::now() >= deadline {
                failed.push(format!("{:?}: the time was up, and its permits have no lease", keys.name));
            } else if let Err(e) = self.store.release(&keys, &holder, Levels::NONE, &mut doubts) {
                failed.push(e.for_name(&keys.name).to_string());
            } else {
                continue;
            }
            self.watchdog.undo(Undo::of_permits(keys, holder, doubts, asked_at));
        }
        // What they were granted meanwhile they give back, and what is in doubt they leave to the watchdog.
        if !self.calls_are_over(deadline) {
            failed.push("a lock call is still waiting for the server".to_owned());
        }
        let dog = self.watchdog.stop(deadline);
        let ear = self.wakeups.stop(deadline);
        self.losses.stop();
        self.store.close();
        let unsettled = self.watchdog.unsettled();
        if unsettled > 0 {
            failed.push(format!("{unsettled} unknown outcomes are not settled"));
        }
        if !dog || !ear {
            failed.push("a thread is still in its I/O and ends with it".to_owned());
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unreachable,
            format!(
                "closed, but not everything was released (it stays locked until its lease ends): {}",
                failed.join("; ")
            ),
        ))
    }
}

impl Drop for Shared {
    /// The last handle is gone, so there are no holds. What is unsettled gets one I/O timeout.
    fn drop(&mut self) {
        if self.is_forked() || self.is_closed() {
            return;
        }
        let deadline = Instant::now() + self.config.io_timeout;
        self.closed.store(true, Ordering::Release);
        self.watchdog.stop(deadline);
        self.wakeups.stop(deadline);
        self.losses.stop();
        self.store.close();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.id.as_str())
            .field("store", &self.store)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

#[cold]
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

/// An acquiring call under way.
#[derive(Debug)]
pub(crate) struct Call(Arc<Shared>);

impl Drop for Call {
    fn drop(&mut self) {
        *self.0.calls.lock() -= 1;
        self.0.calls_changed.notify_all();
    }
}

/// Who a hold belongs to in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Re-entered by verbs of this thread.
    Thread(ThreadId),
    /// One owned guard; never re-entered.
    Guard,
}

/// The holds of a client by lock key: the source of every hold count.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    map: Mutex<HashMap<Arc<str>, Vec<Arc<Hold>>>>,
}

impl Holds {
    pub(crate) fn insert(&self, hold: Arc<Hold>) {
        self.map.lock().entry(hold.grant.keys.lock.clone()).or_default().push(hold);
    }

    pub(crate) fn remove(&self, hold: &Hold) {
        let mut map = self.map.lock();
        if let Some(holds) = map.get_mut(&hold.grant.keys.lock) {
            holds.retain(|other| !std::ptr::eq(&**other, hold));
            if holds.is_empty() {
                map.remove(&hold.grant.keys.lock);
            }
        }
    }

    /// The hold that a verb of this thread re-enters.
    pub(crate) fn of_thread(&self, lock: &str, thread: ThreadId) -> Option<Arc<Hold>> {
        let map = self.map.lock();
        map.get(lock)?.iter().find(|h| h.owner == Owner::Thread(thread)).cloned()
    }

    /// For how long a thread of this client has the lock for itself, or is just giving it up: no try of another can
    /// succeed. Whoever must take a place in a queue in Redis, or leave a marker there, has to try all the same.
    pub(crate) fn blocks(&self, keys: &LockKeys) -> Option<Duration> {
        if !matches!(keys.kind, Kind::Mutex | Kind::Read | Kind::Write) {
            return None;
        }
        let map = self.map.lock();
        map.get(&keys.lock)?.iter().filter_map(|hold| hold.blocks_for()).max()
    }

    /// The live holds under a name.
    pub(crate) fn under(&self, lock: &str) -> Vec<Arc<Hold>> {
        self.map.lock().get(lock).cloned().unwrap_or_default()
    }

    pub(crate) fn take_thread(&self, thread: ThreadId) -> Vec<Arc<Hold>> {
        let mut taken = Vec::new();
        self.map.lock().retain(|_, holds| {
            holds.retain(|hold| {
                let theirs = hold.owner == Owner::Thread(thread);
                if theirs {
                    taken.push(hold.clone());
                }
                !theirs
            });
            !holds.is_empty()
        });
        taken
    }

    pub(crate) fn take_all(&self) -> Vec<Arc<Hold>> {
        std::mem::take(&mut *self.map.lock()).into_values().flatten().collect()
    }
}
