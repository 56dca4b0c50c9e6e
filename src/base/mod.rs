//! What everything stands on: no I/O and no threads; time comes in as an argument.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod deadline;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod holder;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod lock_name;
pub(crate) mod node_status;
pub(crate) mod process;
pub(crate) mod random;
