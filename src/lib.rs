//! Distributed locks over Redis for programs that use threads.

mod acquire;
mod backoff;
mod bell;
mod builder;
mod client;
mod clock;
mod deadline;
mod error;
pub mod fencing;
mod grant;
mod guard;
mod hold;
mod holder;
mod key;
mod lease;
mod limits;
mod losses;
mod mutex;
mod script;
mod shared;
mod station;
mod store;
mod wakeup;
mod watchdog;
mod wire;

pub use builder::Builder;
pub use client::LockClient;
pub use error::{Error, ErrorKind, Result};
pub use mutex::{LockHolder, OwnedMutexGuard, ReentrantMutex, ReentrantMutexGuard};
