//! What a client knows of its servers, for operators.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::base::error::Error;

/// Whether a server takes part in the client's locks.
///
/// [As JSON](crate::observe#as-json) it is an object with `state` (`voting`, `quarantined` or
/// `down`) and `quarantine_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// It answers, and its vote counts.
    Voting,
    /// It answers, and has no vote: it restarted, failed over, was flushed or is new, so it may
    /// have forgotten holds and tokens. It gets its vote once the longest lease has passed; see
    /// [`Builder::redlock`][crate::Builder::redlock].
    #[cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
    Quarantined {
        /// The time until it may be admitted; `None` while something else is missing, such as
        /// enough other servers.
        remaining: Option<Duration>,
    },
    /// It cannot be reached, or does not answer in time. The client reconnects in the background.
    Down,
}

/// One server as this client last saw it.
///
/// [As JSON](crate::observe#as-json) it is an object with `address`, `state` and `quarantine_ms` of
/// its [`NodeState`], `latency_us`, `last_error` (a text) and `slots` (pairs of the first and the
/// last slot).
#[derive(Debug, Clone)]
pub struct NodeStatus {
    pub(crate) address: String,
    pub(crate) state: NodeState,
    pub(crate) latency: Option<Duration>,
    pub(crate) last_error: Option<Error>,
    pub(crate) slots: Vec<RangeInclusive<u16>>,
}

impl NodeStatus {
    /// The address, without the password.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether the server takes part.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.state
    }

    /// How long the last reply took; `None` before the first one. A client of one server does not
    /// measure it, and always has `None`.
    #[must_use]
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }

    /// The hash slots of this primary of a [cluster][crate::Builder::cluster]; empty for other
    /// servers.
    #[cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
    #[must_use]
    pub fn slots(&self) -> &[RangeInclusive<u16>] {
        &self.slots
    }

    /// The last error in reaching the server.
    #[must_use]
    pub fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }
}
