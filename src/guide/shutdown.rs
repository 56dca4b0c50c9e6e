//! How a program ends cleanly, and what happens when it does not.
//!
//! # The clean way
//!
//! 1. Call [`stop_waiting`](crate::LockClient::stop_waiting). From then on no thread takes a lock:
//!    threads that wait for one get [`Closed`](crate::ErrorKind::Closed) at once, and other clients
//!    move up in the queues. Locks that are held stay held and are renewed.
//! 2. Let the jobs finish, and drop their guards. Set a time limit for them, and then stop the rest
//!    with a [`CancelToken`](crate::CancelToken) that they check between two steps.
//! 3. Call [`close`](crate::LockClient::close) with a time limit.
//!
//! ```no_run
//! use std::time::Duration;
//! # fn all_jobs_end_within(time: Duration) -> bool { true }
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! let jobs = leasehold::CancelToken::new(); // each job has jobs.child()
//! // ... the signal to stop has come ...
//! client.stop_waiting();
//! if !all_jobs_end_within(Duration::from_secs(20)) {
//!     jobs.cancel();
//!     all_jobs_end_within(Duration::from_secs(4));
//! }
//! if let Err(e) = client.close(Duration::from_secs(5)) {
//!     eprintln!("still locked, and for how long: {e}");
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! You can skip steps 1 and 2 when no thread waits and no job runs. Without step 1, a waiting
//! worker starts a job as soon as another has finished its own, and the pool does not drain.
//!
//! How long each step takes:
//!
//! | step | blocks | its threads |
//! |---|---|---|
//! | `stop_waiting` | never on the server | end within about a millisecond. One with a request under way ends with the reply, after a few I/O timeouts at most when the server hangs; if that reply grants the lock, the call returns the guard |
//! | `cancel` | never | the same, for calls [with the token](crate::ReentrantMutex::with_cancel) and for [`wait_lost_or_cancelled`](crate::ReentrantMutexGuard::wait_lost_or_cancelled); a job ends when it checks the token, and a pause in [`wait_timeout`](crate::CancelToken::wait_timeout) at once |
//! | `close` | for the given time at most, and a few I/O timeouts more if a reply is outstanding at its end | threads that still wait end as in the first step |
//!
//! So the program ends within the sum of the times that you set, and a few I/O timeouts (2 s each,
//! unless [set otherwise](crate::Builder::io_timeout)). Keep this below the time after which the
//! service manager kills the process.
//!
//! `close` ends the client for all its handles. It wakes waiters with
//! [`Closed`](crate::ErrorKind::Closed), releases what is held, resolves unknown outcomes, and
//! joins the threads. Its error names the locks whose release is not confirmed, and says for how
//! long they can stay locked: until their leases end.
//!
//! Guards that are still alive hold nothing from then on. Before it releases the first lock,
//! `close` signals a loss to all of them: `is_held` is false, `wait_lost` ends, and `on_lost`
//! callbacks run.
//!
//! # The other ways
//!
//! | event | what happens to the locks |
//! |---|---|
//! | a guard is dropped | the lock is released, in one round trip. If the server hangs, the drop blocks for a few I/O timeouts and the release continues in the background |
//! | a thread panics | its guards are dropped while it unwinds, as above |
//! | a thread ends with guards that were forgotten (`mem::forget`, other thread-locals) | the client releases its holds, and logs that at WARN |
//! | the last handle of a client is dropped | the background threads end. The drop blocks for up to two I/O timeouts if a server hangs |
//! | `main` returns | guards on other threads are not dropped; their locks stay until the leases end |
//! | `std::process::exit` | no guard is dropped; all locks stay until their leases end |
//! | the process is killed, or aborts | locks stay until their leases end, permits on Redis two seconds longer, places in a queue for [`waiter_timeout`](crate::Builder::waiter_timeout). Permits of a [counting semaphore](crate::CountingSemaphore), and counts that a [latch](crate::CountDownLatch) still waits for, stay for ever. Permits of a [rate limiter](crate::RateLimiter) come back when their interval is over |
//! | the process is suspended | locks stay for a lease; when the process resumes, its guards report the loss |
//!
//! After a crash an operator can free a lock with
//! [`force_unlock`](crate::ReentrantMutex::force_unlock).
//!
//! # Signals
//!
//! The crate installs no signal handlers. Wait for SIGTERM on a thread of your own, and proceed
//! there as above. No method of this crate may be called inside a signal handler: nearly all of
//! them take mutexes. With the crate `signal-hook`:
//!
//! ```ignore
//! // Before the first job.
//! let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT])?;
//! // ... start the workers ...
//! signals.forever().next();
//! client.stop_waiting();
//! ```
//!
//! The example `graceful_stop` is a pool of workers that does all of this, and exits within a bound
//! with a code that says whether everything was released. The default action of a signal counts as
//! "killed" in the table above.
//!
//! # Forks
//!
//! A child process made by `fork()` owns no locks and does not disturb the parent's. In the child,
//! calls fail with [`Forked`](crate::ErrorKind::Forked), guards hold nothing, and dropping them
//! does nothing. Create a new client in the child.
