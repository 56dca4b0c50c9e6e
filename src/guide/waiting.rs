//! How a call waits, for how long, and who is next.
//!
//! # The four forms of each call
//!
//! | call | blocks | result |
//! |---|---|---|
//! | [`lock`](crate::LockClient::lock) | until it has the lock | a guard |
//! | [`try_lock`](crate::LockClient::try_lock) | for one round trip | `None` if somebody else has the lock |
//! | [`try_lock_for`](crate::LockClient::try_lock_for) | for the given time and one round trip | `None` if the lock could not be taken in that time |
//! | [`try_lock_until`](crate::LockClient::try_lock_until) | until the given instant and one round trip | the same |
//!
//! A call that gives up in vain takes one round trip more where it leaves a queue of the store: for
//! a fair lock, for `write`, and for all locks over ZooKeeper.
//!
//! [`mutex(name)`](crate::LockClient::mutex) has these four, and `lock_owned` with its three `try_`
//! forms, whose guards can move to another thread. The other primitives have the same four forms of
//! their own calls: `read` and `write`, `acquire` and `acquire_many`. A latch has `wait`,
//! `try_wait`, `wait_for` and `wait_until`.
//!
//! ```no_run
//! use std::time::Duration;
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! match client.try_lock_for("report", Duration::from_secs(5))? {
//!     Some(guard) => guard.ensure_held()?, // ... do the work ...
//!     None => println!("somebody else has had it for five seconds"),
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! **Bind the guard.** `if client.try_lock("report")?.is_some() { .. }`, which Java's habit
//! suggests, drops the guard *before* the block, and so does `let Some(_) = .. else { .. }`: no
//! warning, and no exclusion. Clippy's `redundant_pattern_matching` proposes `is_some()` for
//! `if let Some(_)`: write `Some(_guard)` there.
//!
//! To log who held the lock, ask for its holder:
//!
//! ```no_run
//! # use std::time::Duration;
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! let lock = client.mutex("report");
//! match lock.try_lock_for(Duration::from_secs(5))? {
//!     Some(guard) => guard.ensure_held()?, // ... do the work ...
//!     None => match lock.holder()? {
//!         // held by billing-7 (pid 4711 on host-a) for 12 s, its lease ends in 21 s
//!         Some(holder) => eprintln!("no report today: {holder}"),
//!         None => eprintln!("no report today: the lock came free just now"),
//!     },
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! [Looking at a lock](crate::guide::operations#looking-at-a-lock) explains where this information
//! comes from.
//!
//! `Ok(None)` never means a failure: a failed call returns an [`Error`](crate::Error). (In
//! PostgreSQL there is [one exception](crate::guide::postgres#locks-of-the-database), which is
//! logged: a foreign session has locked the row of a free lock for as long as the call waited.)
//!
//! # How a waiter is woken
//!
//! The release of a lock publishes a message, and the message wakes the waiter. A message is a hint
//! to try again; only the release of a fair lock on Redis gives the lock to the first waiter, and
//! then its lease counts from the waiter's last request, however late the message is. A timer at
//! the end of the holder's lease is the fallback, so a lost message costs time and nothing else.
//! While a client cannot receive messages (its subscriber connection is down, or its user lacks the
//! permission), its waiters poll about every half second, and in between every 3 ms for a sixth of
//! a second, so that they also get in beside busy clients.
//!
//! # Who is next
//!
//! - *Threads of one client* queue inside the client, first come, first served. Only the leader of
//!   the queue talks to the server, so fifty waiting threads cost the server as much as one. When a
//!   thread of the client releases a plain lock, the hold passes to the next one without a request,
//!   for a bounded time ([Turns](crate::ReentrantMutex#turns)); otherwise the leader's attempt goes
//!   out in the same write as the release.
//! - *Between clients* a plain lock has no order, but no client starves: a client that has had the
//!   lock for 8 ms while others wait lets another one have it next, those that have waited longest
//!   first. (It yields for 10 ms at most, and less often, up to every 32 ms, while nobody else
//!   takes the lock.) Whether or not it knows of others, it also leaves the lock free for 6 ms
//!   after each 150 ms in which its threads handed the lock to each other.
//! - *A [fair lock](crate::FairMutex)* is served in the order of arrival, across all processes. Its
//!   waiters queue in Redis, with one place for each thread.
//! - *A [read-write lock](crate::RwLock)* keeps new readers out while a writer waits.
//!
//! A waiter that times out, fails or panics leaves its queue at once. A waiter whose process is
//! killed delays the others for [`waiter_timeout`](crate::Builder::waiter_timeout) at most (5 s by
//! default). With Java waiters in a fair queue it [can be longer](crate::FairMutex#order).
//!
//! # Ending a wait
//!
//! Another thread can end a wait: with the handle's [`CancelToken`](crate::CancelToken), for the
//! calls of one job; with [`stop_waiting`](crate::LockClient::stop_waiting), for all calls of a
//! client that [shuts down](crate::guide::shutdown).
//!
//! ```no_run
//! use leasehold::{CancelToken, ErrorKind};
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! let token = CancelToken::new(); // a clone of it goes to whoever may cancel
//! match client.fair("job").with_cancel(&token).lock() {
//!     Err(e) if e.kind() == ErrorKind::Cancelled => println!("never mind"),
//!     outcome => drop(outcome?),
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! Either ends a wait within about a millisecond, wherever it is: behind another thread of the
//! client, in the queue of a fair lock, in an outage. Only a request that is under way is completed
//! first, for up to a few I/O timeouts when the server hangs; without a reply it is undone in the
//! background. If the lock is granted at the same moment, the call returns the guard.
//!
//! # Waiting during an outage
//!
//! A call whose *first* attempt cannot reach the server fails at once. A call that is already
//! waiting keeps trying through a restart or a failover for
//! [`outage_timeout`](crate::Builder::outage_timeout), by default one lease, and fails after that.
//!
//! # Which error to try again
//!
//! A call that waits has tried again already, for as long as the outage timeout allows. For the
//! next call, [`is_transient`](crate::Error::is_transient) says whether the same call may succeed
//! later although nobody changes anything; its table has all kinds. A lost lock is not among them:
//! whoever lost it has to begin its work anew, not only to take the lock again.
//!
//! ```
//! # fn work() {}
//! # let client = leasehold::LockClient::in_memory();
//! match client.lock("job") {
//!     Ok(_guard) => work(),
//!     Err(error) if error.is_transient() => eprintln!("next time: {error:#}"),
//!     Err(error) => return Err(error), // settings, rights, or a bug: somebody has to act
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! `{error}` is one line without the cause, `{error:#}` one with all causes, and what `fn main() ->
//! Result<(), leasehold::Error>` prints also has the kind.
//!
//! # Several locks at once
//!
//! [`client.multi(["a", "b"])`](crate::LockClient::multi) takes plain locks as one: all of them or
//! none, in one script. Nobody ever sees some of them taken.
//!
//! ```no_run
//! # let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
//! let both = client.multi(["account:17", "account:4"]).lock()?;
//! // ... move money from one account to the other ...
//! both.unlock()?;
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! A multi-lock holds nothing while it waits (over ZooKeeper it keeps places in the queues, which
//! it enters in one transaction). So the order of the names does not matter: two programs that name
//! the same locks in different orders cannot deadlock, as they could by taking one lock after the
//! other. Two limits remain:
//!
//! - A thread that *holds* a lock and then waits for a multi-lock can deadlock with a thread that
//!   does the reverse. Take everything in one call.
//! - Names that many others take one by one can keep a multi-lock waiting, because it needs a
//!   moment when all of them are free.
//!
//! Each name remains a plain lock: `client.lock("a")`, and Redisson's `RLock` and `RMultiLock`,
//! exclude the multi-lock and are excluded by it. A thread that has the multi-lock can re-enter
//! each name.
