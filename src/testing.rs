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
/// The faults affect all clients of the store. [`advance`](Self::advance), [`lose`](Self::lose) and
/// [`cut`](Self::cut) wake all threads, which check the store and the clock, and they return when
/// the library has done what is due: leases are renewed, losses told, callbacks and listeners have
/// returned. So a test checks the consequences in its next line, and waits neither for a lease nor
/// for a timer. For what a test causes in other ways, with
/// [`force_unlock`](crate::ReentrantMutex::force_unlock) for example, there is
/// [`settle`](Self::settle).
///
/// What *your* threads do then is theirs: a call that waits for the lock gets it at about that
/// time. Wait for it by joining the thread, or over a channel.
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
    ///
    /// Blocks until the library has [settled](Self::settle). So a lease of 30 s survives any number
    /// of steps of 12 s, as it would survive the same time without them.
    pub fn advance(&self, by: Duration) {
        self.memory.advance(by);
        self.settle();
    }

    /// Waits until the threads of the library have done what is due now: renewals, releases in the
    /// background, and callbacks for losses and failing renewals.
    ///
    /// Blocks for 5 s at most, because a callback may wait for its caller. In a callback, a
    /// listener or a logger that the library calls on a thread of its own it returns at once.
    pub fn settle(&self) {
        // Under the scheduler, a schedule decides what has been done.
        #[cfg(not(shuttle))]
        self.memory.settle();
    }

    /// Takes a lock from its holder, or the lease from the run of a job, as a failover to a server
    /// without the lock does: the holder notices the loss, and a waiter gets the lock. For a
    /// semaphore, all permits are returned. Returns false if nobody held it.
    ///
    /// `name` is the name as the client uses it, without its [prefix](crate::Builder::key_prefix).
    ///
    /// Blocks until the library has [settled](Self::settle).
    #[must_use = "false: nobody held a lock of this name, so nothing was lost"]
    pub fn lose(&self, name: &str) -> bool {
        let lost = self.memory.lose(&self.key(name));
        self.settle();
        lost
    }

    /// Cuts all clients off from the store for `how_long`, by the lease clock: every request fails
    /// with [`Unreachable`](crate::ErrorKind::Unreachable), and no release message arrives. (Only
    /// what a client [announces](crate::Builder::announce_owner) passes.) To end it earlier,
    /// [`advance`](Self::advance) past the end, or cut for a time of zero.
    ///
    /// Renewals are tried at once, as by [`advance`](Self::advance), and not when they are due:
    /// they fail, and callbacks for failing renewals have run when this returns.
    pub fn cut(&self, how_long: Duration) {
        self.memory.cut(how_long);
        self.settle();
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

    /// The names under which somebody holds a lock or permits with leases, runs a scheduled job, or
    /// has a place in a queue; sorted, without the client's prefix, and only names with that
    /// prefix. Empty if what was tested has left nothing behind.
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
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
#[doc(hidden)]
pub fn look_up_by(
    host: &str,
    answer: impl Fn() -> std::io::Result<Vec<std::net::IpAddr>> + Send + Sync + 'static,
) {
    crate::store::net::stand_ins::add(host, Arc::new(answer));
}
