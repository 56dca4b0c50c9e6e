//! Who holds a lock, and where clients announce their owner.

use std::time::Duration;

use crate::base::data::HoldData;
use crate::base::error::Result;
use crate::report::owner::HolderOwner;

/// Who holds a lock, and for how long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockStatus {
    /// `None` if the lock never expires.
    pub(crate) ttl: Option<Duration>,
    /// Each holder id with its hold count.
    pub(crate) holders: Vec<(String, u64)>,
    /// Owners of some holders, if the store keeps them beside the hold: holder id and owner.
    pub(crate) owners: Vec<(String, HolderOwner)>,
    /// The data of the holder, if that is the only one.
    pub(crate) data: Option<HoldData>,
}

/// Maximum number of client records that are read when all clients are queried.
pub(crate) const MOST_CLIENTS: usize = 4096;

/// What a client wrote about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) text: String,
    /// The time until it expires, unless it is written again.
    pub(crate) left: Duration,
}

/// One text for each client. `key`: the prefix of the client's names, and its id.
///
/// Nothing depends on it: if a text could not be written or read, only an answer to a person is
/// missing.
pub(crate) trait OwnerStore {
    /// Writes the text, in place of an earlier one. Called in the background, over the connection
    /// of renewals: it takes no longer than a renewal may.
    fn announce(&self, key: &str, text: &str, ttl: Duration) -> Result<()>;

    /// Removes it, over the same connection. No error if there is none.
    fn withdraw(&self, key: &str) -> Result<()>;

    /// What a client wrote. At most one round trip.
    fn announced(&self, key: &str) -> Result<Option<Announced>>;

    /// What all clients wrote, each with its key, for at most [`MOST_CLIENTS`] clients. One request
    /// per hundred.
    fn announced_by_all(&self) -> Result<Vec<(String, Announced)>>;
}
