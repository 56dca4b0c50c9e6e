//! The re-entrant lock: `client.mutex(name)` and its guards.

use std::sync::Arc;

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::lock_name::Kind;
use crate::hold::guarded::Hold;
use crate::observe::LockHolder;
use crate::sync::guard::{Guard, Movable, ThreadBound, guard_methods};
use crate::sync::handle::{Handle, handle_methods, waiting_method};
use crate::wait::client_state::ClientState;

/// A re-entrant lock, shared by everyone who uses the same name on the same server: threads,
/// processes, machines, and Java processes with Redisson's `RLock`.
///
/// A cheap handle, created by [`LockClient::mutex`](crate::LockClient::mutex): creating and cloning
/// it costs no I/O.
///
/// # Re-entrancy
/// The lock is re-entrant per client and thread: a thread that holds it gets it again. It is free
/// when the last of the thread's guards is gone, in whatever order they are dropped. The lease,
/// renewal and fencing token are those of the outermost call; inner calls can only lengthen the
/// lease. The [owned](Self::lock_owned) forms never re-enter.
///
/// **Not safe under work stealing.** A rayon thread that holds the lock and waits for a part of its
/// job (`join`, `par_iter`, `scope`) may run another job in the meantime. If that job takes the
/// lock too, it re-enters: two jobs hold the lock, with one fencing token. On such a pool, take the
/// lock through a [`non_reentrant`](Self::non_reentrant) handle, which refuses the second job with
/// [`Conflict`](crate::ErrorKind::Conflict), or use [`try_lock_owned`](Self::try_lock_owned). A
/// blocking call can wait for a job further down its own stack, and so wait for ever, as with any
/// mutex: do not hold a lock across a `join`, or only use the `try_` forms. The example
/// `rayon_pool` shows all of this.
///
/// # Fairness
/// Threads of one client are served first come, first served. However, while the next one is waking
/// up and no other client is known to wait, running threads may have short turns before it, for
/// half a millisecond at most. Clients are unordered, but a client that has held the lock many
/// times in a row while others wait yields to them, and is then served after those that have waited
/// longer.
///
/// # Turns
/// When a thread gives up the lock and another thread of the same client waits for it on the same
/// terms (lease and kind of token), nothing is sent: the hold stays at the server and passes to
/// that thread, tens of times as fast as a release and an acquire. Each turn is a separate hold,
/// with its own guard, fencing token, callbacks and [`max_hold`](Self::max_hold). All of them have
/// the same [id](LockHolder::id), and the lease that the server confirmed for the first.
///
/// The thread that has waited longest is next. While it wakes up, a thread that calls `lock` at
/// that moment may have a turn before it, but only within half a millisecond after the last turn of
/// a thread that waited, and not while other clients wait.
///
/// A hold passes on for at most 16 ms after it was acquired from the server, or 8 ms if other
/// clients are known to wait; then it is released. It never passes on with a fixed lease
/// ([`with_lease`](Self::with_lease)), which begins with the whole lease, or with
/// [`keep_token`](Self::keep_token), nor after its lease was extended or a renewal has failed, nor
/// over Redlock and ZooKeeper.
///
/// # Waiting
/// A waiter is woken by a message, or by a timer if the message is lost. A first attempt that
/// cannot reach the server fails at once; a call that is already waiting survives an outage of up
/// to [`Builder::outage_timeout`](crate::Builder::outage_timeout).
///
/// # Source
/// Keys, values and messages are those of Redisson's `RLock`. Hold counts are set instead of
/// incremented, so that every request can be repeated after a lost reply.
#[derive(Debug, Clone)]
pub struct ReentrantMutex {
    handle: Handle,
}

impl ReentrantMutex {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str) -> Self {
        Self { handle: Handle::new(client, name, Kind::Mutex) }
    }

    handle_methods!(name, lease, min_hold, data, token, cancel, thread, operator);

    /// Makes this a handle that never re-enters. While the calling thread holds the lock, every
    /// acquire through it returns [`Conflict`](crate::ErrorKind::Conflict), the `try_` and
    /// [owned](Self::lock_owned) forms included: it neither re-enters the hold nor waits for it.
    /// Conversely, on this thread no other handle re-enters or waits for a hold taken through this
    /// one, and neither does a [`multi`](crate::LockClient::multi) that contains the name.
    ///
    /// Use it on a pool that steals work, such as rayon's: see [Re-entrancy](Self#re-entrancy). An
    /// owned guard belongs to no thread, so the thread that took it waits for it like any other.
    #[must_use]
    pub fn non_reentrant(mut self) -> Self {
        self.handle.terms.reentrant = false;
        self
    }

    waiting_method! {
        /// Takes the lock, blocking for as long as it takes.
        ///
        /// `let _ = mutex.lock()?;` unlocks at once: give the guard a name. So does
        /// `if mutex.try_lock()?.is_some() {`, before the block.
        ///
        /// # Errors
        /// - [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid name or lease;
        /// - [`Lost`](crate::ErrorKind::Lost) when this thread's own hold of the lock is gone;
        /// - [`Conflict`](crate::ErrorKind::Conflict) when this thread holds a lock of another kind
        ///   under the name, or holds this lock and one of the two handles is
        ///   [`non_reentrant`](Self::non_reentrant);
        /// - [`Closed`](crate::ErrorKind::Closed) when the client was closed, or has [stopped
        ///   waiting](crate::LockClient::stop_waiting);
        /// - [`Cancelled`](crate::ErrorKind::Cancelled) when the token of the handle was cancelled
        ///   ([`with_cancel`](Self::with_cancel));
        /// - any error of the request to the server. A request that may have run is undone in the
        ///   background, so nothing stays locked.
        lock, try_lock, try_lock_for, try_lock_until() -> ReentrantMutexGuard, acquire
    }

    waiting_method! {
        /// Like [`lock`](Self::lock), but the guard can move to another thread. It never re-enters:
        /// while an owned guard lives, every further call blocks, even on the thread that took the
        /// guard, and so do [`lock`](Self::lock) and a [multi-lock](crate::LockClient::multi) with
        /// this name. This cannot be detected as a mistake, because another thread may drop the
        /// guard. If this thread holds the lock through [`lock`](Self::lock) and one of the two
        /// handles is [`non_reentrant`](Self::non_reentrant), every form returns `Conflict`.
        ///
        /// Like every call it blocks its thread. **Never call it on a thread that runs async
        /// code:** tasks that wait for each other there wait for ever. See
        /// [`guide::async_code`](crate::guide::async_code).
        ///
        /// # Errors
        /// [`Conflict`](crate::ErrorKind::Conflict) when this thread holds the lock through
        /// [`lock`](Self::lock), renewed and without a [`max_hold`](Self::max_hold): a call without
        /// a timeout would wait for itself for ever (with a timeout it returns `None`). Otherwise
        /// the same as [`lock`](Self::lock).
        lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until() -> OwnedMutexGuard, acquire_owned
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

    fn acquire(&self, deadline: Deadline) -> Result<Option<ReentrantMutexGuard>> {
        Ok(self.handle.for_thread(Kind::Mutex, deadline)?.map(ReentrantMutexGuard))
    }

    fn acquire_owned(&self, deadline: Deadline) -> Result<Option<OwnedMutexGuard>> {
        Ok(self.handle.owned(Kind::Mutex, deadline)?.map(OwnedMutexGuard))
    }
}

/// The lock is held while this guard lives; dropping the guard gives up one level.
///
/// The guard is bound to its thread, because calls on that thread re-enter its hold:
/// ```compile_fail,E0277
/// fn is_send<T: Send>() {}
/// is_send::<leasehold::ReentrantMutexGuard>();
/// ```
/// [`lock_owned`](ReentrantMutex::lock_owned) returns guards that can move.
#[must_use = "if unused the lock is released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct ReentrantMutexGuard(Guard<Hold, ThreadBound>);

guard_methods!(ReentrantMutexGuard: held, unlock, min_hold, data, fencing_token);

/// The lock is held while this guard lives. The guard can move to another thread and be dropped
/// there.
#[must_use = "if unused the lock is released at once; write `let _guard = ..`"]
#[clippy::has_significant_drop]
pub struct OwnedMutexGuard(Guard<Hold, Movable>);

guard_methods!(OwnedMutexGuard: held, unlock, min_hold, data, fencing_token);
