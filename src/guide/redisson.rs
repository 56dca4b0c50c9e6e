//! What Java services with Redisson and Rust services with leasehold share, and where they differ.
//!
//! "Java" is a process with Redisson, and "leasehold" is a process with this crate. Both use one
//! Redis and the same key name (see [`key_prefix`](crate::Builder::key_prefix) for Redisson's
//! `NameMapper`).
//!
//! These statements come from Redisson's scripts and are tested against the live versions **4.7.0**
//! (the newest) and **3.52.0** (the newest before 4). The tests in `tests/interop` run with all
//! others on a machine with a JDK and Maven. Two processes of each side increment a common number
//! under every primitive, one process of each under Redlock. In another test, with all locks and
//! permits in use, connections are cut, scripts are flushed, the server is restarted, and two
//! processes of each side are killed in the middle of their turns.
//!
//! # Which is which
//!
//! | leasehold | Java | shared |
//! |---|---|---|
//! | [`mutex`](crate::LockClient::mutex), [`multi`](crate::LockClient::multi) | `RLock`, `RMultiLock` | hash, TTL, channel; a multi-lock consists of plain locks |
//! | [`mutex`](crate::LockClient::mutex) with [`keep_token`](crate::ReentrantMutex::keep_token) | `RFencedLock` | the token counter as well |
//! | [`fair`](crate::LockClient::fair) | `RFairLock` | queue and deadlines; served in the order of arrival, whichever side a waiter is on |
//! | [`rw_lock`](crate::LockClient::rw_lock) | `RReadWriteLock` | hash, level keys, channel |
//! | [`latch`](crate::LockClient::latch) | `RCountDownLatch` | count and channel |
//! | [`semaphore`](crate::LockClient::semaphore) | `RPermitExpirableSemaphore` | permits with their leases, channel |
//! | [`counting_semaphore`](crate::LockClient::counting_semaphore) | `RSemaphore` | count and channel |
//! | [`rate_limiter`](crate::LockClient::rate_limiter) | `RRateLimiter` of the type `OVERALL` | hash, value, sorted set of what was taken |
//! | [`Builder::redlock`][crate::Builder::redlock] | `RedissonRedLock` (deprecated), within [limits](#beside-redissonredlock) | hash, TTL, channel, on each master |
//!
//! Redisson's server modes `single`, `sentinel` and `cluster` are the builder's
//! [`url`](crate::Builder::url), [`sentinel`][crate::Builder::sentinel] and
//! [`cluster`][crate::Builder::cluster], each tested with Redisson in the same mode. In a cluster
//! both sides choose sharded or classic channels by the same rule; if the Java side has
//! `shardedSubscriptionMode` `OFF`, or is older than 3.22, set
//! [`sharded_channels(false)`][crate::Cluster::sharded_channels].
//!
//! **When a slot moves** under sharded channels, leasehold subscribes at the new node and Redisson
//! (4.7.0 and older) does not. A Java waiter for a name of that slot gets a lock only when the
//! lease that it was given has ended; a Java waiter for a latch or an `RSemaphore` sleeps until its
//! own timeout, and new waits of that process on other names can fail with "unable to acquire
//! subscription lock", until it is restarted. Nothing that leasehold sends can wake it, because
//! nothing is subscribed. For locks, short leases limit the delay. With `shardedSubscriptionMode`
//! `OFF` on the Java side and `sharded_channels(false)` here, both sides are woken at once.
//!
//! The two sides exclude each other and wake each other. Each side renews its own holds, so
//! Redisson's `lockWatchdogTimeout` and leasehold's [`lease`](crate::Builder::lease) may differ.
//! Only [readers that share a lock](#readers-of-both-sides) get the shorter of the two.
//!
//! # Method by method
//!
//! What each method of Redisson 4 is here. `..Async` methods do not exist: every call blocks its
//! thread, and [`async_code`](crate::guide::async_code) says how async code calls it. A guard does
//! what Java's lock object does after `lock()`. Only a guard unlocks, so no thread can unlock what
//! it does not hold, and there is no `IllegalMonitorStateException`: what Java reports with it at
//! `unlock()`, a lease that has ended, is [`Lost`](crate::ErrorKind::Lost).
//!
//! **`RLock`**, and with it `RFairLock`, `RSpinLock`, and both sides of `RReadWriteLock`:
//!
//! | Redisson | leasehold |
//! |---|---|
//! | `lock()` | [`lock`](crate::ReentrantMutex::lock); for a read-write lock [`read`](crate::RwLock::read) and [`write`](crate::RwLock::write) |
//! | `lock(lease, unit)`; a lease of −1 | a handle [`with_lease`](crate::ReentrantMutex::with_lease), then `lock`; without it the lease is renewed, as with −1 |
//! | `tryLock()`, `tryLock(wait, unit)` | [`try_lock`](crate::ReentrantMutex::try_lock), [`try_lock_for`](crate::ReentrantMutex::try_lock_for): `None` for Java's `false`. Not `if lock.try_lock()?.is_some() {`, which gives the guard up before the block, but `if let Some(_guard) = ..` |
//! | `tryLock(wait, lease, unit)` | `client.mutex(name).with_lease(lease).try_lock_for(wait)` |
//! | `lockInterruptibly(..)` | a handle [`with_cancel`](crate::ReentrantMutex::with_cancel): the token is cancelled from any thread, and the call returns [`Cancelled`](crate::ErrorKind::Cancelled). Threads of Rust have no interrupt |
//! | `unlock()` | [`unlock`](crate::ReentrantMutexGuard::unlock) of the guard, or its drop |
//! | `lockAsync(threadId)`, `unlockAsync(threadId)`: a lock that is released on another thread | [`lock_owned`](crate::ReentrantMutex::lock_owned): the guard goes to that thread |
//! | `forceUnlock()` | [`force_unlock`](crate::ReentrantMutex::force_unlock) |
//! | `isLocked()` | [`is_locked`](crate::ReentrantMutex::is_locked); [`holder`](crate::ReentrantMutex::holder) says who it is |
//! | `isHeldByCurrentThread()` | [`is_held_by_current_thread`](crate::ReentrantMutex::is_held_by_current_thread), [`is_write_held_by_current_thread`](crate::RwLock::is_write_held_by_current_thread) and [`is_read_held_by_current_thread`](crate::RwLock::is_read_held_by_current_thread), without a request |
//! | `isHeldByThread(id)` | of this client: [`snapshot`](crate::LockClient::snapshot) has the thread of each hold. Thread ids do not leave the process |
//! | `getHoldCount()` | [`hold_count`](crate::ReentrantMutexGuard::hold_count) of the guard, not of the lock |
//! | `remainTimeToLive()` | [`remaining`](crate::ReentrantMutexGuard::remaining) of the guard; for locks of others that of [`inspect`](crate::LockClient::inspect) |
//! | `getName()` | [`name`](crate::ReentrantMutex::name) |
//! | `newCondition()` | none, as in Java, where it throws. Use a [latch](crate::LockClient::latch), or a [counting semaphore](crate::LockClient::counting_semaphore) |
//! | `RFairLock`: its order | [`fair`](crate::LockClient::fair), with [`queue_len`](crate::FairMutex::queue_len) and [`position`](crate::FairMutex::position) |
//! | `RSpinLock`: its back-off | none: [`mutex`](crate::LockClient::mutex) on the same key waits for a message. See [below](#where-redissons-behaviour-shows) before you share one |
//! | `RReadWriteLock.readLock()`, `writeLock()` | one handle, [`rw_lock`](crate::LockClient::rw_lock). A writer that reads: [`downgrade`](crate::RwLockWriteGuard::downgrade) |
//!
//! **`RFencedLock`, `RMultiLock`, `RedissonRedLock`:**
//!
//! | Redisson | leasehold |
//! |---|---|
//! | `lockAndGetToken(..)`, `tryLockAndGetToken(..)` | `lock`, `try_lock_for`, and [`fencing_token`](crate::ReentrantMutexGuard::fencing_token) of the guard. Every exclusive lock has tokens; [`keep_token`](crate::ReentrantMutex::keep_token) for a name that Java uses |
//! | `getToken()` | `fencing_token` of the guard. The last token of others: [`inspect`](crate::LockClient::inspect) |
//! | `getMultiLock(a, b)`, `lock`, `tryLock`, `unlock` | [`multi`](crate::LockClient::multi) and the same methods as a mutex: all or none. All names are in one store |
//! | `RMultiLock` over several servers | one client and one guard for each, taken in one order; or [`Redlock`][crate::Redlock], if they are to be one lock |
//! | `isHeldByCurrentThread()` of a multi-lock | that of [`mutex`](crate::LockClient::mutex) for each name |
//! | `new RedissonRedLock(..)` | a client with [`Builder::redlock`][crate::Builder::redlock], then `mutex(name)` |
//!
//! **`RSemaphore`, `RPermitExpirableSemaphore`, `RCountDownLatch`:**
//!
//! | Redisson | leasehold |
//! |---|---|
//! | `RSemaphore.acquire(..)`, `tryAcquire(..)` | [`acquire`](crate::CountingSemaphore::acquire), [`acquire_many`](crate::CountingSemaphore::acquire_many), and their `try_` forms |
//! | `release()`, `release(n)` of permits that were acquired | the guard: [`release`](crate::CountingPermit::release), or its drop |
//! | `release(n)` as a signal, by somebody who has none | [`add_permits`](crate::CountingSemaphore::add_permits); the consumer [forgets](crate::CountingPermit::forget) its guard |
//! | `releaseIfExists(n)` | none: [`add_permits`](crate::CountingSemaphore::add_permits) creates the semaphore if there is none |
//! | `availablePermits()`, `addPermits(n)` | [`available_permits`](crate::CountingSemaphore::available_permits), [`add_permits`](crate::CountingSemaphore::add_permits) |
//! | `drainPermits()` | [`drain_permits`](crate::CountingSemaphore::drain_permits), a guard of all that were free; without a name for it they are free again at once |
//! | `trySetPermits(n)` | [`try_set_permits`](crate::CountingSemaphore::try_set_permits), no `bool`: [`is_new()`](crate::SetPermits::is_new) of the result is Java's |
//! | `trySetPermits(n, ttl)` | none: the semaphore would vanish while its permits are used. [`delete`](crate::CountingSemaphore::delete) it when it is over |
//! | `RPermitExpirableSemaphore.acquire(..)`, `tryAcquire(..)`, an id or a list of ids | [`acquire`](crate::Semaphore::acquire), [`acquire_many`](crate::Semaphore::acquire_many) and their `try_` forms. The guard renews the lease, which Java does not |
//! | ... with a lease | a handle [`with_lease`](crate::Semaphore::with_lease) |
//! | ... an id that another process releases | [`forget`](crate::SemaphorePermit::forget) turns the guard into an id |
//! | `release(id)`, `tryRelease(id)` | [`release`](crate::SemaphorePermit::release) of the guard; [`Semaphore::release`](crate::Semaphore::release) of an id: [`Lost`](crate::ErrorKind::Lost) for `false` |
//! | `updateLeaseTime(id, ..)` | [`Semaphore::extend`](crate::Semaphore::extend), which never shortens; [`extend`](crate::SemaphorePermit::extend) of the guard |
//! | `getLeaseTime(id)` | [`remaining`](crate::SemaphorePermit::remaining) of the guard; of others [`inspect`](crate::LockClient::inspect) |
//! | `availablePermits()`, `acquiredPermits()`, `getPermits()` | [`available_permits`](crate::Semaphore::available_permits), [`acquired_permits`](crate::Semaphore::acquired_permits), and their sum |
//! | `setPermits(n)` | [`add_permits`](crate::Semaphore::add_permits) with the difference. It is not one step: let one program do it |
//! | `RCountDownLatch.await()`, `await(time, unit)` | [`wait`](crate::CountDownLatch::wait), [`wait_for`](crate::CountDownLatch::wait_for) |
//! | `countDown()`, `getCount()`, `trySetCount(n)` | [`count_down`](crate::CountDownLatch::count_down), [`count`](crate::CountDownLatch::count), [`try_set_count`](crate::CountDownLatch::try_set_count) |
//! | `delete()`, `isExists()` | `delete` of a semaphore or latch; [`inspect`](crate::LockClient::inspect). `expire`, `rename`, `copy`, listeners: none, they are for maps |
//!
//! **`RRateLimiter`:** [its own section](#rate-limiters).
//!
//! **Locks of a map.** `RMap.getLock(key)` is a plain `RLock` whose name contains a hash of the
//! encoded key: `{orders}:pdg3j2GnWNDyZSAH6PPgrQ:lock`. The hash depends on Java's codec, so let
//! Java tell the name (`getLock(key).getName()`) and pass it to
//! [`mutex`](crate::LockClient::mutex); or lock a name that both sides can spell, such as
//! `orders:17`. The same holds for `getFairLock`, `getReadWriteLock`, `getSemaphore`,
//! `getPermitExpirableSemaphore` and `getCountDownLatch`.
//!
//! **Settings:**
//!
//! | Redisson | leasehold |
//! |---|---|
//! | `lockWatchdogTimeout` | [`Builder::lease`](crate::Builder::lease), 30 s too |
//! | `lockWatchdogBatchSize` | none: a batch is as large as what is due |
//! | `fairLockWaitTimeout` | [`waiter_timeout`](crate::Builder::waiter_timeout) for waiters of leasehold; Java's is told with [`java_waiter_timeout`][crate::Redis::java_waiter_timeout] |
//! | `checkLockSyncedSlaves`, `slavesSyncTimeout` | [`Redis::replicas`][crate::Redis::replicas], off by default: how many must acknowledge a grant and a renewal, within half the I/O timeout (and an eighth of the lease) |
//! | `NameMapper` | [`key_prefix`](crate::Builder::key_prefix), if it puts something in front; otherwise map the name before you pass it |
//! | `NatMapper` | [`map_addresses`][crate::Sentinel::map_addresses] of a [`Sentinel`][crate::Sentinel] or a [`Cluster`][crate::Cluster] |
//! | `timeout`, `connectTimeout` | [`io_timeout`](crate::Builder::io_timeout) |
//! | `retryAttempts`, `retryDelay` | [`outage_timeout`](crate::Builder::outage_timeout) for calls that wait already; a first attempt that cannot reach the server fails at once |
//! | `connectionPoolSize`, `connectionMinimumIdleSize` | [`connections`](crate::Builder::connections): made when needed |
//! | `subscriptionConnectionPoolSize`, `subscriptionsPerConnection`, `subscriptionTimeout` | none: one connection receives all messages |
//! | `shardedSubscriptionMode` | [`sharded_channels`][crate::Cluster::sharded_channels] |
//! | `username`, `password`, `database`, `credentialsResolver` | in the URL; [`credentials`][crate::Redis::credentials] |
//! | `clientName` | [`client_name`](crate::Builder::client_name) |
//! | `sslTruststore`, ... | `Builder::tls`, with the cargo feature `tls` |
//! | `readMode`, `subscriptionMode`, `codec`, `threads`, `nettyThreads`, `executor` | none: locks are asked for at the master, have no codec, and no pool of threads serves them |
//!
//! # What only leasehold has
//!
//! A leasehold holder id is `<client id>:<number>`. The client id is a UUID of version 8; Java's
//! are version 4. Three mechanisms use this difference. Fair locks give each waiter the timeout of
//! its side: the last six digits of a leasehold client id are its
//! [`waiter_timeout`](crate::Builder::waiter_timeout) in milliseconds, in hexadecimal. Clients
//! watch for Java readers, which may shorten a read hold. Redlock counts all of Java as one holder.
//!
//! leasehold adds these keys to Redisson's: `leasehold_writer:{N}` (a waiting writer),
//! `leasehold_once:{N}:<id>` (idempotency keys of counts), `leasehold_once:{N}:opened` (when a
//! latch was last opened), `leasehold_data:{N}` (the [data](crate::ReentrantMutex::with_data) of a
//! hold), `leasehold_client:{..}` (who each client is), `leasehold_job:{N}`,
//! `leasehold_done:{N}/<occurrence>` and `leasehold_last:{N}` (scheduled jobs) and `leasehold:node`
//! (Redlock). Java neither sees nor needs them.
//!
//! # Names
//!
//! Java accepts every name. leasehold refuses these with
//! [`InvalidInput`](crate::ErrorKind::InvalidInput), before it sends anything:
//!
//! - an empty name, and one longer than 1 024 bytes, the prefix included;
//! - a name whose braces are not a pair with something in it (`a{b`, `a}b`, `a{}b`): its keys would
//!   be in different slots of a cluster, where Java acquires `a{b` and cannot release it;
//! - in a cluster, a latch with any braces in its name: its channel would be in another slot;
//! - a name that, with the prefix in front, is one of the additional keys of locks:
//!   - `{x}:timeout`, `{x}:value`, `{x}:permits` and `{x}:<holder>:rwlock_timeout:<level>`;
//!   - `redisson_lock_token:{x}`, `redisson_lock_queue:{x}`, `redisson_lock_timeout:{x}` and
//!     `redisson_unlock_latch:{x}:..`;
//!   - `leasehold_writer:{x}`, `leasehold_once:{x}:..`, `leasehold_data:{x}`,
//!     `leasehold_client:{x}`, `leasehold_job:{x}`, `leasehold_done:{x}..`, `leasehold_last:{x}`
//!     and `leasehold:node`;
//!   - names that end in `leasehold:probe`, the name with which a client checks its permissions.
//!
//! `x` and `{x}` are two locks with one channel and, as Redisson spells the other keys
//! (`{x}:timeout`, `redisson_lock_queue:{x}`) alike for both, with one queue and one set of
//! permits, in Java as here: use one of the two names. As a [job](crate::LockClient::once), `{x}`
//! is refused.
//!
//! The same keys are refused for [fenced values](crate::LockClient::fenced_value). Names without a
//! brace, such as `job:timeout` and `redisson_lock_token:x`, clash with nothing and are accepted.
//!
//! # Where Redisson's behaviour shows
//!
//! All kinds of locks:
//!
//! | Redisson | consequence | leasehold |
//! |---|---|---|
//! | never notifies a holder that its lease has ended | a Java holder that paused continues beside a leasehold holder | a fencing token at the resource stops it, if it sends one: `RFencedLock` has tokens |
//! | `RFencedLock.delete()` removes the token counter with the lock and notifies nobody | Java's tokens start again at 1, and the resource refuses them; waiters of both sides sleep until the TTL that they saw has passed | the next leasehold token is the server's clock, above all earlier ones, and Java's continue from there; a leasehold holder learns of the loss at its next renewal |
//! | `RedissonSpinLock`, the same lock on the wire, publishes nothing when it is released | a waiter of either side that is not a spin lock sleeps until the TTL that it saw has passed: up to `lockWatchdogTimeout` | no remedy: use a name that Java locks as a spin lock for spin locks only, or poll with [`try_lock`](crate::LockClient::try_lock) |
//! | may send a request twice after a lost reply, outside of single-server mode | a Java hold count can be one too high | leasehold counts nothing twice, and a Java holder's count does not affect its own |
//! | lets a user without rights on channels take locks | such a user's release wakes nobody; waiters sleep until the TTL that they saw has passed | leasehold checks the rights when it connects, and a missing one is an error |
//!
//! Fair locks:
//!
//! | Redisson | consequence | leasehold |
//! |---|---|---|
//! | keeps a dead waiter in the queue for five minutes | it delays everybody behind it, leasehold's waiters too | Java waiters keep Java's timeout; a dead leasehold waiter stays for [`waiter_timeout`](crate::Builder::waiter_timeout). A shorter `fairLockWaitTimeout` in Java helps if nobody holds the lock for that long (Java's waiters lose their places then); pass it to leasehold as [`java_waiter_timeout`][crate::Redis::java_waiter_timeout] |
//! | drops a living waiter whose time is over, without notifying it | the waiter sleeps until its own timer, or for ever | the leasehold waiter that passes it wakes it, and it queues again; if the lock is free, the next waiter is woken as well |
//! | counts each deadline from the one before it, and a leaving waiter takes its own time back | leasehold waiters in between must do the same, or the deadlines run ahead of the clock, and a dead waiter stays for that much longer | when a leasehold waiter gets its turn, those behind it are put back to the lock's lease |
//! | a leasehold waiter behind a Java waiter has Java's time on top, which may be more than Java takes back | if that leasehold waiter is dead by then, it would delay everybody for that time (34 s behind a `lock()`, 280 s behind a `tryLock` of 20 s) | the next leasehold waiter or `try_lock` puts it back to its own `waiter_timeout`; where only Java waits, [it stays](crate::FairMutex#order) |
//! | a fair release notifies only the first of the queue, a plain release nobody in the queue | if both kinds use one name, on either side, waiters of the other kind sleep until the TTL that they saw has passed | no remedy: use one kind for a name (leasehold's fair waiters look every third of their `waiter_timeout`) |
//! | with a dead first waiter and a free lock, Java's fair waiters retry in a loop | load, until the dead waiter's time is over | leasehold waiters sleep for the time that is left |
//!
//! Read-write locks:
//!
//! | Redisson | consequence | leasehold |
//! |---|---|---|
//! | readers do not look at waiting writers | many Java readers can keep a leasehold writer waiting, and leasehold readers with it, which stay out while Java's go in | leasehold readers let a waiting leasehold writer go first |
//! | a waiting writer leaves no mark in Redis | leasehold readers cannot let it go first: beside constant readers on either side, a Java writer gets in about once in 2 to 4 s | only a leasehold writer is let in first |
//! | renewing one Java reader sets the TTL of the whole lock to that client's `lockWatchdogTimeout`, whatever lease the other readers have | a longer leasehold lease is cut to it | leasehold checks its read holds once a second, fixed leases too, lengthens the TTL again, and [trusts them no longer](#readers-of-both-sides) than Java may leave them |
//! | a write lock that becomes a read lock notifies nobody | readers of both sides wait until the TTL that they saw has passed | no remedy for Java; leasehold's [`downgrade`](crate::RwLockWriteGuard::downgrade) wakes the readers of both sides |
//! | a writer's release publishes `1`, which wakes only a waiter that is already asleep | a Java waiter that has just tried in vain sleeps until the TTL that it saw has passed (3 in 600 did, when the release came within 2.5 ms of the subscription) | a leasehold release publishes `00` after it. Java reads that as another `0` and keeps it for such a waiter (none in 1 200) |
//!
//! Latches and semaphores:
//!
//! | Redisson | consequence | leasehold |
//! |---|---|---|
//! | deleting a latch wakes nobody | waiters in Java wait until their own timeout | [`delete`](crate::CountDownLatch::delete) wakes the waiters of both sides |
//! | a message `0` on a latch that still counts makes Java retry in a loop | load | only the script that takes the count to zero publishes it |
//! | a waiter of a latch looks only at the count | if the latch is set again right after its last count, Java's waiters see it counting and go on waiting (37 of 40 did; none when 2 ms lay between) | leasehold's waiters continue if a leasehold client opened the latch: the key `leasehold_once:{N}:opened` remembers for a minute when. If Java opened it and set it again at once, they too can miss that and wait for the new count. Use a new name for each round |
//! | a latch, a semaphore and a counting semaphore are each one number under their name | `RSemaphore.acquire` on a latch counts it down, and the other way round | a client that uses a name for one of them refuses it for the others ([`WrongType`](crate::ErrorKind::WrongType)); it cannot see what other clients do with the name |
//! | permits expire by the clock of the client that asks | clocks that differ could end a lease early | leasehold's permits stay two seconds longer in Redis than leasehold believes |
//!
//! Multi-locks:
//!
//! | Redisson | consequence | leasehold |
//! |---|---|---|
//! | `RMultiLock` and `RedissonRedLock` finally set their lease on the present holder, even if it is another client | if taking the locks takes longer than twice its wait (a master is dead), Java cuts a *leasehold* lock to its lease and works beside its holder | no remedy: pass no lease to these |
//! | `RMultiLock` waits for one lock while it holds others, and locks that it got with a lost reply stay locked | two Java threads that take the same names in different orders wait for each other (1.5 s for each name, and then perhaps again; seen for 16 s with leases of 10 s), and leasehold waits for both: 3.0 and 6.0 s where two Java threads took two names in opposite orders | leasehold takes all or none, and holds nothing while it waits. The order in which leasehold is given the names does not matter. In Java, name them in the same order everywhere |
//! | `RMultiLock` takes and frees its locks one after the other | while several Java threads want the same locks, the next one has the first lock before the last one is free, so there is no moment at which all are free. A leasehold multi-lock then waits until there is one, for an unbounded time: 3.7 s beside eight Java threads, 1.2 s beside two, whatever the order | no remedy for a multi-lock: where both sides need several locks, use one lock instead (a [fair](crate::FairMutex) one gives each side its turns) |
//! | `MultiLock.lock(lease, unit)` multiplies its lease with every round that fails | its locks can stay for days | no remedy: pass no lease to it, or free the lock [by force](crate::ReentrantMutex::force_unlock) |
//!
//! # Rate limiters
//!
//! | Redisson | leasehold |
//! |---|---|
//! | `trySetRate(OVERALL, n, interval)` | [`try_set_rate(n, interval)`](crate::RateLimiter::try_set_rate) |
//! | `setRate`, which frees what was taken | [`set_rate`](crate::RateLimiter::set_rate). For `updateRate`, which does not, there is nothing: call it in Java |
//! | `tryAcquire(n)`, `tryAcquire(n, timeout)`, `acquire(n)` | [`try_acquire`](crate::RateLimiter::try_acquire), [`try_acquire_for`](crate::RateLimiter::try_acquire_for), [`acquire`](crate::RateLimiter::acquire); `acquire()` is `acquire(1)` |
//! | `getConfig()`, `availablePermits()`, `delete()` | [`rate`](crate::RateLimiter::rate), [`available_permits`](crate::RateLimiter::available_permits), [`delete`](crate::RateLimiter::delete) |
//! | `release(n)` | nothing; what Java frees by it is free here, and is not freed twice |
//! | `keepAliveTime` | set by Java, each use here prolongs it as well; `set_rate` ends it |
//! | the type `PER_CLIENT` | refused with [`Unsupported`](crate::ErrorKind::Unsupported): nothing ever removes the keys of a client that has ended. Use one name for each client |
//!
//! | Redisson | consequence | leasehold |
//! |---|---|---|
//! | repeats a request whose reply was lost, and takes the permits again | they are missing for ever: a limiter of 5 gave 3 from then on | a repeat takes nothing. When a call finds too few permits although nothing is taken, all are free again |
//! | counts by the clock of the client that asks | clocks that differ by *d*: permits come back sooner or later by *d*, and within one interval more than the rate can be given, or less | counts by the server's clock. Beside Java, keep the clocks of its machines and of the server together |
//! | answers when the first permit comes back, even if more were asked for | a waiter for many asks again for each | the answer says when enough are back |
//! | fails (`attempt to index a nil value`, or so) if too few permits are free and nothing is taken | the limiter never works again | see the first row |
//!
//! # Readers of both sides
//!
//! A renewal by a Java reader sets the TTL of the whole lock to that client's
//! `lockWatchdogTimeout`. Before Redisson 4.4 it also sets the lease of every reader to that time.
//! If that reader is then killed, the lock ends after that time, whatever lease its other readers
//! have.
//!
//! So a client checks its read holds 0.1 s after each was taken, and then once a second (more often
//! if the lease is shorter than 3 s), all of them in one request. The check restores a shortened
//! lease, and finds out whether a Java reader shares the lock. While one does, the leasehold hold
//! is valid for no longer than what was left of Java's lease at the last check, and for at least 2
//! s. [`remaining`](crate::RwLockReadGuard::remaining) says so. If the server cannot be reached for
//! that long, the hold counts as lost before a writer gets in. Once no Java reader is left,
//! leasehold's own lease counts again. Readers of leasehold alone never shorten each other.
//!
//! What remains: a leasehold reader may believe in a lock that a writer has, if
//!
//! - a Java client has a `lockWatchdogTimeout` below 2 s (its default is 30 s);
//! - or the server has been unreachable since before the first check (0.1 s), or since before the
//!   first check after a Java reader came (1 s), and that reader renews and dies meanwhile;
//! - or the server cannot be reached while a Java reader renews and dies, and either more than a
//!   hundred readers share the lock or that reader had been paused for longer than its watchdog
//!   timeout. Only a check between its renewal and the next leasehold renewal, which lengthens the
//!   TTL, notices such a reader.
//!
//! Where that matters, give Java a watchdog timeout that is no shorter than leasehold's lease, and
//! use a fencing token for what a reader changes elsewhere.
//!
//! # Measured
//!
//! From a release on one side until a waiter of the other side has the lock: 2 to 6 ms for every
//! primitive and in both directions, 23 ms at most in 5 runs of each (two cores, the JVM just
//! started). Each time a message woke the waiter, never the end of a TTL.
//!
//! Eight threads of leasehold against eight of Java on one name, in two processes each, in a tight
//! loop for 15 s. (The plain lock was measured before a hold could pass between the threads of a
//! client, which made turns far shorter.)
//!
//! | lock | turns | longest wait |
//! |---|---|---|
//! | plain | leasehold 85 to 90 of 100: plain locks are unordered, and leasehold needs less time for a turn and hands over within its process | a Java thread: 4 s (0.4 s where only Java takes turns) |
//! | [fair](crate::FairMutex) | half for each side | 0.1 s |
//! | multi-lock | Java 84 to 89 of 100: `RMultiLock` keeps the locks that it has got, and leasehold takes all or none | leasehold: seconds, [not bounded](#where-redissons-behaviour-shows) |
//! | permits | leasehold 61 to 68 of 100 | |
//!
//! # Beside `RedissonRedLock`
//!
//! Use one `RLock` on each of the same masters, under the same name. Both sides exclude each other,
//! even with one of three masters dead, as long as no master forgets its locks and Java passes no
//! lease. Each side renews its own holds. A release of either side wakes the other.
//! [`holder`](crate::ReentrantMutex::holder) shows a Java hold by its id on one of the masters: it
//! has another id on each, and only the thread number is the same.
//!
//! | `RedissonRedLock` | consequence | leasehold |
//! |---|---|---|
//! | counts a master that restarted empty at once | if that master's vote replaces another's, Java works beside leasehold, or beside Java | leasehold waits for the [longest lease][crate::Redlock::longest_lease], which should be Java's longest as well; only masters that sync every write keep Java out |
//! | checks neither how long the acquisition took nor whether a majority still has it | a Java holder that lost its majority continues beside leasehold, and has no fencing token | no remedy |
//! | asks the masters one after the other, and waits for a dead one until its client gives up (5 s by default) | each call takes that long; a `lock()` hardly ever ends while the first or second of three is dead, because its rounds last 4.5 s | no remedy here: `setRetryAttempts(0)` in Java helps |
//! | waits for a third master when it has two | if it misses the end of a leasehold vote there, nobody has the lock for a third of its wait (`lock()`: 1.5 s) | when a client that has seen a Java holder withdraws a vote, it publishes `00`, which is a release to Java and nothing to leasehold |
#![cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
#![cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
