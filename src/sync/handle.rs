//! What the handles of all primitives share: a name, the terms of its holds, and documented
//! methods.

use std::sync::Arc;
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::lock_name::{Kind, LockName};
use crate::hold::acquire::{acquire_for_thread, acquire_owned};
use crate::hold::guarded::{Hold, Side};
use crate::hold::terms::Terms;
use crate::observe::{LastHolder, LockHolder};
use crate::os;
use crate::signal::cancel::CancelToken;
use crate::store::{LockStatus, TokenRule};
use crate::sync::guard::{Guard, Movable, ThreadBound};
use crate::wait::client_state::ClientState;

/// `N` is the name, or for a multi-lock the names.
#[derive(Debug, Clone)]
pub(crate) struct Handle<N = Arc<LockName>> {
    pub(crate) client: Arc<ClientState>,
    /// Making a handle cannot fail, so the first call reports a bad name.
    pub(crate) name: Result<N>,
    pub(crate) terms: Terms,
}

impl<N> Handle<N> {
    pub(crate) fn of(client: &Arc<ClientState>, name: Result<N>) -> Self {
        Self { client: client.clone(), name, terms: Terms::of(&client.config) }
    }

    pub(crate) fn with_lease(&mut self, lease: Duration) {
        self.terms.lease = lease;
        self.terms.renewed = false;
    }

    pub(crate) fn with_cancel(&mut self, token: &CancelToken) {
        self.terms.cancel = Some(token.clone());
    }

    pub(crate) fn keep_token(&mut self) {
        if self.terms.token == TokenRule::On {
            self.terms.token = TokenRule::Kept;
        }
    }

    /// Checks that the terms and the client can be used.
    pub(crate) fn check(&self) -> Result<()> {
        self.terms.check(&*self.client.store)?;
        self.client.check_usable()
    }
}

impl Handle {
    pub(crate) fn new(client: &Arc<ClientState>, name: &str, kind: Kind) -> Self {
        let made = || {
            let name = LockName::new(&client.config.key_prefix, name, kind)?;
            client.store.check(&name).map_err(|e| e.for_name(&name.name))?;
            client.seen.observer.meet(&name);
            Ok(Arc::new(name))
        };
        Self::of(client, client.names.get(name, kind, made))
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_ref().map_or("", |name| &name.name)
    }

    /// The name, if it, the terms and the client can be used.
    pub(crate) fn usable(&self) -> Result<&Arc<LockName>> {
        let name = self.name.as_ref().map_err(Clone::clone)?;
        match self.check() {
            Ok(()) => Ok(name),
            Err(e) => Err(e.for_name(&name.name)),
        }
    }

    /// The name for an acquire of `kind`, such as the read side of a read-write lock.
    fn name_of_kind(&self, kind: Kind) -> Result<Arc<LockName>> {
        let name = self.usable()?;
        if kind.is_read() {
            self.terms.check_read().map_err(|e| e.for_name(&name.name))?;
        }
        if name.kind == kind {
            return Ok(name.clone());
        }
        self.client.names.get(&name.name, kind, || {
            let name = name.of_kind(kind);
            self.client.seen.observer.meet(&name);
            Ok(Arc::new(name))
        })
    }

    /// The name for a call that acquires `kind`. If it cannot be used, the call counts as refused.
    pub(crate) fn begin(&self, kind: Kind) -> Result<Arc<LockName>> {
        let name = self.name_of_kind(kind);
        if let Err(e) = &name {
            self.client.seen.observer.refused(kind.into(), e);
        }
        name
    }

    pub(crate) fn for_thread(
        &self,
        kind: Kind,
        deadline: Deadline,
    ) -> Result<Option<Guard<Hold, ThreadBound>>> {
        let hold = acquire_for_thread(&self.client, &self.begin(kind)?, &self.terms, deadline)?;
        Ok(hold.map(|hold| Guard::new(hold, side_of(kind))))
    }

    pub(crate) fn owned(
        &self,
        kind: Kind,
        deadline: Deadline,
    ) -> Result<Option<Guard<Hold, Movable>>> {
        let hold = acquire_owned(&self.client, &self.begin(kind)?, 1, &self.terms, deadline)?;
        Ok(hold.map(|hold| Guard::new(hold, side_of(kind))))
    }

    pub(crate) fn permits(
        &self,
        permits: u32,
        deadline: Deadline,
    ) -> Result<Option<Guard<Hold, Movable>>> {
        let hold = acquire_owned(
            &self.client,
            &self.begin(Kind::Semaphore)?,
            permits,
            &self.terms,
            deadline,
        )?;
        Ok(hold.map(|hold| Guard::new(hold, Side::Main)))
    }

    /// Whether the calling thread has a level of `side` of this lock, through a guard that is bound
    /// to it.
    pub(crate) fn is_held_by_current_thread(&self, side: Side) -> bool {
        let Ok(name) = &self.name else { return false };
        // A child process must not wait for a mutex that a thread of its parent had locked.
        if self.client.is_forked() {
            return false;
        }
        let hold = Hold::of_thread(&self.client, &name.key, os::thread::current().id());
        hold.is_some_and(|hold| {
            let counts = hold.tenure().counts();
            let levels = if side == Side::Read { counts.reads } else { counts.main };
            levels > 0
                && hold.tenure().lock_name().kind.is_same_primitive_as(name.kind)
                && hold.is_held()
        })
    }

    pub(crate) fn status(&self) -> Result<Option<LockStatus>> {
        let name = self.usable()?;
        self.client.store.inspect(name).map_err(|e| e.for_name(&name.name))
    }

    pub(crate) fn holders(&self) -> Result<Vec<LockHolder>> {
        let name = self.usable()?;
        Ok(self
            .status()?
            .map_or_else(Vec::new, |status| LockHolder::all_of(&self.client, name, status)))
    }

    pub(crate) fn last_holder(&self) -> Result<Option<LastHolder>> {
        let name = self.usable()?;
        let last = self.client.store.data().and_then(|data| data.last_hold(name));
        let last = last.map_err(|e| e.for_name(&name.name))?;
        Ok(last.map(|last| LastHolder::of(&self.client, last)))
    }

    pub(crate) fn force_unlock(&self) -> Result<bool> {
        let name = self.usable()?;
        // Listed before the request: a hold granted after the lock was freed is not the one that
        // was forced out.
        let ours = self.client.holds.under(&name.key);
        let freed = self.client.store.force_unlock(name).map_err(|e| e.for_name(&name.name));
        if let Ok(true) = freed {
            for hold in &ours {
                self.client.report_loss(hold);
            }
        }
        if !matches!(freed, Ok(false)) {
            // A hold that was granted while the request was under way may be missing from the list
            // above, so the store is asked whether it was the one forced out. That is also needed
            // after an error, because the request may have run.
            self.client.watchdog.mistrust_under(&name.key);
            self.client.local_queues.notify(&name.key);
        }
        freed
    }
}

/// The side of a hold to which an acquire of `kind` adds a level.
fn side_of(kind: Kind) -> Side {
    if kind.is_read() { Side::Read } else { Side::Main }
}

/// The guard from an acquire without a deadline, which ends with a grant or an error.
pub(crate) fn without_deadline<G>(acquired: Result<Option<G>>) -> Result<G> {
    Ok(acquired?.expect("an acquire without a deadline does not time out"))
}

/// The four forms of a waiting method: block, try once, block for a duration, block until an
/// instant. All of them call the private method `$take` with a deadline.
macro_rules! waiting_method {
    (
        $(#[$doc:meta])*
        $method:ident, $try_method:ident, $try_for:ident, $try_until:ident
        ($($arg:ident: $ty:ty),*) -> $guard:ty, $take:ident
    ) => {
        $(#[$doc])*
        pub fn $method(&self $(, $arg: $ty)*) -> $crate::Result<$guard> {
            $crate::sync::handle::without_deadline(self.$take($($arg,)* $crate::base::deadline::Deadline::Never))
        }

        #[doc = concat!("Tries [`", stringify!($method), "`](Self::", stringify!($method), ") once, without waiting: \
            one round trip, or a few I/O timeouts if the server hangs. Returns `None` if it would have to wait.")]
        ///
        /// # Errors
        #[doc = concat!("The same as [`", stringify!($method), "`](Self::", stringify!($method), ").")]
        pub fn $try_method(&self $(, $arg: $ty)*) -> $crate::Result<Option<$guard>> {
            self.$take($($arg,)* $crate::base::deadline::Deadline::Now)
        }

        #[doc = concat!("Like [`", stringify!($method), "`](Self::", stringify!($method), "), but blocks for at most \
            `timeout` plus one round trip, which can take a few I/O timeouts if the server hangs. Returns `None` if it \
            could not be taken within `timeout`; `holder` or `holders`, if the primitive has one, reports who holds it. \
            If the server has not answered recently, it is asked once more at the end; an error means that the outcome \
            is unknown.")]
        ///
        /// # Errors
        #[doc = concat!("The same as [`", stringify!($method), "`](Self::", stringify!($method), ").")]
        pub fn $try_for(&self $(, $arg: $ty)*, timeout: std::time::Duration) -> $crate::Result<Option<$guard>> {
            self.$take($($arg,)* $crate::base::deadline::Deadline::after($crate::os::now(), timeout))
        }

        #[doc = concat!("Like [`", stringify!($method), "`](Self::", stringify!($method), "), but blocks until \
            `deadline` at most, plus one round trip, which can take a few I/O timeouts if the server hangs. Returns \
            `None` if it could not be taken before `deadline`. If the server has not answered recently, it is asked \
            once more at the end; an error means that the outcome is unknown.")]
        ///
        /// # Errors
        #[doc = concat!("The same as [`", stringify!($method), "`](Self::", stringify!($method), ").")]
        pub fn $try_until(&self $(, $arg: $ty)*, deadline: std::time::Instant) -> $crate::Result<Option<$guard>> {
            self.$take($($arg,)* $crate::base::deadline::Deadline::At(deadline))
        }
    };
}

/// Adds groups of documented methods to a public handle, which has a [`Handle`] in its field
/// `handle`: its `name`, the settings `lease`, `min_hold`, `data`, `token` and `cancel`, what its
/// `thread` holds, and the methods for an `operator`.
macro_rules! handle_methods {
    ($($group:ident),+) => {
        $($crate::sync::handle::handle_methods!(@$group);)+
    };
    (@name) => {
        /// The name, as the caller gave it; empty if the name is invalid, in which case every call
        /// fails. No I/O.
        #[must_use]
        pub fn name(&self) -> &str {
            self.handle.name()
        }
    };
    (@lease) => {
        /// Sets a fixed lease: each hold lasts for `lease` and is not renewed. `lease` must be
        /// between 20 ms and 365 days; the first call reports a value out of range. A hold ends 1 %
        /// and 2 ms before its lease does, and the round trip of the grant counts towards it, so a
        /// lease below about 50 ms leaves little time on a busy machine.
        ///
        /// Use it for work with a known maximum duration: a holder that hangs then loses the hold
        /// without anybody's help.
        #[doc(alias = "leaseTime")]
        #[doc(alias = "ttl")]
        #[doc(alias = "expire")]
        #[must_use]
        pub fn with_lease(mut self, lease: std::time::Duration) -> Self {
            self.handle.with_lease(lease);
            self
        }

        /// Limits renewal: once the hold has lasted for `most`, it is no longer renewed, and it is
        /// lost when its last lease ends, up to one lease later. It protects against a holder that
        /// hangs. It has no effect on a fixed lease. Zero is invalid: the first call reports it.
        #[doc(alias = "lockAtMostFor")]
        #[must_use]
        pub fn max_hold(mut self, most: std::time::Duration) -> Self {
            self.handle.terms.max_hold = Some(most);
            self
        }
    };
    (@min_hold) => {
        /// Keeps the lock taken for at least `least` after it was acquired, even if its last guard
        /// is gone earlier: for jobs that many machines start at the same time, with clocks that
        /// differ by less than `least`. Without it, a job that takes less time than the clocks
        /// differ by runs twice. (ShedLock calls it `lockAtLeastFor`.)
        ///
        /// No call blocks longer because of it. When the guard is given up before the time is over,
        /// by `unlock` or by drop, by the end of its thread or by closing the client, the hold ends
        /// as usual: it is no longer renewed, reports no loss, and the process may exit. At the
        /// server the rest of the time becomes the TTL of the lock; it can be shorter or longer
        /// than the lease. Until it is over, nobody gets the lock: no other client, no other thread
        /// of this client, and not this thread again. Waiters are notified of the new end. A guard
        /// that is given up later frees the lock at once.
        ///
        /// The time counts from when the acquire returned; if the lock is re-entered, from the
        /// outermost acquire, whose handle decides. A process that is *killed* during its job
        /// leaves the lock taken for the rest of its lease, as usual, and a lock whose hold is lost
        /// may be free at once. `force_unlock` also frees a lock that is kept taken. A write hold
        /// that was downgraded is a read hold, and is freed as one; [reading](crate::RwLock::read)
        /// through such a handle returns [`InvalidInput`](crate::ErrorKind::InvalidInput).
        ///
        /// If the request fails when the guard is given up, it is repeated in the background with
        /// the same end time. Until it succeeds, the lock ends with its lease.
        ///
        /// `least` is at most 365 days; the default, zero, turns it off. The first call returns
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if it is longer than a fixed lease
        /// ([`with_lease`](Self::with_lease)), than a [`max_hold`](Self::max_hold) or, with
        /// [Redlock](crate::guide::redlock), than its longest lease. With ZooKeeper it returns
        /// [`Unsupported`](crate::ErrorKind::Unsupported): a hold there cannot outlast its session.
        #[doc(alias = "lockAtLeastFor")]
        #[must_use]
        pub fn min_hold(mut self, least: std::time::Duration) -> Self {
            self.handle.terms.min_hold = least;
            self
        }
    };
    (@data) => {
        /// Gives each hold of this handle some data, for everybody who looks at the lock: which
        /// build it is, who began it, how far it is. The store writes it with the grant, in the
        /// same step, and [`holder`](Self::holder), [`locks`](crate::LockClient::locks) and
        /// [`inspect`](crate::LockClient::inspect) show it from then on, for as long as that holder
        /// has the lock. [`set_data`](crate::OwnedMutexGuard::set_data) of the guard replaces it.
        ///
        /// It decides nothing, and it can be missing although the lock is held: after a failover
        /// that has lost it, for example. A call that re-enters a hold leaves its data as it is,
        /// also if the hold has none. A hold with data never
        /// [passes](crate::ReentrantMutex#turns) to another thread without a request.
        ///
        /// At most 1024 bytes of any kind: the first call returns
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more. With
        /// [Redlock](crate::guide::redlock) and [MySQL](crate::guide::mysql) it returns
        /// [`Unsupported`](crate::ErrorKind::Unsupported). Everybody who may read the lock reads
        /// it, and the library never logs it.
        #[must_use]
        pub fn with_data(mut self, data: impl AsRef<[u8]>) -> Self {
            self.handle.terms.data = Some($crate::base::data::HoldData::new(data.as_ref()));
            self
        }

        /// The last holder that had data ([`with_data`](Self::with_data)): who it is, its data, and
        /// how long ago its hold ended, also if it died. It may have the lock still. `None` if
        /// there was none within the last hour. A later holder without data is not known here; see
        /// [`holder`](Self::holder). One round trip, and a second one if it is another client.
        ///
        /// # Errors
        /// [`Unsupported`](crate::ErrorKind::Unsupported) with ZooKeeper, where nothing is left of
        /// a session that has ended, and with Redlock and MySQL; otherwise the same as
        /// [`is_locked`](Self::is_locked). Safe to repeat.
        pub fn last_holder(&self) -> $crate::Result<Option<$crate::observe::LastHolder>> {
            self.handle.last_holder()
        }
    };
    (@token) => {
        /// Keeps the fencing token counter of this name for ever.
        ///
        /// Use it for names that Java's `RFencedLock` uses as well. Java does not check whether a
        /// counter has expired, and would begin again at 1. Without this setting, a counter expires
        /// a day after the last grant; among clients of this crate, tokens still never repeat.
        /// Java's `getToken()` also reads the counter, which without this setting can be ahead of
        /// the holder's token: a plain lock draws several tokens at once when threads of one client
        /// wait for it.
        #[must_use]
        pub fn keep_token(mut self) -> Self {
            self.handle.keep_token();
            self
        }
    };
    (@cancel) => {
        /// Lets `token` cancel the calls of this handle that acquire or wait. They return
        /// [`Cancelled`](crate::ErrorKind::Cancelled): within about a millisecond if they are
        /// waiting, and at once if they begin later, the `try_` forms included. They leave nothing
        /// behind: a queue entry or a wait marker at the server is removed at once, in the
        /// background, and later waiters move up. A second token replaces the first; to combine
        /// several, use [children](crate::CancelToken::child) of one.
        ///
        /// A call with a request under way returns when the reply arrives, or after a few I/O
        /// timeouts at most if the server hangs. If the reply is a grant, or another thread of this
        /// client passes the lock on at that moment, the call succeeds as if the cancel had come
        /// later. A request that gets no reply is undone in the background.
        ///
        /// A call that re-enters a hold of its own thread does not wait and is not cancelled. Locks
        /// that are held stay held.
        #[doc(alias = "lockInterruptibly")]
        #[doc(alias = "interrupt")]
        #[must_use]
        pub fn with_cancel(mut self, token: &$crate::CancelToken) -> Self {
            self.handle.with_cancel(token);
            self
        }
    };
    (@thread) => {
        /// Whether the calling thread certainly holds the lock through a guard that is bound to it.
        /// An [owned](Self::lock_owned) guard belongs to no thread and does not count. No I/O.
        ///
        /// For an assertion deep inside of what must only run under the lock. Code that has the
        /// guard asks [`is_held`](crate::Held::is_held) of that.
        #[doc(alias = "holdsLock")]
        #[must_use]
        pub fn is_held_by_current_thread(&self) -> bool {
            self.handle.is_held_by_current_thread($crate::hold::guarded::Side::Main)
        }
    };
    (@operator) => {
        /// Whether anybody holds the lock now. One round trip; the answer may be outdated when it
        /// arrives.
        ///
        /// # Errors
        /// When the request fails, or the key is not a lock.
        pub fn is_locked(&self) -> $crate::Result<bool> {
            self.handle.status().map(|status| status.is_some())
        }

        /// Frees the lock, whoever holds it, and wakes the waiters. Returns false if it was free.
        /// One round trip; the request is sent only once.
        ///
        /// Meant for an operator after a crash. The holder is not asked. Holders in this client are
        /// notified of the loss at once; others notice it at their next renewal, up to a third of
        /// their lease later. Until then they may do harm, which fencing tokens prevent.
        ///
        /// # Errors
        /// When the request fails; the lock may have been freed all the same. Do not repeat the
        /// call blindly: a repeat could force out the next holder.
        /// [`WrongType`](crate::ErrorKind::WrongType) for a key that is not a lock of this kind,
        /// such as another application's data: nothing is deleted.
        pub fn force_unlock(&self) -> $crate::Result<bool> {
            self.handle.force_unlock()
        }
    };
}

pub(crate) use handle_methods;
pub(crate) use waiting_method;
