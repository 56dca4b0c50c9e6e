//! Distributed locks over Redis, PostgreSQL, MySQL or ZooKeeper, for Rust programs that use threads
//! and not async.
//!
//! You hold a *lease*. A background thread renews it until you drop the guard, and the guard
//! reports when the lease is gone. Java services with Redisson and Rust services with leasehold
//! share the same locks.
//!
//! # Install
//!
//! ```text
//! cargo add leasehold
//! ```
//!
//! You need Rust 1.88, and Redis 6.2 or later, or Valkey 7.2 or later: one server, a primary behind
//! [sentinels][crate::Sentinel], a [cluster][crate::Cluster], or [several independent
//! servers][crate::Redlock]. See [`guide::servers`]. PostgreSQL and ZooKeeper can keep the same
//! locks, and MySQL some: [`guide::choosing_a_store`] compares them.
//!
//! Only the cargo feature `redis` is on by default. A program that keeps its locks in another
//! store, or in memory, can leave it out: `default-features = false`.
//!
//! | feature | what it adds |
//! |---|---|
//! | `redis` | [`Redis`], [`Sentinel`] and [`Cluster`]: `redis://` URLs. 43 additional crates |
//! | `redlock` | [`Redlock`], and the feature `redis`. No additional crates |
//! | `tls` | `rediss://` and `zookeeper+tls://` URLs and `Tls`, by rustls. 14 additional crates; three of them only build ring, which needs a C compiler |
//! | `tls-core` | the same without ring, for a program that installs a provider of cryptography for rustls, such as aws-lc-rs with FIPS |
//! | `tls-platform-verifier` | `Tls::platform_verifier`: the operating system checks certificates; also brings `tls-core` |
//! | `postgres` | `postgres://` URLs: the same locks in a [PostgreSQL database](guide::postgres). About 20 small additional crates |
//! | `mysql` | `mysql://` and `mariadb://` URLs: locks in a [MySQL or MariaDB database](guide::mysql). 8 small additional crates |
//! | `zookeeper` | `zookeeper://` URLs: the same locks in a [ZooKeeper ensemble](guide::zookeeper), shared with Apache Curator. No additional crates |
//! | `metrics` | `Stats::publish`: the figures, for the facade of the crate `metrics`. Three small additional crates, including that one |
//! | `tracing` | [spans](guide::operations#spans) of waits and holds, for the subscriber of the crate `tracing`. Four small additional crates, including that one |
//! | `prometheus-client` | `observe::Collector`: the figures, for a registry of the crate `prometheus-client`. Eight small additional crates, five of them for its macros |
//! | `serde` | `Serialize` for what [`observe`] shows, and with `Deserialize` for [`FencingToken`](fencing::FencingToken). Two small additional crates, without macros |
//! | `testing` | [`testing`](guide::testing): a clock that your test moves, and faults, for clients in memory |
//!
//! # The first lock
//!
//! ```no_run
//! use leasehold::LockClient;
//!
//! // One client per process. Clones are handles to the same client.
//! let client = LockClient::open("redis://127.0.0.1/")?;
//!
//! {
//!     let guard = client.lock("report")?; // waits until the lock is free
//!     // ... one at a time, across threads, processes and machines ...
//!     guard.ensure_held()?; // an error if the lease has ended
//! } // dropping the guard releases the lock
//!
//! if let Some(_guard) = client.try_lock("cleanup")? {
//!     // Only one of many processes gets here. The others got `None`.
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! Give the guard a name. `let _ = client.lock("job")?;` releases the lock at once, and the
//! compiler does not warn. Nor does it for `if client.try_lock("job")?.is_some() {`, which releases
//! the lock before the block.
//!
//! `Ok(None)` means that somebody else has the lock. An [`Error`] means that the input is bad, that
//! the hold is lost, or that the server could not carry out the request.
//!
//! Unit tests need no server: [`LockClient::in_memory`] makes a client whose locks live in the
//! process. See [`guide::testing`].
//!
//! # Which primitive
//!
//! | you want | take | order between clients |
//! |---|---|---|
//! | one at a time | [`lock(name)`](LockClient::lock), [`mutex(name)`](LockClient::mutex) | unordered, but no client starves; the fastest |
//! | one at a time, in the order of arrival | [`fair(name)`](LockClient::fair) | first come, first served |
//! | several locks as one, such as the two accounts of a transfer | [`multi([a, b])`](LockClient::multi) | all or none; unordered, and a call for busy names may wait long |
//! | many readers or one writer | [`rw_lock(name)`](LockClient::rw_lock) | waiting writers go before new readers |
//! | at most *n* at a time | [`semaphore(name)`](LockClient::semaphore) | unordered, but no client starves |
//! | a start signal, or to wait until *n* things are done | [`latch(name)`](LockClient::latch) | all waiters continue together |
//! | a count shared with Java's `RSemaphore`, or a count of things that nobody holds | [`counting_semaphore(name)`](LockClient::counting_semaphore) | like `semaphore` |
//! | at most *n* within a second, a minute, a day | [`rate_limiter(name)`](LockClient::rate_limiter), on Redis and in memory | who asks for few permits is served before who waits for many |
//! | one leader, which another one follows when it ends or dies | [`election(name)`](LockClient::election) | like `lock` |
//! | a job that runs once for each fire time, however many machines start it | [`once(name, occurrence)`](LockClient::once) | who comes first |
//! | one at a time, even when a server is lost | `lock` or `mutex` with [`Redlock`] | like `lock` |
//!
//! All but the latch, the counting semaphore and the rate limiter are leases. Their guards have the
//! same methods, which the trait [`Held`] has as well; a permit is
//! [released](SemaphorePermit::release) and not unlocked. The exclusive ones also have a fencing
//! token, and can [stay taken](ReentrantMutex::min_hold) for a minimum time. A mutex and a fair
//! lock can have [data](ReentrantMutex::with_data), which everybody who looks at the lock sees.
//! [`escape_name`] turns input from your users into a valid name.
//!
//! # What has to be set first
//!
//! A lock exists as soon as somebody names it. A semaphore, a latch and a rate limiter have a
//! number, which somebody has to set:
//!
//! | not set yet | what its callers get | who sets it |
//! |---|---|---|
//! | [`semaphore`](LockClient::semaphore), [`counting_semaphore`](LockClient::counting_semaphore) | an error, [`Conflict`](ErrorKind::Conflict), rather than a wait for permits that may never come | every program when it starts, with [`try_set_permits`](Semaphore::try_set_permits): the first one sets them |
//! | [`rate_limiter`](LockClient::rate_limiter) | the same error | every program when it starts, with [`try_set_rate`](RateLimiter::try_set_rate) |
//! | [`latch`](LockClient::latch) | it is open: a latch that was never set looks like one whose count has reached zero | one program, with [`set_count`](CountDownLatch::set_count), before anybody waits |
//!
//! ```
//! # let client = leasehold::LockClient::in_memory();
//! # assert!(client.semaphore("api").acquire().is_err());
//! let calls = client.semaphore("api");
//! calls.try_set_permits(10)?; // in every program
//! let call = calls.acquire()?; // at most ten at a time
//!
//! let start = client.latch("start");
//! start.set_count(1)?; // in one program, before the others wait
//! # assert!(!start.try_wait()?);
//! start.count_down()?; // all waiters continue
//! start.wait()?;
//! # call.release()?;
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! # What a lease promises
//!
//! A lock ends by itself when its holder dies. So it can also end while its holder is
//! alive.
//!
//! 1. **A guard never believes in a lock that it may have lost.**
//!    [`is_held`](ReentrantMutexGuard::is_held) is false from the first instruction after the lease
//!    may have ended, even when the process was stopped or the machine was asleep (see
//!    [Versions](#versions) for the clocks).
//! 2. **Nothing is left behind.** A lost reply, a dead server, a wait that timed out, a panic or a
//!    killed process leaves no lock for longer than one lease (permits on Redis: two seconds more),
//!    and no place in a queue for longer than [`waiter_timeout`](Builder::waiter_timeout) ([longer
//!    beside Java](FairMutex#order)). While the process lives, it undoes what is left as soon as
//!    the server answers again. Latches and counting semaphores have no lease: what a killed
//!    process leaves there stays.
//! 3. **It speaks Redisson's protocol.** Keys, values, channels and messages are Redisson's own.
//! 4. **One round trip per call, and no polling.** Two background threads of a client serve any
//!    number of locks and waiters. [`on_lost`](ReentrantMutexGuard::on_lost) and
//!    [`lost`](ReentrantMutexGuard::lost) start one more; while callbacks run, there are up to 16
//!    for them. [`guide::operations`](guide::operations#threads) lists all threads.
//!
//! # What a lease does not promise
//!
//! No lock that is a lease can promise these:
//!
//! - *That nobody else works at the same time.* Your process can be suspended for longer than the
//!   lease between your last check and your write. Clocks can be stepped. A hypervisor pause, CRIU
//!   or a time namespace that also stops the boot-time clock cannot be seen from inside. (A jump of
//!   the wall clock reveals most of these, shortly afterwards.)
//! - *That one Redis remembers.* A failover to a lagging replica, or a restart without persistence,
//!   forgets who holds what. The holder learns that at its next renewal, a third of a lease later.
//!
//! The remedy is the **fencing token**: each exclusive hold has a number that is larger than all
//! earlier ones of its name (for [one exception](fencing::FencingToken), after a forced unlock, the
//! resource refuses the smaller one), and a resource that remembers the highest number refuses the
//! late writer. See [`guide::fencing`].
//!
//! Rule of thumb: where a job that runs twice costs time or money (a cron job, a cache fill), one
//! Redis and a lock are enough. Where it would corrupt data, check the token at the resource as
//! well.
//!
//! # What is not supported
//!
//! - async calls: every call blocks its thread. [`guide::async_code`] says how async code calls it,
//!   and what hangs.
//! - Upgrading a read hold to a write hold. It would wait for itself, so it is refused with
//!   [`Conflict`](ErrorKind::Conflict); start with the write lock and downgrade it.
//! - Redlock for anything but [`lock`](LockClient::lock) and [`mutex`](LockClient::mutex): the
//!   other primitives are refused with [`Unsupported`](ErrorKind::Unsupported).
//! - Platforms other than Linux, macOS and Windows. [How far each is
//!   tested](guide::servers#platforms): all on Linux, Windows under Wine, macOS not at all.
//!
//! # Chapters
//!
//! | chapter | answers |
//! |---|---|
//! | [`guide::waiting`] | How do I wait, for how long, and who is next? How do I take several locks? |
//! | [`guide::losing_a_lock`] | How do I learn that a lock is lost, and what happens then? |
//! | [`guide::scheduled_jobs`] | How does a cron job run once, although ten machines start it? |
//! | [`guide::what_happens_when`] | What does each call answer while something is wrong? |
//! | [`guide::choosing_a_lease`] | How long should the lease and the timeouts be? |
//! | [`guide::choosing_a_store`] | Redis, Redlock, PostgreSQL, MySQL or ZooKeeper: what does each cost, and what happens with each fault? |
//! | [`guide::servers`] | Which servers work, and what happens when one fails? |
//! | [`guide::postgres`] | How do I keep locks in my PostgreSQL, and fence a transaction? |
//! | [`guide::mysql`] | How do I keep locks in my MySQL or MariaDB, and fence a transaction? |
//! | [`guide::zookeeper`] | How do locks survive the loss of any server, and how do I share them with Apache Curator? |
//! | [`guide::redlock`] | How do locks survive the loss of a server? |
//! | [`guide::fencing`] | How do I stop a late holder? |
//! | [`guide::worker_pools`] | Which guard fits a thread pool, rayon, clones and forks? |
//! | [`guide::async_code`] | How do I call it from tokio, and what hangs there? |
//! | [`guide::shutdown`] | How do I end a program cleanly? |
//! | [`guide::testing`] | How do I test code that takes locks? |
//! | [`guide::redisson`] | What do Java and Rust services share, and where do they differ? |
//! | [`guide::operations`] | Which log lines, figures, permissions, keys and limits matter in production? What do I do when a job hangs? |
//!
//! What is held, waited for and counted, by whom, and how the servers are: [`observe`] has a table
//! of the calls that show it.
//!
//! # In Redis
//!
//! [`guide::operations`] has the [keys and channels](guide::operations#keys-and-channels), the
//! [rules for names](guide::operations#names), the [ACL rule](guide::operations#acl-rule) and the
//! [log lines](guide::operations#log-lines).
//!
//! # Versions
//!
//! Rust 1.88; raising that is a minor release of its own. The only type of another crate in the
//! public API is [`crossbeam_channel::Receiver`] (crossbeam-channel 0.5), which
//! [`lost`](ReentrantMutexGuard::lost) of a guard returns. The feature `serde` implements the
//! traits of serde 1.
//!
//! Leases are measured by a clock that keeps counting while the machine sleeps: `CLOCK_BOOTTIME` on
//! Linux, Android and OpenBSD, `CLOCK_MONOTONIC` on macOS and Apple's other systems, and the
//! performance counter on Windows, which is [`Instant`](std::time::Instant) there. Elsewhere the
//! clock is `Instant` as well, and may stop during sleep. There a jump of the wall clock reveals
//! the sleep, but only shortly after the machine is awake; until then a guard can believe in a
//! lease that has ended.
#![cfg_attr(not(feature = "redis"), doc = include_str!("links/redis.md"))]
#![cfg_attr(not(feature = "redlock"), doc = include_str!("links/redlock.md"))]
// The pages on docs.rs show which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Some code that stores share is used by only one of them, and is dead in a build without that
// store. The build with all features has no dead code.
#![cfg_attr(
    not(all(feature = "postgres", feature = "mysql", feature = "redlock", feature = "zookeeper")),
    allow(dead_code, unused_imports)
)]

mod base;
mod builder;
mod client;
pub mod fencing;
pub mod guide;
mod hold;
mod in_memory;
mod lease;
pub mod observe;
#[cfg(not(shuttle))]
mod os;
// The tests in `tests/scheduler` use it to wait, to spawn threads and to read clocks.
#[cfg(shuttle)]
#[doc(hidden)]
#[allow(missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod os;
mod report;
mod signal;
mod store;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod wait;

pub use crossbeam_channel;

pub use base::advice::Advice;
#[cfg(feature = "redis")]
pub use base::credentials::{Credentials, CredentialsProvider};
pub use base::error::{Error, ErrorKind, Result};
pub use base::escape::{escape_name, unescape_name};
pub use base::loss::{Loss, LossReason, LossWait, RenewalFailure};
pub use base::primitive::Primitive;
#[cfg(feature = "tls-core")]
pub use base::tls::Tls;
pub use builder::Builder;
#[cfg(feature = "redis")]
pub use builder::cluster::Cluster;
#[cfg(feature = "mysql")]
pub use builder::mysql::Mysql;
#[cfg(feature = "postgres")]
pub use builder::postgres::Postgres;
#[cfg(feature = "redis")]
pub use builder::redis::Redis;
#[cfg(feature = "redlock")]
pub use builder::redlock::Redlock;
#[cfg(feature = "redis")]
pub use builder::sentinel::Sentinel;
#[cfg(feature = "zookeeper")]
pub use builder::zookeeper::ZooKeeper;
pub use client::LockClient;
pub use signal::cancel::CancelToken;
#[cfg(feature = "mysql")]
pub use store::mysql::MYSQL_SCHEMA;
#[cfg(feature = "postgres")]
pub use store::postgres::POSTGRES_SCHEMA;
pub use sync::counting_semaphore::{CountingPermit, CountingSemaphore};
pub use sync::election::{Election, Leader, LeaderWatch, Term};
pub use sync::fair_mutex::{FairMutex, FairMutexGuard, OwnedFairMutexGuard};
pub use sync::held::Held;
pub use sync::latch::CountDownLatch;
pub use sync::multi_lock::{MultiLock, MultiLockGuard, OwnedMultiLockGuard};
pub use sync::mutex::{OwnedMutexGuard, ReentrantMutex, ReentrantMutexGuard};
pub use sync::once::{Every, JobRun, Occurrence, Once, ScheduledJob, Settled};
pub use sync::rate_limiter::RateLimiter;
pub use sync::rwlock::{
    OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use sync::semaphore::{PermitId, Semaphore, SemaphorePermit, SetPermits};
