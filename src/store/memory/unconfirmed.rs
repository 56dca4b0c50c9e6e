//! Behaves like a store with replicas, for the scheduler: a grant that they did not confirm does
//! not count, and the release that takes it back may run late.

use std::time::Duration;

use super::MemoryStore;
use super::faults::{Failure, Operation};
use crate::base::error::{Error, ErrorKind};
use crate::os::{random_number, thread};
use crate::store::{Acquire, Acquired, Release, Spent, UnknownOutcomes};

impl MemoryStore {
    /// If the test wants it, and the lock is free: grants the lock, and takes the grant back some
    /// time later. The holder is spent.
    pub(super) fn grant_unconfirmed(
        &self,
        acquire: &Acquire<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Option<Error> {
        let mut state = self.lock_state().ok()?;
        if acquire.held > 0 || !state.faults.has(Operation::Acquire, Failure::NotConfirmed) {
            return None;
        }
        let now = state.clock.now();
        if !matches!(state.acquire(acquire, self.waiter_timeout, now), Ok(Acquired::Granted(_))) {
            return None;
        }
        state.faults.take(Operation::Acquire, Failure::NotConfirmed);
        drop(state);
        unknowns.spend(Spent::Released);
        let memory = self.memory.clone();
        let name = acquire.name.clone();
        let holder = acquire.holder.clone();
        let permits = acquire.permits;
        let late = Duration::from_micros(random_number() % 2000);
        let release = move || {
            thread::sleep(late);
            let mut state = memory.state.lock();
            let now = state.clock.now();
            let _ = state.release(&Release::of_all(&name, &holder, permits), now);
        };
        thread::Builder::new()
            .name("lh-late-release".to_owned())
            .spawn(release)
            .expect("it can always be run");
        Some(Error::new(
            ErrorKind::Unreachable,
            "no replica confirmed the grant in time, as the test wants it",
        ))
    }
}
