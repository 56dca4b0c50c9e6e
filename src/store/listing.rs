//! Listing what is in a store, for people.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::data::HoldData;
use crate::base::error::Result;
use crate::base::glob::Glob;
use crate::base::job_keys::job_of_lease;
use crate::base::lock_name::{Kind, LockName};
use crate::report::owner::HolderOwner;

/// Maximum number of holders, and of waiters, that are listed by name.
pub(crate) const MOST_LISTED: usize = 1000;

/// Which names to list.
#[derive(Debug)]
pub(crate) struct NameFilter {
    /// The prefix of the client: names without it are not its own.
    pub(crate) prefix: String,
    pub(crate) pattern: Glob,
}

impl NameFilter {
    /// The name without the prefix, if it is wanted. That of a job is in the key of its lease.
    pub(crate) fn name_of<'k>(&self, key: &'k str) -> Option<&'k str> {
        let key = job_of_lease(key).unwrap_or(key);
        key.strip_prefix(&*self.prefix)
            .filter(|name| !name.is_empty() && self.pattern.matches(name))
    }
}

/// What one name has in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The name with the prefix; for a job, the key of its lease.
    pub(crate) key: String,
    /// `None`: a number that may belong to several kinds.
    pub(crate) kind: Option<Kind>,
    pub(crate) holders: Vec<FoundHolder>,
    /// How many more there are: holders, or permits of a semaphore.
    pub(crate) unlisted: u64,
    /// Owners of some of the holders and waiters, if the store keeps them beside the hold.
    pub(crate) owners: Vec<(String, HolderOwner)>,
    /// How many wait, if the store knows it, and the first of them in order.
    pub(crate) waiting: Option<u64>,
    pub(crate) queue: Vec<FoundWaiter>,
    /// The remaining count of a latch, or the free permits of a semaphore.
    pub(crate) number: Option<i64>,
    /// The fencing token that was given last.
    pub(crate) token: Option<u64>,
    /// On how many of how many masters it was found, if there are several.
    pub(crate) masters: Option<(u32, u32)>,
}

impl Found {
    pub(crate) fn new(key: &str, kind: Kind) -> Self {
        // The lease of a job is a plain lock to a store that lists what it has.
        let kind = if job_of_lease(key).is_some() { Kind::Job } else { kind };
        Self {
            key: key.to_owned(),
            kind: Some(kind),
            holders: Vec::new(),
            unlisted: 0,
            owners: Vec::new(),
            waiting: None,
            queue: Vec::new(),
            number: None,
            token: None,
            masters: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundHolder {
    pub(crate) id: String,
    /// The hold count of a lock, or the number of permits of a semaphore.
    pub(crate) count: u64,
    /// The time until its lease ends; `None` if that is unlimited or unknown.
    pub(crate) left: Option<Duration>,
    pub(crate) data: Option<HoldData>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundWaiter {
    pub(crate) id: String,
    /// The time after which its place counts as given up, unless it asks again; `None` if unknown.
    pub(crate) left: Option<Duration>,
}

/// Only reads, so that every call may be repeated.
pub(crate) trait ListingStore {
    /// All names that the store can distinguish from other data, in the order of the keys, each key
    /// once for each kind. Several requests, each of them one round trip. Where locks are mixed
    /// with keys of other programs, it scans all of those, and pauses between its requests.
    fn list(&self, wanted: &NameFilter) -> Result<Vec<Found>>;

    /// What is under these keys, and under those that somebody waits for, as far as the store knows
    /// of waiters. Costs nothing for the keys of other programs. A store that contains nothing but
    /// locks lists all of them.
    fn list_named(&self, wanted: &NameFilter, _keys: &BTreeSet<String>) -> Result<Vec<Found>> {
        self.list(wanted)
    }

    /// Whatever is under the name, of any kind. One round trip, or one to each of several servers.
    fn look_at(&self, name: &LockName) -> Result<Vec<Found>>;
}
