//! The phase of a client's thread, guarded by the mutex that it shares with its callers.

/// A thread is started when it is first needed, and never again once it has ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    NotStarted,
    Running,
    Stopping,
    Ended,
}
