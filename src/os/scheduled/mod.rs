//! A build with `--cfg shuttle`: each step of a thread is chosen by a scheduler.
//!
//! All threads of an execution are coroutines on one thread of the system. So nothing here may wait
//! for another of them except through the scheduler: a mutex or a once-cell of the standard library
//! that one of them holds while it waits would never be released.

mod channel;
mod execution;
pub mod network;
mod once;
mod parker;
mod sync;
pub mod thread;
mod time;

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

pub use shuttle::sync::atomic;
pub use shuttle::thread_local;

pub use self::execution::{Check, Failure, Order, explore, replay};
pub(crate) use self::once::OnceLock;
pub use self::sync::Condvar;
pub(crate) use self::sync::RwLock;
pub(crate) use self::thread::join;
pub(crate) use self::time::{boot_nanos, random_number};
pub use self::time::{deadlines_race, now, since, wall};

/// With a fixed hasher, so that a schedule that is repeated visits entries in the same order.
type Hasher = BuildHasherDefault<DefaultHasher>;
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, Hasher>;
pub(crate) type HashSet<T> = std::collections::HashSet<T, Hasher>;

pub(crate) mod mpsc {
    pub(crate) use super::channel::{Receiver, RecvTimeoutError, Sender, channel};
}
