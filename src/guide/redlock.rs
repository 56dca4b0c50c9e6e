//! Locks on a majority of several masters. [`choosing_a_store`](crate::guide::choosing_a_store)
//! compares this with the other stores.
//!
//! A single Redis forgets its locks when it fails over to a lagging replica or restarts empty. With
//! [`Redlock`][crate::Redlock] (cargo feature `redlock`) a lock is held on a majority of several
//! independent masters. Any minority of them may be dead, cut off, hung or slow without any effect
//! on clients.
//!
//! ```no_run
//! use leasehold::{LockClient, Redlock};
//!
//! let masters = Redlock::new(["redis://a.example/", "redis://b.example/", "redis://c.example/"]);
//! let client = LockClient::builder().redlock(masters).build()?;
//! let _guard = client.lock("job")?; // as with one server
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! Only the settings change. Calls, guards, renewal and waiting stay the same, for the
//! re-entrant lock and the owned lock. The other primitives return
//! [`Unsupported`](crate::ErrorKind::Unsupported): two clients could each have a majority of
//! *different* permits, and a queue has no order that several masters share.
//!
//! Use 3 to 31 masters, preferably an odd number. The algorithm is that of the Redis documentation
//! ("Distributed Locks with Redis"); its gaps are closed as follows.
//!
//! # Validity
//!
//! The lease of a hold counts from before the first byte was sent, less the clock drift (1 % and 2
//! ms). Only a majority of all *configured* masters makes or renews it. What a failed round left
//! behind is undone on every master that may have it, even on one that answers only later.
//!
//! # Masters that forget
//!
//! A master that restarted, was flushed, failed over, or is new may have forgotten a hold or a
//! token. It is in *quarantine*: it has no vote, for any client, until
//! [`longest_lease`][crate::Redlock::longest_lease] has passed. Otherwise a restart would give away
//! a lock that somebody holds. The key `leasehold:node` on the master records this state.
//!
//! | situation | setting |
//! |---|---|
//! | a first installation waits for one `longest_lease` before the first lock | none, or [`admit_fresh_nodes`][crate::Redlock::admit_fresh_nodes] for the first start only |
//! | masters sync every write (`appendonly yes`, `appendfsync always`) and come back with their data | [`durable_nodes`][crate::Redlock::durable_nodes]: they vote at once |
//! | clients have different leases | the same `longest_lease` on all of them, and no lease longer than that |
//!
//! The masters need `maxmemory-policy noeviction`. Do not use a proxy that keeps connections open
//! while the server behind it changes.
//!
//! # Fencing tokens
//!
//! Tokens grow strictly for each name, whatever the clocks say and whichever majority answers. A
//! majority knows a token before it is used. That takes a second round when a clock is behind;
//! [`token_rounds`](crate::LockClient::token_rounds) counts those.
//!
//! # Errors and health
//!
//! [`NoQuorum`](crate::ErrorKind::NoQuorum) lists the reply of each master. It is never returned
//! when the lock is simply held by somebody else. [`nodes`](crate::LockClient::nodes) reports which
//! masters vote, how fast each is, and its last error. A master that does not answer is skipped
//! until the background thread has reached it again.
//!
//! # What Redlock does not promise
//!
//! - What [no lease can promise](crate#what-a-lease-does-not-promise).
//! - Exclusion while the clock of even a single master is stepped. A jump forward ends the leases
//!   on that master early, and a second holder can get a majority with it before the first holder's
//!   lease is over. In tests both believed in the lock for 3 to 71 ms; [fencing
//!   tokens](crate::guide::fencing) tell them apart.
//! - Tokens that grow after a *majority* lost its memory at once. They then continue from the
//!   masters' clocks.
//! - Order between clients.
//! - All of this beside Redisson's `RedissonRedLock`, which has neither quarantine nor validity:
//!   see [`redisson`](crate::guide::redisson#beside-redissonredlock).
#![cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
