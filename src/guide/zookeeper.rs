//! The same locks in a ZooKeeper ensemble, in turns with Apache Curator.
//!
//! Cargo feature `zookeeper`, which brings no crate. Open a client with a URL of ZooKeeper;
//! everything else stays as it is: guards, losses, waiting, errors, tokens.
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
//! A lock that outlives any one server and that no failover forgets: every change is on a majority
//! before it is answered. Waiters form a queue in ZooKeeper, each watches only the one it waits
//! for, and nobody asks while it waits. The nodes are those of Curator's recipes, so Java services
//! with Curator and Rust services take turns on one lock. How that compares with the other stores:
//! [`choosing_a_store`](crate::guide::choosing_a_store).
//!
//! It needs ZooKeeper 3.5 or later. It is tested with 3.9.5 and Curator 5.9.0, on one server and on
//! three; the primitives and connecting also with 3.5.10, 3.6.4, 3.7.2 and 3.8.4. The example
//! `zookeeper` shows a holder that is cut off; `sh examples/try.sh --store zookeeper` runs a worker
//! pool through faults.
//!
//! # The session is the lease
//!
//! All holds of a client share one session, which one thread keeps alive. A thousand holds cost
//! what one does. [`Builder::lease`](crate::Builder::lease) is the session timeout that is asked
//! for; the servers clamp it to between 2 and 20 ticks (4 s to 40 s by default), and
//! [`LockClient::lease`](crate::LockClient::lease) tells what was granted. After a holder that
//! died, others wait for the session and up to a tick more; [`close`](crate::LockClient::close)
//! ends the session at once, and all its nodes with it.
//!
//! Only the leader ends a session. A server that is cut off from the leader goes on answering pings
//! and reads for `syncLimit` ticks, and a leader that is cut off from the others, and was replaced
//! by them, goes on answering `sync` and accepting reconnects for as long. A client that trusts
//! those believes for seconds while somebody else has the lock. This one does not: it counts only
//! answers to writes, because a majority has agreed to each of them, from an earlier moment at
//! which the server is known to have reported to the leader that it had heard of the client. A
//! session that goes on over a new connection counts only once a write was answered there. So
//! [`is_held`](crate::ReentrantMutexGuard::is_held) turns false before another client can get the
//! lock: when the client is cut off, when its server is, also if that is the leader, and when the
//! process was stopped, at the first look.
//!
//! While a client holds anything, its heartbeat is therefore a write, which changes nothing: a
//! transaction that checks the root of the client (the chroot, or `/`), four times in each session.
//! A client that only waits sends pings. A thousand clients that hold something in sessions of 30 s
//! cause 133 such writes a second; in sessions of 4 s, a thousand. Each is logged by a majority and
//! takes one of the numbers that fencing tokens are made of. **While the servers cannot write, for
//! example because a disk stalls, no hold is confirmed**: all holds are lost by time after about
//! five twelfths of the session, although no session ends.
//!
//! That is true as long as:
//!
//! - the leader asks the other servers for those reports at least every quarter of the session
//!   while it gets writes agreed to. It asks every half tick. Say the tick with
//!   `ZooKeeper::server_tick` if `minSessionTimeout` permits sessions of less than two ticks, and
//!   twice the tick for observers behind an observer master;
//! - the leader does not stop asking, and nothing else, right before the client is cut off: a
//!   thread of the leader that hangs alone;
//! - clocks run at the same speed within 1 %;
//! - `maxSessionTimeout` is not lowered while a client reconnects. A client that is granted a
//!   shorter session than before believes in it for no longer; but if the answer with the shorter
//!   timeout is lost, and the client is cut off right then, it does not know of it.
//!
//! | what happens | the guard says | others |
//! |---|---|---|
//! | a connection ends | held; the session goes on at another server | wait |
//! | the leader dies | held, or lost by time if the election takes too long | wait, and keep their places |
//! | a majority is gone | lost by time | nobody gets in; calls fail with [`Unreachable`](crate::ErrorKind::Unreachable) |
//! | the client, or its server, is cut off | lost by time | get in when the session has ended |
//! | the leader is cut off together with the client | lost by time | get in when another leader is elected and the session has ended |
//! | the servers stop writing for five twelfths of the session | lost by time | wait |
//! | the session is resumed with a shorter timeout | held, for no longer than that | wait |
//! | somebody writes into a node (`Revoker`) | held | wait |
//! | the process is stopped | lost at the first look | get in when the session has ended |
//! | the session has expired | all holds lost; a new session is made; waiting calls queue up anew, at the end | |
//! | a node is deleted by hand, or by [`force_unlock`](crate::ReentrantMutex::force_unlock) | that hold is lost; see below | get in at once |
//! | the servers have lost their data | lost | get in at once, and tokens begin anew: raise `ZooKeeper::token_base` |
//!
//! A [`with_lease`](crate::ReentrantMutex::with_lease) or `max_hold` is a bound of its own beside
//! the session: at its end the hold is lost here and its node is deleted. It cannot make others
//! wait for less than a session after a crash or while the process is stopped. A lease longer than
//! the session is refused with [`Unsupported`](crate::ErrorKind::Unsupported).
//! [`extend`](crate::ReentrantMutexGuard::extend) moves that bound and asks the leader once; the
//! session it cannot lengthen. [`min_hold`](crate::ReentrantMutex::min_hold) is refused with
//! `Unsupported`: the node ends with its session, and nothing removes it later than that. Hold the
//! guard for that time.
//!
//! # Fencing tokens
//!
//! The token is the number of the change that made the holder's node. It grows from holder to
//! holder, over elections and restarts, and begins anew only with the data of a majority lost.
//! Tokens of other stores may be larger: for a resource that has seen those, set
//! `ZooKeeper::token_base`.
//!
//! # What works
//!
//! Mutexes, fair locks, read-write locks with reads inside a write and downgrade, several locks as
//! one, semaphores, latches. What a session means for each:
//!
//! - **A mutex** has one node for each name and client, and the threads of the client share that
//!   place: a release hands over to the next thread and to the end of the queue at once. So clients
//!   take turns whatever their number of threads. [`fair`](crate::LockClient::fair) has a place in
//!   the queue for each thread.
//! - **A read-write lock** serves readers and writers in the order of their coming. Levels of a
//!   hold, and reads inside a write, are known to the client alone and send nothing.
//! - **Several locks as one** enter all queues in one transaction, so two such calls never wait for
//!   each other. While one waits it keeps its places: where it is first already, others wait too.
//!   If one of its places is deleted by force, it leaves the others too and queues up anew, at the
//!   end of all.
//! - **A semaphore** gives permits in the order of asking. Their number is in `<name>/permits`.
//!   Permits end with the client that took them, at the latest with its session; until then any
//!   client can give one back by its [`PermitId`](crate::PermitId).
//! - **A latch** is a count of four bytes; 0, or no node, is open. Its node stays until somebody
//!   deletes it.
//! - **`force_unlock`** deletes the first node. Its holder hears of it at once, by a watch, if it
//!   has had the lock for longer than a third of the lease, otherwise after that third or when it
//!   releases.
//!
//! What would be longer than servers accept in one request (`jute.maxbuffer`, 1 MiB by default) is
//! refused with [`InvalidInput`](crate::ErrorKind::InvalidInput) before it is sent: several
//! thousand permits, or a thousand long names, at once.
//!
//! A list of all who wait is read at each turn, so a queue of thousands of clients is slow, and
//! above about 14 000 nodes Java's limit for a frame (`jute.maxbuffer`) keeps *Java* from reading
//! it.
//!
//! Refused with the reason: counting semaphores (permits without a holder) and
//! [`fenced_value`](crate::LockClient::fenced_value). There is no SASL (Kerberos), and the list of
//! servers is the one of the URL.
//!
//! # Names and nodes
//!
//! A name is a path: `/` separates levels, and one at the beginning is implied. Refused are empty
//! elements, `.` and `..`, `zookeeper` as the first element, elements that begin with `_c_`,
//! control characters, and `locks` or `leases` at the end.
//!
//! Do not use a name below another lock's name: with `jobs/1` in use, `jobs` finds a node in its
//! directory that is none of a holder. If that sorts before the numbers, it is refused; else it
//! only keeps the directory. Name them `jobs/all` and `jobs/1`. One name is also for one kind of
//! lock.
//!
//! | what | node |
//! |---|---|
//! | mutex, fair lock | `<name>/_c_<uuid>-lock-<sequence>` |
//! | writer, reader | `<name>/_c_<uuid>-__WRIT__<sequence>`, `<name>/_c_<uuid>-__READ__<sequence>` |
//! | semaphore | `<name>/locks/_c_<uuid>-lock-<sequence>`, `<name>/leases/_c_<uuid>-lease-<sequence>`, `<name>/permits` |
//! | latch | `<name>` |
//!
//! Directories are containers, which the server removes when they are empty; the chroot stays. A
//! node that belongs to no session and comes before all others is named in a
//! [`WrongType`](crate::ErrorKind::WrongType) and not waited for. A directory that is in use
//! without a break for 2 000 000 000 turns is logged at WARN. At 2^31 the numbers are in no order
//! any more, for Java too: then the lock is refused with [`Full`](crate::ErrorKind::Full) until
//! it was unused for a minute and the directory is removed.
//!
//! # The URL
//!
//! `zookeeper://[user:password@]host[:port][,host[:port]..][/chroot]`, or `zookeeper+tls://` (with
//! the cargo feature `tls`). The identity is a digest identity; `ZooKeeper::creator_only` keeps
//! everybody else from the nodes. There are no parameters, and anything else is refused.
//!
//! With TLS the port is the servers' `secureClientPort`, which they have with
//! `serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory` and a key store (PEM
//! files will do: `ssl.keyStore.type=PEM`). By default they ask for a client certificate
//! (`ssl.clientAuth=need`): give one with `Tls::identity_files`. What is checked and what can be
//! set is the same as for the other stores, see `Builder::tls`. A connection that is resumed checks
//! the server's certificate anew.
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
//! Both sides use the same chroot (Curator's *namespace*) and, with `creator_only`, the same
//! identity. What to know about the Java side:
//!
//! - **Curator does not look whether it still holds a lock.** When its server is cut off from the
//!   leader it believes for as long as that server does, while somebody else has the lock: up to
//!   `syncLimit` ticks (10 s by default). Give it a session timeout *above* that, and a
//!   `ConnectionStateListener` that stops the work at `SUSPENDED`.
//! - **`InterProcessMultiLock`** takes one lock after the other, so it can wait for one of ours in
//!   a circle, as it can for another of its own; the order of the names does not help. Give
//!   `acquire` a time limit, or take one lock for the whole.
//! - **Turns.** Each thread of Java has its own place in the queue, and a client of ours once.
//!   Eight threads of ours beside eight of Java had 44 turns while those had 139. Where threads are
//!   to count alike, use [`fair`](crate::LockClient::fair).
//! - **Revocation.** A `Revoker` changes nothing for a hold of ours. `makeRevocable` of a lock in
//!   Java works from the next `acquire` on: call it before.
//! - **`DistributedBarrier`.** It is closed while its node exists, whatever is in there. A latch
//!   that is *deleted* opens one, but a latch under the name of a barrier that Java has set is
//!   [`WrongType`](crate::ErrorKind::WrongType): use a `SharedCount`.
//! - **Semaphores.** With a `SharedCount` at `<name>/permits` both sides follow its changes. An
//!   `InterProcessSemaphoreV2` that was given a number goes by that number: make it the same.
