//! Which kinds of lock and which leases Redlock supports.

use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::limits::in_words;
use crate::base::lock_name::{Kind, LockName};

#[cold]
pub(super) fn unsupported(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{what} cannot be stored on several masters: Redlock supports only the re-entrant and the owned lock"
        ),
    )
}

pub(super) fn check_kind(name: &LockName) -> Result<()> {
    match name.kind {
        Kind::Mutex => Ok(()),
        Kind::Fair => Err(unsupported("a fair lock")),
        Kind::Read | Kind::Write => Err(unsupported("a read-write lock")),
        Kind::Semaphore | Kind::CountingSemaphore => Err(unsupported("a semaphore")),
        Kind::Latch => Err(unsupported("a latch")),
        Kind::RateLimiter => Err(unsupported("a rate limiter")),
        Kind::Job | Kind::Done => Err(unsupported("a scheduled job")),
    }
}

#[cold]
pub(super) fn too_long(lease: Duration, longest: Duration) -> Error {
    invalid(format!(
        "a lease of {} is longer than the longest lease of this Redlock, {}",
        in_words(lease),
        in_words(longest)
    ))
}
