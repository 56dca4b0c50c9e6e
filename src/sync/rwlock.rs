//! The read-write lock: `client.rw_lock(name)` and its guards.

use std::sync::Arc;

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::lock_name::Kind;
use crate::hold::guarded::{Hold, Side};
use crate::observe::LockHolder;
use crate::sync::guard::{Guard, Movable, ThreadBound, guard_methods};
use crate::sync::handle::{Handle, handle_methods, waiting_method};
use crate::wait::client_state::ClientState;

/// A lock that many readers or one writer can hold, across threads, processes, machines, and Java
/// processes with Redisson's `RReadWriteLock`.
///
/// A cheap handle, created by [`LockClient::rw_lock`](crate::LockClient::rw_lock): creating and
/// cloning it costs no I/O.
///
/// # Re-entrancy
/// The lock is re-entrant per client and thread, for reading and for writing. A thread that holds
/// it for writing may also read, which costs no round trip. A thread that holds it for reading
/// cannot begin to write: it would wait for itself for ever, so [`write`](Self::write) returns
/// [`Conflict`](crate::ErrorKind::Conflict). Take the write lock from the start and
/// [`downgrade`](RwLockWriteGuard::downgrade) it.
///
/// # Who goes first
/// A waiting writer keeps new readers of this crate out, in this process and in others, and gets
/// the lock when the last reader leaves. In another process, a reader that joins another reader of
/// its client (see below) still gets in, for 4 ms at most. After a writer has left, readers and
/// writers are unordered. Java's readers do not know of waiting writers: as long as they overlap,
/// they can keep all writers out. A writer that dies while it waits keeps readers out for
/// [`waiter_timeout`](crate::Builder::waiter_timeout) (5 s) at most.
///
/// # Readers of one client
/// Threads of one client that read at the same time may share one hold at the server: a thread that
/// comes within 4 ms of another, or that waited at the same time, joins its hold without a request,
/// and the last to leave releases it. Each has its own guard and callbacks, and the lease is
/// renewed once for all of them. [`holders`](Self::holders) lists the hold once. If one of them
/// [extends](RwLockReadGuard::extend) its lease, the longer lease stays at the server until the
/// last one has left. Readers with a fixed lease, and those over Redlock or ZooKeeper, have
/// separate holds.
///
/// # Leases
/// Each reader has its own lease, which expires independently: renewing one neither shortens
/// another nor keeps it alive. A dead reader keeps writers out until its lease ends or, if others
/// continue to read, until the last of them leaves.
///
/// This applies to readers of this crate. A Java reader with a shorter watchdog time cuts the lease
/// of everyone who shares the lock with it. Read holds, including those with a fixed lease, are
/// therefore inspected once a second, and next to a Java reader they are valid for no longer than
/// its cuts may leave them: see [Readers of both
/// sides](crate::guide::redisson#readers-of-both-sides).
///
/// # Source
/// Redisson's `RReadWriteLock` on the wire. What differs: a downgrade wakes waiting readers,
/// waiting writers keep new readers out, and counts are set instead of incremented.
///
/// # Examples
/// ```no_run
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let config = client.rw_lock("config");
/// let write = config.write()?;
/// // ... change it ...
/// let read = write.downgrade()?; // others may read now, nobody can write
/// // ... read what was written ...
/// read.unlock()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RwLock {
    handle: Handle,
}

impl RwLock {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str) -> Self {
        Self { handle: Handle::new(client, name, Kind::Write) }
    }

    handle_methods!(name, lease, min_hold, token, cancel, operator);

    waiting_method! {
        /// Takes the lock for reading, blocking while a writer holds it or waits for it.
        ///
        /// # Errors
        /// The same as [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
        read, try_read, try_read_for, try_read_until() -> RwLockReadGuard, take_read
    }

    waiting_method! {
        /// Takes the lock for writing, blocking while any other reader or writer holds it.
        ///
        /// # Errors
        /// [`Conflict`](crate::ErrorKind::Conflict) when this thread holds the lock for reading
        /// through [`read`](Self::read). An owned read guard is not a conflict, whichever thread
        /// took it, because another thread may drop it: this call waits for it, and on the thread
        /// that has that guard it waits for ever. Otherwise the same as
        /// [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
        write, try_write, try_write_for, try_write_until() -> RwLockWriteGuard, take_write
    }

    waiting_method! {
        /// Like [`read`](Self::read), but the guard can move to another thread. It never re-enters.
        /// It waits for an owned write guard, and for a writer that waits for this thread's own
        /// read guards; on the thread that has these guards it waits for itself.
        /// [`write`](Self::write) waits for an owned read guard in the same way.
        ///
        /// # Errors
        /// [`Conflict`](crate::ErrorKind::Conflict) when this thread holds the lock through
        /// [`write`](Self::write), renewed and without a [`max_hold`](Self::max_hold): a call
        /// without a timeout would wait for itself for ever (with a timeout it returns `None`).
        /// Otherwise the same as [`read`](Self::read).
        read_owned, try_read_owned, try_read_owned_for, try_read_owned_until() -> OwnedRwLockReadGuard, take_read_owned
    }

    waiting_method! {
        /// Like [`write`](Self::write), but the guard can move to another thread. It never
        /// re-enters: a second call blocks even on the same thread, until the first guard is gone.
        /// An owned guard belongs to no thread, so the call always waits for it.
        ///
        /// # Errors
        /// [`Conflict`](crate::ErrorKind::Conflict) when this thread holds the lock for reading
        /// through [`read`](Self::read), or for writing under the conditions of
        /// [`read_owned`](Self::read_owned). Otherwise the same as
        /// [`ReentrantMutex::lock`](crate::ReentrantMutex::lock).
        write_owned, try_write_owned, try_write_owned_for, try_write_owned_until() -> OwnedRwLockWriteGuard,
        take_write_owned
    }

    /// The current holders of the lock, for operators: readers by their ids (threads of one client
    /// may share one), a writer by its id followed by `:write`. One round trip, and one for each
    /// other client among them (16 at most) to find out [who it is](LockHolder). Readers whose
    /// leases have ended are listed until the last reader leaves.
    ///
    /// # Errors
    /// The same as [`is_locked`](Self::is_locked).
    pub fn holders(&self) -> Result<Vec<LockHolder>> {
        self.handle.holders()
    }

    /// Whether the calling thread certainly holds the lock for reading, through
    /// [`read`](Self::read) or a [downgrade](RwLockWriteGuard::downgrade). No I/O.
    #[must_use]
    pub fn is_read_held_by_current_thread(&self) -> bool {
        self.handle.is_held_by_current_thread(Side::Read)
    }

    /// Whether the calling thread certainly holds the lock for writing, through
    /// [`write`](Self::write). An owned guard belongs to no thread and does not count. No I/O.
    #[must_use]
    pub fn is_write_held_by_current_thread(&self) -> bool {
        self.handle.is_held_by_current_thread(Side::Main)
    }

    fn take_read(&self, deadline: Deadline) -> Result<Option<RwLockReadGuard>> {
        Ok(self.handle.for_thread(Kind::Read, deadline)?.map(RwLockReadGuard))
    }

    fn take_write(&self, deadline: Deadline) -> Result<Option<RwLockWriteGuard>> {
        Ok(self.handle.for_thread(Kind::Write, deadline)?.map(RwLockWriteGuard))
    }

    fn take_read_owned(&self, deadline: Deadline) -> Result<Option<OwnedRwLockReadGuard>> {
        Ok(self.handle.owned(Kind::Read, deadline)?.map(OwnedRwLockReadGuard))
    }

    fn take_write_owned(&self, deadline: Deadline) -> Result<Option<OwnedRwLockWriteGuard>> {
        Ok(self.handle.owned(Kind::Write, deadline)?.map(OwnedRwLockWriteGuard))
    }
}

/// The lock is held for reading while this guard lives; dropping the guard gives up one level.
///
/// The guard is bound to its thread, because calls on that thread re-enter its hold;
/// [`read_owned`](RwLock::read_owned) returns guards that can move.
#[must_use = "if unused the lock is released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard(Guard<Hold, ThreadBound>);

guard_methods!(RwLockReadGuard: held, unlock);

/// The lock is held for writing while this guard lives; dropping the guard gives up one level. When
/// the last write level is given up, the read levels of this thread remain, as after a downgrade.
///
/// Unlike a full release, a downgrade writes to the server, and a server that has reached its
/// `maxmemory` refuses it with [`Full`](crate::ErrorKind::Full). Then the read levels are still
/// held, and others are kept out as by a writer. The downgrade is repeated in the background until
/// the server accepts it, or the read guards are gone.
///
/// The guard is bound to its thread, because calls on that thread re-enter its hold;
/// [`write_owned`](RwLock::write_owned) returns guards that can move.
#[must_use = "if unused the lock is released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard(Guard<Hold, ThreadBound>);

guard_methods!(RwLockWriteGuard: held, unlock, min_hold, fencing_token);

impl RwLockWriteGuard {
    /// Continues as a reader, without a gap in which another writer could get in, and wakes waiting
    /// readers. One round trip. If this thread has other write guards, it remains a writer until
    /// they are gone. Callbacks of [`on_lost`](Self::on_lost) end with this guard: register them
    /// again through the read guard.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lock had been lost,
    /// [`Closed`](crate::ErrorKind::Closed) when closing the client gave it up. When the request
    /// fails, or the server refuses the downgrade ([`Full`](crate::ErrorKind::Full) when it has
    /// reached its `maxmemory`), the read level is given up as well, which frees the lock if it was
    /// the last level. If that fails too, it is repeated in the background.
    pub fn downgrade(self) -> Result<RwLockReadGuard> {
        self.0.downgrade().map(RwLockReadGuard)
    }
}

/// The lock is held for reading while this guard lives. The guard can move to another thread and be
/// dropped there.
#[must_use = "if unused the lock is released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockReadGuard(Guard<Hold, Movable>);

guard_methods!(OwnedRwLockReadGuard: held, unlock);

/// The lock is held for writing while this guard lives. The guard can move to another thread and be
/// dropped there.
#[must_use = "if unused the lock is released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockWriteGuard(Guard<Hold, Movable>);

guard_methods!(OwnedRwLockWriteGuard: held, unlock, min_hold, fencing_token);

impl OwnedRwLockWriteGuard {
    /// Continues as a reader; see [`RwLockWriteGuard::downgrade`].
    ///
    /// # Errors
    /// The same as there.
    pub fn downgrade(self) -> Result<OwnedRwLockReadGuard> {
        self.0.downgrade().map(OwnedRwLockReadGuard)
    }
}
