//! The same locks in a ZooKeeper ensemble, shared with Apache Curator.
//!
//! Cargo feature `zookeeper`, which adds no crates. Open a client with a URL of ZooKeeper; guards,
//! losses, waiting, errors and tokens stay the same.
//!
//! ```no_run
//! # #[cfg(feature = "zookeeper")] {
//! let client = leasehold::LockClient::open("zookeeper://a:2181,b:2181,c:2181/app")?;
//! let guard = client.lock("nightly/report")?;
//! # drop(guard); }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! # What you get
//!
//! A lock that survives the loss of any one server and that no failover forgets: every change is on
//! a majority before it is confirmed. Waiters form a queue in ZooKeeper; each watches only its
//! predecessor, and nobody polls. The nodes are those of Curator's recipes, so Java services with
//! Curator and Rust services take turns on one lock.
//! [`choosing_a_store`](crate::guide::choosing_a_store) compares it with the other stores.
//!
//! It needs ZooKeeper 3.5 or later. It is tested with 3.9.5 and Curator 5.9.0, on one server and on
//! three; primitives and connections also with 3.5.10, 3.6.4, 3.7.2 and 3.8.4. The example
//! `zookeeper` shows a holder that is cut off; `sh examples/try.sh --store zookeeper` runs a worker
//! pool through faults.
//!
//! # The session is the lease
//!
//! All holds of a client share one session, which one thread keeps alive. A thousand holds cost as
//! much as one. [`Builder::lease`](crate::Builder::lease) is the session timeout that the client
//! requests; the servers clamp it to between 2 and 20 ticks (4 s to 40 s by default), and
//! [`LockClient::lease`](crate::LockClient::lease) returns what was granted. When a holder dies,
//! others wait for its session and up to a tick more; [`close`](crate::LockClient::close) ends the
//! session at once, and all its nodes with it.
//!
//! Only the leader ends a session. A server that is cut off from the leader goes on answering pings
//! and reads for `syncLimit` ticks, and a leader that is cut off from the others, and was replaced
//! by them, goes on answering `sync` and accepting reconnects for as long. A client that trusts
//! these replies believes in its lock for seconds while somebody else has it. This one does not: it
//! trusts only replies to writes, because a majority has agreed to each of them. The session then
//! counts from an earlier moment, at which the server is known to have reported to the leader that
//! the client was alive. A session that continues over a new connection counts only once a write
//! was answered there. So [`is_held`](crate::ReentrantMutexGuard::is_held) turns false before
//! another client can get the lock: when the client is cut off, when its server is (even if that is
//! the leader), and at the first check after the process was stopped.
//!
//! While a client holds anything, its heartbeat is therefore a write, which changes nothing: a
//! transaction that checks the root of the client (the chroot, or `/`), four times in each session.
//! A client that only waits, or has forgotten its permits, sends pings. A thousand clients that
//! hold something in sessions of 30 s cause 133 such writes a second; in sessions of 4 s, a
//! thousand. Each is logged by a majority and uses up one of the numbers from which fencing tokens
//! are made. **While the servers cannot write, for example because a disk stalls, no hold is
//! confirmed**: all holds are lost by time after about five twelfths of the session, although no
//! session ends.
//!
//! All of this is true as long as:
//!
//! - the leader asks the other servers for those reports at least every quarter of the session
//!   while its writes are agreed to. It asks every half tick. Set the tick with
//!   `ZooKeeper::server_tick` if `minSessionTimeout` permits sessions of less than two ticks, and
//!   set twice the tick for observers behind an observer master;
//! - the leader does not stop just these requests right before the client is cut off, because one
//!   of its threads hangs alone;
//! - clocks run at the same speed within 1 %;
//! - `maxSessionTimeout` is not lowered while a client reconnects. A client that is granted a
//!   shorter session than before trusts it for no longer; but if the reply with the shorter timeout
//!   is lost, and the client is cut off right then, it does not know of it.
//!
//! | event | the guard reports | others |
//! |---|---|---|
//! | a connection ends | held; the session goes on at another server | wait |
//! | the leader dies | held, or lost by time if the election takes too long | wait and keep their places |
//! | a majority is gone | lost by time | nobody gets in; calls fail with [`Unreachable`](crate::ErrorKind::Unreachable) |
//! | the client, or its server, is cut off | lost by time | get in when the session has ended |
//! | the leader is cut off together with the client | lost by time | get in when another leader is elected and the session has ended |
//! | the servers stop writing for five twelfths of the session | lost by time | wait |
//! | the session is resumed with a shorter timeout | held, for no longer than that | wait |
//! | somebody writes into a node (`Revoker`) | held | wait |
//! | the process is stopped | lost at the first check | get in when the session has ended |
//! | the session has expired | all holds lost; the client gets a new session; waiting calls queue again, at the end | |
//! | a node is deleted by hand, or by [`force_unlock`](crate::ReentrantMutex::force_unlock) | that hold is lost; see below | get in at once |
//! | the servers have lost their data | lost | get in at once, and tokens start over: raise `ZooKeeper::token_base` |
//!
//! A [`with_lease`](crate::ReentrantMutex::with_lease) or `max_hold` is a limit in addition to the
//! session: at its end the hold is lost and its node is deleted. After a crash or while the process
//! is stopped, others still wait for the whole session. A lease longer than the session is refused
//! with [`Unsupported`](crate::ErrorKind::Unsupported).
//! [`extend`](crate::ReentrantMutexGuard::extend) moves that limit and asks the leader once; it
//! cannot lengthen the session. [`min_hold`](crate::ReentrantMutex::min_hold) is refused with
//! `Unsupported`: the node ends with its session at the latest. Hold the guard for that time
//! instead. The [data](crate::ReentrantMutex::with_data) of a hold is in its node, behind the text
//! that says whose it is, and ends with it:
//! [`last_holder`](crate::ReentrantMutex::last_holder) is refused.
//!
//! # Fencing tokens
//!
//! The token is the number of the change that made the holder's node. It grows from holder to
//! holder, over elections and restarts, and starts over only if a majority loses its data. Tokens
//! of other stores may be larger: for a resource that has seen such tokens, set
//! `ZooKeeper::token_base`.
//!
//! # What works
//!
//! Mutexes, fair locks, read-write locks with reads inside a write and downgrade, several locks as
//! one, semaphores, latches. The special points of each:
//!
//! - **A mutex** has one node for each name and client, and the threads of the client share that
//!   place: a release frees the lock and puts the client's next thread at the end of the queue, in
//!   one step. So clients take turns, whatever their number of threads.
//!   [`fair`](crate::LockClient::fair) has a place in the queue for each thread.
//! - **A read-write lock** serves readers and writers in the order of arrival. Re-entries, and
//!   reads inside a write, are known to the client alone and send nothing.
//! - **Several locks as one** enter all queues in one transaction, so two such calls never wait for
//!   each other. A waiting call keeps its places: where it is first already, others wait too. If
//!   one of its places is deleted by force, it leaves all queues and queues again, at the end of
//!   each.
//! - **A semaphore** grants permits in the order of arrival. Their number is in `<name>/permits`.
//!   Permits end with the session of the client that took them, at the latest; until then any
//!   client can give one back by its [`PermitId`](crate::PermitId). Those of Java count as held
//!   only as far as their number allows, because callers that wait there look the same.
//! - **A latch** is a count of four bytes; 0, or no node, is open. Its node stays until somebody
//!   deletes it. A change of a count, also of the number of permits, takes two round trips.
//! - **`force_unlock`** deletes the first node. Its holder learns of it at once, by a watch, if it
//!   has had the lock for longer than a third of the lease, otherwise after that third or when it
//!   releases.
//!
//! A request that is longer than servers accept (`jute.maxbuffer`, 1 MiB by default) is refused
//! with [`InvalidInput`](crate::ErrorKind::InvalidInput) before it is sent: several thousand
//! permits, or a thousand long names, at once.
//!
//! Each turn reads the list of all waiters, so a queue of thousands of clients is slow, and above
//! about 14 000 nodes Java's own `jute.maxbuffer` keeps *Java* from reading it.
//!
//! Counting semaphores (permits without a holder), [rate
//! limiters](crate::LockClient::rate_limiter) and
//! [`fenced_value`](crate::LockClient::fenced_value) are refused, with the reason. SASL (Kerberos)
//! is not supported, and the list of servers is fixed in the URL. Servers that demand an identity
//! (`enforce.auth.schemes`, `sessionRequireClientSASLAuth`) are
//! [`Denied`](crate::ErrorKind::Denied) to a client without it; servers whose sessions stay local
//! (`localSessionsEnabled` without `localSessionsUpgradingEnabled`) have no locks, and are
//! [`Unsupported`](crate::ErrorKind::Unsupported).
//!
//! A client has one connection. Servers take 60 of one host (`maxClientCnxns`), and end others
//! without a reason: raise it where many processes run on one host.
//!
//! # Names and nodes
//!
//! A name is a path: `/` separates its elements, and a leading `/` is implied. Keep to one of `a`
//! and `/a`: the servers see one name, and the client two, without re-entry. These are refused:
//! empty elements, `.` and `..`, `zookeeper` or `leasehold-sessions` as the first element, elements
//! that begin with `_c_`, control characters, emoji and other characters above U+FFEF, which
//! ZooKeeper does not take, and `locks` or `leases` at the end.
//!
//! Do not use a name below another lock's name: with `jobs/1` in use, `jobs` finds a node in its
//! directory that belongs to no holder. If that node sorts before the numbers, `jobs` is refused;
//! otherwise only the directory is never removed. Name them `jobs/all` and `jobs/1`. Use each name
//! for one kind of lock only.
//!
//! | what | node |
//! |---|---|
//! | mutex, fair lock | `<name>/_c_<uuid>-lock-<sequence>` |
//! | writer, reader | `<name>/_c_<uuid>-__WRIT__<sequence>`, `<name>/_c_<uuid>-__READ__<sequence>` |
//! | semaphore | `<name>/locks/_c_<uuid>-lock-<sequence>`, `<name>/leases/_c_<uuid>-lease-<sequence>`, `<name>/permits` |
//! | latch | `<name>` |
//! | [job](crate::LockClient::once) | `leasehold_job:{<name>}/_c_<uuid>-lock-<sequence>`, `leasehold_last:{<name>}`, `leasehold_done:{<name>}/<occurrence>` |
//! | session of a client, a change of a count while its answer is awaited | `leasehold-sessions/session-<sequence>`, `leasehold-sessions/once-<uuid>` |
//!
//! What is known of a job stays: its last run, and each occurrence until a later run of the job
//! finds that it was kept for long enough. Each run lists those that are left, and above 8 MiB of
//! labels (some 300 000) that costs it its connection: keep them for a shorter time.
//!
//! The node of a session is empty, and goes with it. Each transaction that makes a place or a
//! permit, or changes a count, checks its version, and after a connection has ended during a
//! request the version is changed over the next one: what a busy server runs late, after the client
//! has looked for what became of it, makes nothing any more. Everybody may make nodes in that
//! directory, so that clients of several identities share it; who deletes one only makes its client
//! make another.
//!
//! Directories are containers, which the server removes when they are empty; the chroot stays. It
//! looks once a minute, and removes 10 000 in a minute at most (`znode.container.checkIntervalMs`,
//! `znode.container.maxPerMinute`), so after many short holds under different names some of their
//! directories are there for a while.
//!
//! If a node that belongs to no session comes before all others, a call fails with
//! [`WrongType`](crate::ErrorKind::WrongType), which names the node. A directory that has been in
//! use without a break for 2 000 000 000 turns is logged at WARN. At 2^31 the numbers lose their
//! order, for Java too: then the lock is refused with [`Full`](crate::ErrorKind::Full) until it was
//! unused for a minute and the directory has been removed.
//!
//! # The URL
//!
//! `zookeeper://[user:password@]host[:port][,host[:port]..][/chroot]`, or `zookeeper+tls://` (with
//! the cargo feature `tls`). User and password are a digest identity; `ZooKeeper::creator_only`
//! denies everybody else access to the nodes. The URL has no parameters, and anything else in it is
//! refused. An `@` in the chroot is written `%40`.
//!
//! With TLS the port is the servers' `secureClientPort`, which needs
//! `serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory` and a key store (PEM
//! files work: `ssl.keyStore.type=PEM`). By default the servers require a client certificate
//! (`ssl.clientAuth=need`): give one with `Tls::identity_files`. Checks and settings are the same
//! as for the other stores: see `Builder::tls`. Each new connection of a session checks the
//! server's certificate again.
//!
//! # With Java
//!
//! | Curator | here |
//! |---|---|
//! | `InterProcessMutex` | [`mutex`](crate::LockClient::mutex), [`fair`](crate::LockClient::fair), each part of a [`multi`](crate::LockClient::multi) |
//! | `InterProcessReadWriteLock` | [`rw_lock`](crate::LockClient::rw_lock) |
//! | `InterProcessSemaphoreV2` with a `SharedCount` at `<name>/permits` | [`semaphore`](crate::LockClient::semaphore) |
//! | `InterProcessSemaphoreMutex` | a semaphore of one permit |
//! | `SharedCount` | [`latch`](crate::LockClient::latch) |
//!
//! Both sides must use the same chroot (Curator's *namespace*) and, with `creator_only`, the same
//! identity. About the Java side:
//!
//! - **Curator does not check whether it still holds a lock.** When its server is cut off from the
//!   leader, it believes in its lock for as long as that server does, while somebody else has it:
//!   up to `syncLimit` ticks (10 s by default). Give it a session timeout *above* that, and a
//!   `ConnectionStateListener` that stops the work at `SUSPENDED`.
//! - **`InterProcessMultiLock`** takes one lock after the other, so it can deadlock with a
//!   multi-lock of leasehold, as it can with another `InterProcessMultiLock`; the order of the
//!   names does not help. Give `acquire` a time limit, or use one lock for everything.
//! - **Turns.** In Java each thread has its own place in the queue; a leasehold client has one for
//!   all its threads. While eight Java threads had 139 turns, eight leasehold threads had 44. Where
//!   all threads should count the same, use [`fair`](crate::LockClient::fair).
//! - **Revocation.** A `Revoker` has no effect on a leasehold hold. `makeRevocable` of a lock in
//!   Java takes effect at the next `acquire`: call it before.
//! - **`DistributedBarrier`.** It is closed while its node exists, whatever that contains.
//!   *Deleting* a latch opens a barrier of the same name, but a latch under the name of a barrier
//!   that Java has set fails with [`WrongType`](crate::ErrorKind::WrongType): use a `SharedCount`.
//! - **Semaphores.** With a `SharedCount` at `<name>/permits` both sides follow its changes. An
//!   `InterProcessSemaphoreV2` that was constructed with a number uses that number: give it the
//!   same one.
