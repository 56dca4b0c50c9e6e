//! Guards of all kinds as one type.

use std::sync::Arc;

use leasehold::os::thread::{JoinHandle, spawn};
use leasehold::{
    CancelToken, CountingPermit, FairMutexGuard, Held, LockClient, MultiLockGuard,
    OwnedFairMutexGuard, OwnedMultiLockGuard, OwnedMutexGuard, OwnedRwLockReadGuard,
    OwnedRwLockWriteGuard, ReentrantMutexGuard, Result, RwLockReadGuard, RwLockWriteGuard,
    SemaphorePermit, Term,
};

use super::program::{Family, Mode, Program, Take, Terms, Wait};
use super::text::name_of;

macro_rules! guards {
    (bound: $($bound:ident($bound_type:ty)),+; owned: $($owned:ident($owned_type:ty)),+) => {
        #[derive(Debug)]
        pub(crate) enum Guard {
            $($bound($bound_type),)+
            $($owned($owned_type),)+
            /// Permits that no lease ends.
            Counted(CountingPermit),
            /// A term of a leader, which only its election ends.
            Term(Term),
        }

        impl Guard {
            pub(crate) fn held(&self) -> Option<&dyn Held> {
                match self {
                    $(Self::$bound(guard) => Some(guard),)+
                    $(Self::$owned(guard) => Some(guard),)+
                    Self::Counted(_) | Self::Term(_) => None,
                }
            }

            pub(crate) fn unlock(self) -> Result<()> {
                match self {
                    $(Self::$bound(guard) => Held::unlock(guard),)+
                    $(Self::$owned(guard) => Held::unlock(guard),)+
                    Self::Counted(permit) => permit.release(),
                    Self::Term(_) => Ok(()),
                }
            }

            /// Drops it on another thread, if it may go there, and then calls `done`.
            pub(crate) fn drop_elsewhere(self, done: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
                match self {
                    $(Self::$bound(guard) => {
                        drop(guard);
                        done();
                        None
                    })+
                    $(Self::$owned(guard) => Some(spawn(move || {
                        drop(guard);
                        done();
                    })),)+
                    Self::Term(_) => None,
                    Self::Counted(permit) => Some(spawn(move || {
                        drop(permit);
                        done();
                    })),
                }
            }
        }
    };
}

guards!(
    bound: Mutex(ReentrantMutexGuard), Fair(FairMutexGuard), Read(RwLockReadGuard), Write(RwLockWriteGuard),
        All(MultiLockGuard);
    owned: OwnedMutex(OwnedMutexGuard), OwnedFair(OwnedFairMutexGuard), OwnedRead(OwnedRwLockReadGuard),
        OwnedWrite(OwnedRwLockWriteGuard), OwnedAll(OwnedMultiLockGuard), Permit(SemaphorePermit)
);

impl Guard {
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Term(term) => term.is_leader(),
            other => other.held().is_none_or(Held::is_held),
        }
    }

    /// Any other guard than that of a writer stays as it is.
    pub(crate) fn downgrade(self) -> Result<Self> {
        match self {
            Self::Write(guard) => guard.downgrade().map(Self::Read),
            Self::OwnedWrite(guard) => guard.downgrade().map(Self::OwnedRead),
            other => Ok(other),
        }
    }
}

/// Calls the form of a method for this wait.
macro_rules! wait {
    ($handle:expr, $wait:expr, $ever:ident, $never:ident, $within:ident $(, $permits:expr)?) => {
        match $wait {
            Wait::Ever => $handle.$ever($($permits)?).map(Some),
            Wait::Never => $handle.$never($($permits)?),
            Wait::For(time) => $handle.$within($($permits,)? time.time()),
        }
    };
}

/// Sets the terms that every kind of handle has.
macro_rules! on_terms {
    ($handle:expr, $take:expr, $cancel:expr) => {{
        let handle = match $take.terms {
            Terms::Lease(lease) => $handle.with_lease(lease.time()),
            Terms::MaxHold(most) => $handle.max_hold(most.time()),
            Terms::MinHold(_) | Terms::Usual => $handle,
        };
        if $take.cancellable { handle.with_cancel($cancel) } else { handle }
    }};
}

/// The same, with a `min_hold`.
macro_rules! on_all_terms {
    ($handle:expr, $take:expr, $cancel:expr) => {{
        let handle = on_terms!($handle, $take, $cancel);
        if let Terms::MinHold(least) = $take.terms { handle.min_hold(least.time()) } else { handle }
    }};
}

/// Takes it as the program says, but waits as `wait` says.
pub(crate) fn acquire(
    client: &LockClient,
    program: &Arc<Program>,
    take: &Take,
    wait: Wait,
    cancel: &CancelToken,
) -> Result<Option<Guard>> {
    let name = name_of(take.thing);
    let permits = if take.mode == Mode::TwoPermits { 2.min(program.settings.permits) } else { 1 };
    if take.mode.takes_all() {
        let names: Vec<&str> = program.taken(take).into_iter().map(name_of).collect();
        let multi = on_all_terms!(client.multi(names), take, cancel);
        return match take.mode {
            Mode::All => Ok(wait!(multi, wait, lock, try_lock, try_lock_for)?.map(Guard::All)),
            _ => Ok(wait!(multi, wait, lock_owned, try_lock_owned, try_lock_owned_for)?
                .map(Guard::OwnedAll)),
        };
    }
    match program.things[take.thing] {
        Family::Mutex | Family::Election => {
            let mutex = on_all_terms!(client.mutex(name), take, cancel);
            match take.mode {
                Mode::Owned => {
                    Ok(wait!(mutex, wait, lock_owned, try_lock_owned, try_lock_owned_for)?
                        .map(Guard::OwnedMutex))
                }
                _ => Ok(wait!(mutex, wait, lock, try_lock, try_lock_for)?.map(Guard::Mutex)),
            }
        }
        Family::Fair => {
            let fair = on_all_terms!(client.fair(name), take, cancel);
            match take.mode {
                Mode::Owned => {
                    Ok(wait!(fair, wait, lock_owned, try_lock_owned, try_lock_owned_for)?
                        .map(Guard::OwnedFair))
                }
                _ => Ok(wait!(fair, wait, lock, try_lock, try_lock_for)?.map(Guard::Fair)),
            }
        }
        Family::ReadWrite => read_or_write(client, take, wait, cancel),
        Family::Semaphore => {
            let semaphore = on_terms!(client.semaphore(name), take, cancel);
            let taken = wait!(
                semaphore,
                wait,
                acquire_many,
                try_acquire_many,
                try_acquire_many_for,
                permits
            )?;
            Ok(taken.map(Guard::Permit))
        }
        Family::Job | Family::Limiter => {
            unreachable!("{name} is not taken as a lock is")
        }
        Family::Counting | Family::Latch => {
            let semaphore = client.counting_semaphore(name);
            let semaphore =
                if take.cancellable { semaphore.with_cancel(cancel) } else { semaphore };
            let taken = wait!(
                semaphore,
                wait,
                acquire_many,
                try_acquire_many,
                try_acquire_many_for,
                permits
            )?;
            Ok(taken.map(Guard::Counted))
        }
    }
}

fn read_or_write(
    client: &LockClient,
    take: &Take,
    wait: Wait,
    cancel: &CancelToken,
) -> Result<Option<Guard>> {
    let lock = on_all_terms!(client.rw_lock(name_of(take.thing)), take, cancel);
    Ok(match take.mode {
        Mode::OwnedRead => {
            wait!(lock, wait, read_owned, try_read_owned, try_read_owned_for)?.map(Guard::OwnedRead)
        }
        Mode::Write => wait!(lock, wait, write, try_write, try_write_for)?.map(Guard::Write),
        Mode::OwnedWrite => wait!(lock, wait, write_owned, try_write_owned, try_write_owned_for)?
            .map(Guard::OwnedWrite),
        _ => wait!(lock, wait, read, try_read, try_read_for)?.map(Guard::Read),
    })
}
