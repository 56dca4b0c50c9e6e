//! How you learn that a lock is lost, and what happens then.
//!
//! # Poll, block, select, or register a callback
//!
//! | you want to | call | it notices |
//! |---|---|---|
//! | check before a step that must not overlap | [`is_held`](crate::ReentrantMutexGuard::is_held), or [`ensure_held`](crate::ReentrantMutexGuard::ensure_held) with `?` | from the first instruction after the lease may have ended; no I/O |
//! | wait for a loss on another thread | [`wait_lost(time)`](crate::ReentrantMutexGuard::wait_lost) | within about a millisecond of the end of the lease (after the machine was asleep within a tenth of the lease, 1 s at most); it returns whether the lock is [lost, still held, or released](crate::LossWait) |
//! | the same, until the job is done or asked to stop | [`wait_lost_or_cancelled`](crate::ReentrantMutexGuard::wait_lost_or_cancelled) | the same, or as soon as its [token](crate::CancelToken) is cancelled |
//! | be called | [`on_lost`](crate::ReentrantMutexGuard::on_lost) | the same; callbacks run on threads of their own and can be late |
//! | wait for jobs and for a loss at once | [`lost`](crate::ReentrantMutexGuard::lost) with `select!` | the same |
//! | act before it is lost | [`on_renewal_failed`](crate::ReentrantMutexGuard::on_renewal_failed) | when the first renewal fails |
//! | know why | [`loss`](crate::ReentrantMutexGuard::loss) | |
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
//! All guards have these methods. A function that takes any of them takes `&impl`
//! [`Held`](crate::Held).
//!
//! # Select over jobs and the lock
//!
//! [`lost`](crate::ReentrantMutexGuard::lost) is a channel of crossbeam-channel that carries no
//! message. It is disconnected when the lease is lost, and so it stays ready for everybody:
//!
//! ```no_run
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! use leasehold::crossbeam_channel::select;
//! # let jobs = leasehold::crossbeam_channel::never::<u32>();
//! # fn run(_: u32) {}
//! let guard = client.lock("worker")?;
//! loop {
//!     select! {
//!         recv(guard.lost()) -> _ => break,
//!         recv(jobs) -> job => match job {
//!             Ok(job) => run(job),
//!             Err(_) => break, // no more jobs
//!         }
//!     }
//! }
//! guard.unlock()?; // an error that says why, if it was lost
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! When both are ready, `select!` takes either: check
//! [`is_held`](crate::ReentrantMutexGuard::is_held) before a job that must not overlap. The channel
//! is also disconnected when the guard is dropped or unlocked, so a thread that has only the
//! receiver ends then too. The example `select_jobs` shows a whole worker.
//!
//! # Why it was lost
//!
//! There are two ways to lose a lock. *By time*, its lease ends before it is renewed; every way
//! above notices that by the local clock, without the server. *By the server*, the holder learns of
//! it at the next renewal: a third of a lease later, or at most 10 s later for a fixed lease.
//! [`loss`](crate::ReentrantMutexGuard::loss), the argument of an `on_lost` callback, the message
//! of `ensure_held`'s error and the log line give the reason:
//!
//! | [`LossReason`](crate::LossReason) | what happened | what to do |
//! |---|---|---|
//! | `NotRenewed` with a cause | renewals failed until the lease ended: the server could not be reached, or refused them. The cause is the error of the last one | bring the server back; use a lease longer than its outages |
//! | `NotRenewed` without a cause | nothing failed: the process or the machine was suspended, or too busy to renew | use a longer lease; find out what stopped it |
//! | `TakenAway` | the server does not know the hold: an operator [freed the lock](crate::ReentrantMutex::force_unlock), or it forgot it (a flush, an eviction, a failover) | ask the operators; see [`servers`](crate::guide::servers#when-the-server-forgets) |
//! | `MaxHold`, `FixedLease` | the limit that you had set was reached | work in smaller steps, or raise the limit |
//! | `Closed` | the client was closed under the guard | end jobs before you close: [`shutdown`](crate::guide::shutdown) |
//!
//! Over ZooKeeper a lease ends with the session. `NotRenewed` means that no server answered for
//! that long, or that the process sent no heartbeats; `TakenAway` means that the node was deleted,
//! or that the servers ended a session that was alive.
//!
//! # A loss is final
//!
//! Nothing revives a lost hold, not even a renewal that is confirmed late. A thread whose hold was
//! lost gets [`ErrorKind::Lost`](crate::ErrorKind::Lost) when it asks for the same lock, until all
//! guards of that hold are dropped. `unlock` of a guard whose hold was lost returns `Lost` as well:
//! what you did under it may have overlapped with somebody else's work.
//!
//! A normal unlock is not a loss and signals nothing. [`close`](crate::LockClient::close) signals
//! the loss to every live guard in the same ways, because it releases their locks; `unlock` and
//! `ensure_held` then return [`ErrorKind::Closed`](crate::ErrorKind::Closed).
//!
//! # Callbacks
//!
//! A callback belongs to the guard on which it was registered. It runs once: when the lease is lost
//! while that guard lives, or when the guard's own unlock or drop discovers the loss. It never runs
//! once the guard was dropped or unlocked with the lease held.
//!
//! # Renewal fails, but the lease has time left
//!
//! A failed renewal ends nothing. The lock stays held until its lease ends, and renewal is retried
//! until then. It is logged at WARN (see [log lines](crate::guide::operations#log-lines)), and
//! [`remaining`](crate::ReentrantMutexGuard::remaining) says how much time is left.
//!
//! [`on_renewal_failed`](crate::ReentrantMutexGuard::on_renewal_failed) calls you at the first
//! renewal that fails, and again only after one has succeeded in between. If the server fails
//! suddenly, that is two thirds of a lease before the end: time to finish a step, or to start
//! nothing new.
//!
//! ```no_run
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! let guard = client.lock("import")?;
//! guard.on_renewal_failed(|failure| {
//!     if failure.error().is_outage() {
//!         eprintln!("import ends within {:?}: {}", failure.remaining(), failure.error());
//!     }
//! });
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! # What happens when a holder or a waiter pauses, dies, or loses the server
//!
//! | | pauses for longer than the lease | dies | loses the server, or the server loses its data |
//! |---|---|---|---|
//! | holder of `mutex`, `multi`, `fair`, `rw_lock`, `semaphore` | learns of the loss at its first check; others may have the lock meanwhile | the lock is free when the lease ends (permits on Redis two seconds later) | learns of the loss when the lease ends, or at the next renewal |
//! | waiter of `fair` | keeps its turn if nobody was served meanwhile, otherwise it moves to the front | delays those behind it for [`waiter_timeout`](crate::Builder::waiter_timeout); [beside Java](crate::FairMutex#order) it can be longer | keeps waiting; after a loss of data the order starts anew |
//! | waiting writer of `rw_lock` | readers get in before it | keeps new readers out for `waiter_timeout` | keeps waiting |
//! | user of `latch` | nothing happens: a latch has no lease | its remaining counts never arrive: wait with a timeout | keeps waiting; a latch that the server forgot is open |
//! | user of `counting_semaphore` | nothing happens | **its permits never come back** | permits that the server forgot belong to nobody |
//! | user of `rate_limiter` | nothing happens | its permits come back when their interval is over | a limiter that the server forgot has to be set again: until then calls return `Conflict`, those that wait when they ask again |
//!
//! A thread that ends while it holds locks (its guards were forgotten) has them released.
