//! The role of a server for the client that is diagnosed.

use std::time::Duration;

/// A server, and what its client requires of it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) lease: Duration,
    pub(crate) key_prefix: String,
    pub(crate) part: Part,
    /// How many replicas must acknowledge each grant.
    pub(crate) replicas: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Alone,
    BehindSentinels,
    InCluster,
    /// A master of Redlock. `durable`: the user states that it syncs every write.
    Master {
        durable: bool,
    },
}
