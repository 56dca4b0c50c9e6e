//! A lock's name and kind, independent of the store.

use std::any::Any;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::base::advice::Advice;
use crate::base::counters::Counters;
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::job_keys::is_key_of_job;
use crate::os::OnceLock;

/// The longest name in bytes, including the prefix. A store could take more, but every request
/// carries the name, and a longer one is most likely a mistake.
pub(crate) const MAX_NAME_BYTES: usize = 1024;

/// What a name is used for; for a read-write lock also in which mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The re-entrant lock.
    Mutex,
    /// The same lock with a queue in the store.
    Fair,
    /// A read-write lock, for reading or for writing.
    Read,
    Write,
    /// Permits with leases.
    Semaphore,
    /// Permits without leases.
    CountingSemaphore,
    Latch,
    /// Permits that come back when their interval is over.
    RateLimiter,
    /// The lease of a scheduled job, under which at most one of its occurrences runs.
    Job,
    /// What is recorded of one occurrence of a job: it is only waited for.
    Done,
}

/// What the kernel and the stores ask of a kind.
struct KindFacts {
    held_by: HeldBy,
    /// What somebody has of it ends by itself when nothing renews it.
    has_lease: bool,
    leaves: Leaves,
    /// Whoever frees something sends a message, which a waiter listens for.
    tells: bool,
}

enum HeldBy {
    /// One, who excludes all others.
    One,
    /// All who read.
    Readers,
    /// As many as there are permits.
    Permits,
    Nobody,
}

/// What a call that waits leaves in every store. (A store that queues all waiters has a place for
/// each.)
enum Leaves {
    Nothing,
    /// It keeps new readers out.
    Marker,
    /// Its turn comes in order.
    Place,
}

impl Kind {
    /// All facts of all kinds: a new kind does not compile without its row.
    #[rustfmt::skip]
    const fn facts(self) -> KindFacts {
        use HeldBy::{Nobody, One, Permits, Readers};
        use Leaves::{Marker, Nothing, Place};
        match self {
            Self::Mutex => KindFacts { held_by: One, has_lease: true, leaves: Nothing, tells: true },
            Self::Fair => KindFacts { held_by: One, has_lease: true, leaves: Place, tells: true },
            Self::Read => KindFacts { held_by: Readers, has_lease: true, leaves: Nothing, tells: true },
            Self::Write => KindFacts { held_by: One, has_lease: true, leaves: Marker, tells: true },
            Self::Semaphore => KindFacts { held_by: Permits, has_lease: true, leaves: Nothing, tells: true },
            Self::CountingSemaphore => KindFacts { held_by: Permits, has_lease: false, leaves: Nothing, tells: true },
            Self::Latch => KindFacts { held_by: Nobody, has_lease: false, leaves: Nothing, tells: true },
            Self::RateLimiter => KindFacts { held_by: Permits, has_lease: true, leaves: Nothing, tells: false },
            Self::Job => KindFacts { held_by: One, has_lease: true, leaves: Nothing, tells: true },
            Self::Done => KindFacts { held_by: Nobody, has_lease: false, leaves: Nothing, tells: true },
        }
    }

    /// Whether a holder excludes all others.
    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self.facts().held_by, HeldBy::One)
    }

    /// Whether all who read hold it together.
    pub(crate) fn is_read(self) -> bool {
        matches!(self.facts().held_by, HeldBy::Readers)
    }

    /// Whether it has a holder, and not a number: neither permits nor the count of a latch.
    pub(crate) fn is_lock(self) -> bool {
        self.is_exclusive() || self.is_read()
    }

    /// Whether somebody can have it, or a part of it.
    pub(crate) fn can_be_held(self) -> bool {
        !matches!(self.facts().held_by, HeldBy::Nobody)
    }

    /// Whether what somebody has of it ends by itself when nothing renews it.
    pub(crate) fn has_lease(self) -> bool {
        self.facts().has_lease
    }

    /// Whether every store has a queue for it, in which each waiter has a place.
    pub(crate) fn has_queue(self) -> bool {
        matches!(self.facts().leaves, Leaves::Place)
    }

    /// Whether a call that waits leaves something in every store: a place, or a marker.
    pub(crate) fn leaves_marker(self) -> bool {
        !matches!(self.facts().leaves, Leaves::Nothing)
    }

    /// Whether a waiter is woken by a message. If not, the store's answer says how long it waits.
    pub(crate) fn sends_messages(self) -> bool {
        self.facts().tells
    }

    /// Whether Redis has one number under the name, whatever the kind.
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Semaphore | Self::CountingSemaphore | Self::Latch)
    }

    /// Whether both may be used under one name: equal, or the two modes of a read-write lock.
    pub(crate) fn is_same_primitive_as(self, other: Self) -> bool {
        let is_rw = |kind| matches!(kind, Self::Read | Self::Write);
        is_rw(self) && is_rw(other) || self == other
    }

    /// Whether they are one lock in the store: waiting for the one can be waiting for a holder of
    /// the other. Two that are not answer each other with an error.
    pub(crate) fn is_same_lock_as(self, other: Self) -> bool {
        let has_one_holder = |kind| matches!(kind, Self::Mutex | Self::Fair);
        has_one_holder(self) && has_one_holder(other) || self.is_same_primitive_as(other)
    }
}

/// The name of a lock, and its kind.
pub(crate) struct LockName {
    pub(crate) kind: Kind,
    /// The name that the user gave, for errors and logs.
    pub(crate) name: Arc<str>,
    /// The name with the client's prefix. Identifies the lock within a client.
    pub(crate) key: Arc<str>,
    /// Its counters, if they are reported or the name was waited for.
    pub(crate) counters: OnceLock<Arc<Counters>>,
    spelling: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl LockName {
    /// # Errors
    /// `InvalidInput` for an empty or too long name. Each store checks its own further limits.
    pub(crate) fn new(prefix: &str, name: &str, kind: Kind) -> Result<Self> {
        if name.is_empty() {
            return Err(Error::named(
                ErrorKind::InvalidInput,
                name,
                "a lock name must not be empty",
            ));
        }
        let key = format!("{prefix}{name}");
        if key.len() > MAX_NAME_BYTES {
            let why = format!(
                "a lock name of {} bytes is longer than {MAX_NAME_BYTES} (prefix included)",
                key.len()
            );
            return Err(invalid(why));
        }
        let key: Arc<str> = key.into();
        if is_key_of_job(&key) {
            let why = "with the prefix of the client this is a key that a scheduled job keeps beside its own";
            return Err(Error::named(ErrorKind::InvalidInput, name, why).advise(Advice::ChooseName));
        }
        // Usually there is no prefix, and one text serves as both.
        let name = if prefix.is_empty() { key.clone() } else { name.into() };
        Ok(Self { kind, name, key, counters: OnceLock::new(), spelling: OnceLock::new() })
    }

    /// What a job with this name keeps under a key of its own.
    pub(crate) fn of_job(name: &Arc<str>, kind: Kind, key: String) -> Self {
        let name = name.clone();
        let key = key.into();
        Self { kind, name, key, counters: OnceLock::new(), spelling: OnceLock::new() }
    }

    /// The same name with another kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> Self {
        let name = self.name.clone();
        let key = self.key.clone();
        Self { kind, name, key, counters: OnceLock::new(), spelling: OnceLock::new() }
    }

    /// The store's names for it (keys, channels, nodes), made at the first request and kept.
    pub(crate) fn spelling<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let spelling = self.spelling.get_or_init(|| Box::new(make()));
        spelling.downcast_ref().expect("a name is used with one store only")
    }
}

// Nothing of it changes once it is set.
impl UnwindSafe for LockName {}
impl RefUnwindSafe for LockName {}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.kind, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_length() {
        assert_eq!(LockName::new("", "", Kind::Mutex).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(LockName::new("", &"x".repeat(MAX_NAME_BYTES), Kind::Mutex).is_ok());
        assert!(LockName::new("p", &"x".repeat(MAX_NAME_BYTES), Kind::Mutex).is_err());
        let mapped = LockName::new("app:", "x", Kind::Fair).unwrap();
        assert_eq!((&*mapped.name, &*mapped.key), ("x", "app:x"));
    }

    #[test]
    fn a_store_spells_a_name_once() {
        let name = LockName::new("", "x", Kind::Mutex).unwrap();
        assert_eq!(name.spelling(|| "first"), name.spelling(|| "second"));
    }
}
