//! Records what the threads of a scenario believe, and checks it at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::{Held, OwnedMutexGuard};

/// Kept in a plain mutex that is never held across a step of the scheduler, so that each check sees
/// one consistent moment.
#[derive(Default)]
pub(crate) struct Book {
    names: Mutex<Names>,
    believers: Mutex<Vec<Arc<OwnedMutexGuard>>>,
}

#[derive(Default)]
struct Names(HashMap<String, Name>);

#[derive(Default)]
struct Name {
    writers: u32,
    readers: u32,
    last_token: u64,
    sections: u32,
}

/// How a name is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    Writer,
    Reader,
    /// One of this many permits.
    Permit(u32),
}

impl Book {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a section of a thread whose hold cannot be lost: nobody else may be inside, and the
    /// guard must believe from beginning to end.
    pub(crate) fn section(&self, name: &str, how: As, token: Option<u64>, guard: &dyn Held) {
        assert!(guard.is_held(), "a guard that was just returned holds {name}");
        self.enter(name, how, token);
        pause();
        assert!(guard.is_held(), "nothing took {name} away");
        self.leave(name, how);
    }

    pub(crate) fn enter(&self, name: &str, how: As, token: Option<u64>) {
        let mut names = self.names();
        let entry = names.0.entry(name.to_owned()).or_default();
        match how {
            As::Writer => {
                assert_eq!((entry.writers, entry.readers), (0, 0), "two hold {name}");
                entry.writers += 1;
            }
            As::Reader => {
                assert_eq!(entry.writers, 0, "a reader and a writer hold {name}");
                entry.readers += 1;
            }
            As::Permit(permits) => {
                assert!(entry.readers < permits, "more than {permits} permits of {name}");
                entry.readers += 1;
            }
        }
        if let Some(token) = token {
            assert!(token > entry.last_token, "{name}: token {token} after {}", entry.last_token);
            entry.last_token = token;
        }
        entry.sections += 1;
    }

    pub(crate) fn leave(&self, name: &str, how: As) {
        let mut names = self.names();
        let entry = names.0.entry(name.to_owned()).or_default();
        match how {
            As::Writer => entry.writers -= 1,
            As::Reader | As::Permit(_) => entry.readers -= 1,
        }
    }

    fn believers(&self) -> MutexGuard<'_, Vec<Arc<OwnedMutexGuard>>> {
        self.believers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a guard that may lose its hold, for [`check_alone`](Self::check_alone).
    pub(crate) fn believes(&self, guard: &Arc<OwnedMutexGuard>) {
        self.believers().push(guard.clone());
    }

    pub(crate) fn forget(&self, guard: &Arc<OwnedMutexGuard>) {
        self.believers().retain(|known| !Arc::ptr_eq(known, guard));
    }

    /// Checks that no other guard believes while this one does.
    pub(crate) fn check_alone(&self, guard: &Arc<OwnedMutexGuard>) {
        let others = self
            .believers()
            .iter()
            .filter(|known| !Arc::ptr_eq(known, guard))
            .cloned()
            .collect::<Vec<_>>();
        for other in others {
            // The order matters: a guard that believes now has done so since it was returned, which
            // was before the other one was asked.
            let both = other.is_held() && guard.is_held();
            assert!(!both, "two believe: {guard:?} and {other:?}");
        }
    }

    pub(crate) fn sections(&self, name: &str) -> u32 {
        self.names().0.get(name).map_or(0, |entry| entry.sections)
    }
}

/// A few steps in which other threads may run.
pub(crate) fn pause() {
    let step = leasehold::os::Mutex::new(());
    for _ in 0..3 {
        drop(step.lock());
    }
}
