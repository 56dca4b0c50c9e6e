//! Condition variables with the interface of `parking_lot`.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use shuttle::sync as shuttled;

use super::parker::Parker;
use super::{now, thread, time};
use crate::os::mutex::MutexGuard;

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
