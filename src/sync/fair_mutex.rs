//! The fair lock: `client.fair(name)` and its guards.

use std::sync::Arc;

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::lock_name::Kind;
use crate::hold::guarded::Hold;
use crate::observe::LockHolder;
use crate::sync::guard::{Guard, Movable, ThreadBound, guard_methods};
use crate::sync::handle::{Handle, handle_methods, waiting_method};
use crate::wait::client_state::ClientState;

/// A lock that is granted strictly first come, first served, across threads, processes, machines,
/// and Java processes with Redisson's `RFairLock`.
///
/// A cheap handle, created by [`LockClient::fair`](crate::LockClient::fair): creating and cloning
/// it costs no I/O.
///
/// # Order
/// A waiter's place in the queue is decided when its first attempt reaches the server. A
/// [`try_lock`](Self::try_lock) does not join the queue, and does not overtake it. A waiter that
/// gives up leaves the queue at once. A waiter that is killed delays those behind it for the
/// [`waiter_timeout`](crate::Builder::waiter_timeout) of its client (5 s) at most, wherever it was
/// in the queue. When the server forgets the queue (a restart without its data, a flush), the
/// waiters queue again, in no particular order. When the server pauses for longer than two thirds
/// of the `waiter_timeout`, the order among different clients can change. With
/// [`Redis::replicas`][crate::Redis::replicas], a waiter whose grant too few replicas acknowledged
/// queues again at the end.
///
/// With Java waiters in the queue, a dead waiter can stay for longer:
/// - A dead Java waiter stays for Java's own timeout (5 minutes, unless Java is configured
///   otherwise).
/// - A dead waiter of this crate that queued behind Java waiters gets their timeouts as well, until
///   they have left and a client of this crate asks for the lock. A living waiter asks at every
///   third of its `waiter_timeout`, a `try_lock` at once. From then on the dead waiter has only its
///   own `waiter_timeout`.
/// - If only Java asks, it stays for up to
///   [`java_waiter_timeout`][crate::Redis::java_waiter_timeout] (5 minutes) for each Java waiter
///   that was ahead of it.
///
/// # Cost
/// Order costs speed: every release waits for the one process whose turn it is, however slowly it
/// wakes up. On Redis the release gives the lock to the next waiter, for its `waiter_timeout` at
/// first, so a turn is one request. Each waiting thread has its own place in the queue, and keeps
/// it with one command every third of the `waiter_timeout` (and one more whenever the lease that it
/// saw would have ended). If order is not needed, use a [mutex](crate::ReentrantMutex).
///
/// # Re-entrancy, waiting, losses
/// The same as [`ReentrantMutex`](crate::ReentrantMutex). A plain lock under the same name is the
/// same lock, and bypasses the queue. Do not use both. A release of the fair lock wakes only the
/// queue, so plain waiters of other clients ask again only when the lease would have ended. A
/// release of the plain lock wakes nobody in the queue; those waiters ask again after a third of
/// their `waiter_timeout`.
///
/// # Source
/// Redisson's `RFairLock` on the wire. The deadlines in the queue differ: a living waiter extends
/// its own, so that a dead waiter is detected in seconds and a living one is not evicted.
///
/// # Examples
/// ```no_run
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let counter = client.fair("ticket counter");
/// let guard = counter.lock()?; // blocks until it is this thread's turn
/// println!("{} are waiting", counter.queue_len()?);
/// guard.unlock()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
#[derive(Debug, Clone)]
pub struct FairMutex {
    handle: Handle,
}

impl FairMutex {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str) -> Self {
        Self { handle: Handle::new(client, name, Kind::Fair) }
    }

    handle_methods!(name, lease, min_hold, data, token, cancel, thread, operator);

    waiting_method! {
        /// Takes the lock when it is this thread's turn, blocking until then.
        ///
        /// `let _ = fair.lock()?;` unlocks at once: give the guard a name.
        ///
        /// # Errors
        /// The same as [`ReentrantMutex::lock`](crate::ReentrantMutex::lock). A call that fails
        /// leaves the queue.
        lock, try_lock, try_lock_for, try_lock_until() -> FairMutexGuard, acquire
    }

    waiting_method! {
        /// Like [`lock`](Self::lock), but the guard can move to another thread. It never re-enters:
        /// a second call joins the queue even on the same thread, until the first guard is gone.
        ///
        /// # Errors
        /// The same as [`ReentrantMutex::lock_owned`](crate::ReentrantMutex::lock_owned).
        lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until() -> OwnedFairMutexGuard, acquire_owned
    }

    /// The current holder of the lock, for operators and for the log line of a call that timed out:
    /// its [`Display`](LockHolder) says who it is. One round trip, and a second one if it is
    /// another client.
    ///
    /// # Errors
    /// The same as [`is_locked`](Self::is_locked).
    pub fn holder(&self) -> Result<Option<LockHolder>> {
        self.handle.holders().map(|holders| holders.into_iter().next())
    }

    /// The number of waiters in the queue, of all clients and of Java, without the holder. A dead
    /// waiter counts until it is first in the queue and its timeout is over (see
    /// [Order](Self#order)). One round trip.
    ///
    /// # Errors
    /// When the request fails.
    pub fn queue_len(&self) -> Result<usize> {
        self.queue().map(|(length, _)| length)
    }

    /// The number of waiters ahead of the first thread of this client that waits for the lock, dead
    /// ones included: 0 if that thread is next, `None` if no thread of this client waits. One round
    /// trip. Call it from a thread other than the one that waits.
    ///
    /// # Errors
    /// When the request fails.
    pub fn position(&self) -> Result<Option<usize>> {
        self.queue().map(|(_, position)| position)
    }

    fn queue(&self) -> Result<(usize, Option<usize>)> {
        let name = self.handle.usable()?;
        let client = &self.handle.client;
        client
            .store
            .queue()
            .and_then(|queue| queue.queue_of(name, client.who.id.as_str()))
            .map_err(|e| e.for_name(&name.name))
    }

    fn acquire(&self, deadline: Deadline) -> Result<Option<FairMutexGuard>> {
        Ok(self.handle.for_thread(Kind::Fair, deadline)?.map(FairMutexGuard))
    }

    fn acquire_owned(&self, deadline: Deadline) -> Result<Option<OwnedFairMutexGuard>> {
        Ok(self.handle.owned(Kind::Fair, deadline)?.map(OwnedFairMutexGuard))
    }
}

/// The fair lock is held while this guard lives. Dropping the guard gives up one level, and the
/// last drop wakes the next waiter in the queue.
///
/// The guard is bound to its thread, because calls on that thread re-enter its hold;
/// [`lock_owned`](FairMutex::lock_owned) returns guards that can move.
#[must_use = "if unused the lock is released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct FairMutexGuard(Guard<Hold, ThreadBound>);

guard_methods!(FairMutexGuard: held, unlock, min_hold, data, fencing_token);

/// The fair lock is held while this guard lives. The guard can move to another thread and be
/// dropped there.
#[must_use = "if unused the lock is released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct OwnedFairMutexGuard(Guard<Hold, Movable>);

guard_methods!(OwnedFairMutexGuard: held, unlock, min_hold, data, fencing_token);
