//! The lock of a run: one of five kinds, taken in one of three ways.

use std::time::Duration;

use leasehold::observe::LockHolder;
use leasehold::{
    CancelToken, FairMutex, Held, LockClient, OwnedFairMutexGuard, OwnedMutexGuard,
    OwnedRwLockReadGuard, OwnedRwLockWriteGuard, Primitive, ReentrantMutex, Result, RwLock,
    Semaphore, SemaphorePermit, SetPermits,
};

use super::args::{RunArgs, Wait};
use crate::failure::{Failure, status};
use crate::text::visible;

/// A guard of any kind of lock.
pub(super) trait GuardOfAnyKind: Held {
    /// Releases the lock. ([`Held::unlock`] takes the guard by value, and so not out of a box.)
    fn give_up(self: Box<Self>) -> Result<()>;

    /// Ends the time for which `--min-hold` keeps the lock, if this kind of lock has one.
    fn end_min_hold(&self);
}

/// `$end_min_hold` is called with a reference to the guard.
macro_rules! guard_of_any_kind {
    ($guard:ident, $end_min_hold:expr) => {
        impl GuardOfAnyKind for $guard {
            fn give_up(self: Box<Self>) -> Result<()> {
                Held::unlock(*self)
            }

            fn end_min_hold(&self) {
                let end_min_hold: fn(&Self) = $end_min_hold;
                end_min_hold(self);
            }
        }
    };
}

guard_of_any_kind!(OwnedMutexGuard, Self::end_min_hold);
guard_of_any_kind!(OwnedFairMutexGuard, Self::end_min_hold);
guard_of_any_kind!(OwnedRwLockWriteGuard, Self::end_min_hold);
guard_of_any_kind!(OwnedRwLockReadGuard, |_| ());
guard_of_any_kind!(SemaphorePermit, |_| ());

pub(super) type Guard = Box<dyn GuardOfAnyKind>;

/// A semaphore's number of permits that is not the one of `--permits`.
pub(super) struct OtherNumber {
    current: i64,
    wanted: u32,
}

impl OtherNumber {
    /// The status is that of a name under which the store keeps something else.
    pub(super) fn refusal(&self, name: &str) -> Failure {
        let Self { current, wanted } = self;
        let why = format!(
            "{}: the semaphore has {current} permits, not {wanted}: `leasehold permits` sets their number, and \
             --permits-as-set runs with {current}",
            visible(name)
        );
        Failure::new(status::PROTOCOL, why)
    }
}

pub(super) enum Lock {
    Exclusive(ReentrantMutex),
    Fair(FairMutex),
    Read(RwLock),
    Write(RwLock),
    Permit(Semaphore, u32),
}

/// The settings that all kinds of handles have.
macro_rules! with_settings {
    ($handle:expr, $args:expr, $token:expr) => {{
        let handle = $handle.with_cancel($token);
        match $args.max_hold {
            Some(most) => handle.max_hold(most),
            None => handle,
        }
    }};
}

impl Lock {
    /// No I/O. Once `token` is cancelled, the lock is not taken any more.
    pub(super) fn new(client: &LockClient, args: &RunArgs, token: &CancelToken) -> Self {
        let name = args.name();
        let min_hold = args.min_hold.unwrap_or_default();
        if let Some(permits) = args.permits {
            Self::Permit(with_settings!(client.semaphore(name), args, token), permits)
        } else if args.fair {
            let fair = with_settings!(client.fair(name), args, token).min_hold(min_hold);
            Self::Fair(match &args.data {
                Some(data) => fair.with_data(data),
                None => fair,
            })
        } else if args.read {
            Self::Read(with_settings!(client.rw_lock(name), args, token))
        } else if args.write {
            Self::Write(with_settings!(client.rw_lock(name), args, token).min_hold(min_hold))
        } else {
            let mutex = with_settings!(client.mutex(name), args, token).min_hold(min_hold);
            Self::Exclusive(match &args.data {
                Some(data) => mutex.with_data(data),
                None => mutex,
            })
        }
    }

    /// `None` if somebody else holds it.
    pub(super) fn take(&self, wait: Wait) -> Result<Option<Guard>> {
        match self {
            Self::Exclusive(mutex) => {
                take(wait, || mutex.try_lock_owned(), |time| mutex.try_lock_owned_for(time))
            }
            Self::Fair(fair) => {
                take(wait, || fair.try_lock_owned(), |time| fair.try_lock_owned_for(time))
            }
            Self::Read(lock) => {
                take(wait, || lock.try_read_owned(), |time| lock.try_read_owned_for(time))
            }
            Self::Write(lock) => {
                take(wait, || lock.try_write_owned(), |time| lock.try_write_owned_for(time))
            }
            Self::Permit(semaphore, _) => {
                take(wait, || semaphore.try_acquire(), |time| semaphore.try_acquire_for(time))
            }
        }
    }

    /// Sets the number of permits, if there is none yet. Returns what it is if it is another one:
    /// with more permits, more commands could run at a time than the user has asked for.
    pub(super) fn set_permits(&self) -> Result<Option<OtherNumber>> {
        let Self::Permit(semaphore, wanted) = self else { return Ok(None) };
        Ok(match semaphore.try_set_permits(*wanted)? {
            SetPermits::Different { current } => Some(OtherNumber { current, wanted: *wanted }),
            _ => None,
        })
    }

    /// The options that take a lock of another kind under the same name; `None` if this one is of
    /// that kind, or no option takes it.
    pub(super) fn how_to_take(&self, other: Primitive) -> Option<&'static str> {
        Some(match (other, self) {
            (Primitive::Read | Primitive::Write, Self::Read(_) | Self::Write(_))
            | (Primitive::Mutex, Self::Exclusive(_))
            | (Primitive::Fair, Self::Fair(_))
            | (Primitive::Semaphore, Self::Permit(..)) => return None,
            (Primitive::Read | Primitive::Write, _) => {
                "this lock is taken for reading or writing: give --read or --write"
            }
            (Primitive::Mutex, _) => {
                "this lock is taken without --fair, --read, --write and --permits"
            }
            (Primitive::Fair, _) => "this lock is a fair one: give --fair",
            (Primitive::Semaphore, _) => "this is a semaphore: give --permits N",
            _ => return None,
        })
    }

    /// Says who holds a lock that was just found taken.
    pub(super) fn who_has_it(&self) -> String {
        let holders = match self {
            Self::Exclusive(mutex) => mutex.holder().map(Vec::from_iter),
            Self::Fair(fair) => fair.holder().map(Vec::from_iter),
            Self::Read(lock) | Self::Write(lock) => lock.holders(),
            Self::Permit(semaphore, _) => {
                // More may be taken than there are, if their number was lowered.
                let taken = semaphore
                    .acquired_permits()
                    .map(|taken| format!("none of its permits is free, {taken} are taken"));
                return taken.unwrap_or_else(|_| "none of its permits is free".to_owned());
            }
        };
        match holders.as_deref() {
            Ok([first]) => describe(first),
            Ok([first, more @ ..]) => format!("{} (and {} more)", describe(first), more.len()),
            Ok([]) => "it was taken, and has just become free".to_owned(),
            Err(_) => "somebody else holds it, but its holder cannot be queried".to_owned(),
        }
    }
}

fn describe(holder: &LockHolder) -> String {
    match holder.remaining() {
        // Nobody holds it any more: the last holder has ended.
        Some(left) if holder.is_kept() => {
            format!("its last holder keeps it taken for {:.0?} more (--min-hold)", left)
        }
        _ => holder.to_string(),
    }
}

fn take<G: GuardOfAnyKind + 'static>(
    wait: Wait,
    at_once: impl FnOnce() -> Result<Option<G>>,
    within: impl FnOnce(Duration) -> Result<Option<G>>,
) -> Result<Option<Guard>> {
    let taken = match wait {
        Wait::Not => at_once(),
        wait => within(wait.most()),
    };
    Ok(taken?.map(|guard| Box::new(guard) as Guard))
}
