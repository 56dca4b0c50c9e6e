//! Mutexes and condition variables with the interface of `parking_lot`.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use shuttle::sync as shuttled;

use super::parker::Parker;
use super::{now, thread, time};

#[derive(Default)]
pub struct Mutex<T: ?Sized>(shuttled::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(shuttled::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            mutex: self,
            locked: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)),
        }
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
            pause *= 2;
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
    locked: Option<shuttled::MutexGuard<'m, T>>,
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

/// Wakes in the order of arrival, and never spuriously.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Mutex<VecDeque<Arc<Parker>>>);

#[derive(Debug, Clone, Copy)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    pub const fn new() -> Self {
        Self(std::sync::Mutex::new(VecDeque::new()))
    }

    /// Never held over a step of the scheduler.
    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Parker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.sleep(guard, |parker| parker.park());
    }

    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let is_notified = self.sleep(guard, |parker| match time::current() {
            Some(time) => time.park_until(time::nanos_at(deadline), parker),
            None => panic!("a thread waits outside of an execution"),
        });
        WaitTimeoutResult(!is_notified)
    }

    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        match now().checked_add(timeout) {
            Some(deadline) => self.wait_until(guard, deadline),
            None => {
                self.wait(guard);
                WaitTimeoutResult(false)
            }
        }
    }

    /// Returns whether it was notified.
    fn sleep<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        park: impl FnOnce(&Arc<Parker>),
    ) -> bool {
        let parker = Arc::new(Parker::default());
        // Entered before the mutex is unlocked, so that whoever changes what it waits for notifies
        // it.
        self.queue().push_back(parker.clone());
        MutexGuard::unlocked(guard, || park(&parker));
        let mut queue = self.queue();
        let place = queue.iter().position(|other| Arc::ptr_eq(other, &parker));
        place.map(|place| queue.remove(place)).is_none()
    }

    pub fn notify_one(&self) -> bool {
        thread::step();
        let first = self.queue().pop_front();
        first.inspect(|parker| parker.wake()).is_some()
    }

    pub fn notify_all(&self) -> usize {
        thread::step();
        let all = std::mem::take(&mut *self.queue());
        for parker in &all {
            parker.wake();
        }
        all.len()
    }
}

#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(shuttled::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn try_read(&self) -> Option<shuttled::RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    pub(crate) fn try_write(&self) -> Option<shuttled::RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }
}
