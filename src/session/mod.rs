//! What all handles of one client share.
//!
//! Lock order, where two mutexes are held together:
//! - `LocalQueues::map` or `LocalQueues::alone`, then a local queue's line, then a waiter; `LocalQueues::map`, then a local queue's event;
//! - the watchdog's table, then a grant's place or the watchdog's thread handle;
//! - the topics of the subscriber, then a event or the subscriber's thread handle;
//! - what a grant has to tell, then a event;
//! - the leases whose losses are told, then the callbacks that are to run.
//!
//! All others are never held with another: the hold table, a callback's place, the state of a close, the connections.

pub(crate) mod acquire;
pub(crate) mod attempt;
pub(crate) mod hold;
pub(crate) mod thread_exit;
pub(crate) mod wait_loop;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::background::local_queue::LocalQueues;
use crate::background::loss_callbacks::LossCallbacks;
use crate::background::notifications::Notifications;
use crate::background::watchdog::Watchdog;
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::{ClientId, Holder};
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::base::process::OwnProcess;
use crate::session::hold::Hold;
use crate::store::{HoldCounts, LockStore, Release, Topic, Undo, UnknownOutcomes};

/// The settings of a client, frozen when it is built.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) lease: Duration,
    pub(crate) io_timeout: Duration,
    pub(crate) key_prefix: String,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) fencing: bool,
    /// How long a call that is already waiting puts up with a server that cannot be asked.
    pub(crate) outage_timeout: Duration,
}

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) id: ClientId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) holds: Holds,
    /// Permits without leases that are out, by holder: no lease would give them back if nobody did.
    pub(crate) outstanding_permits: Mutex<HashMap<Holder, (Arc<LockName>, u32)>>,
    pub(crate) local_queues: Arc<LocalQueues>,
    pub(crate) watchdog: Watchdog,
    pub(crate) notifications: Notifications,
    pub(crate) loss_callbacks: Arc<LossCallbacks>,
    pub(crate) client_name: String,
    closed: AtomicBool,
    closing: Mutex<Closing>,
    closing_changed: Condvar,
    /// Acquiring calls that are under way: `close` waits for what they still have to undo.
    calls: Mutex<usize>,
    calls_changed: Condvar,
    process: OwnProcess,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        client_name: String,
        id: ClientId,
        store: Arc<dyn LockStore>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let loss_callbacks = Arc::new(LossCallbacks::default());
        let local_queues = Arc::new(LocalQueues::default());
        Self {
            watchdog: Watchdog::new(
                client_name.clone(),
                store.clone(),
                clock.clone(),
                loss_callbacks.clone(),
                local_queues.clone(),
            ),
            notifications: Notifications::new(client_name.clone(), store.clone(), config.lease),
            config,
            id,
            clock,
            store,
            holds: Holds::default(),
            outstanding_permits: Mutex::default(),
            local_queues,
            loss_callbacks,
            client_name,
            closed: AtomicBool::new(false),
            closing: Mutex::default(),
            closing_changed: Condvar::new(),
            calls: Mutex::new(0),
            calls_changed: Condvar::new(),
            process: OwnProcess::now(),
        }
    }

    /// In a fork the threads are gone and the mutexes may be locked for ever: nothing of ours may be touched there.
    pub(crate) fn is_forked(&self) -> bool {
        self.is_forked_at(self.clock.now())
    }

    /// [`is_forked`](Self::is_forked) for one who has just read the lease clock.
    pub(crate) fn is_forked_at(&self, now: Moment) -> bool {
        self.process.is_other(now)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// # Errors
    /// `Forked` and `Closed`: every method begins with this.
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
    /// wait for that. `received_before`: the messages that they had heard before it was sent.
    pub(crate) fn tell_freed(&self, name: &LockName, listeners: Option<u64>, received_before: u64) {
        let listeners = listeners.unwrap_or(0);
        // Few others publish on this topic meanwhile, so our own message is the next, mostly.
        let own = u64::from(listeners > 0 && self.notifications.is_subscribed(&Topic::freed(name)));
        let messages = received_before + own * self.store.messages_per_release();
        self.local_queues.released(&name.key, listeners - own, messages);
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

    /// A test has moved the clock, or changed what stands in the store: whoever sleeps looks again.
    #[cfg(feature = "testing")]
    pub(crate) fn look_again(&self) {
        if !self.is_forked() {
            self.watchdog.visit_all();
            self.local_queues.notify_all();
        }
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
        let deadline =
            Instant::now().checked_add(timeout).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400));
        let mut closing = self.closing.lock();
        loop {
            match &*closing {
                Closing::Open => break,
                Closing::Done(outcome) => return outcome.clone(),
                Closing::UnderWay if Instant::now() >= deadline => {
                    let why = "another thread is still closing the client: wait for it, or close with more time";
                    return Err(Error::new(ErrorKind::Unreachable, why));
                }
                Closing::UnderWay => {
                    self.closing_changed.wait_until(&mut closing, deadline);
                }
            }
        }
        *closing = Closing::UnderWay;
        drop(closing);
        self.closed.store(true, Ordering::Release);
        let outcome = self.close_until(deadline);
        *self.closing.lock() = Closing::Done(outcome.clone());
        self.closing_changed.notify_all();
        outcome
    }

    fn close_until(&self, deadline: Instant) -> Result<()> {
        self.local_queues.close();
        self.notifications.wake_all();
        let mut unconfirmed = self.release_holds(deadline);
        unconfirmed.extend(self.give_back_permits(deadline));
        let mut also = Vec::new();
        // What they were granted meanwhile they give back, and what is in unknown outcome they leave to the watchdog.
        if !self.calls_are_over(deadline) {
            also.push("a lock call still waits for the server, and what it is granted stands for its lease".to_owned());
        }
        let watchdog_ended = self.watchdog.stop(deadline);
        let subscriber_ended = self.notifications.stop(deadline);
        self.loss_callbacks.stop();
        self.store.close();
        if !watchdog_ended || !subscriber_ended {
            also.push("a thread is still in its I/O and ends with it".to_owned());
        }
        let (left, resolving_until) = self.watchdog.unresolved();
        let now = self.clock.now();
        if watchdog_ended {
            // The others were released in the background after all, or have ended by themselves meanwhile.
            let stands = |one: &Unconfirmed| left.iter().any(|undo| one.is_of(undo));
            unconfirmed.retain(|one| stands(one) || (!one.has_lease && now >= one.expires));
        }
        for undo in left {
            if !unconfirmed.iter().any(|one| one.is_of(&undo)) {
                unconfirmed.push(Unconfirmed::of(&undo, "an unknown outcome is not settled"));
            }
        }
        if unconfirmed.is_empty() && also.is_empty() {
            return Ok(());
        }
        let ends = unconfirmed.iter().filter(|one| one.has_lease).map(|one| one.expires).chain(resolving_until).max();
        Err(not_all_released(&unconfirmed, also, ends.map(|ends| ends.since(now))))
    }

    /// Every holder is told before the first of the locks can be another's.
    fn release_holds(&self, deadline: Instant) -> Vec<Unconfirmed> {
        let holds = self.holds.take_all();
        // One that was lost before is undone in the background.
        let close = |hold: Arc<Hold>| hold.close().ok().flatten().map(|left| (hold, left));
        let leaving: Vec<_> = holds.into_iter().filter_map(close).collect();
        let mut unconfirmed = Vec::new();
        for (hold, left) in leaving {
            let why = if Instant::now() >= deadline {
                hold.send_later();
                "the time was up".to_owned()
            } else {
                match hold.send(&left) {
                    // Gone from the server, so it is free.
                    Err(e) if e.kind() != ErrorKind::Lost => e.message().to_owned(),
                    _ => continue,
                }
            };
            let (name, holder) = (hold.grant.name.name.clone(), hold.grant.holder.clone());
            unconfirmed.push(Unconfirmed { name, holder, why, expires: hold.grant.gone_at(), has_lease: true });
        }
        unconfirmed
    }

    fn give_back_permits(&self, deadline: Instant) -> Vec<Unconfirmed> {
        let outstanding_permits = std::mem::take(&mut *self.outstanding_permits.lock());
        let mut unconfirmed = Vec::new();
        for (holder, (name, permits)) in outstanding_permits {
            let mut unknowns = UnknownOutcomes::default();
            let asked_at = self.clock.now();
            let why = if Instant::now() >= deadline {
                "the time was up".to_owned()
            } else {
                let (name, holder, left) = (&name, &holder, HoldCounts::NONE);
                match self.store.release(&Release { name, holder, permits, left, granted: true }, &mut unknowns) {
                    Ok(_) => continue,
                    Err(e) => e.message().to_owned(),
                }
            };
            let undo = Undo::of_permits(name, holder, permits, unknowns, asked_at);
            unconfirmed.push(Unconfirmed::of(&undo, &why));
            self.watchdog.undo(undo);
        }
        unconfirmed
    }
}

/// How far a [`close`](Shared::close) has come.
#[derive(Default)]
enum Closing {
    #[default]
    Open,
    UnderWay,
    Done(Result<()>),
}

/// What a close could not release by itself, and left to the watchdog.
struct Unconfirmed {
    name: Arc<str>,
    holder: Holder,
    why: String,
    expires: Moment,
    has_lease: bool,
}

impl Unconfirmed {
    fn of(undo: &Undo, why: &str) -> Self {
        let has_lease = !matches!(undo.name.kind, Kind::CountingSemaphore);
        let why = if has_lease { why.to_owned() } else { format!("{why} (these permits have no lease)") };
        Self { name: undo.name.name.clone(), holder: undo.holder.clone(), why, expires: undo.expires, has_lease }
    }

    fn is_of(&self, undo: &Undo) -> bool {
        self.holder == undo.holder && self.name == undo.name.name
    }
}

#[cold]
fn not_all_released(unconfirmed: &[Unconfirmed], also: Vec<String>, stands_for: Option<Duration>) -> Error {
    const SHOWN: usize = 10;
    let mut parts: Vec<String> =
        unconfirmed.iter().take(SHOWN).map(|one| format!("{:?}: {}", one.name, one.why)).collect();
    if unconfirmed.len() > SHOWN {
        parts.push(format!("{} more", unconfirmed.len() - SHOWN));
    }
    parts.extend(also);
    let stands = stands_for.map(|time| {
        let seconds = (time.as_secs_f64() * 10.0).ceil() / 10.0;
        format!(" (it can stay locked until its lease ends, for {seconds} s at most)")
    });
    let stands = stands.unwrap_or_default();
    let why = format!("closed, but not everything is confirmed to be released{stands}: {}", parts.join("; "));
    Error::new(ErrorKind::Unreachable, why)
}

impl Drop for Shared {
    /// The last handle is gone, so there are no holds. What is unresolved gets one I/O timeout, which comes on top of those
    /// of the guard that was the last handle: that one's release may be what is unresolved.
    fn drop(&mut self) {
        if self.is_forked() || self.is_closed() {
            return;
        }
        let deadline = Instant::now() + self.config.io_timeout;
        self.closed.store(true, Ordering::Release);
        self.watchdog.stop(deadline);
        self.notifications.stop(deadline);
        self.loss_callbacks.stop();
        self.store.close();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut client = f.debug_struct("LockClient");
        client.field("id", &self.id.as_str());
        // The store takes mutexes, which a thread that is not in this process may have locked.
        if self.is_forked() {
            return client.field("forked", &true).finish_non_exhaustive();
        }
        client.field("store", &self.store).field("closed", &self.is_closed()).finish_non_exhaustive()
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
    /// Re-entered by methods of this thread.
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
        self.map.lock().entry(hold.grant.name.key.clone()).or_default().push(hold);
    }

    pub(crate) fn remove(&self, hold: &Hold) {
        let mut map = self.map.lock();
        if let Some(holds) = map.get_mut(&hold.grant.name.key) {
            holds.retain(|other| !std::ptr::eq(&**other, hold));
            if holds.is_empty() {
                map.remove(&hold.grant.name.key);
            }
        }
    }

    /// The hold that a method of this thread re-enters.
    pub(crate) fn of_thread(&self, lock: &str, thread: ThreadId) -> Option<Arc<Hold>> {
        let map = self.map.lock();
        map.get(lock)?.iter().find(|h| h.owner == Owner::Thread(thread)).cloned()
    }

    /// For how long a thread of this client has the lock for itself, or is just giving it up: no try of another can
    /// succeed. Whoever must take a place in a queue in Redis, or leave a marker there, has to try all the same.
    pub(crate) fn blocks(&self, name: &LockName) -> Option<Duration> {
        if !matches!(name.kind, Kind::Mutex | Kind::Read | Kind::Write) {
            return None;
        }
        let map = self.map.lock();
        map.get(&name.key)?.iter().filter_map(|hold| hold.blocks_for()).max()
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
