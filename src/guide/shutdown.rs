//! How a program ends cleanly, and what happens when it does not.
//!
//! # The clean way
//!
//! 1. Call [`stop_waiting`](crate::LockClient::stop_waiting). Nobody takes a lock any more: threads
//!    that wait for one get [`Closed`](crate::ErrorKind::Closed) at once, and other clients
//!    move up in the queues. What is held is held on and renewed.
//! 2. Let the jobs finish, and drop their guards. Give them a time, and then tell those that are
//!    left to stop: by a [`CancelToken`](crate::CancelToken) that they look at between two steps.
//! 3. Call [`close`](crate::LockClient::close) with the time that you can spare.
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
//! Steps 1 and 2 may be left out when no thread waits, and no job runs. Without the first, a worker
//! that was waiting begins a job as soon as another has ended its own, and the pool does not drain.
//!
//! How long each step takes:
//!
//! | step | blocks | its threads |
//! |---|---|---|
//! | `stop_waiting` | never for a server | end within about a millisecond. One with a request under way ends with the reply, after a few I/O timeouts at most when the server hangs; if it is given the lock by that reply, it has it |
//! | `cancel` | never | the same, for calls [with the token](crate::ReentrantMutex::with_cancel) and for [`wait_lost_or_cancelled`](crate::ReentrantMutexGuard::wait_lost_or_cancelled); a job ends when it looks at the token, and a pause in [`wait_timeout`](crate::CancelToken::wait_timeout) at once |
//! | `close` | for the given time at most, and a few I/O timeouts more if it awaits an answer when that time is over | what still waits is ended as by the first step |
//!
//! So the bound of the program is the sum of the times that you give, and a few I/O timeouts (2 s
//! each, unless [set otherwise](crate::Builder::io_timeout)); let it be less than the time after
//! which the service manager kills.
//!
//! `close` ends the client for all its handles. It wakes waiters with
//! [`Closed`](crate::ErrorKind::Closed), releases what is held, resolves unknown outcomes, and
//! joins the threads. Its error names what is not confirmed to be released, and says for how long
//! it can stay locked: until its lease ends.
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
//! The crate installs no signal handlers. Take SIGTERM in on a thread of your own, and proceed
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
//! with a code that says whether everything was released. A program that is ended by the default
//! action of a signal is killed, in the sense of the table.
//!
//! # Forks
//!
//! A child process made by `fork()` owns nothing and harms nothing. In it, calls fail with
//! [`Forked`](crate::ErrorKind::Forked), guards hold nothing, and dropping them does nothing. Make
//! a new client in the child.
