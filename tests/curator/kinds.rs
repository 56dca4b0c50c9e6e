//! All kinds of locks with one holder at a time, with Curator's counterpart of each, behind one
//! interface.

use std::time::Duration;

use leasehold::{LockClient, Result};

/// A guard of any kind that can move to another thread.
trait Movable: leasehold::Held + Send {
    fn unlock_boxed(self: Box<Self>) -> Result<()>;
}

impl<G: leasehold::Held + Send> Movable for G {
    fn unlock_boxed(self: Box<Self>) -> Result<()> {
        (*self).unlock()
    }
}

/// A hold of this side. Dropping it releases it.
pub(crate) struct Held {
    pub(crate) token: u64,
    guard: Box<dyn Movable>,
}

impl Held {
    fn of(guard: impl leasehold::Held + Send + 'static) -> Self {
        Self { token: guard.fencing_token().unwrap().get(), guard: Box::new(guard) }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    pub(crate) fn unlock(self) -> Result<()> {
        self.guard.unlock_boxed()
    }
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
            Ok(client.mutex(name).try_lock_owned_for(longest)?.map(Held::of))
        },
    },
    Kind {
        label: "fair",
        java: "mutex",
        take: |client, name, longest| {
            Ok(client.fair(name).try_lock_owned_for(longest)?.map(Held::of))
        },
    },
    Kind {
        label: "write",
        java: "write",
        take: |client, name, longest| {
            Ok(client.rw_lock(name).try_write_owned_for(longest)?.map(Held::of))
        },
    },
    Kind {
        label: "multi",
        java: "multi",
        take: |client, name, longest| {
            // Not in Curator's order: the order of the names does not matter.
            let won = client.multi([&format!("{name}-too"), name]).try_lock_owned_for(longest)?;
            Ok(won.map(|guard| {
                let token = guard.fencing_token(name).unwrap().get();
                Held { token, guard: Box::new(guard) }
            }))
        },
    },
];
