//! The re-entrant lock: `client.mutex(name)` and its guards.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::{Terms, acquire_for_thread, acquire_owned};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::guard_methods;
use crate::hold::Hold;
use crate::key::LockKeys;
use crate::limits::check_lease;
use crate::shared::Shared;
use crate::store::TokenRule;

/// A lock shared by everybody who uses the same name on the same server: threads, processes, machines, and Java
/// processes with Redisson's `RLock`.
///
/// A cheap handle: making and cloning one costs no I/O. Made by [`LockClient::mutex`](crate::LockClient::mutex).
///
/// # Re-entrancy
/// Per client and thread: a thread that has the lock gets it again, and it is free when the last of its guards is
/// gone, in whatever order they are dropped. The lease, renewal and fencing token are those of the outermost call;
/// inner ones can only lengthen the lease. The [owned](Self::lock_owned) forms never re-enter.
///
/// # Fairness
/// Threads of one client are served first come, first served. Between clients there is no order, but a client that
/// has had the lock many times in a row while others wait lets them try first.
///
/// # Waiting
/// By message, with a timer as a fall-back. A first attempt that cannot reach the server fails at once; a call that is
/// already waiting rides out an outage for a while ([`Builder::ride_out`](crate::Builder::ride_out)).
///
/// # Source
/// Keys, values and messages are those of Redisson's `RLock`; hold counts are set and not added to, so that every
/// request can be repeated after a lost reply.
#[derive(Debug, Clone)]
pub struct ReentrantMutex {
    shared: Arc<Shared>,
    keys: Result<Arc<LockKeys>>,
    terms: Terms,
}

impl ReentrantMutex {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        let config = &shared.config;
        let terms = Terms {
            lease: config.lease,
            renewed: true,
            max_hold: config.max_hold,
            token: if config.fencing { TokenRule::Expires } else { TokenRule::Off },
        };
        // Told by the first verb: making a handle cannot fail.
        let keys = LockKeys::new(&config.key_prefix, name).map(Arc::new);
        Self { shared: shared.clone(), keys, terms }
    }

    /// A fixed lease: the lock is held for `lease` and not renewed. Between 20 ms and 365 days; one out of range is
    /// told by the first verb.
    ///
    /// For work whose longest time is known: a hung holder loses the lock by itself.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.terms.lease = lease;
        self.terms.renewed = false;
        self
    }

    /// Renewed, but not for ever: once it has been held for `most`, renewal stops, and the lock is lost when the
    /// last lease ends, up to one lease later. The answer to a holder that hangs. Without effect on a fixed lease; zero is
    /// told by the first verb as bad input.
    #[must_use]
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.terms.max_hold = Some(most);
        self
    }

    /// Keeps the fencing token counter of this name for ever.
    ///
    /// For names that Java's `RFencedLock` uses as well: it has no floor, so once a counter of ours expired it would
    /// begin again at 1. Otherwise a counter is forgotten a day after the last grant, which loses nothing.
    #[must_use]
    pub fn keep_token(mut self) -> Self {
        if self.terms.token == TokenRule::Expires {
            self.terms.token = TokenRule::KeptForEver;
        }
        self
    }

    /// The name of the lock, as it was asked for; empty for a name that no verb will accept.
    #[must_use]
    pub fn name(&self) -> &str {
        self.keys.as_ref().map_or("", |keys| &keys.name)
    }

    /// Takes the lock, blocking for as long as it takes.
    ///
    /// `let _ = mutex.lock()?;` unlocks at once: give the guard a name.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a bad name or lease; [`Lost`](crate::ErrorKind::Lost) when
    /// this thread's own hold of the lock is gone; [`Closed`](crate::ErrorKind::Closed); and every way in which the
    /// server can fail to be asked. What is then in doubt is undone in the background: nothing stays locked.
    pub fn lock(&self) -> Result<ReentrantMutexGuard> {
        self.acquire(Deadline::Never).map(|guard| guard.expect("without a deadline there is no giving up"))
    }

    /// Takes the lock if it is free: one round trip, or a few I/O timeouts when the server hangs. `None`: somebody else
    /// has it.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock(&self) -> Result<Option<ReentrantMutexGuard>> {
        self.acquire(Deadline::Now)
    }

    /// Takes the lock, blocking for at most `timeout` and one round trip. `None`: somebody else had it all the time.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<ReentrantMutexGuard>> {
        self.acquire(Deadline::after(Instant::now(), timeout))
    }

    /// Takes the lock, blocking until `deadline` at most, and one round trip. `None`: somebody else had it all the time.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<ReentrantMutexGuard>> {
        self.acquire(Deadline::At(deadline))
    }

    /// [`lock`](Self::lock) for a guard that can go to another thread. It never re-enters: a second call blocks even
    /// on the same thread, until the first guard is gone.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn lock_owned(&self) -> Result<OwnedMutexGuard> {
        self.acquire_owned(Deadline::Never).map(|guard| guard.expect("without a deadline there is no giving up"))
    }

    /// [`try_lock`](Self::try_lock) for a guard that can go to another thread.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_owned(&self) -> Result<Option<OwnedMutexGuard>> {
        self.acquire_owned(Deadline::Now)
    }

    /// [`try_lock_for`](Self::try_lock_for) for a guard that can go to another thread.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_owned_for(&self, timeout: Duration) -> Result<Option<OwnedMutexGuard>> {
        self.acquire_owned(Deadline::after(Instant::now(), timeout))
    }

    /// [`try_lock_until`](Self::try_lock_until) for a guard that can go to another thread.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_owned_until(&self, deadline: Instant) -> Result<Option<OwnedMutexGuard>> {
        self.acquire_owned(Deadline::At(deadline))
    }

    /// Whether anybody has the lock now. One round trip; out of date as soon as it is told.
    ///
    /// # Errors
    /// When the server cannot be asked, or the key is no lock.
    pub fn is_locked(&self) -> Result<bool> {
        self.holder().map(|holder| holder.is_some())
    }

    /// Who has the lock now, for an operator's eyes. One round trip.
    ///
    /// # Errors
    /// As [`is_locked`](Self::is_locked).
    pub fn holder(&self) -> Result<Option<LockHolder>> {
        let keys = self.usable()?;
        let standing = self.shared.store.inspect(keys).map_err(|e| e.for_name(&keys.name))?;
        Ok(standing.and_then(|standing| {
            let (id, hold_count) = standing.holders.into_iter().next()?;
            Some(LockHolder { is_this_client: self.shared.id.owns(&id), id, hold_count, remaining: standing.ttl })
        }))
    }

    /// Frees the lock whoever has it, and wakes the waiters; false when it was free. One round trip, sent once.
    ///
    /// For an operator, after a crash. The holder is not asked: it learns of its loss at its next renewal, a third of
    /// its lease later (holders of this client at once), and may do harm until then: that is what fencing tokens stop.
    ///
    /// # Errors
    /// When the server cannot be asked: then it may have happened. Not repeat-safe: a repeat could force out the next.
    pub fn force_unlock(&self) -> Result<bool> {
        let keys = self.usable()?;
        // Listed before: a hold that is granted after the lock was freed is not the one that was forced out.
        let ours = self.shared.holds.under(&keys.lock);
        let freed = self.shared.store.force_unlock(keys).map_err(|e| e.for_name(&keys.name))?;
        if freed {
            ours.iter().for_each(|hold| hold.tell_lost());
            self.shared.stations.ring(&keys.lock);
        }
        Ok(freed)
    }

    fn usable(&self) -> Result<&Arc<LockKeys>> {
        let keys = self.keys.as_ref().map_err(Clone::clone)?;
        let told = |e: Error| e.for_name(&keys.name);
        if !self.terms.renewed {
            check_lease(self.terms.lease).map_err(told)?;
        }
        if self.terms.max_hold.is_some_and(|most| most.is_zero()) {
            return Err(told(Error::new(ErrorKind::InvalidInput, "a max_hold of zero; use with_lease")));
        }
        self.shared.check_usable().map(|()| keys).map_err(told)
    }

    fn acquire(&self, deadline: Deadline) -> Result<Option<ReentrantMutexGuard>> {
        let hold = acquire_for_thread(&self.shared, self.usable()?, &self.terms, deadline)?;
        Ok(hold.map(|hold| ReentrantMutexGuard { hold, given_up: false, not_send: PhantomData }))
    }

    fn acquire_owned(&self, deadline: Deadline) -> Result<Option<OwnedMutexGuard>> {
        let hold = acquire_owned(&self.shared, self.usable()?, &self.terms, deadline)?;
        Ok(hold.map(|hold| OwnedMutexGuard { hold, given_up: false }))
    }
}

/// The lock is held while this lives; dropping it gives up one level.
///
/// Bound to its thread, because a verb of this thread re-enters its hold:
/// ```compile_fail,E0277
/// fn is_send<T: Send>() {}
/// is_send::<leasehold::ReentrantMutexGuard>();
/// ```
/// [`lock_owned`](ReentrantMutex::lock_owned) has guards that can move.
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct ReentrantMutexGuard {
    hold: Arc<Hold>,
    given_up: bool,
    /// Not `Send`, but `Sync`: another thread may look at it, as for `wait_lost`.
    not_send: PhantomData<std::sync::MutexGuard<'static, ()>>,
}

guard_methods!(ReentrantMutexGuard);

/// The lock is held while this lives; it can go to another thread and be dropped there.
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct OwnedMutexGuard {
    hold: Arc<Hold>,
    given_up: bool,
}

guard_methods!(OwnedMutexGuard);

/// Who has a lock, as it stands in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    id: String,
    hold_count: u64,
    remaining: Option<Duration>,
    is_this_client: bool,
}

impl LockHolder {
    /// The holder id: `<client id>:<number>`. Opaque; Java's end in a thread id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How often it holds the lock, as far as the server was told.
    #[must_use]
    pub fn hold_count(&self) -> u64 {
        self.hold_count
    }

    /// When the lock comes free if it is not renewed; `None` for a lock without an end, which no client should make.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Whether it is a hold of the client that asks.
    #[must_use]
    pub fn is_this_client(&self) -> bool {
        self.is_this_client
    }
}
