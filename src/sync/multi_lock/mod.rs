//! Several locks taken as one: `client.multi(names)` and its guards.

mod acquire;
mod hold;
mod names;

use std::sync::Arc;

use self::hold::MultiHold;
use self::names::names_of;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::lock_name::LockName;
use crate::base::names::label;
use crate::base::primitive::Primitive;
use crate::fencing::{FencingToken, TransactionFence};
use crate::hold::guarded::Side;
use crate::lease::records::Owner;
use crate::os;
use crate::sync::guard::{Guard, Movable, ThreadBound, guard_methods};
use crate::sync::handle::{Handle, handle_methods, waiting_method};
use crate::wait::client_state::ClientState;

/// Several plain locks taken as one: all of them or none, in one round trip, and never only some of
/// them.
///
/// A cheap handle, created by [`LockClient::multi`](crate::LockClient::multi): creating and cloning
/// it costs no I/O. Each of its names is the lock that
/// [`LockClient::lock`](crate::LockClient::lock) takes. So it excludes, and is excluded by,
/// everyone who takes one of them, alone or in a set, including Java's `RLock` and `RMultiLock`.
///
/// # Order
/// The order of the names does not matter. A call that cannot have all of its names holds none
/// while it waits (over ZooKeeper it keeps places in the queues, which it enters in one
/// transaction), so two programs that name the same locks in different orders never wait for each
/// other. Locks that a thread already *holds* when it calls can still deadlock: one thread holds
/// `a` and waits for `b` and `c`, another holds `b` and waits for `a`.
///
/// # Re-entrancy
/// The same as [`ReentrantMutex`](crate::ReentrantMutex): names that this thread already holds are
/// re-entered, and a thread that holds several names can take each of them alone again. The
/// [owned](Self::lock_owned) forms never re-enter.
///
/// # Fairness
/// The first attempt bypasses every queue. After that, the call waits like any other, for one name
/// at a time: for the first one that is taken, then for the next (over ZooKeeper in all queues at
/// once). Many busy names can keep it waiting for as long as others take them one by one, because
/// all of them have to be free at the same moment. If that matters, guard them with one more name
/// that all callers take first.
///
/// # Cost
/// A script takes all names, 5 to 10 µs each, and the server serves nobody else in the meantime: up
/// to 10 ms for 1000 names, which is the maximum. One request renews all of them.
///
/// # Several masters
/// A client for [Redlock][crate::Builder::redlock] returns
/// [`Unsupported`](crate::ErrorKind::Unsupported): no single server could take all of the names at
/// once.
///
/// # Source
/// Redisson's `RMultiLock` takes one lock after the other, and releases those it has when one of
/// them is taken. On the wire both are plain locks.
///
/// # Examples
/// ```no_run
/// # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
/// let both = client.multi(["account:17", "account:4"]).lock()?;
/// // ... move money from one to the other ...
/// both.unlock()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[cfg_attr(not(feature = "redlock"), doc = include_str!("../../links/redlock.md"))]
#[derive(Debug, Clone)]
pub struct MultiLock {
    /// The names are sorted and unique.
    handle: Handle<Arc<[Arc<LockName>]>>,
}

impl MultiLock {
    pub(crate) fn new<N: AsRef<str>>(
        client: &Arc<ClientState>,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        Self { handle: Handle::of(client, names_of(client, names)) }
    }

    handle_methods!(lease, min_hold, token, cancel);

    /// The names, sorted and unique; empty if they cannot be used, in which case every call fails.
    /// No I/O.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.handle.name.iter().flat_map(|names| names.iter()).map(|name| &*name.name)
    }

    waiting_method! {
        /// Takes all of the locks, blocking for as long as it takes.
        ///
        /// `let _ = multi.lock()?;` unlocks at once: give the guard a name.
        ///
        /// # Errors
        /// - [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid name or lease, no name
        ///   at all, or more than 1000;
        /// - [`WrongType`](crate::ErrorKind::WrongType) when one of the names is used for something
        ///   else;
        /// - [`Lost`](crate::ErrorKind::Lost) when this thread's own hold of one of them is gone;
        /// - [`Conflict`](crate::ErrorKind::Conflict) when this thread holds a lock of another kind
        ///   under one of them, or took one through a
        ///   [`non_reentrant`](crate::ReentrantMutex::non_reentrant) handle;
        /// - [`Closed`](crate::ErrorKind::Closed) when the client was closed, or has [stopped
        ///   waiting](crate::LockClient::stop_waiting);
        /// - [`Cancelled`](crate::ErrorKind::Cancelled) when the token of the handle was cancelled;
        /// - any error of the request to the server.
        ///
        /// After an error none of the names is taken: a request that may have run is undone in the
        /// background. If one name is the cause, the error [names it](crate::Error::name).
        lock, try_lock, try_lock_for, try_lock_until() -> MultiLockGuard, acquire
    }

    waiting_method! {
        /// Like [`lock`](Self::lock), but the guard can move to another thread. It never re-enters:
        /// while an owned guard has one of the names, every further call for it blocks, even on the
        /// thread that took the guard, and so does [`lock`](Self::lock). This cannot be detected as
        /// a mistake, because another thread may drop the guard.
        ///
        /// # Errors
        /// [`Conflict`](crate::ErrorKind::Conflict) when this thread holds one of the names with a
        /// guard that is bound to the thread, renewed and without a [`max_hold`](Self::max_hold): a
        /// call without a timeout would wait for itself for ever (with a timeout it returns
        /// `None`). Otherwise the same as [`lock`](Self::lock).
        lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until() -> OwnedMultiLockGuard, acquire_owned
    }

    fn acquire(&self, deadline: Deadline) -> Result<Option<MultiLockGuard>> {
        let hold = self.take(deadline, Owner::Thread(os::thread::current().id()))?;
        Ok(hold.map(|hold| MultiLockGuard(Guard::new(hold, Side::Main))))
    }

    fn acquire_owned(&self, deadline: Deadline) -> Result<Option<OwnedMultiLockGuard>> {
        let hold = self.take(deadline, Owner::Guard)?;
        Ok(hold.map(|hold| OwnedMultiLockGuard(Guard::new(hold, Side::Main))))
    }

    fn take(&self, deadline: Deadline, owner: Owner) -> Result<Option<MultiHold>> {
        let Handle { client, name, terms } = &self.handle;
        let refused = |e: &Error| client.seen.observer.refused(Primitive::Multi, e);
        let names = name.as_ref().map_err(Clone::clone).inspect_err(refused)?;
        let usable = self.handle.check().map_err(|e| e.for_name(&label(names.iter())));
        usable.inspect_err(refused)?;
        acquire::take(client, names, terms, deadline, owner)
    }
}

/// All of the locks are held while this guard lives; dropping the guard gives up one level of each.
///
/// Its methods apply to all of the locks together: they are held while every one is, and lost as
/// soon as one is. (`unlock` then still releases the others, and reports the loss.) `name` lists
/// the names, and `hold_count` is the smallest count.
///
/// The guard is bound to its thread, because calls on that thread re-enter its holds:
/// ```compile_fail,E0277
/// fn is_send<T: Send>() {}
/// is_send::<leasehold::MultiLockGuard>();
/// ```
/// [`lock_owned`](MultiLock::lock_owned) returns guards that can move.
#[must_use = "if unused the locks are released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct MultiLockGuard(Guard<MultiHold, ThreadBound>);

guard_methods!(MultiLockGuard: held, unlock, min_hold);

impl MultiLockGuard {
    /// The names, sorted and unique. No I/O.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.parts().iter().map(|hold| hold.name())
    }

    /// The fencing token of the hold of one of the names: larger than that of every earlier hold of
    /// this name.
    ///
    /// Each name has its own counter: send each resource the token of its name.
    /// [`fencing`](crate::fencing) has helpers for that. Re-entering gives the same token. No I/O.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that is not among them, and when
    /// the client was built with `fencing(false)`.
    pub fn fencing_token(&self, name: &str) -> Result<FencingToken> {
        self.0.fencing_token_of(name)
    }

    /// A statement that fences a transaction of your own with the token of one of the names, if the
    /// locks are in your database; for several names, run one statement each. For the rest see
    /// [`fence_sql`](crate::ReentrantMutexGuard::fence_sql) of one lock.
    ///
    /// # Errors
    /// The same, and [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that is not among
    /// them.
    pub fn fence_sql(&self, name: &str) -> Result<TransactionFence> {
        self.0.fence_of(name)
    }
}

/// All of the locks are held while this guard lives. The guard can move to another thread and be
/// dropped there. Its methods are those of [`MultiLockGuard`].
#[must_use = "if unused the locks are released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct OwnedMultiLockGuard(Guard<MultiHold, Movable>);

guard_methods!(OwnedMultiLockGuard: held, unlock, min_hold);

impl OwnedMultiLockGuard {
    /// The names, sorted and unique. No I/O.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.parts().iter().map(|hold| hold.name())
    }

    /// The same as [`MultiLockGuard::fencing_token`].
    ///
    /// # Errors
    /// The same as there.
    pub fn fencing_token(&self, name: &str) -> Result<FencingToken> {
        self.0.fencing_token_of(name)
    }

    /// The same as [`MultiLockGuard::fence_sql`].
    ///
    /// # Errors
    /// The same as there.
    pub fn fence_sql(&self, name: &str) -> Result<TransactionFence> {
        self.0.fence_of(name)
    }
}
