//! How to test code that takes locks.
//!
//! Most tests need no server: see [without a server](#without-a-server). For what only a real one
//! does, start [a private one for each test](#a-private-server-for-each-test).
//!
//! # Without a server
//!
//! `LockClient::in_memory()` makes a client whose locks live in this process, and
//! [`build_in_memory`](crate::Builder::build_in_memory) one with settings of your own. It has all
//! primitives with the same guards and the same errors, and needs no server:
//!
//! ```
//! use leasehold::LockClient;
//!
//! let one = LockClient::in_memory();
//! let other = LockClient::in_memory_shared(&one)?; // a second client on the same locks
//!
//! let guard = one.lock("job")?;
//! assert!(other.try_lock("job")?.is_none());
//! guard.unlock()?;
//! assert!(other.try_lock("job")?.is_some());
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! - `in_memory()` makes a new store each time, so tests that run in parallel share nothing.
//! - `in_memory_shared(&client)` makes *another client* on that client's store. The two are like
//!   two processes on one server: their locks exclude each other, and neither re-enters the
//!   other's. A clone is a handle to the *same* client.
//! - Leases end and are renewed as they are on a server. They end with their process, so this store
//!   protects nothing between processes.
//!
//! With the cargo feature `testing` a test can inject faults, in milliseconds and without signals.
//! Each of them returns when the library has done what is due then: renewed, told the loss, run the
//! callbacks. So the next line of the test checks it. Enable the feature for tests only:
//!
//! ```text
//! cargo add leasehold --dev --features testing
//! ```
//!
//! | what your code should survive | how a test makes it happen, with `leasehold::testing::Faults` |
//! |---|---|
//! | a lease ends by time | `advance(by)` moves the clock of the store and its clients, without sleeping |
//! | the lock is lost | `lose(name)`: the store forgets the lock, and its holder learns of that as after a failover |
//! | the server cannot be reached | `cut(how_long)`: every request fails for that time |
//! | one request fails | `fail_next(operation, failure)`: the next request of that kind fails, before or after it ran |
//! | the consequences of anything else | `settle()`: waits until the library has done what is due |
//! | your code leaves something locked | `held()`: the names under which somebody still holds something |
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use leasehold::testing::Faults;
//! use leasehold::{ErrorKind, LockClient};
//!
//! let client = LockClient::in_memory();
//! let faults = Faults::of(&client)?;
//!
//! let guard = client.lock("job")?;
//! assert!(faults.lose("job"));
//! assert!(!guard.is_held()); // no lease has to end, and callbacks have run
//! assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
//! assert!(faults.held().is_empty());
//! # }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! This store cannot show what a real server does: permissions, memory limits and restarts. It also
//! accepts every name of 1 to 1024 bytes but the keys of [jobs](crate::guide::scheduled_jobs)
//! (`leasehold_job:{x}`), where Redis [refuses more](crate::guide::operations#names), and permits
//! come back exactly when their lease ends, not two seconds later. To test these, use a private
//! server:
//!
//! # A private server for each test
//!
//! The tests of this crate do this. A server on a unix socket in a temporary directory needs no
//! port, starts in milliseconds, and shares nothing with other tests:
//!
//! ```no_run
//! use std::process::{Child, Command, Stdio};
//! use std::time::{Duration, Instant};
//!
//! use leasehold::LockClient;
//!
//! struct Server {
//!     process: Child,
//!     dir: std::path::PathBuf,
//! }
//!
//! impl Server {
//!     fn start(test: &str) -> Self {
//!         // Short: the path of a socket has about 100 bytes.
//!         let dir = std::env::temp_dir().join(format!("{test}-{}", std::process::id()));
//!         std::fs::create_dir_all(&dir).unwrap();
//!         let process = Command::new("redis-server")
//!             .args(["--port", "0", "--save", "", "--appendonly", "no"])
//!             .arg("--dir")
//!             .arg(&dir)
//!             .arg("--unixsocket")
//!             .arg(dir.join("s"))
//!             .stdout(Stdio::null())
//!             .spawn()
//!             .expect("install redis-server");
//!         Self { process, dir }
//!     }
//!
//!     fn client(&self) -> LockClient {
//!         let url = format!("redis+unix://{}", self.dir.join("s").display());
//!         let give_up = Instant::now() + Duration::from_secs(10);
//!         loop {
//!             match LockClient::builder().url(&url).lease(Duration::from_millis(500)).build() {
//!                 Ok(client) => return client,
//!                 Err(e) if Instant::now() > give_up => panic!("{e}"),
//!                 Err(_) => std::thread::sleep(Duration::from_millis(5)),
//!             }
//!         }
//!     }
//! }
//!
//! impl Drop for Server {
//!     fn drop(&mut self) {
//!         let _ = self.process.kill();
//!         let _ = self.process.wait();
//!         let _ = std::fs::remove_dir_all(&self.dir);
//!     }
//! }
//!
//! let server = Server::start("transfer");
//! let (one, other) = (server.client(), server.client()); // like two processes
//! let guard = one.lock("job")?;
//! assert!(other.try_lock("job")?.is_none());
//! guard.unlock()?;
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! # What to test, and how to make it happen
//!
//! | what your code should survive | how a test makes it happen |
//! |---|---|
//! | somebody else has the lock | have a second client take it first |
//! | the lock is lost | [`force_unlock`](crate::ReentrantMutex::force_unlock) from the *same* client: its guards report the loss at once; one whose grant is still in flight reports it within a round trip. From another client: at the next renewal |
//! | a lease ends by time | `kill -STOP` the *server* for longer than the lease, then `kill -CONT` |
//! | the process is suspended | run the test binary again as a child process, and `kill -STOP` that |
//! | the server restarts and forgets | kill it and start it again on the same socket |
//! | a holder dies | run the test binary again as a child process, and kill that |
//! | the client is closed under a job | [`close`](crate::LockClient::close) |
//!
//! # Tests that do not flake
//!
//! - Use short leases (200 ms to 500 ms), and not below 100 ms: see [short
//!   leases](crate::guide::choosing_a_lease#short-leases).
//! - Wait for a condition, with a generous time limit. Do not sleep for a fixed time.
//! - Assert lower bounds of times strictly, and upper bounds loosely.
//! - Give each test its own lock names, or its own server.
//!   [`key_prefix`](crate::Builder::key_prefix) separates tests that share a server.
