//! How does a cron job run once, although ten machines start it?
//!
//! A lock says that one works *at a time*. A nightly report needs another promise: that nobody does
//! it *again*. [`LockClient::once`](crate::LockClient::once) is for that.
//!
//! ```
//! use std::time::Duration;
//!
//! use leasehold::{Every, LockClient, Once};
//! # let client = LockClient::in_memory();
//! // In a crontab, a timer or a loop of each machine, at about two in the morning in UTC.
//! let nightly = Every::new(Duration::from_secs(86_400)).offset(Duration::from_secs(2 * 3600));
//! let report = client.once("report", nightly).pause(Duration::from_secs(60));
//! match report.run(|job| make_report(job.occurrence()))? {
//!     Once::Done(rows) => println!("{rows} rows"),
//!     Once::AlreadyDone { by, .. } | Once::Running { by, .. } => println!("that is {by}'s"),
//!     Once::Failed(error) => println!("another machine may try again in a minute: {error}"),
//!     other => println!("{other:?}"),
//! }
//! # fn make_report(day: &str) -> std::io::Result<usize> { Ok(day.len()) }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! What became of these calls is [counted](crate::observe::Stats::jobs): the chapter
//! [operations](crate::guide::operations#figures) says what to alarm on, such as a last success
//! that is too old. `leasehold show report` prints the newest occurrence that was done.
//!
//! # Why a lock is not enough
//!
//! The job takes 2 ms, and the clocks of ten machines differ by 300 ms: each finds the lock free
//! again. To keep the lock taken for longer ([`min_hold`](crate::ReentrantMutex::min_hold),
//! ShedLock's `lockAtLeastFor`) helps as long as nobody is later than that: a machine that was
//! asleep, or a crontab that runs a day later by mistake, does the work again. A record of what was
//! done has no such limit: its label names the occurrence.
//!
//! # Which occurrence
//!
//! A label of your own, such as the day of the report, or [`Every`](crate::Every): the last
//! multiple of an interval by the clock **of the store**, in UTC.
//!
//! | what differs | what follows |
//! |---|---|
//! | clocks of the machines, by 300 ms or by minutes | nothing: the store's clock decides. A machine that comes up to [`early`](crate::Every::early) before the time (30 s, a tenth of the interval at most) means that time; one that comes earlier means the time before, which was done |
//! | a machine is late, by an hour or a day | its occurrence is done, or a newer one is: it runs nothing. If nobody has done the time that is still the last one, it does that, unless the [`grace`](crate::Every::grace) is over |
//! | nobody calls at all | nothing runs, and nothing is made up for later |
//! | local time changes (daylight saving) | UTC does not. For a job that is due at a local time, take the date as its label; or put the time in UTC hours before the local one |
//! | the store's clock is set back | labels are older than the newest that was done: [`Passed`](crate::Once::Passed), until it has caught up |
//! | the store's clock is set forward, and back again | an occurrence of the future is done, and all before it are `Passed`. [Forget](crate::ScheduledJob::forget) that one |
//!
//! Labels of one job are ordered by their bytes, so use one format. An occurrence that is not newer
//! than the newest that was done is over, for a year, also when its own record has expired: to do
//! an old one again, [forget](crate::ScheduledJob::forget) it first. An id without an order, such
//! as that of a payment, belongs into the *name* of the job, with any label.
//!
//! # What can go wrong
//!
//! | what happens | what the store knows | what follows |
//! |---|---|---|
//! | the process dies before the closure | an attempt may be counted | when the lease is over, the next caller runs it |
//! | it dies in the closure | an attempt, and no success | the same. **The work may be done in part**: [`attempt`](crate::JobRun::attempt) is above 1 then |
//! | it dies after the work, before "done" is recorded | the same | **the work is done again** |
//! | it is suspended for longer than its lease, and goes on | another may have begun the same occurrence | what it still does collides with the other; its success is not recorded: [`Unrecorded`](crate::Once::Unrecorded) |
//! | the closure returns an error, or panics | an attempt that failed | the next caller runs it, after the [`pause`](crate::ScheduledJob::pause), until all [`attempts`](crate::ScheduledJob::attempts) are used up: [`GaveUp`](crate::Once::GaveUp) |
//! | the reply to "done" is lost | the success, or not | the request is repeated, and finds what it has recorded. Nothing else gives up the lease meanwhile |
//! | the store does not answer until the lease, or `outage_timeout`, is over | the success, or not | `Unrecorded`: the next caller is told which |
//! | the lease is forced out ([`force_out`](crate::ScheduledJob::force_out)) | an attempt | `Unrecorded`; the next caller runs it |
//! | Redis fails over to a replica that lags, or restarts without its data | perhaps not the success, nor the attempts | it runs again. [`Redis::replicas(1)`][crate::Redis::replicas] makes "done" wait for a replica |
//! | nobody knows the occurrence any more ([`keep`](crate::ScheduledJob::keep) is over) | the newest label | `Passed` |
//!
//! So the *record* is made once, and the *work* at least once if somebody goes on calling. To have
//! the work done once in effect:
//!
//! - let the resource check the [fencing token](crate::JobRun::fencing_token), so that a suspended
//!   run cannot write after the next one has begun: [`fencing`](crate::guide::fencing);
//! - make the work idempotent by the label: a report for 2026-11-23 replaces one for 2026-11-23;
//! - or, on PostgreSQL, record the success in the transaction that does the work:
//!   [`done_sql`](crate::JobRun::done_sql). Both are committed, or neither.
//!
//! The lease is that of the client, renewed while the closure runs. A closure that hangs keeps its
//! job for ever, unless it has a [`max_hold`](crate::ScheduledJob::max_hold).
//!
//! # Who tries again
//!
//! Nobody, by itself. `run` returns at once if another machine is at it. If that one fails, the
//! machines that have called already do not come back: let each call again some time later (a
//! second line of the crontab), or wait for the result:
//!
//! ```
//! # use std::time::Duration;
//! # use leasehold::{LockClient, Once, Settled};
//! # let client = LockClient::in_memory();
//! let report = client.once("report", "2026-11-23").attempts(5);
//! loop {
//!     if let Once::Done(()) = report.run(|_| Ok::<_, std::io::Error>(()))? {
//!         break;
//!     }
//!     // Woken when it is done, or was given up.
//!     if report.wait_done_for(Duration::from_secs(60))?.is_some() {
//!         break;
//!     }
//! }
//! # assert!(matches!(report.wait_done()?, Settled::Done { .. }));
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! A job that takes longer than its interval misses times: while one occurrence runs, no other
//! begins ([`Running`](crate::Once::Running)). In a schedule with `Every`, a caller that comes
//! after it has ended does the last time, and not those in between.
//!
//! # Coming from ShedLock
//!
//! | ShedLock | here |
//! |---|---|
//! | `lockAtMostFor` | the [lease](crate::Builder::lease), which is renewed while the process lives; as a limit for a job that hangs, [`max_hold`](crate::ScheduledJob::max_hold) |
//! | `lockAtLeastFor` | not needed: the occurrence is recorded |
//! | "skipped" | [`Once`](crate::Once) says why: done, by whom; running; given up; passed |
//! | a late machine runs the job again | it does not |
//! | the lock is released, and the job has failed: nothing is known | the attempts are counted, and limited |
//!
//! Both were run side by side: the table is in `BENCHMARKS.md`.
//!
//! # In each store
//!
//! | store | the record | what it costs |
//! |---|---|---|
//! | Redis (one, behind sentinels, a cluster) | [three keys](crate::guide::operations#keys-and-channels) with one hash tag, one script for each step | four round trips for an occurrence that runs, one for one that does not |
//! | PostgreSQL | a row of the table `leasehold.done`. "Done" is committed synchronously, unlike a release | one more, which notifies those who wait |
//! | ZooKeeper | a node for each occurrence, below `leasehold_done:{name}`, and one for what was last. "Done" is one transaction, which deletes the node of the lease. Records older than `keep` count no more, and are deleted by the next occurrence that begins; what was last stays | the same, of which five are writes |
//! | in memory | in the process | nothing |
//! | Redlock | none: [`Unsupported`](crate::ErrorKind::Unsupported). Whether a success is recorded must be decided at one place | |
//! | MySQL, MariaDB | none: [`Unsupported`](crate::ErrorKind::Unsupported) | |
#![cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
