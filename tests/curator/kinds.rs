//! All kinds of locks with one holder at a time, with Curator's counterpart of each, behind one
//! interface.

use std::time::Duration;

use leasehold::{LockClient, Result};

/// A hold of this side. Dropping it releases it.
pub(crate) struct Held {
    /// 0 for a permit.
    pub(crate) token: u64,
    is_held: Box<dyn Fn() -> bool + Send>,
    unlock: Box<dyn FnOnce() -> Result<()> + Send>,
}

impl Held {
    pub(crate) fn is_held(&self) -> bool {
        (self.is_held)()
    }

    pub(crate) fn unlock(self) -> Result<()> {
        let Self { is_held, unlock, .. } = self;
        // They share the guard.
        drop(is_held);
        unlock()
    }
}

/// Makes a [`Held`] of the guard that a method returned. `$token`: how to read its token.
macro_rules! held {
    ($won:expr, $token:expr) => {
        $won?.map(|guard| {
            let token = $token(&guard);
            let guard = std::sync::Arc::new(guard);
            let shared = guard.clone();
            let unlock = Box::new(move || {
                std::sync::Arc::into_inner(guard).expect("not shared any more").unlock()
            });
            Held { token, is_held: Box::new(move || shared.is_held()), unlock }
        })
    };
}

pub(crate) struct Kind {
    /// Also valid as a path.
    pub(crate) label: &'static str,
    /// The name in the driver.
    pub(crate) java: &'static str,
    take: fn(&LockClient, &str, Duration) -> Result<Option<Held>>,
}

impl Kind {
    /// Acquires the lock of this name, or for several the locks of [`Self::java_name`].
    pub(crate) fn try_for(
        &self,
        client: &LockClient,
        name: &str,
        longest: Duration,
    ) -> Result<Option<Held>> {
        (self.take)(client, name, longest)
    }

    #[track_caller]
    pub(crate) fn take(&self, client: &LockClient, name: &str) -> Held {
        let held = self.try_for(client, name, crate::rig::CAP).unwrap();
        held.unwrap_or_else(|| panic!("{}: {name} did not become free", self.label))
    }

    /// A command for Curator's counterpart.
    pub(crate) fn command(&self, name: &str, method: &str) -> String {
        let name =
            if self.java == "multi" { format!("{name},{name}-too") } else { name.to_owned() };
        format!("{} {name} {method}", self.java)
    }
}

/// The kinds with a queue in the directory of their name.
pub(crate) const KINDS: [Kind; 4] = [
    Kind {
        label: "mutex",
        java: "mutex",
        take: |client, name, longest| {
            let won = client.mutex(name).try_lock_owned_for(longest);
            Ok(held!(won, |guard: &leasehold::OwnedMutexGuard| guard
                .fencing_token()
                .unwrap()
                .get()))
        },
    },
    Kind {
        label: "fair",
        java: "mutex",
        take: |client, name, longest| {
            let won = client.fair(name).try_lock_owned_for(longest);
            Ok(held!(won, |guard: &leasehold::OwnedFairMutexGuard| guard
                .fencing_token()
                .unwrap()
                .get()))
        },
    },
    Kind {
        label: "write",
        java: "write",
        take: |client, name, longest| {
            let won = client.rw_lock(name).try_write_owned_for(longest);
            Ok(held!(won, |guard: &leasehold::OwnedRwLockWriteGuard| guard
                .fencing_token()
                .unwrap()
                .get()))
        },
    },
    Kind {
        label: "multi",
        java: "multi",
        take: |client, name, longest| {
            // Not in Curator's order: the order of the names does not matter.
            let won = client.multi([&format!("{name}-too"), name]).try_lock_owned_for(longest);
            Ok(held!(won, |guard: &leasehold::OwnedMultiLockGuard| guard
                .fencing_token(name)
                .unwrap()
                .get()))
        },
    },
];
