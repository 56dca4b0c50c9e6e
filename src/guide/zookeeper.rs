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
//! before it is answered. Waiters stand in a queue in ZooKeeper, each watches only the one it waits
//! for, and nobody asks while it waits. The nodes are those of Curator's recipes, so Java services
//! with Curator and Rust services take turns on one lock.
//!
//! # The session is the lease
//!
//! All holds of a client share one session, which one thread keeps alive. A thousand holds cost
//! what one does. [`Builder::lease`](crate::Builder::lease) is the session timeout that is asked
//! for; the servers clamp it to between 2 and 20 ticks (4 s to 40 s by default), and
//! [`LockClient::lease`](crate::LockClient::lease) tells what was granted.
//!
//! Only the leader ends a session. A server that is cut off from the leader goes on answering pings
//! and reads for `syncLimit` ticks, so a client that trusts those believes for seconds while
//! somebody else has the lock. This one does not: it counts only answers that went through the
//! leader, from an earlier moment at which the server is known to have reported to the leader that
//! it had heard of the client. So [`is_held`](crate::ReentrantMutexGuard::is_held) turns false
//! before another client can get the lock: when the client is cut off, when its server is, and when
//! the process was stopped, at the first look.
//!
//! Assumed: the leader asks the other servers for those reports at least every quarter of the
//! session while it answers the client's heartbeats (it asks every half tick; tell the tick with
//! `Builder::server_tick` if sessions may be shorter than two ticks); and clocks run at the same
//! speed within 1 %.
//!
//! | what happens | the guard says | others |
//! |---|---|---|
//! | a connection ends | held; the session goes on at another server | wait |
//! | the leader dies | held, or lost by time if the election takes too long | wait, and keep their places |
//! | a majority is gone | lost by time | nobody gets in; calls fail with [`Unreachable`](crate::ErrorKind::Unreachable) |
//! | the client, or its server, is cut off | lost by time | get in when the session has ended |
//! | the process is stopped | lost at the first look | get in when the session has ended |
//! | the session has expired | all holds lost; a new session is made; waiting calls queue up anew | |
//!
//! A [`with_lease`](crate::ReentrantMutex::with_lease) or `max_hold` is a bound of its own beside
//! the session: at its end the hold is lost here and its node is deleted. It cannot make others
//! wait for less than a session after a crash, and a lease longer than the session is refused with
//! [`Unsupported`](crate::ErrorKind::Unsupported).
//!
//! # Fencing tokens
//!
//! The token is the number of the change that made the holder's node. It grows from holder to
//! holder, over elections and restarts, and is lost only with the data of a majority. Tokens of
//! other stores may be larger: for a resource that has seen those, set `Builder::token_base`.
//!
//! # What works
//!
//! Mutexes, fair locks (each thread has a place of its own in the queue, where threads of one
//! client share that of a mutex), read-write locks with reads inside a write and downgrade, several
//! locks as one, semaphores, latches.
//!
//! - **Several locks as one** enter all queues in one transaction, so two such calls never wait for
//!   each other. While one waits it keeps its places: where it is first already, others wait too.
//! - **A semaphore** gives permits in the order of asking. Its number stands in `<name>/permits`.
//!   Permits end with the client that took them, at the latest with its session.
//! - **A latch** is a count of four bytes; 0, or no node, is open.
//! - **`force_unlock`** deletes the first node. Its holder hears of it by a watch if it has had the
//!   lock for longer than a third of the lease, otherwise when it releases.
//!
//! Refused with the reason: counting semaphores (permits without a holder),
//! [`fenced_value`](crate::LockClient::fenced_value), [`redlock`](crate::Builder::redlock),
//! [`replicas`](crate::Builder::replicas), [`cluster`](crate::Builder::cluster),
//! [`sentinel`](crate::Builder::sentinel), [`credentials`](crate::Builder::credentials).
//!
//! # Names and nodes
//!
//! A name is a path: `/` separates levels, and one at the beginning is implied. Refused are empty
//! elements, `.` and `..`, `zookeeper` as the first element, elements that begin with `_c_`, and
//! `locks` or `leases` at the end. Do not use a name below another lock's name.
//!
//! | what | node |
//! |---|---|
//! | mutex, fair lock | `<name>/_c_<uuid>-lock-<sequence>` |
//! | writer, reader | `<name>/_c_<uuid>-__WRIT__<sequence>`, `<name>/_c_<uuid>-__READ__<sequence>` |
//! | semaphore | `<name>/locks/_c_<uuid>-lock-<sequence>`, `<name>/leases/_c_<uuid>-lease-<sequence>`, `<name>/permits` |
//! | latch | `<name>` |
//!
//! Directories are containers, which the server removes when they are empty; the chroot stays. A
//! node that belongs to no session and stands before all others is named in a
//! [`WrongType`](crate::ErrorKind::WrongType) and not waited for.
//!
//! # The URL
//!
//! `zookeeper://[user:password@]host[:port][,host[:port]..][/chroot]`, or `zookeeper+tls://` (with
//! the cargo feature `tls`). The identity is a digest identity; `Builder::creator_only` keeps
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
//! | `InterProcessMutex` | [`mutex`](crate::LockClient::mutex), [`fair`](crate::LockClient::fair) |
//! | `InterProcessReadWriteLock` | [`rw_lock`](crate::LockClient::rw_lock) |
//! | `InterProcessSemaphoreV2` with a `SharedCount` at `<name>/permits` | [`semaphore`](crate::LockClient::semaphore) |
//! | `SharedCount` | [`latch`](crate::LockClient::latch) |
//!
//! Curator does not look whether it still holds a lock: give it a `ConnectionStateListener`, and a
//! session timeout above `syncLimit` ticks.
