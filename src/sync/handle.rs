//! What the handles of all locks have in common: a name, the terms of its holds, and the methods in their four forms.

use std::sync::Arc;
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::lock_name::{Kind, LockName};
use crate::session::Shared;
use crate::session::acquire::{Terms, acquire_for_thread, acquire_owned};
use crate::session::hold::Hold;
use crate::store::LockStatus;

#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    /// Told by the first method: making a handle cannot fail.
    name: Result<Arc<LockName>>,
    pub(crate) terms: Terms,
}

impl Handle {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str, kind: Kind) -> Self {
        let name = LockName::new(&shared.config.key_prefix, name, kind);
        let name = name.and_then(|name| shared.store.check(&name).map(|()| Arc::new(name)));
        Self { shared: shared.clone(), name, terms: Terms::of(&shared.config) }
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_ref().map_or("", |name| &name.name)
    }

    pub(crate) fn usable(&self) -> Result<&Arc<LockName>> {
        let name = self.name.as_ref().map_err(Clone::clone)?;
        let usable = self.terms.check().and_then(|()| self.shared.check_usable());
        usable.map(|()| name).map_err(|e| e.for_name(&name.name))
    }

    /// The name of the same name, asked for in another way.
    pub(crate) fn usable_as(&self, kind: Kind) -> Result<Arc<LockName>> {
        self.usable().map(|name| if name.kind == kind { name.clone() } else { Arc::new(name.of_kind(kind)) })
    }

    pub(crate) fn for_thread(&self, kind: Kind, deadline: Deadline) -> Result<Option<Arc<Hold>>> {
        acquire_for_thread(&self.shared, &self.usable_as(kind)?, &self.terms, deadline)
    }

    pub(crate) fn owned(&self, kind: Kind, deadline: Deadline) -> Result<Option<Arc<Hold>>> {
        acquire_owned(&self.shared, &self.usable_as(kind)?, 1, &self.terms, deadline)
    }

    pub(crate) fn permits(&self, permits: u32, deadline: Deadline) -> Result<Option<Arc<Hold>>> {
        acquire_owned(&self.shared, self.usable()?, permits, &self.terms, deadline)
    }

    pub(crate) fn status(&self) -> Result<Option<LockStatus>> {
        let name = self.usable()?;
        self.shared.store.inspect(name).map_err(|e| e.for_name(&name.name))
    }

    pub(crate) fn holders(&self) -> Result<Vec<LockHolder>> {
        let Some(LockStatus { ttl, holders }) = self.status()? else { return Ok(Vec::new()) };
        let holder = |(id, hold_count): (String, u64)| LockHolder {
            is_this_client: self.shared.id.owns(&id),
            id,
            hold_count,
            remaining: ttl,
        };
        Ok(holders.into_iter().map(holder).collect())
    }

    pub(crate) fn force_unlock(&self) -> Result<bool> {
        let name = self.usable()?;
        // Listed before: a hold that is granted after the lock was freed is not the one that was forced out.
        let ours = Hold::all_under(&self.shared, &name.key);
        let freed = self.shared.store.force_unlock(name).map_err(|e| e.for_name(&name.name))?;
        if freed {
            ours.iter().for_each(Hold::tell_lost);
            self.shared.local_queues.notify(&name.key);
        }
        Ok(freed)
    }
}

/// A waiting method in its four forms: it blocks, it tries once, it blocks for a time, it blocks until then. `$take` is
/// the private method that all of them call with a deadline.
macro_rules! waiting_method {
    (
        $(#[$doc:meta])*
        $verb:ident, $try_verb:ident, $try_for:ident, $try_until:ident
        ($($arg:ident: $ty:ty),*) -> $won:ty, $take:ident
    ) => {
        $(#[$doc])*
        pub fn $verb(&self $(, $arg: $ty)*) -> $crate::Result<$won> {
            let never = $crate::base::deadline::Deadline::Never;
            self.$take($($arg,)* never).map(|won| won.expect("without a deadline there is no giving up"))
        }

        #[doc = concat!("[`", stringify!($verb), "`](Self::", stringify!($verb), ") if that is possible at once: one \
            round trip, or a few I/O timeouts when the server hangs. `None`: it is not.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($verb), "`](Self::", stringify!($verb), ").")]
        pub fn $try_verb(&self $(, $arg: $ty)*) -> $crate::Result<Option<$won>> {
            self.$take($($arg,)* $crate::base::deadline::Deadline::Now)
        }

        #[doc = concat!("[`", stringify!($verb), "`](Self::", stringify!($verb), "), blocking for at most `timeout` and \
            one round trip, which can take a few I/O timeouts when the server hangs. `None`: it was not possible in \
            all that time; a server that has not answered lately is asked once more, and an error says that nobody knows.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($verb), "`](Self::", stringify!($verb), ").")]
        pub fn $try_for(&self $(, $arg: $ty)*, timeout: std::time::Duration) -> $crate::Result<Option<$won>> {
            self.$take($($arg,)* $crate::base::deadline::Deadline::after(std::time::Instant::now(), timeout))
        }

        #[doc = concat!("[`", stringify!($verb), "`](Self::", stringify!($verb), "), blocking until `deadline` at most, \
            and one round trip, which can take a few I/O timeouts when the server hangs. `None`: it was not possible in \
            all that time; a server that has not answered lately is asked once more, and an error says that nobody knows.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($verb), "`](Self::", stringify!($verb), ").")]
        pub fn $try_until(&self $(, $arg: $ty)*, deadline: std::time::Instant) -> $crate::Result<Option<$won>> {
            self.$take($($arg,)* $crate::base::deadline::Deadline::At(deadline))
        }
    };
}

/// The settings of a handle whose [`Terms`] are the field, or stand behind the path of fields, `$terms`.
macro_rules! lease_settings {
    ($($terms:ident).+) => {
        /// A fixed lease: it is held for `lease` and not renewed. Between 20 ms and 365 days; the first call reports one that is
        /// out of range. A hold ends 1 % and 2 ms before its lease does, and the round trip of the grant counts: below about
        /// 50 ms little is left of it on a busy machine.
        ///
        /// For work whose longest time is known: a hung holder loses it by itself.
        #[must_use]
        pub fn with_lease(mut self, lease: std::time::Duration) -> Self {
            self.$($terms).+.lease = lease;
            self.$($terms).+.renewed = false;
            self
        }

        /// Renewed, but not for ever: once it has been held for `most`, renewal stops, and it is lost when the last lease
        /// ends, up to one lease later. The answer to a holder that hangs. Without effect on a fixed lease; zero is told
        /// by the first method as bad input.
        #[must_use]
        pub fn max_hold(mut self, most: std::time::Duration) -> Self {
            self.$($terms).+.max_hold = Some(most);
            self
        }
    };
}

/// The setting of a handle whose holds have fencing tokens.
macro_rules! token_setting {
    ($($terms:ident).+) => {
        /// Keeps the fencing token counter of this name for ever.
        ///
        /// For names that Java's `RFencedLock` uses as well: it has no floor, so once a counter of ours expired it would
        /// begin again at 1. Otherwise a counter is forgotten a day after the last grant, which loses nothing.
        #[must_use]
        pub fn keep_token(mut self) -> Self {
            if self.$($terms).+.token == $crate::store::TokenRule::On {
                self.$($terms).+.token = $crate::store::TokenRule::Kept;
            }
            self
        }
    };
}

/// The settings of a handle with a field `handle`, and its name.
macro_rules! handle_methods {
    () => {
        $crate::sync::handle::lease_settings!(handle.terms);

        /// The name, as it was asked for; empty for a name that no method will accept.
        #[must_use]
        pub fn name(&self) -> &str {
            self.handle.name()
        }
    };
}

/// What an operator asks of a lock with exclusive holders.
macro_rules! lock_methods {
    () => {
        $crate::sync::handle::token_setting!(handle.terms);

        /// Whether anybody has the lock now. One round trip; out of date as soon as it is told.
        ///
        /// # Errors
        /// When the server cannot be asked, or the key is no lock.
        pub fn is_locked(&self) -> $crate::Result<bool> {
            self.handle.status().map(|status| status.is_some())
        }

        /// Frees the lock whoever has it, and wakes the waiters; false when it was free. One round trip, sent once.
        ///
        /// For an operator, after a crash. The holder is not asked: it learns of its loss at its next renewal, a third of
        /// its lease later (holders of this client at once), and may do harm until then: that is what fencing tokens stop.
        ///
        /// # Errors
        /// When the server cannot be asked: then it may have happened. Not repeat-safe: a repeat could force out the next.
        pub fn force_unlock(&self) -> $crate::Result<bool> {
            self.handle.force_unlock()
        }
    };
}

pub(crate) use handle_methods;
pub(crate) use lease_settings;
pub(crate) use lock_methods;
pub(crate) use token_setting;
pub(crate) use waiting_method;

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
