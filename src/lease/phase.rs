//! How far a thread of a client has come, as the mutex that it shares with its callers tells.

/// A thread is started when it is first needed, and never again once it has ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    NotStarted,
    Running,
    Stopping,
    Ended,
}
