//! Distributed locks over Redis for programs that use threads: a lease is what you hold, and the guard knows when it is
//! gone.
//!
//! ```no_run
//! use leasehold::LockClient;
//!
//! let client = LockClient::open("redis://127.0.0.1/")?;
//! let guard = client.lock("job")?; // blocks; renewed in the background until the guard is dropped
//! // ... one at a time, across threads, processes and machines ...
//! guard.ensure_held()?; // still ours?
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! A Java process with Redisson and a Rust process with leasehold share these locks: they exclude and wake each other; see
//! [`interop`].
//!
//! # What holding a lock promises, and what not
//!
//! A lock in Redis is a *lease*: it ends by itself when its holder dies, and so it can end under a holder that lives.
//!
//! Promised, on every path:
//! 1. **A guard never believes in a lock it may have lost.** [`is_held`](ReentrantMutexGuard::is_held) is false from
//!    the first instruction after the lease may have ended, also after a SIGSTOP or a suspended laptop (with the clocks of
//!    Linux, Android, OpenBSD and Apple; see [Versions](#versions)).
//! 2. **Nothing is left behind.** A lost reply, a dead server, a timed-out wait, a panic or a killed process leaves no
//!    lock for longer than one lease (permits: two seconds more), and no place in a queue for longer than
//!    [`waiter_timeout`](Builder::waiter_timeout); wherever the process lives, it is undone as soon as the server answers
//!    again. Latches and counting semaphores have no lease: what a killed process leaves of those stays.
//! 3. **Redisson's protocol.** Keys, values, channels and messages are its own.
//! 4. **One round trip per method, no polling**, two background threads per client whatever the load, and a third if there are
//!    `on_lost` callbacks.
//!
//! Not promised, by any lock that is a lease:
//! - *That nobody else works at the same time.* Between your last look and your write the process can be suspended for
//!   longer than the lease. Clocks can be stepped. A hypervisor pause, CRIU or a time namespace that also stops the
//!   boot-time clock cannot be seen from inside (a jump of the wall clock gives most of them away, a moment late).
//! - *That one Redis remembers.* A failover to a replica that lags, or a restart without persistence, forgets who holds
//!   what; the next renewal tells the holder, a third of a lease later.
//!
//! The remedy is the **fencing token**: every hold has a number larger than all earlier ones of that name, and a
//! resource that remembers the highest it has seen refuses the late writer. [`fencing`] has the half that a resource
//! needs: for a Redis key, for SQL tables, for a resource inside one process.
//!
//! So: where a doubled run costs money or time but no truth (a cron job, a cache fill), one Redis and a lock is enough.
//! Where it costs correctness, use the token at the resource as well.
//!
//! # Which one when
//!
//! | you want | take | between clients |
//! |---|---|---|
//! | one at a time | [`client.lock(name)`](LockClient::lock), [`mutex`](LockClient::mutex) | no order, nobody wins for ever; the quickest |
//! | several things at once, each also locked alone: a transfer between two accounts | [`multi`](LockClient::multi) | all or none; no order, and many names that are hot may wait long |
//! | one at a time, also when a server is lost | the same on several masters: [`Builder::redlock`] | as above |
//! | one at a time, in the order in which they came | [`fair`](LockClient::fair) | first come, first served |
//! | many readers or one writer | [`rw_lock`](LockClient::rw_lock) | waiting writers go before new readers |
//! | at most *n* at a time | [`semaphore`](LockClient::semaphore) | no order, nobody wins for ever |
//! | a start signal, or to wait until *n* things are done | [`latch`](LockClient::latch) | all who wait go on together |
//! | a count shared with Java's `RSemaphore`, or of things that nobody holds | [`counting_semaphore`](LockClient::counting_semaphore) | as `semaphore` |
//!
//! All but the last two are leases, with the same guards; the exclusive ones have fencing tokens. What each promises when
//! whoever has it or waits for it
//!
//! | | pauses for longer than the lease | dies | loses the server, or the server its data |
//! |---|---|---|---|
//! | `mutex`, `multi`, `fair`, `rw_lock`, `semaphore`: held | is told that it is lost, at its first look; others have it meanwhile | it is free when the lease ends (permits two seconds later) | is told when the lease ends, or at the next renewal |
//! | `fair`: waiting | keeps its turn if nobody was served meanwhile, else goes to the front | holds up those behind it for [`waiter_timeout`](Builder::waiter_timeout); [beside Java](FairMutex#order) it can be longer | waits on; after a loss of data the order begins anew |
//! | `rw_lock`: a writer waiting | readers get in before it | keeps new readers out for `waiter_timeout` | waits on |
//! | `latch` | nothing happens: a latch has no lease | what it has not counted down is never counted: wait with a time | waits on; a latch that the server forgot is open |
//! | `counting_semaphore` | nothing happens | **its permits never come back** | permits that the server forgot are nobody's |
//!
//! # Several locks at once
//!
//! [`client.multi(["a", "b"])`](LockClient::multi) takes plain locks as one: all of them or none, in one script, and nobody ever
//! sees half of it. It holds nothing while it waits, so the order of the names does not matter: two programs that name the same
//! locks in different orders never wait for each other for ever, as they would with one `lock` after the other. Two things
//! remain. A thread that *holds* a lock and then waits for a multi-lock can deadlock with one that does the reverse: take
//! everything in one call. And names that many others take one by one can keep it waiting, because it needs the moment when all
//! are free. Each name stays the lock it is: `client.lock("a")` and Redisson's `RLock` and `RMultiLock` exclude it and are
//! excluded, and a thread that has the multi-lock can enter each name again.
//!
//! # Taking a lock
//!
//! | | blocks | answer |
//! |---|---|---|
//! | [`lock`](LockClient::lock) | until it is ours | a guard |
//! | [`try_lock`](LockClient::try_lock) | one round trip | `None`: somebody else has it |
//! | [`try_lock_for`](LockClient::try_lock_for), [`try_lock_until`](LockClient::try_lock_until) | until then, and one round trip | the same |
//! | [`mutex(name)`](LockClient::mutex)`.lock_owned()` and its `try_` forms | as above | a guard that can change threads |
//!
//! The other primitives have the same four forms of their own methods: `read` and `write`, `acquire` and `acquire_many`; a latch has
//! `wait`, `try_wait`, `wait_for`, `wait_until`.
//! [`ReentrantMutex`] has what only some callers need: a [fixed lease](ReentrantMutex::with_lease), a limit to
//! [renewal](ReentrantMutex::max_hold), who [holds](ReentrantMutex::holder) it, [freeing](ReentrantMutex::force_unlock)
//! it by force.
//!
//! Name the guard: `let _ = client.lock("job")?` unlocks at once, which the compiler does not see.
//!
//! # Waiting
//!
//! A waiter is woken by the message of the release; a timer at the end of the holder's lease is the fall-back, so a
//! lost message costs time and nothing else. Threads of one client queue up inside it, first come first served, and
//! cost the server what one waiter costs (those of a fair lock stand in its queue in Redis, each for itself). Between
//! clients there is no order, but none wins for ever.
//!
//! # Losing a lock
//!
//! Three ways to be told: ask ([`is_held`](ReentrantMutexGuard::is_held),
//! [`ensure_held`](ReentrantMutexGuard::ensure_held)), block ([`wait_lost`](ReentrantMutexGuard::wait_lost)), or be
//! called ([`on_lost`](ReentrantMutexGuard::on_lost)). A loss is final: a thread whose hold was lost gets
//! [`ErrorKind::Lost`] when it asks for the same lock, until all guards of that hold are gone. An unlock signals none;
//! [`close`](LockClient::close) tells whoever still has a guard in the same three ways, with [`ErrorKind::Closed`], because it
//! gives the lock away under them.
//!
//! A callback belongs to the guard through which it was set: it runs once, when the lease is lost while that guard lives,
//! also when the guard's own unlock or drop finds the loss, and never once that guard was given up with the lease held.
//!
//! # When the server fails
//!
//! `Ok(None)` means that somebody else has the lock; an [`Error`] means that we do not know, or that the input is bad.
//! A first attempt against a dead server fails at once. A call that is already waiting rides out a restart or a
//! failover for [`outage_timeout`](Builder::outage_timeout). When a reply is lost, the request may have run or may still run: the
//! connection is killed at the server, and then the acquisition is undone, in the background, as soon as the server can
//! be asked. Every script of a lock sets counts instead of adding to them, and what changes the count of a latch or a
//! semaphore carries an id that is remembered (for a minute; that of permits taken from a counting semaphore for ten), so all
//! of them may be repeated for that long.
//!
//! # More than one server
//!
//! One Redis that fails over to a replica that lags, or restarts empty, forgets its locks. Two remedies, in the order of their
//! price; neither replaces the fencing token where a doubled run costs correctness.
//!
//! [`Builder::replicas(k)`](Builder::replicas): a grant or a renewal counts once `k` replicas have it (`WAIT`). A failover to
//! one of them keeps the lock; nothing makes a failover choose one of them.
//!
//! [`Builder::redlock()`](Builder::redlock) over [`urls`](Builder::urls): the lock is held on a majority of several masters
//! that know nothing of each other, so any minority of them may be dead, cut off, hung or slow, and nobody but an operator
//! notices. Only the list of URLs changes: the same methods, guards, watchdog and waiting, for the re-entrant and the owned lock.
//! The other primitives answer [`Unsupported`](ErrorKind::Unsupported): two clients could each have a majority of *different*
//! permits, and a queue has no order that several masters share.
//!
//! - *Validity.* A hold counts from before the first byte was sent, less the drift of the clocks (1 % + 2 ms), and only a
//!   majority of all *configured* masters makes or renews it. What a failed round left is undone on every master that may
//!   have it, also on one that answers only later.
//! - *Masters that forget.* One that restarted, was flushed, failed over or is new has no vote, for any client, until
//!   [`longest_lease`](Builder::longest_lease) has passed. Without that a restart hands out a lock that somebody holds. A first
//!   installation waits as long once, or says [`admit_fresh_nodes`](Builder::admit_fresh_nodes); masters that sync every write
//!   may be [trusted](Builder::durable_nodes) when they come back with their data.
//! - *Tokens* grow strictly for each name, whatever the clocks and whichever majority: a token rests on a majority before it
//!   is used, which takes a second round when a clock is behind ([`token_rounds`](LockClient::token_rounds) counts them).
//! - *Errors.* [`NoQuorum`](ErrorKind::NoQuorum) lists what each master said; it is never said when the lock is simply
//!   held. [`nodes`](LockClient::nodes) tells who votes, how quick each is, and its last error.
//! - *Not promised*: what no lease can promise (see above); exclusion while the clock of a master is stepped, be it of a single
//!   one: a jump forward ends the leases on it early, and a second holder can get a majority with it before the first one's lease
//!   is over (both believed for 3 to 71 ms in tests; [fencing tokens](fencing) tell them apart); tokens that grow although a *majority* lost its memory at once
//!   (they go on from the masters' clocks); order between clients; and all of this beside Redisson's `RedissonRedLock`, which
//!   knows of no votes and no validity: see [`interop`](interop#beside-redissonredlock).
//!
//! # Threads, forks, cloning
//!
//! Re-entry goes by thread, so on a pool that steals work (rayon) [`lock`](LockClient::lock) can let two jobs in: there take
//! [`non_reentrant`](ReentrantMutex::non_reentrant) handles or owned guards; see
//! [`ReentrantMutex`](ReentrantMutex#re-entrancy).
//!
//! For the rest see [`LockClient`]. A thread that ends while it holds locks (its guards were forgotten) has them released. A child
//! process made by `fork()` owns nothing and harms nothing.
//!
//! # Log levels
//!
//! WARN: renewals begin to fail (once an outage, with the cause and how long the leases still last) and work again; a lease was
//! lost, or has reached its `max_hold`; a release failed; release messages cannot be received for want of permission; the server
//! may evict locks; a master of Redlock has no vote, with how long that takes. DEBUG: connections, each failed renewal, what is
//! being resolved. Each line has the whole chain of causes. Nothing is logged at ERROR or INFO, and no passwords or fencing tokens
//! at any level. A logger may block, and may use the client: nothing is logged under a mutex of the client.
//!
//! # In Redis
//!
//! Redis 6.2 or later, or Valkey 7.2 or later; standalone primaries, by TCP or unix socket. For a lock `N`; where the table
//! has `{N}`, a name that has braces of its own, like `a{b}c`, stands without others around it (but in the channel of a latch):
//!
//! | key or channel | what |
//! |---|---|
//! | `N` | a lock: hash, holder id → hold count (and `mode` of a read-write lock), with the lease as its TTL; a latch or semaphore: the count |
//! | `redisson_lock_token:{N}` | the last fencing token; forgotten a day after the last grant |
//! | `redisson_lock_queue:{N}`, `redisson_lock_timeout:{N}` | who waits for a fair lock, and when each counts as dead |
//! | `{N}:<holder>:rwlock_timeout:<level>` | one reader's lease |
//! | `{N}:timeout` | a semaphore's permits, and when the lease of each ends |
//! | `leasehold_writer:{N}` | a writer waits: not Redisson's, for `waiter_timeout` |
//! | `leasehold_once:{N}:<id>` | the answer to a change of a count, in case it is repeated: not Redisson's, for a minute (that permits of a counting semaphore were taken: until they are back, 10 minutes at most) |
//! | `leasehold_once:{N}:opened` | when a latch was opened last: not Redisson's, for a minute |
//! | `leasehold:node` | what a master of Redlock remembers of itself: whether it may vote, its highest token. Not Redisson's, never expires |
//! | `redisson_lock__channel:{N}`, `redisson_rwlock:{N}`, `redisson_sc:{N}`, `redisson_countdownlatch__channel__{N}` | where what waiters wait for is published; fair waiters each on a channel that ends in `:<holder>` |
//!
//! A name has 1 to 1024 bytes, its [prefix](Builder::key_prefix) included. Braces in it must leave all of these keys with one
//! hash tag: none, or a pair with something in it, as in `a{b}c`; other names are refused. So is a name that, with the prefix in
//! front, is one of the keys beside `N` (`redisson_lock_token:{x}`, `{x}:timeout`, `leasehold:node`).
//!
//! A user with an ACL needs these, the first three for each name or pattern of names with its prefix, such as `app:*`, and
//! the third for names with braces only:
//! `~<names> ~{<names>}:* ~<names>:* ~redisson_lock_token:* ~redisson_lock_queue:* ~redisson_lock_timeout:* ~leasehold_writer:*
//! ~leasehold_once:* &redisson_lock__channel:* &redisson_rwlock:* &redisson_sc:* &redisson_countdownlatch__channel__*
//! +hset +hget +hdel +hexists +hgetall +hlen +exists +del +get +set +incr +incrby +decrby +pttl +pexpire +pexpireat
//! +persist +time +lindex +lrange +linsert +rpush +lpop +lrem +zadd +zrem +zscore +zmscore +zcard +zcount +zrange +zrangebyscore
//! +publish +subscribe +unsubscribe +psubscribe +punsubscribe +ping +eval +evalsha +script|load +client|setname
//! +client|info +client|kill +info`. (An ACL cannot name the pattern by which a client's fair waiters listen, so under one
//! that restricts channels each of them has a subscription of its own.) Without `client|kill` or
//! `info` an acquire that was lost is refused by time instead, which takes an I/O timeout longer. [`Builder::redlock`] needs
//! `~leasehold:node +hmget +hkeys` and `info` besides, [`Builder::replicas`] needs `+wait`, a database other than 0 `+select`.
//! Connecting finds what commands are missing (on Redis 6.2 all but `hset`, `incr` and `rpush`), but no missing keys: those the
//! first method reports, as [`ErrorKind::Denied`]; it finds nothing for a user who may not have the key
//! `redisson_lock_token:{<prefix>leasehold:probe}`. Use `maxmemory-policy noeviction`: a lock that is evicted is lost. A client
//! that finds a `maxmemory` with another policy logs that once, at WARN.
//!
//! # Versions
//!
//! Rust 1.88; a raise is a minor release of its own. No type of another crate is part of this one's interface.
//!
//! Leases are counted by a clock that goes on while the machine sleeps: on Linux, Android and OpenBSD `CLOCK_BOOTTIME`, on
//! macOS and Apple's other systems `CLOCK_MONOTONIC`. Elsewhere it is [`Instant`](std::time::Instant), which may stand still
//! then: a jump of the wall clock gives that away, but only a moment after the machine is awake, and until then a guard can
//! believe in a lease that has ended.

mod background;
mod base;
mod builder;
mod client;
pub mod fencing;
mod in_memory;
pub mod interop;
mod session;
mod store;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;

pub use base::error::{Error, ErrorKind, Result};
pub use base::node_status::{NodeState, NodeStatus};
pub use builder::Builder;
pub use client::LockClient;
pub use sync::counting_semaphore::{CountingPermit, CountingSemaphore};
pub use sync::fair_mutex::{FairMutex, FairMutexGuard, OwnedFairMutexGuard};
pub use sync::handle::LockHolder;
pub use sync::latch::CountDownLatch;
pub use sync::multi_lock::{MultiLock, MultiLockGuard, OwnedMultiLockGuard};
pub use sync::mutex::{OwnedMutexGuard, ReentrantMutex, ReentrantMutexGuard};
pub use sync::rwlock::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use sync::semaphore::{PermitId, Semaphore, SemaphorePermit};
