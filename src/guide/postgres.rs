//! The same locks in a PostgreSQL database. How it compares with the other stores:
//! [`choosing_a_store`](crate::guide::choosing_a_store).
//!
//! Cargo feature `postgres`. Open a client with a URL of PostgreSQL; everything else stays as it
//! is: guards, renewal, losses, waiting, errors, tokens.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")] {
//! let client = leasehold::LockClient::open("postgres://app:secret@db.internal/shop")?;
//! let guard = client.lock("nightly report")?;
//! # drop(guard); }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! # What you get over `SELECT … FOR UPDATE`
//!
//! A row lock lives as long as its transaction: it takes a connection for each lock that is held,
//! has no lease, is not re-entrant, and is gone without a word when the connection breaks. Here a
//! lock is a row with a lease, renewed in the background over one connection, however many locks
//! are held; the guard tells when it is lost; waiters are woken by `NOTIFY` and do not poll. And a
//! transaction of yours can be *fenced* by a lock, so that a holder that is late cannot commit.
//!
//! # What works
//!
//! All primitives: mutexes, fair locks, read-write locks with downgrade, several locks as one,
//! semaphores, counting semaphores, latches. Only [`fenced
//! values`](crate::LockClient::fenced_value) are refused: fence the transaction instead. What
//! [`Redis::replicas`](crate::Redis::replicas) is for, PostgreSQL does itself: it waits for its
//! synchronous standbys.
//!
//! Clients of PostgreSQL and of Redis do not see each other's locks. One name is for one kind
//! of thing: a lock (plain, fair and multi are one kind), a read-write lock, a semaphore, a
//! counting semaphore or a latch. A second kind under it is refused with
//! [`WrongType`](crate::ErrorKind::WrongType) while anything of the first is held or set, whichever
//! client it is of; a thread's own hold is refused with [`Conflict`](crate::ErrorKind::Conflict)
//! before the server is asked. Names may be any text without a zero byte.
//!
//! # The URL
//!
//! As libpq's: `postgres://user[:password]@host[:port][,host[:port]..]/database[?parameter=..]`. A
//! unix socket is a host that is the path of its directory:
//! `postgres://app@/shop?host=/run/postgresql`. The URL names the user and a host; the database is
//! the user's name if it is left out. The password may also be in `PGPASSWORD` or in the
//! password file (`PGPASSFILE`, `~/.pgpass`, of mode 0600), which is read for each connection.
//! Parameters that are not in this table are refused.
//!
//! | parameter | |
//! |---|---|
//! | `user`, `password`, `host`, `port`, `dbname` | what the front of the URL does not say |
//! | `passfile` | another password file |
//! | `application_name` | shown in `pg_stat_activity`; else [`client_name`](crate::Builder::client_name) |
//! | `options` | settings for the session, as `-c name=value` |
//! | `connect_timeout` | seconds for each host; never more than the [I/O timeout](crate::Builder::io_timeout) |
//! | `target_session_attrs` | `any`, `read-write`, `primary`: of several hosts always the one that takes writes is used |
//! | `sslmode` | `disable`; `allow` (TLS only where the server lets nobody in without), `prefer` (the default) and `require`, which check no certificate; `verify-ca` (any certificate of the authority in `sslrootcert`); `verify-full` (also the name of the host). Over unix sockets there is no TLS |
//! | `sslrootcert` | the file of the authority; without it, or as `system`, those of the system, for `verify-full` only. Beside it `require` means `verify-ca` |
//! | `sslcert`, `sslkey` | the client certificate and its key. [`Builder::tls`](crate::Builder) says the same as all these files, and means `verify-full` |
//! | `channel_binding` | `prefer`, `require`, `disable`: SCRAM bound to the TLS connection. With `require` a server that asks for the password in any other way does not get it |
//!
//! TLS needs the cargo feature `tls` too; without it, `prefer` connects without TLS. Log-in is by
//! SCRAM-SHA-256 (with channel binding where there is TLS, unless the server's certificate is
//! signed with Ed25519, for which none is defined), MD5, a password, a client certificate, or
//! trust. A server that asks for more than a million rounds of SCRAM is refused.
//!
//! # Tables and rights
//!
//! The first connection installs what is missing: the schema `leasehold` with the tables, and
//! `leasehold_v2` with the functions. A release with other functions puts them beside those of an
//! earlier one (`leasehold_v1`), over the same tables, so that old and new clients work together.
//! Where the role may not create schemas, or `Postgres::create_schema(false)` says so, an
//! administrator runs `leasehold::POSTGRES_SCHEMA` once for each release with other functions. A
//! role `app` then needs these rights and no others:
//!
//! ```sql
//! GRANT USAGE ON SCHEMA leasehold, leasehold_v2 TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.lock, leasehold.share TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.waiter TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.once, leasehold.fenced TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.client TO app;
//! GRANT SELECT, UPDATE ON leasehold.meta TO app;
//! GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold TO app;
//! ```
//!
//! The table `client` says [who clients are](crate::guide::operations#looking-at-a-lock). Without
//! it (the script of an earlier release was run), or without the right to use it, nobody sees that,
//! and nothing else changes.
//!
//! All clients that share locks use one role, or roles that may end each other's backends
//! (`pg_signal_backend`): a client ends its own. A role that switches to another one when it logs
//! in (`ALTER ROLE app SET role = owner`) can do so only if `owner` has `pg_read_all_stats` and
//! `pg_signal_backend`; otherwise the connection is refused with `Denied`.
//!
//! Rows are removed when they are used up. What clients that died have left, and names that have
//! been at rest for an hour, the clients remove every ten minutes, in batches of a thousand a
//! second while there are more; the tokens of removed names go on.
//!
//! **Other roles.** Functions and operators that another role has put into `public`, or into any
//! schema of the search path, are never called: each session of a client and each function has the
//! search path `pg_catalog, pg_temp`, also `fence` and `fence_at_commit` in your own sessions. The
//! functions of version 1 had none, so that a role that may create functions (everybody may in
//! `public` up to PostgreSQL 14, and in databases upgraded from there) could run code with the
//! rights of the role of the locks. The script of this release gives them one too, if they belong
//! to the role that runs it; but sessions of clients of that release stay open to this, so update
//! all of them.
//!
//! # Connections
//!
//! A client has at most [`connections`](crate::Builder::connections) (4) for calls, one for
//! renewals and one for messages, whatever the number of threads and of locks that are held. When
//! all are busy, requests of several threads travel together in one transaction. A call waits for a
//! new connection only if there is no other: one more is made on a thread of its own.
//!
//! **No pooler in between** (PgBouncer, pgcat, RDS Proxy): messages would be lost, and ending a
//! backend would hit others. A client recognizes one that gives each transaction another backend
//! and fails with [`Unsupported`](crate::ErrorKind::Unsupported): name the server itself.
//!
//! PostgreSQL 14 or later. Grants and renewals are as durable as the server's
//! `synchronous_commit` makes them; a release is asynchronous, because a release that a crash
//! forgets costs one lease and no more.
//!
//! # Fencing your transaction
//!
//! A lease is not proof: a holder can be suspended past its lease and wake up in the middle of its
//! work. Where lock and data are in one database, the transaction itself can check. `fence_sql` of
//! a guard gives a [`TransactionFence`](crate::fencing::TransactionFence): two statements, of which
//! you run one on your own connection, with any library.
//!
//! ```text
//! holder A (its lease ends)         others                        then
//! ────────────────────────────      ──────────────────────────    ───────────────────────────────
//! BEGIN; UPDATE account …
//!   … suspended …                   B gets the lock: token + 1
//! fence(k, old token)                                             LH001: nothing of A is committed
//!
//! BEGIN; fence(k, token): holds     C asks and waits
//! UPDATE account …                  A renews, releases: passes
//! COMMIT                                                          C gets it
//!
//! BEGIN; fence(k, token): holds     C asks and waits
//!   … suspended …                                                 after 10 s the server ends A's
//! COMMIT fails                                                    transaction; C gets the lock
//!
//! BEGIN; fence_at_commit(k, token)  B asks and gets it at once
//! UPDATE account …
//! COMMIT                                                          LH001: nothing of A is committed
//! ```
//!
//! `sql` says: *nobody gets it before I am through*. `sql_at_commit` says: *if somebody got it, I
//! did nothing*, and keeps nobody waiting. Run either before you read what you will write. With the
//! first, a waiter asks again every 20 ms until the transaction ends. A write hold that is
//! downgraded lets readers in at once, also before the commit. A writer whose lease has ended and
//! whose lock a reader has got is stale too.
//!
//! # Fail-over
//!
//! Name all hosts in one URL. All belong to one database cluster (one `system_identifier`): a host
//! of another one is refused with `InvalidInput`, because locks could be held in both. The first
//! connection of a client asks the other hosts too, for a second at most, and each is checked when
//! it is connected to. After a restore or `pg_upgrade` of several hosts, start the clients anew.
//! When a standby is promoted, clients find it, and renew all holds there at once. **With an
//! asynchronous standby a fail-over may forget the last grants**: what the standby had is
//! respected, what it had not is free for others, and its holder learns that at its next renewal.
//! Tokens grow all the same, so a fence refuses the late one. With a synchronous standby
//! (`synchronous_standby_names`, `synchronous_commit` at `on` or more) that is the one promoted,
//! none is forgotten. A restart or a crash of the server forgets no lock.
//!
//! Leases end by the clock of the server that answers: keep the clocks of the hosts together, or
//! fence.
//!
//! # Errors
//!
//! | the server says | [`ErrorKind`](crate::ErrorKind) |
//! |---|---|
//! | wrong password, no such role, no right; a role that switches to one without the rights; no schema, and the role may not make it | `Denied` |
//! | no such database; hosts of several database clusters | `InvalidInput` |
//! | no schema, and `Postgres::create_schema(false)`; too old; a pooler | `Unsupported` |
//! | too many connections, starting up, a timeout of a lock or a statement | `NotReady`: waiters ride it out |
//! | a standby, or read-only | `ReadOnly` |
//! | disk full, out of memory | `Full` |
//! | the backend was ended, the connection broke | `Unreachable` |
