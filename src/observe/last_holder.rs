//! Who had a lock last, for people.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::holder::{Lookups, rough};
use super::stats::shortened;
use crate::report::owner::HolderOwner;
use crate::store::LastHold;
use crate::wait::client_state::ClientState;

/// The last holder of a lock that had [data](crate::ReentrantMutex::with_data). Made by
/// [`last_holder`](crate::ReentrantMutex::last_holder).
///
/// `Display` writes it for a log: `last held by billing-7 (pid 4711 on host-a), until 12 s ago,
/// with the data "build 812"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastHolder {
    last: LastHold,
    owner: Option<HolderOwner>,
}

impl LastHolder {
    /// Queries the owner: one request for another client.
    pub(crate) fn of(client: &Arc<ClientState>, last: LastHold) -> Self {
        let owner = Lookups::new(client, 1).known_of(&last.holder, &[]).owner;
        Self { last, owner }
    }

    /// The holder id: `<client id>:<number>`. Opaque.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.last.holder
    }

    /// The owner that the client announces, if it still does: a client that has died is known for
    /// one lease more. Write into the data what has to be known later.
    #[must_use]
    pub fn owner(&self) -> Option<&HolderOwner> {
        self.owner.as_ref()
    }

    /// What it wrote last.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.last.data.bytes()
    }

    /// How long ago it gave up the lock; `None` if it has the lock. If it never did, because it
    /// died, was forced out or left the lock taken for a
    /// [`min_hold`](crate::ReentrantMutex::min_hold), how long ago the lease ended that was
    /// confirmed last, and zero until then. Measured by the clock of the server.
    #[must_use]
    pub fn ended(&self) -> Option<Duration> {
        self.last.ended
    }
}

impl fmt::Display for LastHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.last.ended.is_some() { "last held by " } else { "held by " })?;
        match &self.owner {
            Some(owner) => owner.fmt(f)?,
            None => f.write_str(&shortened(&self.last.holder, 80))?,
        }
        if let Some(ended) = self.last.ended {
            write!(f, ", until {} ago", rough(ended))?;
        }
        write!(f, ", with the data {}", self.last.data)
    }
}
