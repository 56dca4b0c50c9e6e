//! Holds as guards use them: how they are taken, re-entered and given up, by a guard, by the end of
//! a thread, or by closing the client.
//!
//! In which order mutexes are taken that are held together: `ARCHITECTURE.md`, "Lock order".

pub(crate) mod acquire;
mod closing;
pub(crate) mod guarded;
pub(crate) mod leaving;
pub(crate) mod permits;
mod release;
pub(crate) mod terms;
mod thread_exit;
