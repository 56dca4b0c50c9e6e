//! What a client knows of its servers, for those who operate them.

use std::time::Duration;

use crate::base::error::Error;

/// Whether a server takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// It answers, and its vote counts.
    Voting,
    /// It answers, and has no vote: it restarted, failed over, was flushed or is new, so it may have forgotten holds and
    /// tokens. It gets its vote once the longest lease has passed; see [`Builder::redlock`](crate::Builder::redlock).
    /// `remaining`: how long that still takes; `None` when something else is missing, such as enough other servers.
    Quarantined {
        /// Until it may be admitted, if that is known.
        remaining: Option<Duration>,
    },
    /// It cannot be reached, or does not answer in time. It is tried again in the background.
    Down,
}

/// One server as this client last saw it.
#[derive(Debug, Clone)]
pub struct NodeStatus {
    pub(crate) address: String,
    pub(crate) state: NodeState,
    pub(crate) latency: Option<Duration>,
    pub(crate) last_error: Option<Error>,
}

impl NodeStatus {
    /// Its address, without the password.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether it takes part.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.state
    }

    /// How long its last answer took; `None` before the first one, and for a client of one server, which does not count
    /// it.
    #[must_use]
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }

    /// Why it could not be asked when that last happened.
    #[must_use]
    pub fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }
}
