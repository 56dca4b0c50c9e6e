//! What the handles of all primitives share: a name, the terms of its holds, and documented
//! methods.

use std::sync::Arc;
use std::time::Duration;

use crate::base::cancel::CancelToken;
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::lock_name::{Kind, LockName};
use crate::hold::acquire::{acquire_for_thread, acquire_owned};
use crate::hold::guarded::{Hold, Side};
use crate::hold::terms::Terms;
use crate::observe::LockHolder;
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

    /// What was named, if the name, the terms and the client can be used. `label` is the name for
    /// errors.
    pub(crate) fn usable_as(&self, label: impl FnOnce(&N) -> String) -> Result<&N> {
        let name = self.name.as_ref().map_err(Clone::clone)?;
        let usable = self.terms.check(&*self.client.store).and_then(|()| self.client.check_usable());
        usable.map(|()| name).map_err(|e| e.for_name(&label(name)))
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

    pub(crate) fn usable(&self) -> Result<&Arc<LockName>> {
        self.usable_as(|name| name.name.to_string())
    }

    /// The name for an acquire of `kind`, such as the read side of a read-write lock.
    fn name_of_kind(&self, kind: Kind) -> Result<Arc<LockName>> {
        let name = self.usable()?;
        if kind == Kind::Read {
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

    /// [`usable`](Self::usable) for a call that is to take something: an error ends it.
    pub(crate) fn begin(&self, kind: Kind) -> Result<Arc<LockName>> {
        self.name_of_kind(kind).inspect_err(|e| self.client.seen.observer.refused(kind.into(), e))
    }

    pub(crate) fn for_thread(&self, kind: Kind, deadline: Deadline) -> Result<Option<Guard<Hold, ThreadBound>>> {
        let hold = acquire_for_thread(&self.client, &self.begin(kind)?, &self.terms, deadline)?;
        Ok(hold.map(|hold| Guard::new(hold, side_of(kind))))
    }

    pub(crate) fn owned(&self, kind: Kind, deadline: Deadline) -> Result<Option<Guard<Hold, Movable>>> {
        let hold = acquire_owned(&self.client, &self.begin(kind)?, 1, &self.terms, deadline)?;
        Ok(hold.map(|hold| Guard::new(hold, side_of(kind))))
    }

    pub(crate) fn permits(&self, permits: u32, deadline: Deadline) -> Result<Option<Guard<Hold, Movable>>> {
        let hold = acquire_owned(&self.client, &self.begin(Kind::Semaphore)?, permits, &self.terms, deadline)?;
        Ok(hold.map(|hold| Guard::new(hold, Side::Main)))
    }

    pub(crate) fn status(&self) -> Result<Option<LockStatus>> {
        let name = self.usable()?;
        self.client.store.inspect(name).map_err(|e| e.for_name(&name.name))
    }

    pub(crate) fn holders(&self) -> Result<Vec<LockHolder>> {
        let name = self.usable()?;
        Ok(self.status()?.map_or_else(Vec::new, |status| LockHolder::all_of(&self.client, name, status)))
    }

    pub(crate) fn force_unlock(&self) -> Result<bool> {
        let name = self.usable()?;
        // Listed before: a hold that is granted after the lock was freed is not the one that was
        // forced out.
        let ours = self.client.holds.under(&name.key);
        let freed = self.client.store.force_unlock(name).map_err(|e| e.for_name(&name.name));
        if let Ok(true) = freed {
            ours.iter().for_each(|hold| self.client.report_loss(hold));
        }
        if !matches!(freed, Ok(false)) {
            // A hold that was granted while the request was under way is in no list, or was not
            // when it was made: the store says whether that hold is the one that was forced out. It
            // also says so if this request failed, and may have run.
            self.client.watchdog.mistrust(&name.key);
            self.client.local_queues.notify(&name.key);
        }
        freed
    }
}

/// The side of a hold that an acquire of `kind` takes a level of.
fn side_of(kind: Kind) -> Side {
    if kind == Kind::Read { Side::Read } else { Side::Main }
}

/// What an acquire without a deadline returns: it ends with a grant or an error.
pub(crate) fn without_deadline<G>(acquired: Result<Option<G>>) -> Result<G> {
    acquired.map(|guard| guard.expect("an acquire without a deadline does not time out"))
}

/// A waiting method in its four forms: it blocks, it makes one attempt, it blocks for a time, it
/// blocks until an instant. `$take` is the private method that all of them call with a deadline.
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

        #[doc = concat!("One attempt of [`", stringify!($method), "`](Self::", stringify!($method), "): one round \
            trip, or a few I/O timeouts when the server hangs. `None` if it would have to wait.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($method), "`](Self::", stringify!($method), ").")]
        pub fn $try_method(&self $(, $arg: $ty)*) -> $crate::Result<Option<$guard>> {
            self.$take($($arg,)* $crate::base::deadline::Deadline::Now)
        }

        #[doc = concat!("[`", stringify!($method), "`](Self::", stringify!($method), "), blocking for at most \
            `timeout` and one round trip, which can take a few I/O timeouts when the server hangs. `None` if it could \
            not be taken within `timeout`: `holder` or `holders`, where the primitive has one, says who has it. If the server has not answered recently, it is asked once more at the end; \
            an error means that the outcome is unknown.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($method), "`](Self::", stringify!($method), ").")]
        pub fn $try_for(&self $(, $arg: $ty)*, timeout: std::time::Duration) -> $crate::Result<Option<$guard>> {
            self.$take($($arg,)* $crate::base::deadline::Deadline::after($crate::os::now(), timeout))
        }

        #[doc = concat!("[`", stringify!($method), "`](Self::", stringify!($method), "), blocking until `deadline` at \
            most, and one round trip, which can take a few I/O timeouts when the server hangs. `None` if it could not \
            be taken before `deadline`. If the server has not answered recently, it is asked once more at the end; an \
            error means that the outcome is unknown.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($method), "`](Self::", stringify!($method), ").")]
        pub fn $try_until(&self $(, $arg: $ty)*, deadline: std::time::Instant) -> $crate::Result<Option<$guard>> {
            self.$take($($arg,)* $crate::base::deadline::Deadline::At(deadline))
        }
    };
}

/// Gives a public handle, which has a [`Handle`] in its field `handle`, groups of documented
/// methods: its `name`, the settings of its `lease`, its `min_hold`, its `token` and what may
/// `cancel` its calls, and those for an `operator`.
macro_rules! handle_methods {
    ($($group:ident),+) => {
        $($crate::sync::handle::handle_methods!(@$group);)+
    };
    (@name) => {
        /// The name, as the caller gave it; empty for a name that every method refuses.
        #[must_use]
        pub fn name(&self) -> &str {
            self.handle.name()
        }
    };
    (@lease) => {
        /// A fixed lease: a hold has `lease` and is not renewed. Between 20 ms and 365 days; the
        /// first call reports a lease out of range. A hold ends 1 % and 2 ms before its lease does,
        /// and the round trip of the grant counts: below about 50 ms little is left on a busy
        /// machine.
        ///
        /// For work with a known longest time: a holder that hangs loses the hold by itself.
        #[must_use]
        pub fn with_lease(mut self, lease: std::time::Duration) -> Self {
            self.handle.with_lease(lease);
            self
        }

        /// Limits renewal: once the hold has lasted for `most`, it is no longer renewed, and it is
        /// lost when its last lease ends, up to one lease later. It protects against a holder that
        /// hangs. It has no effect on a fixed lease. The first call refuses zero as bad input.
        #[must_use]
        pub fn max_hold(mut self, most: std::time::Duration) -> Self {
            self.handle.terms.max_hold = Some(most);
            self
        }
    };
    (@min_hold) => {
        /// Keeps the lock taken until at least `least` after it was acquired, although its last
        /// guard is gone: for jobs that many machines start at the same time, and whose clocks
        /// differ by less than `least`. Without it a job that takes less time than the clocks
        /// differ by runs twice. (ShedLock calls it `lockAtLeastFor`.)
        ///
        /// Nothing blocks for it: taking the lock and giving up the guard take as long as without.
        /// When the guard is given up before the time is over, by `unlock` or by drop, by the end
        /// of its thread or by closing the client, it ends as ever: it is not renewed any more,
        /// reports no loss, and the process may end. At the server the lock then has the rest of
        /// the time as its TTL, which can be shorter or longer than the lease, and nobody gets it
        /// before: no other client, no other thread of this one, nor this thread again. Waiters
        /// learn of the new end. A guard that is given up later frees the lock at once.
        ///
        /// The time counts from when the acquire returned; of several levels, from the outermost,
        /// whose handle decides. A process that is *killed* in its job leaves the lock for the rest
        /// of its lease, as ever, and a hold that is lost may be free at once. `force_unlock` frees
        /// a lock that is kept, too. A write hold that was downgraded is a read hold, and freed as
        /// one; to [read](crate::RwLock::read) through such a handle is refused as bad input.
        ///
        /// If the server cannot be asked when the guard is given up, the request is repeated in
        /// the background; it names the same end each time. Until it gets there the lock ends with
        /// its lease.
        ///
        /// Up to 365 days; zero is none, the default. The first call refuses as bad input more
        /// than a fixed lease ([`with_lease`](Self::with_lease)) or a
        /// [`max_hold`](Self::max_hold), both of which must last as long; and with
        /// [Redlock](crate::guide::redlock) more than its longest lease. Over ZooKeeper it is
        /// refused with [`Unsupported`](crate::ErrorKind::Unsupported): a hold there cannot outlast
        /// its session.
        #[must_use]
        pub fn min_hold(mut self, least: std::time::Duration) -> Self {
            self.handle.terms.min_hold = least;
            self
        }
    };
    (@token) => {
        /// Keeps the fencing token counter of this name for ever.
        ///
        /// For names that Java's `RFencedLock` uses as well. Java does not check for a counter that
        /// expired, and would begin again at 1. Without this setting a counter expires a day after
        /// the last grant; among clients of this crate tokens still never repeat. And Java's
        /// `getToken()` reads the counter, which without this setting can be ahead of the holder's
        /// token: a plain lock draws several at once when threads of one client wait for it.
        #[must_use]
        pub fn keep_token(mut self) -> Self {
            self.handle.keep_token();
            self
        }
    };
    (@cancel) => {
        /// Calls of this handle that take something or wait end with
        /// [`Cancelled`](crate::ErrorKind::Cancelled) once the token is cancelled: within about a
        /// millisecond where they wait, at once where they begin later, the `try_` forms included.
        /// They leave nothing behind: a place in a queue or a wait marker at the server is removed
        /// at once, in the background, and who is behind moves up. A second token replaces the
        /// first; for several, use [children](crate::CancelToken::child) of one.
        ///
        /// A call with a request under way ends with the reply: after a few I/O timeouts at most,
        /// when the server hangs. If that reply, or another thread of this client at that very
        /// moment, gives it what it asked for, the call returns it as if it had come before the
        /// cancel. A request that stays without a reply is undone in the background.
        ///
        /// A call that enters a hold of its own thread once more waits for nothing and is not
        /// refused. What is held stays held.
        #[must_use]
        pub fn with_cancel(mut self, token: &$crate::CancelToken) -> Self {
            self.handle.with_cancel(token);
            self
        }
    };
    (@operator) => {
        /// Whether anybody has the lock now. One round trip; the answer is out of date as soon as
        /// it arrives.
        ///
        /// # Errors
        /// When the server cannot be asked, or the key is not a lock.
        pub fn is_locked(&self) -> $crate::Result<bool> {
            self.handle.status().map(|status| status.is_some())
        }

        /// Frees the lock whoever has it, and wakes the waiters; false when it was free. One round
        /// trip, sent once.
        ///
        /// For an operator, after a crash. The holder is not asked. Holders of this client learn of
        /// the loss at once, others at their next renewal, a third of their lease later. Until then
        /// they may do harm, which fencing tokens prevent.
        ///
        /// # Errors
        /// When the server cannot be asked: the lock may have been freed. Do not repeat the call
        /// blindly: a repeat could force out the next holder.
        pub fn force_unlock(&self) -> $crate::Result<bool> {
            self.handle.force_unlock()
        }
    };
}

pub(crate) use handle_methods;
pub(crate) use waiting_method;
