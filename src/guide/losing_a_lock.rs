//! How you learn that a lock is lost, and what happens then.
//!
//! # Poll, block, or register a callback
//!
//! | you want to | call | it notices |
//! |---|---|---|
//! | check before a step that must not overlap | [`is_held`](crate::ReentrantMutexGuard::is_held), or [`ensure_held`](crate::ReentrantMutexGuard::ensure_held) with `?` | at the first instruction after the lease may have ended; no I/O |
//! | wait for a loss on another thread | [`wait_lost`](crate::ReentrantMutexGuard::wait_lost) | within about a millisecond of the end of the lease |
//! | be called | [`on_lost`](crate::ReentrantMutexGuard::on_lost) | the same; callbacks run on threads of their own and can be late |
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! # fn next_step() -> bool { false }
//! let guard = client.lock("import")?;
//! let stop = Arc::new(AtomicBool::new(false));
//! guard.on_lost({
//!     let stop = stop.clone();
//!     move |_| stop.store(true, Ordering::Relaxed)
//! });
//! while !stop.load(Ordering::Relaxed) && next_step() {}
//! guard.ensure_held()?; // before the result is published
//! guard.unlock()?; // an error if the lease ended after that
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! There are two ways to lose a lock:
//!
//! - *By time.* The lease ended before it was renewed: the server could not be reached, or the
//!   process was suspended. All three ways above notice that by the local clock, without the
//!   server.
//! - *By the server.* It forgot the hold (a flush, an eviction, a failover), or an operator [freed
//!   the lock](crate::ReentrantMutex::force_unlock). The holder learns that at its next renewal: a
//!   third of a lease later, for a fixed lease at most 10 s.
//!
//! # A loss is final
//!
//! Nothing revives a lost hold, not even a renewal that is confirmed late. A thread whose hold was
//! lost gets [`ErrorKind::Lost`](crate::ErrorKind::Lost) when it asks for the same lock, until all
//! guards of that hold are dropped. `unlock` of a guard whose hold was lost returns `Lost` as well:
//! what you did under it may have overlapped with somebody else's work.
//!
//! A normal unlock is not a loss and signals nothing. [`close`](crate::LockClient::close) signals
//! the loss to every live guard in the same three ways, because it gives the locks away under them;
//! `unlock` and `ensure_held` then return [`ErrorKind::Closed`](crate::ErrorKind::Closed).
//!
//! # Callbacks
//!
//! A callback belongs to the guard on which it was registered. It runs once: when the lease is lost
//! while that guard lives, also when the guard's own unlock or drop finds the loss. It never runs
//! once that guard was given up with the lease held.
//!
//! # Renewal fails, but the lease has time left
//!
//! A failed renewal ends nothing. The lock stays held until its lease ends, and renewal is retried
//! until then. The log says so at WARN (see [log lines](crate::guide::operations#log-lines)), and
//! [`remaining`](crate::ReentrantMutexGuard::remaining) says how much time is left.
//!
//! # What happens when a holder or a waiter pauses, dies, or loses the server
//!
//! | | pauses for longer than the lease | dies | loses the server, or the server loses its data |
//! |---|---|---|---|
//! | holder of `mutex`, `multi`, `fair`, `rw_lock`, `semaphore` | learns of the loss at its first check; others may have the lock meanwhile | the lock is free when the lease ends (permits two seconds later) | learns of the loss when the lease ends, or at the next renewal |
//! | waiter of `fair` | keeps its turn if nobody was served meanwhile, else goes to the front | delays those behind it for [`waiter_timeout`](crate::Builder::waiter_timeout); [beside Java](crate::FairMutex#order) it can be longer | keeps waiting; after a loss of data the order starts anew |
//! | waiting writer of `rw_lock` | readers get in before it | keeps new readers out for `waiter_timeout` | keeps waiting |
//! | user of `latch` | nothing happens: a latch has no lease | what it has not counted down is never counted: wait with a timeout | keeps waiting; a latch that the server forgot is open |
//! | user of `counting_semaphore` | nothing happens | **its permits never come back** | permits that the server forgot belong to nobody |
//!
//! A thread that ends while it holds locks (its guards were forgotten) has them released.
