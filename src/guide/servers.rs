//! Which Redis servers work, what a client checks, and what happens when a server fails.
//! [`choosing_a_store`](crate::guide::choosing_a_store) compares Redis with the other stores.
//!
//! # Which servers work
//!
//! Redis 6.2 or later, or Valkey 7.2 or later:
//!
//! | you have | call | a failover |
//! |---|---|---|
//! | one server, or an endpoint that always leads to the primary | [`redis(Redis::new(..))`][crate::Redis] | is done by the endpoint: connections end, and new ones find the new primary |
//! | a primary with replicas, watched by sentinels | [`sentinel(Sentinel::new([..], name))`][crate::Sentinel], see [below](#sentinels) | is followed within milliseconds of the sentinels' decision |
//! | a cluster | [`cluster(Cluster::new([..]))`][crate::Cluster], see [below](#cluster) | of one shard is an outage for the names on that shard only |
//! | three or more servers that do not replicate each other | [`redlock(Redlock::new([..]))`][crate::Redlock], cargo feature `redlock`, see [`redlock`](crate::guide::redlock) | is not needed: a minority may be down |
//!
//! | URL | server |
//! |---|---|
//! | `redis://host`, `redis://user:password@host:6379/0` | over TCP; the number is the database |
//! | `rediss://host:6380`, or with `valkeys://` | over TCP with TLS; cargo feature `tls` |
//! | `redis+sentinel://s1:26379,s2:26379/mymaster`, `rediss+sentinel://..` | the master that [sentinels](#sentinels) name |
//! | `redis+cluster://a:7000,b:7000`, `rediss+cluster://..` | a cluster, of which these are some nodes |
//! | `redis+unix:///path/to/socket?db=0&user=..&pass=..` | over a unix socket |
//!
//! A client refuses a URL if it does not understand every part of it
//! ([`Redis::new`][crate::Redis::new] has the rules). It also refuses a read-only replica, a server
//! that is too old, and a cluster node or a sentinel in place of a single server.
//!
//! [`LockClient::open`](crate::LockClient::open) connects once and checks the server and the user's
//! permissions, so a mistake shows at the start of your program. With
//! [`connect_lazily`](crate::Builder::connect_lazily) it shows at the first lock call.
//!
//! # How a client uses the server
//!
//! A client keeps up to [`connections`](crate::Builder::connections) connections for lock calls (8
//! by default). A call takes a free one. When all are busy, calls are queued and sent together over
//! the next connection that is free. Besides these there is one connection for renewals and one for
//! release messages, each made when it is first needed. The scripts of the plain lock are loaded by
//! a client's first connection to a process of the server, the others when they are first used.
//!
//! # TLS
//!
//! A `rediss://` URL means TLS 1.2 or 1.3, and the server's certificate must be valid for the host
//! of the URL. `Builder::tls` has the other settings (with cargo feature `tls`):
//!
//! ```text
//! LockClient::builder()
//!     .url("rediss://redis.internal:6380/")
//!     .tls(Tls::new().ca_file("ca.pem").identity_files("client.pem", "client.key"))
//!     .build()?;
//! ```
//!
//! | you have | set |
//! |---|---|
//! | a managed server with a public certificate | nothing: the system's authorities are trusted |
//! | an authority of your own | `ca_file`, or `ca_pem`; the system's are then not trusted, unless `also_system_authorities` |
//! | a server that asks for a client certificate (`tls-auth-clients yes`) | `identity_files`, or `identity_pem` |
//! | a tunnel, or an IP address that the certificate does not name | `server_name` |
//!
//! - Files are read again when they have changed, so a renewed certificate needs no restart.
//!   Connections that are open stay open.
//! - Every time limit still holds: the handshake is part of the connect. Everything else works as
//!   over plain TCP, [`redlock`](crate::guide::redlock) included. A connect takes about 1 ms
//!   longer, a lock and unlock on the loopback interface about a sixth longer.
//! - A connection resumes the session of an earlier one where the server permits it, and then does
//!   not check the certificate again; `resume_sessions(false)` turns that off.
//! - If either side refuses a certificate, the error is [`Tls`](crate::ErrorKind::Tls), and calls
//!   that are already waiting fail too, because somebody must act. Holds are still renewed over
//!   open connections.
//! - rustls is stricter than OpenSSL: the server's certificate needs its host in subjectAltName (a
//!   common name does not count), and must not be a CA certificate (`CA:TRUE`), which is what
//!   `openssl req -x509` makes.
//!
//! The cryptography is ring's, unless the program has installed another provider for rustls before
//! it builds the client. Then the feature `tls-core` suffices, and ring is not compiled. With
//! aws-lc-rs, validated according to FIPS 140-3:
//!
//! ```text
//! # Cargo.toml
//! leasehold = { version = "0.1", features = ["tls-core"] }
//! rustls = { version = "0.23", default-features = false, features = ["fips", "std", "tls12"] }
//!
//! // main.rs, first of all
//! rustls::crypto::default_fips_provider().install_default().expect("none is installed yet");
//! // An error instead of a client whose cryptography is not validated.
//! let tls = Tls::new().require_fips();
//! ```
//!
//! With the feature `tls-platform-verifier`, `Tls::platform_verifier` lets Windows or macOS check
//! certificates, with what an administrator has set there.
//!
//! # Passwords that change
//!
//! A client uses the password of its URL for as long as it lives. For a password that is replaced
//! from time to time (a cloud identity's token, a mounted secret) use
//! [`credentials`][crate::Redis::credentials], a closure that returns the latest one, or
//! [`password_file`][crate::Redis::password_file]. Either is read for each new connection, and once
//! more when the server refuses the result. While it fails, holds are renewed and calls are made
//! over open connections; without any, a call fails with [`Denied`](crate::ErrorKind::Denied).
//!
//! # Sentinels
//!
//! ```no_run
//! use leasehold::{LockClient, Sentinel};
//!
//! let sentinels = ["redis://s1:26379/", "redis://s2:26379/", "redis://s3:26379/"];
//! let client = LockClient::builder().sentinel(Sentinel::new(sentinels, "mymaster")).build()?;
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! Everything works as on one server: the one that most sentinels name
//! ([`Sentinel`][crate::Sentinel] has the rules). In a failover:
//!
//! | who | sees |
//! |---|---|
//! | a holder | nothing, if the new master has the hold: it is renewed there at once. If not, the hold is [lost](crate::guide::losing_a_lock) |
//! | a call that waits | only the time that the failover takes; it subscribes at the new master |
//! | a first attempt | an error at once, until the sentinels have named the new master, and a grant within a few milliseconds of that (measured), or a quarter of a second if others have just failed |
//! | the fencing tokens | they grow |
//! | the next holder of a lock that was released just before | a wait. The old master answers until the sentinels name the new one, and locks that are released there in that time stay taken at the new master until their lease has ended (permits two seconds longer). Measured with `SENTINEL FAILOVER`, which leaves the old master running for a second: with two permits, a lease of 5 s and `replicas(1)`, nobody got a permit for 6 s in three of four runs; after a kill there was no such gap |
//!
//! | to prevent | use |
//! |---|---|
//! | a failover that forgets the newest grants, because replication is asynchronous | [`replicas(k)`][crate::Redis::replicas]; it helps if one of these `k` is promoted |
//! | an old master that is cut off together with this client and goes on granting | the same: the old master has no replica left that acknowledges. On the servers, `min-replicas-to-write 1` |
//! | both, where a job that runs twice would corrupt data | [fencing tokens](crate::guide::fencing) |
//!
//! A lease should be at least twice as long as a failover takes (`down-after-milliseconds`, and a
//! second or two), so that the holds on the promoted replica have not ended.
//!
//! # Cluster
//!
//! ```no_run
//! use leasehold::{Cluster, LockClient};
//!
//! let nodes = ["redis://a:7000/", "redis://b:7000/"]; // the others are learned
//! let client = LockClient::builder().cluster(Cluster::new(nodes)).build()?;
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! Every primitive works on the primary that has the slot of its name
//! ([`Cluster`][crate::Cluster] has the rules). A client has a pool of
//! connections for each primary that it uses.
//!
//! | what happens | what clients see |
//! |---|---|
//! | a slot moves to another primary | nothing: requests, renewals and wake-ups move to the new primary |
//! | a slot stays half moved | holds are renewed and extended. Redis refuses what names keys on both sides, also keys that do not exist: to *grant* a free lock, to release some kinds. A first attempt fails with [`NotReady`](crate::ErrorKind::NotReady) after the I/O timeout, a release as well, and is repeated in the background; a waiting call goes on waiting |
//! | a primary fails over | an outage for its names, until the replica is promoted (`cluster-node-timeout`, and a second or two). Holds that the replica has are renewed there, others are [lost](crate::guide::losing_a_lock) |
//! | a primary hangs, and comes back after its replica was promoted | until it learns of that (Redis needs about 100 ms), it grants its clients locks that others hold at the new primary; [fencing](crate::guide::fencing) refuses one of the two, and with [`replicas(1)`][crate::Redis::replicas] no such grant counts |
//! | a primary hangs, or is gone without a replica | its holds are lost when their leases end. Other names are not affected |
//!
//! - A [multi-lock](crate::LockClient::multi) over several slots is still all or none, and holds
//!   nothing while it waits. But it takes one slot after the other, so others can briefly find some
//!   of its names taken. With a common tag in braces (`{order}:a`, `{order}:b`) all are in one
//!   slot, and one script takes them.
//! - A [latch](crate::LockClient::latch) cannot have braces in its name: by Redisson's rule its
//!   channel would be in another slot.
//! - Wake-ups use sharded channels where the first node that answers has them, as Redisson does;
//!   [`sharded_channels`][crate::Cluster::sharded_channels] overrides that. All clients must agree.
//! - [`replicas(k)`][crate::Redis::replicas] works, and prevents on each shard what it prevents
//!   [behind sentinels](#sentinels). Each hold waits for its own acknowledgement, so while a
//!   replica that is needed is down, a client with very many holds on that shard renews slowly.
//!   Redlock over clusters is refused.
//!
//! # Managed servers
//!
//! The tests run Redis 7.0 and 6.2 and Valkey 9.1 themselves, alone, with sentinels and as a
//! cluster, and inject faults. The other rows of this table come from the providers' documents of
//! 2026 and were *never tested*. [`build`](crate::Builder::build) reports missing permissions.
//!
//! | provider | which mode | settings | note |
//! |---|---|---|---|
//! | run by yourself | any of the above | `maxmemory-policy noeviction`; with replicas `min-replicas-to-write 1` | failover without acknowledgement: [`replicas(k)`][crate::Redis::replicas] |
//! | Amazon ElastiCache, cluster mode off | `url` with the primary endpoint | `rediss://`; IAM by [`credentials`][crate::Redis::credentials]: a token is good for 15 minutes, a connection for 12 hours | the default policy is `volatile-lru`, which **evicts locks**: set `noeviction` in the parameter group. The endpoint's DNS name follows a failover after some seconds |
//! | ElastiCache, cluster mode on, or serverless | `cluster` with the configuration endpoint | as above | as above |
//! | Amazon MemoryDB | `cluster` with the cluster endpoint | `rediss://`, ACL users | a failover forgets nothing that was acknowledged, so `replicas` is not needed; each grant takes some milliseconds |
//! | Google Memorystore for Redis | `url`; TLS at port 6378 with the instance's CA as `ca_pem` | AUTH string as the password | the default policy is `volatile-lru`: set `noeviction` |
//! | Memorystore for Redis Cluster, for Valkey | `cluster` with the discovery endpoint | IAM by `credentials`: a token is good for an hour | the same |
//! | Azure Cache for Redis | `url` at port 6380; Premium with clustering: `cluster` | `rediss://`; Entra tokens by `credentials` | the default policy is `volatile-lru`: set `noeviction`. Idle connections end after 10 minutes, which a client survives |
//! | Azure Managed Redis | port 10000; `cluster` with the OSS policy, `url` with the Enterprise policy | the same | behind the Enterprise policy a proxy answers: unless it passes `CLIENT KILL` and `INFO` through, unknown outcomes are resolved by a time limit |
//! | Upstash | `url` | `rediss://` | it is not Redis but a server of Upstash's own: run your tests against it first |
//!
//! Where `CLIENT KILL` is not permitted, a request whose reply was lost is resolved by a time
//! limit, which takes an I/O timeout longer. The limit is a time of the server's clock. After that
//! was stepped forward, the first call on each connection makes a new one. After it was set back, a
//! request whose reply was lost just before is resolved up to ten seconds later; if it should reach
//! the server after that, the lock stays taken for one lease.
//!
//! # When the server fails
//!
//! The [`kind`](crate::Error::kind) of an [`Error`](crate::Error) says what happened:
//!
//! | kind | what happened | what to do |
//! |---|---|---|
//! | [`Unreachable`](crate::ErrorKind::Unreachable) | the server could not be reached, or did not answer within the I/O timeout | try again later |
//! | [`NotReady`](crate::ErrorKind::NotReady) | it is loading its data, busy with a script, or has as many clients as its `maxclients` | try again later; raise `maxclients` |
//! | [`ReadOnly`](crate::ErrorKind::ReadOnly), [`Full`](crate::ErrorKind::Full) | it is a replica, cannot save or replicate, or has reached its `maxmemory` | ask the operator; a full server still renews and releases what is held |
//! | [`Tls`](crate::ErrorKind::Tls) | the server's certificate is refused, or the client's; the message says which, and why | renew the certificate, or name its authority |
//! | [`Denied`](crate::ErrorKind::Denied) | wrong password, or a missing permission | see the [ACL rule](crate::guide::operations#acl-rule) |
//! | [`NoQuorum`](crate::ErrorKind::NoQuorum), [`NotReplicated`](crate::ErrorKind::NotReplicated) | too few masters, or too few replicas | see [`redlock`](crate::guide::redlock), and below |
//! | [`Lost`](crate::ErrorKind::Lost) | this hold is gone | drop its guards, take the lock again, start the work again |
//!
//! A first attempt against a dead server fails at once, or, if others have just failed, after a
//! quarter of a second at most: the threads of a client connect together. A call that is already
//! waiting keeps trying through a restart or a failover for
//! [`outage_timeout`](crate::Builder::outage_timeout). Holders keep their locks until their leases
//! end, and renewal is retried until then.
//!
//! # When a reply is lost
//!
//! The request may have run, or may still run. The client resolves such an *unknown outcome* in the
//! background: it kills the old connection at the server, so that nothing in flight can run any
//! more, and then undoes the acquisition. It retries until the server answers. So a call that
//! failed leaves nothing locked.
//!
//! Requests can be repeated safely. Every script of a lock *sets* hold counts instead of adding to
//! them. A change to the count of a latch or a semaphore carries an id that the server remembers
//! for a minute, and it is repeated for no longer than that. (For permits that were taken from a
//! counting semaphore, the server remembers the id until they are back, for ten minutes at most.)
//! Permits of a rate limiter are remembered with the id of their acquisition, for its interval.
//!
//! # When the server forgets
//!
//! A server that restarts without its data, is flushed, evicts keys, or fails over to a lagging
//! replica, forgets its locks. Holders learn that at their next renewal, and until then somebody
//! else can have the lock. There are two remedies, the cheaper one first. Neither replaces the
//! [fencing token](crate::guide::fencing) where a job that runs twice would corrupt data.
//!
//! 1. [`Redis::replicas(k)`][crate::Redis::replicas]: a grant or a renewal counts only once `k`
//!    replicas have acknowledged it (`WAIT`, in the same write). A failover to one of these
//!    replicas keeps the lock. But nothing makes a failover choose one of them.
//! 2. [`Builder::redlock()`][crate::Builder::redlock]: the lock is held on a majority of several
//!    independent masters. See [`redlock`](crate::guide::redlock).
//!
//! Persistence helps as well: with `appendonly yes` and `appendfsync always`, a restart forgets
//! nothing. Always set `maxmemory-policy noeviction`: a lock that is evicted is lost.
//!
//! # Platforms
//!
//! Linux, macOS and Windows are supported. On another system that is not unix, clients of servers
//! do not compile. [Versions](crate#versions) lists the clocks.
//!
//! | platform | what the tests of the repository do there |
//! |---|---|
//! | Linux with glibc, x86-64 | all of them |
//! | Linux with musl | compile everything; the command is installed, and takes locks over TCP, unix sockets and TLS |
//! | macOS, Windows (msvc) | compile the library without TLS, and the command; nothing is run |
//! | Windows (gnu) | compile everything; locks over TCP and TLS on each store, and the command, under Wine |
//!
//! ## Windows
//!
//! Everything works as elsewhere, over TCP and TLS, with these exceptions:
//!
//! - There are no unix sockets: a URL with one is refused with
//!   [`InvalidInput`](crate::ErrorKind::InvalidInput).
//! - The password file of PostgreSQL is `%APPDATA%\postgresql\pgpass.conf`, and its rights are not
//!   checked.
//! - Windows tries again for about two seconds to connect to a port on which nobody listens. A
//!   client then learns later that a server is down, at the latest after its
//!   [`io_timeout`](crate::Builder::io_timeout).
//! - A write that the server does not take may wait half a second longer than `io_timeout`.
//! - An owner's host is the value of `COMPUTERNAME`.
//!
//! The command ends a lost lock's command at once, and passes no signals on: `leasehold run --help`
//! on Windows says the details.
//!
//! The tests of this repository for Windows run under Wine on Linux. They found that the library
//! works with the interfaces of Windows as Wine implements them. Sleep and hibernation, a closed
//! console, and the two waits above were not tested, but follow from Microsoft's documentation.
#![cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
#![cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
