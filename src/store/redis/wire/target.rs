//! What a connector connects to: always one server, or whichever is the master now.

use std::fmt;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::unknown_outcome::Epoch;
use crate::base::error::Result;
use crate::report::diagnosis::Finding;

#[derive(Clone)]
pub(crate) enum Target {
    Fixed(Endpoint),
    Master(Arc<dyn FindMaster>),
}

/// Finds out which server is the master now.
pub(crate) trait FindMaster: Send + Sync {
    /// Asks again for each connection.
    fn find(&self) -> Result<Master>;

    /// How often a different master was found.
    fn moves(&self) -> u64;

    /// The master that was found last, for messages.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// What a diagnosis finds out about the sentinels.
    fn examine(&self) -> Vec<Finding>;

    /// Ends its threads and connections.
    fn close(&self);
}

pub(crate) struct Master {
    pub(crate) endpoint: Endpoint,
    pub(crate) epoch: Epoch,
}

impl Target {
    /// The server to connect to now, and the epoch of the connection if there are epochs.
    pub(crate) fn find(&self) -> Result<(Endpoint, Option<Epoch>)> {
        match self {
            Self::Fixed(endpoint) => Ok((endpoint.clone(), None)),
            Self::Master(master) => {
                master.find().map(|Master { endpoint, epoch }| (endpoint, Some(epoch)))
            }
        }
    }

    /// The endpoint, if it never changes.
    pub(super) fn fixed(&self) -> Option<&Endpoint> {
        if let Self::Fixed(endpoint) = self { Some(endpoint) } else { None }
    }

    pub(crate) fn moves(&self) -> u64 {
        if let Self::Master(master) = self { master.moves() } else { 0 }
    }

    /// What a diagnosis finds out about the sentinels that name the master; `None` if there are
    /// none.
    pub(crate) fn examine(&self) -> Option<Vec<Finding>> {
        if let Self::Master(master) = self { Some(master.examine()) } else { None }
    }

    pub(crate) fn close(&self) {
        if let Self::Master(master) = self {
            master.close();
        }
    }
}

impl From<Endpoint> for Target {
    fn from(endpoint: Endpoint) -> Self {
        Self::Fixed(endpoint)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(endpoint) => endpoint.fmt(f),
            Self::Master(master) => master.show(f),
        }
    }
}
