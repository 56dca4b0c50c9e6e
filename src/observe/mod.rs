//! What a client counts and tells of itself: to its listener, in its statistics, and to people who
//! ask who holds a lock.

pub(crate) mod announcer;
pub(crate) mod observer;
pub(crate) mod waits;
