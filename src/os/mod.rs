//! Mutexes, threads, clocks and random numbers: everything by which a client blocks, or by which
//! one run of it differs from the next.
//!
//! In a normal build these are the types of the standard library, by other names. Built with
//! `--cfg shuttle` they are those of a scheduler, which decides at each step which thread goes on,
//! and under which time passes only when nobody can go on. So a test tries thousands of
//! interleavings a second, and repeats the one that failed. The scheduler has a network as well,
//! over which the streams of such a build go.

mod mutex;
#[cfg(shuttle)]
mod scheduled;
#[cfg(not(shuttle))]
mod system;

#[cfg(not(shuttle))]
pub(crate) use mutex::{Mutex, MutexGuard};
#[cfg(shuttle)]
pub use mutex::{Mutex, MutexGuard};
#[cfg(shuttle)]
pub use scheduled::*;
#[cfg(not(shuttle))]
pub(crate) use system::*;
