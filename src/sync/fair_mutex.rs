//! The fair lock: `client.fair(name)` and its guards.

use std::sync::Arc;

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::lock_name::Kind;
use crate::session::Shared;
use crate::session::hold::Hold;
use crate::sync::guard::{Guard, Movable, ThreadBound, guard_methods};
use crate::sync::handle::{Handle, LockHolder, handle_methods, waiting_method};

/// A lock that is given strictly first come, first served: across threads, processes, machines, and Java processes with
/// Redisson's `RFairLock`.
///
/// A cheap handle: making and cloning one costs no I/O. Made by [`LockClient::fair`](crate::LockClient::fair).
///
/// # Order
/// A waiter's place is where its first try reached the server. A [`try_lock`](Self::try_lock) takes no place and does not
/// pass those who have one. One that gives up leaves its place at once. One that is killed holds up those behind it for the
/// [`waiter_timeout`](crate::Builder::waiter_timeout) of its client (5 s) at most, wherever it stood. When the server forgets the
/// queue (a restart without its data, a flush), those who wait line up anew, in no order; when it stands still for longer than
/// two thirds of the `waiter_timeout`, the order among different clients can suffer.
///
/// With Java waiters in the queue a dead waiter can stand for longer. A dead Java waiter has Java's own time (5 minutes, unless
/// Java is set otherwise). A dead one of ours that came behind Java waiters has theirs as well, until they have left and a
/// client of this crate asks for the lock: a living waiter does so at every third of its `waiter_timeout`, a `try_lock` at once.
/// From then on it has its own `waiter_timeout` and no more. Where nobody but Java asks, it stands for up to
/// [`java_waiter_timeout`](crate::Builder::java_waiter_timeout) (5 minutes) for each Java waiter that was before it.
///
/// # Cost
/// Order costs speed: every release waits for the one process whose turn it is, however slow that is to wake up. Each
/// waiting thread has a place of its own, and keeps it with one command per third of the `waiter_timeout` (and one more whenever
/// the lease that it saw would have ended). Where order is not asked for, take a [mutex](crate::ReentrantMutex).
///
/// # Re-entrancy, waiting, losses
/// As [`ReentrantMutex`](crate::ReentrantMutex). A plain lock under the same name is the same lock, and passes the queue. Do not
/// use both: a release of the fair lock wakes only the queue, so plain waiters of other clients look when the lease would have
/// ended; a release of the plain one wakes nobody in the queue, who look at the next third of their `waiter_timeout`.
///
/// # Source
/// Redisson's `RFairLock` on the wire, with deadlines of our own that a living waiter moves on, so that a dead one is
/// found in seconds and a living one is not evicted.
/// # Examples
/// ```no_run
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let counter = client.fair("ticket counter");
/// let guard = counter.lock()?; // when it is our turn
/// println!("{} wait behind us", counter.queue_len()?);
/// guard.unlock()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FairMutex {
    handle: Handle,
}

impl FairMutex {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        Self { handle: Handle::new(shared, name, Kind::Fair) }
    }

    handle_methods!(name, lease, token, operator);

    waiting_method! {
        /// Takes the lock when it is this thread's turn, blocking for as long as it takes.
        ///
        /// `let _ = fair.lock()?;` unlocks at once: give the guard a name.
        ///
        /// # Errors
        /// As [`ReentrantMutex::lock`](crate::ReentrantMutex::lock). Whoever fails leaves the queue.
        lock, try_lock, try_lock_for, try_lock_until() -> FairMutexGuard, acquire
    }

    waiting_method! {
        /// [`lock`](Self::lock) for a guard that can go to another thread. It never re-enters: a second call queues up even
        /// on the same thread, until the first guard is gone.
        ///
        /// # Errors
        /// As [`ReentrantMutex::lock_owned`](crate::ReentrantMutex::lock_owned).
        lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until() -> OwnedFairMutexGuard, acquire_owned
    }

    /// Who has the lock now, for an operator's eyes. One round trip.
    ///
    /// # Errors
    /// As [`is_locked`](Self::is_locked).
    pub fn holder(&self) -> Result<Option<LockHolder>> {
        self.handle.holders().map(|holders| holders.into_iter().next())
    }

    /// How many stand in the queue, of all clients and of Java. Whoever has the lock is not among them. One that died is: it is
    /// removed when it is the first and its time is over (see [Order](Self#order)). One round trip.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub fn queue_len(&self) -> Result<usize> {
        self.queue().map(|(length, _)| length)
    }

    /// How many stand in the queue before the first thread of this client that waits for the lock, those that died among them:
    /// 0 when it is next. `None` when no thread of this client waits. One round trip; to be asked from another thread than the
    /// one that waits.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub fn position(&self) -> Result<Option<usize>> {
        self.queue().map(|(_, position)| position)
    }

    fn queue(&self) -> Result<(usize, Option<usize>)> {
        let (name, shared) = (self.handle.usable()?, &self.handle.shared);
        shared
            .store
            .queue()
            .and_then(|queue| queue.queue_of(name, shared.id.as_str()))
            .map_err(|e| e.for_name(&name.name))
    }

    fn acquire(&self, deadline: Deadline) -> Result<Option<FairMutexGuard>> {
        Ok(self.handle.for_thread(Kind::Fair, deadline)?.map(FairMutexGuard))
    }

    fn acquire_owned(&self, deadline: Deadline) -> Result<Option<OwnedFairMutexGuard>> {
        Ok(self.handle.owned(Kind::Fair, deadline)?.map(OwnedFairMutexGuard))
    }
}

/// The fair lock is held while this lives; dropping it gives up one level, and the last one wakes the next in the queue.
///
/// Bound to its thread, because a method of this thread re-enters its hold; [`lock_owned`](FairMutex::lock_owned) has guards
/// that can move.
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct FairMutexGuard(Guard<Arc<Hold>, ThreadBound>);

guard_methods!(FairMutexGuard, fencing_token);

/// The fair lock is held while this lives; it can go to another thread and be dropped there.
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct OwnedFairMutexGuard(Guard<Arc<Hold>, Movable>);

guard_methods!(OwnedFairMutexGuard, fencing_token);
