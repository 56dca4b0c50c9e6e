//! What wakes, stops and times the threads of a client.

pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod event;
pub(crate) mod process;
pub(crate) mod worker;
