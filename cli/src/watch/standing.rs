//! The state of the lock at one poll.

use std::time::Duration;

use leasehold::Primitive;
use leasehold::observe::{HolderOwner, LockHolder, LockReport};

use crate::text::{short_id, visible};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Holder {
    pub(super) id: String,
    pub(super) owner: Option<HolderOwner>,
    pub(super) held_for: Option<Duration>,
    /// It was released, and stays taken for a while (`min_hold`).
    pub(super) is_kept: bool,
    /// Held by another library, whose locks draw no tokens.
    pub(super) is_foreign: bool,
}

/// The default value means that there is nothing under the name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Standing {
    pub(super) holders: Vec<Holder>,
    pub(super) waiting: Option<u64>,
    /// The remaining count of a latch, or the permits of a counting semaphore: nobody holds those.
    pub(super) number: Option<i64>,
    pub(super) token: Option<u64>,
}

impl From<&LockReport> for Standing {
    fn from(report: &LockReport) -> Self {
        let locks = report.locks();
        // The free permits of a semaphore change with its holders, which say more.
        let is_counted =
            |primitive| matches!(primitive, Primitive::Latch | Primitive::CountingSemaphore);
        let counted =
            locks.iter().filter(|lock| is_counted(lock.primitive())).find_map(|lock| lock.number());
        Self {
            holders: locks.iter().flat_map(|lock| lock.holders()).map(Holder::from).collect(),
            waiting: locks.iter().filter_map(|lock| lock.waiting()).max(),
            number: counted.or(report.number()),
            token: report.last_token().map(leasehold::fencing::FencingToken::get),
        }
    }
}

impl From<&LockHolder> for Holder {
    fn from(holder: &LockHolder) -> Self {
        Self {
            id: holder.id().to_owned(),
            owner: holder.owner().cloned(),
            held_for: holder.held_for(),
            is_kept: holder.is_kept(),
            is_foreign: holder.is_foreign(),
        }
    }
}

impl Holder {
    /// The client: the part of the id that all its threads have in common.
    pub(super) fn client(&self) -> &str {
        if self.is_kept {
            return KEPT;
        }
        self.id.rsplit_once(':').map_or(&self.id, |(client, _)| client)
    }

    /// The holder for people, safe for a terminal.
    pub(super) fn who(&self) -> String {
        who(self.client(), self.owner.as_ref().filter(|_| !self.is_kept))
    }
}

const KEPT: &str = ":kept";

/// The owner or, if it is not known, the client.
pub(super) fn who(client: &str, owner: Option<&HolderOwner>) -> String {
    match owner {
        Some(owner) => visible(&owner.to_string()),
        None if client == KEPT => "nobody, kept taken (--min-hold)".to_owned(),
        None => format!("client {}", short_id(client)),
    }
}

/// The owner that a client with this label announces.
#[cfg(test)]
pub(super) fn owner(label: &str) -> HolderOwner {
    let client = leasehold::LockClient::builder().owner(label).build_in_memory().unwrap();
    let _guard = client.lock("job").unwrap();
    client.mutex("job").holder().unwrap().unwrap().owner().unwrap().clone()
}
