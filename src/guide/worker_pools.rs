//! Which guard fits a thread pool, and what threads, clones and forks share.
//!
//! # Re-entry belongs to a thread
//!
//! A thread that has a lock gets it again from [`lock`](crate::LockClient::lock), and the lock is
//! free when the last of its guards is dropped. Such guards are bound to their thread (they are not
//! `Send`). Choose by where the work runs:
//!
//! | where the work runs | take | because |
//! |---|---|---|
//! | one job per thread at a time (`std::thread`, a plain pool), lock and unlock on the same thread | [`lock`](crate::LockClient::lock) | re-entry works as expected |
//! | one thread takes the lock, another releases it | [`lock_owned`](crate::ReentrantMutex::lock_owned) | its guard is `Send`, and it never re-enters |
//! | a pool that steals work (rayon) | a [`non_reentrant`](crate::ReentrantMutex::non_reentrant) handle, or [`try_lock_owned`](crate::ReentrantMutex::try_lock_owned) | see below |
//!
//! # Pools that steal work
//!
//! A rayon thread that holds a lock and waits for a part of its job (`join`, `par_iter`, `scope`)
//! may run another job meanwhile. If that job calls the re-entrant `lock` for the same lock, its
//! thread has the lock already, so it gets in: two jobs are inside, with one fencing token.
//!
//! ```no_run
//! use leasehold::ErrorKind;
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! let lock = client.mutex("index").non_reentrant();
//! match lock.lock() {
//!     Ok(guard) => guard.unlock()?, // ... the job ...
//!     // This thread is inside already: put the job off.
//!     Err(e) if e.kind() == ErrorKind::Conflict => {}
//!     Err(e) => return Err(e),
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! A blocking call can still wait for ever, as with any mutex: for a job that is further down on
//! its own stack. Hold no lock across a `join`, or use only the `try_` forms. The example
//! `rayon_pool` shows all of this.
//!
//! # Moving a guard to another thread
//!
//! ```no_run
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! let guard = client.mutex("import").lock_owned()?;
//! std::thread::spawn(move || {
//!     // ... work ...
//!     guard.unlock()
//! });
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! An owned guard belongs to no thread. While it lives, each further call for the lock waits:
//! `lock_owned`, `lock`, and a multi-lock with this name, even on the thread that took the guard.
//! The client cannot see whether that is a mistake, because another thread may drop the guard.
//!
//! It can see when a call would wait for its own thread. If the thread has the lock through `lock`,
//! renewed and without a `max_hold`, then `lock_owned` returns
//! [`Conflict`](crate::ErrorKind::Conflict), and the forms with a timeout return `None` at its end.
//! If one of the two handles is `non_reentrant`, every form returns `Conflict`.
//!
//! The other primitives have the same owned forms. Permits of a semaphore are always owned.
//!
//! # Jobs from a queue, a lock for each
//!
//! A worker that finds a job locked does not wait: another worker has it, or had it when it died.
//! It [tries](crate::LockClient::try_lock), and takes the next job if it gets `None`. Jobs of dead
//! workers come free after one lease. That a job is done is known only under its lock: read the
//! mark of it *after* the lock was granted, or a job that another worker has just finished is done
//! again.
//!
//! ```no_run
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! # struct Job { name: String }
//! # fn is_done(_: &Job) -> bool { false }
//! # fn work(_: &Job, _: u64) {}
//! # fn mark_done(_: &Job, _: u64) {}
//! # let jobs: Vec<Job> = Vec::new();
//! for job in &jobs {
//!     let Some(guard) = client.try_lock(&job.name)? else { continue };
//!     if !is_done(job) {
//!         let token = guard.fencing_token()?.get();
//!         work(job, token);
//!         mark_done(job, token);
//!     }
//!     guard.unlock()?;
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! **Exactly once** needs more than a lock: a worker may die or be suspended between the work and
//! its mark. If both are in one place that [checks the token](crate::guide::fencing), a file or a
//! transaction, they happen together or not at all. If the work is elsewhere (an e-mail), the order
//! decides: the mark after the work repeats the work of a worker that died in between, the mark
//! before it loses it. Work that may be repeated without harm needs no more than the mark after it.
//!
//! # Threads and clones
//!
//! [`LockClient`](crate::LockClient) is `Send` and `Sync`. A clone is a handle to the same client:
//! the same identity, connections and background threads. Make one client per process and share it.
//! Two clients in one process are like two processes: their locks exclude each other.
//!
//! Threads that wait for the same lock queue inside the client, first come, first served, and the
//! hold passes to the next thread without a request ([Turns](crate::ReentrantMutex#turns)), or is
//! acquired for it in the same write as the release. So a pool of threads that share one client is
//! faster and fairer than one client per thread.
//!
//! Long-running work on a pool should poll [`is_held`](crate::OwnedMutexGuard::is_held) between
//! steps; it costs a clock read. See [`losing_a_lock`](crate::guide::losing_a_lock).
