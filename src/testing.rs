//! Faults for the tests of your own code: what happens once a year to a client of a server happens
//! to an in-memory client whenever the test requests it.
//!
//! It needs the cargo feature `testing`. Turn that on in `[dev-dependencies]`:
//! ```toml
//! [dev-dependencies]
//! leasehold = { version = "0.1", features = ["testing"] }
//! ```
//!
//! # Examples
//! What does a job do when its lock is lost? No server, and no waiting:
//! ```
//! use std::time::Duration;
//!
//! use leasehold::testing::Faults;
//! use leasehold::{ErrorKind, LockClient, Result};
//!
//! /// Copies rows, and stops as soon as somebody else may have the lock.
//! fn copy(client: &LockClient, mut row: impl FnMut(u32)) -> Result<()> {
//!     let guard = client.lock("copy")?;
//!     for n in 0..10 {
//!         guard.ensure_held()?;
//!         row(n);
//!     }
//!     guard.unlock()
//! }
//!
//! let client = LockClient::in_memory();
//! let faults = Faults::of(&client)?;
//! let mut copied = Vec::new();
//! let outcome = copy(&client, |n| {
//!     copied.push(n);
//!     if n == 2 {
//!         // Like a machine that was suspended for a minute.
//!         faults.advance(Duration::from_secs(60));
//!     }
//! });
//! assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Lost);
//! assert_eq!(copied, [0, 1, 2]);
//! assert!(faults.held().is_empty());
//! # Ok::<(), leasehold::Error>(())
//! ```

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Result;
use crate::client::LockClient;
use crate::in_memory::memory_of;
use crate::store::memory::Memory;
pub use crate::store::memory::faults::{Failure, Operation};

/// Causes faults in a store [in memory](LockClient::in_memory).
///
/// The faults affect all clients of the store. Each of these calls wakes all waiting threads and
/// the renewal thread, which then check the store and the clock, so no test has to wait for a lease
/// or a timer. The consequences happen on other threads: wait for them with
/// [`wait_lost`](crate::ReentrantMutexGuard::wait_lost), a channel in an `on_lost` callback, or a
/// loop with a limit. What a guard knows by itself (`is_held`, `remaining`, `ensure_held`) uses the
/// new time at once.
/// answers by the new time at once.
#[derive(Clone)]
pub struct Faults {
    memory: Arc<Memory>,
    prefix: String,
}

impl Faults {
    /// Controls the store of this client.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput): the client is not in memory.
    pub fn of(client: &LockClient) -> Result<Self> {
        let prefix = client.state().config.key_prefix.clone();
        Ok(Self { memory: memory_of(client)?.clone(), prefix })
    }

    /// Moves the lease clock forward; between calls it runs in real time. To the clients it looks
    /// like a machine that was suspended for that time: no lease was renewed. A hold with a longer
    /// lease is renewed now. A hold with a shorter lease is lost, and a waiter gets the lock.
    ///
    /// Waiters keep their places in queues. The timeouts of waiting calls (`try_lock_for`) and the
    /// [`outage_timeout`](crate::Builder::outage_timeout) are measured in real time.
    pub fn advance(&self, by: Duration) {
        self.memory.advance(by);
    }

    /// Takes a lock from its holder, as a failover to a server without the lock does: the holder
    /// notices the loss, and a waiter gets the lock. For a semaphore, all permits are returned.
    /// Returns false if nobody held it.
    ///
    /// `name` is the name as the client uses it, without its [prefix](crate::Builder::key_prefix).
    pub fn lose(&self, name: &str) -> bool {
        self.memory.lose(&self.key(name))
    }

    /// Cuts all clients off from the store for `how_long`, by the lease clock: every request fails
    /// with [`Unreachable`](crate::ErrorKind::Unreachable), and no release message arrives. To end
    /// it earlier, [`advance`](Self::advance) past the end, or cut for a time of zero.
    pub fn cut(&self, how_long: Duration) {
        self.memory.cut(how_long);
    }

    /// Like [`cut`](Self::cut), but each request takes this time before it fails, as at a server
    /// that hangs. Only under the scheduler: there it costs no time.
    #[cfg(shuttle)]
    #[doc(hidden)]
    pub fn hang(&self, how_long: Duration, each: Duration) {
        self.memory.hang(how_long, each);
    }

    /// Makes the next request of this kind fail with
    /// [`Unreachable`](crate::ErrorKind::Unreachable), whichever client sends it. Each call makes
    /// one request fail, in the order of the calls.
    pub fn fail_next(&self, operation: Operation, failure: Failure) {
        self.memory.fail_next(operation, failure);
    }

    /// The names under which somebody holds a lock or permits with leases, or has a place in a
    /// queue; sorted, without the client's prefix, and only names with that prefix. Empty if a job
    /// has left nothing behind.
    #[must_use]
    pub fn held(&self) -> Vec<String> {
        self.memory
            .held()
            .iter()
            .filter_map(|key| key.strip_prefix(&*self.prefix).map(str::to_owned))
            .collect()
    }

    /// How many clients are subscribed to releases under this name: those with a thread that waits
    /// for another client, or did so within the last second. Tests can use it to wait for a waiter.
    #[must_use]
    pub fn listeners(&self, name: &str) -> usize {
        self.memory.listeners(&self.key(name))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// From now on `answer` looks up `host` in this process, and not the system. For the tests of this
/// crate: no name server can be had that hangs when a test wants it to.
#[cfg(any(feature = "redis", feature = "postgres", feature = "zookeeper"))]
#[doc(hidden)]
pub fn look_up_by(
    host: &str,
    answer: impl Fn() -> std::io::Result<Vec<std::net::IpAddr>> + Send + Sync + 'static,
) {
    crate::store::net::stand_ins::add(host, Arc::new(answer));
}
