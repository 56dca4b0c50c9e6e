//! Mutexes with the interface of `parking_lot`, on those of the standard library.
//!
//! Not those of `parking_lot` themselves: it has one table of all threads of the process that wait.
//! A child made by `fork()` has a copy of the table, and none of its threads but one. When a new
//! thread of the child gets the memory of one that is missing, it is in two queues of the table,
//! and the child hangs or crashes; so no client could be made there. A thread may wait long only
//! for what is here. `parking_lot` is for what is locked for a few instructions.

// A build with the scheduler exports them.
#![cfg_attr(not(shuttle), allow(unreachable_pub))]

use std::fmt;
use std::ops::{Deref, DerefMut};
#[cfg(not(shuttle))]
use std::sync as system;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

#[cfg(shuttle)]
use shuttle::sync as system;

use super::{now, thread};

/// The longest pause between two looks at a mutex by a thread that waits with a deadline.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

#[derive(Default)]
pub struct Mutex<T: ?Sized>(system::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(system::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(not(shuttle))]
        if let Some(guard) = self.lock_soon() {
            return guard;
        }
        MutexGuard {
            mutex: self,
            locked: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Gives way to other threads for a moment, as `parking_lot` does: whoever has the mutex
    /// unlocks it after a few instructions, once it runs. When all slept at once, four processes of
    /// eight threads on one lock had a third fewer turns.
    #[cfg(not(shuttle))]
    fn lock_soon(&self) -> Option<MutexGuard<'_, T>> {
        for round in 0..10 {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            if round < 3 {
                for _ in 0..2 << round {
                    std::hint::spin_loop();
                }
            } else {
                std::thread::yield_now();
            }
        }
        None
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let locked = match self.0.try_lock() {
            Ok(locked) => locked,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { mutex: self, locked: Some(locked) })
    }

    /// Looks again and again: nobody who unlocks a mutex would wake a thread with a deadline.
    pub(crate) fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        let deadline = now() + timeout;
        let mut pause = Duration::from_micros(20);
        loop {
            let locked = self.try_lock();
            let left = deadline.saturating_duration_since(now());
            if locked.is_some() || left.is_zero() {
                return locked;
            }
            thread::sleep(pause.min(left));
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

pub struct MutexGuard<'m, T: ?Sized> {
    mutex: &'m Mutex<T>,
    /// `None` while the mutex is unlocked for a wait.
    pub(super) locked: Option<system::MutexGuard<'m, T>>,
}

impl<T: ?Sized> MutexGuard<'_, T> {
    pub fn unlocked<R>(guard: &mut Self, run: impl FnOnce() -> R) -> R {
        guard.locked = None;
        let result = run();
        guard.locked = Some(guard.mutex.0.lock().unwrap_or_else(PoisonError::into_inner));
        result
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.locked.as_ref().expect("it is unlocked only within `unlocked`")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.locked.as_mut().expect("it is unlocked only within `unlocked`")
    }
}

impl<T: ?Sized> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexGuard").finish_non_exhaustive()
    }
}
