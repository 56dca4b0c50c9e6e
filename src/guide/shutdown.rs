//! How a program ends cleanly, and what happens when it does not.
//!
//! # The clean way
//!
//! 1. Let the jobs finish, and drop their guards.
//! 2. Call [`close`](crate::LockClient::close) with the time that you can spare.
//!
//! ```no_run
//! use std::time::Duration;
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! // ... the jobs have ended ...
//! if let Err(e) = client.close(Duration::from_secs(5)) {
//!     eprintln!("still locked, and for how long: {e}");
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! `close` ends the client for all its handles. It wakes waiters with
//! [`Closed`](crate::ErrorKind::Closed), releases what is held, resolves unknown outcomes, and
//! joins the threads. It blocks for the given time at most, and a few I/O timeouts more if it
//! awaits an answer when that time is over. Its error names what is not confirmed to be released,
//! and says for how long it can stay locked: until its lease ends.
//!
//! Guards that are still alive hold nothing from then on. Before the first lock is given up,
//! `close` signals a loss to all of them: `is_held` is false, `wait_lost` ends, and `on_lost`
//! callbacks run.
//!
//! # The other ways
//!
//! | what ends | what happens to its locks |
//! |---|---|
//! | a guard is dropped | the lock is released, in one round trip. If the server hangs, the drop blocks for a few I/O timeouts and the release continues in the background |
//! | a thread panics | its guards are dropped while it unwinds, as above |
//! | a thread ends with guards that were forgotten (`mem::forget`, other thread-locals) | the client releases its holds; a line at WARN says so |
//! | the last handle of a client is dropped | the background threads end. The drop blocks for up to one I/O timeout if an unknown outcome is not resolved yet |
//! | `main` returns | guards on other threads are not dropped; their locks stay until the leases end |
//! | `std::process::exit` | no guard is dropped; all locks stay until their leases end |
//! | the process is killed, or aborts | locks stay until their leases end, permits two seconds longer, places in a queue for [`waiter_timeout`](crate::Builder::waiter_timeout). Permits of a [counting semaphore](crate::CountingSemaphore), and what was not counted down of a [latch](crate::CountDownLatch), stay for ever |
//! | the process is suspended | locks stay for a lease; when it wakes, its guards know |
//!
//! After a crash an operator can free a lock with
//! [`force_unlock`](crate::ReentrantMutex::force_unlock).
//!
//! # Signals
//!
//! The crate installs no signal handlers. Use a handler of your own that tells the jobs to end, and
//! then proceed as above. A program that is ended by the default action of a signal is killed, in
//! the sense of the table.
//!
//! # Forks
//!
//! A child process made by `fork()` owns nothing and harms nothing. In it, calls fail with
//! [`Forked`](crate::ErrorKind::Forked), guards hold nothing, and dropping them does nothing. Make
//! a new client in the child.
