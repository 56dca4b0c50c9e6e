//! The same locks in a PostgreSQL database. [`choosing_a_store`](crate::guide::choosing_a_store)
//! compares it with the other stores.
//!
//! Cargo feature `postgres`. Open a client with a URL of PostgreSQL; guards, renewal, losses,
//! waiting, errors and tokens stay the same.
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
//! A row lock lives as long as its transaction: it needs a connection for each lock that is held,
//! has no lease, is not re-entrant, and is lost without notice when the connection breaks. Here a
//! lock is a row with a lease, renewed in the background over one connection, however many locks
//! are held; the guard reports when it is lost; waiters are woken by `NOTIFY` and do not poll. You
//! can also *fence* your own transaction by a lock, so that a late holder cannot commit.
//!
//! # What works
//!
//! Mutexes, fair locks, read-write locks with downgrade, several locks as one, semaphores, counting
//! semaphores, latches. [Rate limiters](crate::LockClient::rate_limiter) are refused, and [`fenced
//! values`](crate::LockClient::fenced_value): fence the transaction instead. Instead of
//! [`Redis::replicas`][crate::Redis::replicas], use synchronous standbys, for which PostgreSQL
//! waits itself.
//!
//! Clients of PostgreSQL and of Redis do not see each other's locks. One name is for one kind of
//! thing: a lock (plain, fair and multi are one kind), a read-write lock, a semaphore, a counting
//! semaphore or a latch. A second kind under it is refused with
//! [`WrongType`](crate::ErrorKind::WrongType) while anything of the first is held or set by any
//! client; a thread's own hold is refused with [`Conflict`](crate::ErrorKind::Conflict) before the
//! server is asked. Names may be any text without a zero byte.
//!
//! # The URL
//!
//! The same as libpq's:
//! `postgres://user[:password]@host[:port][,host[:port]..]/database[?parameter=..]`. A unix socket
//! is a host that is the path of its directory: `postgres://app@/shop?host=/run/postgresql`. The
//! URL must name the user and a host; the database defaults to the user's name. The password may
//! also be in `PGPASSWORD` or in the password file (`PGPASSFILE`, `~/.pgpass`, of mode 0600; on
//! Windows `%APPDATA%\postgresql\pgpass.conf`), which is read for each connection. Parameters that
//! are not in this table are refused.
//!
//! | parameter | |
//! |---|---|
//! | `user`, `password`, `host`, `port`, `dbname` | these parts, if they are not in front of the `?` |
//! | `passfile` | another password file |
//! | `application_name` | shown in `pg_stat_activity`; by default [`client_name`](crate::Builder::client_name) |
//! | `options` | settings for the session, as `-c name=value` |
//! | `connect_timeout` | seconds for each host; never more than the [I/O timeout](crate::Builder::io_timeout) |
//! | `target_session_attrs` | `any`, `read-write`, `primary`; whichever is given, the host that accepts writes is used |
//! | `sslmode` | `disable`; `allow` (TLS only where the server lets nobody in without), `prefer` (the default) and `require`, which check no certificate; `verify-ca` (any certificate of the authority in `sslrootcert`); `verify-full` (also the name of the host). Over unix sockets there is no TLS |
//! | `sslrootcert` | the file of the authority; without it, or as `system`, those of the system, for `verify-full` only. With such a file `require` means `verify-ca` |
//! | `sslcert`, `sslkey` | the client certificate and its key. [`Builder::tls`](crate::Builder) sets the same as all these files, and means `verify-full` |
//! | `channel_binding` | `prefer`, `require`, `disable`: SCRAM bound to the TLS connection. With `require` the password is sent in no other way |
//!
//! TLS needs the cargo feature `tls` too; without it, `prefer` connects without TLS. Log-in is by
//! SCRAM-SHA-256 (with channel binding where there is TLS, unless the server's certificate is
//! signed with Ed25519, for which none is defined), MD5, a password, a client certificate, or
//! trust. A server that demands more than a million rounds of SCRAM is refused.
//!
//! # Tables and rights
//!
//! The first connection installs what is missing: the schema `leasehold` with the tables, and
//! `leasehold_v1` with the functions. A release whose functions differ will install them beside
//! these (`leasehold_v2`), over the same tables, so that old and new clients work together. Where
//! the role may not create schemas, or with `Postgres::create_schema(false)`, an administrator runs
//! `leasehold::POSTGRES_SCHEMA` once for each release whose functions differ. A role `app` then
//! needs these rights and no others:
//!
//! ```sql
//! GRANT USAGE ON SCHEMA leasehold, leasehold_v1 TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.lock, leasehold.share TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.waiter TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.once, leasehold.fenced TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.client, leasehold.data, leasehold.done TO app;
//! GRANT SELECT, UPDATE ON leasehold.meta TO app;
//! GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold TO app;
//! ```
//!
//! **Owners.** Whoever owns a schema, a table or a function can put code into it, which then runs
//! with the rights of each client. So all of `leasehold` and `leasehold_v1`, and each function that
//! a trigger of these tables runs, must belong to the role of the client,
//! to the owner of the database or to a superuser. Otherwise the connection is refused with
//! `Denied`, which names the thing, its owner and the role, before anything of it is used; and the
//! script installs nothing. So where several roles use the locks (an administrator's too), let the
//! owner of the database install the schema, and not the first of them that connects: if another
//! role runs your migrations, `SET ROLE` to the owner of the database before the script. The script
//! warns a role whose schema other roles will refuse.
//!
//! A role that may not create schemas can also install into two empty ones that were made for it:
//! `CREATE SCHEMA leasehold AUTHORIZATION app; CREATE SCHEMA leasehold_v1 AUTHORIZATION app`.
//!
//! The table `client` records [who each client is](crate::guide::operations#looking-at-a-lock). If
//! it may not be used, nobody can see that; nothing else changes.
//!
//! All clients that share locks must use one role, or roles that may end each other's backends
//! (`pg_signal_backend`), because a client has to be able to end its own backends. A role that
//! switches to another one when it logs in (`ALTER ROLE app SET role = owner`) can do so only if
//! `owner` has `pg_read_all_stats` and `pg_signal_backend`; otherwise the connection is refused
//! with `Denied`.
//!
//! Rows are removed when they are no longer needed. Every ten minutes clients also remove what dead
//! clients have left and names that were unused for an hour (or are unused and were last held by
//! readers), a thousand rows a second until none are left; the tokens of removed names keep
//! growing. They do so over the connection for renewals, within its timeout, a quarter of the lease
//! at most. The database remembers when that was tried last. A program that finds it overdue when
//! it connects, and then takes a lock, removes up to a thousand rows in the background, so that
//! programs which live for a second (cron, CI, `leasehold run`) leave no more behind than they
//! remove. Of many that start at once, one does.
//!
//! **Other roles.** Functions and operators that another role has put into `public`, or into any
//! schema of the search path, are never called: each session of a client and each function has the
//! search path `pg_catalog, pg_temp`, and so have `fence` and `fence_at_commit` in your own
//! sessions. Otherwise a role that may create functions (everybody may in `public` up to PostgreSQL
//! 14, and in databases upgraded from there) could run code with the rights of the locks' role.
//!
//! # Connections
//!
//! A client has at most [`connections`](crate::Builder::connections) (4) for calls, one for
//! renewals, one for messages, and for a moment one more, which a forced unlock makes for itself,
//! whatever the number of threads and of locks that are held. When all are busy, requests of
//! several threads share one transaction. A call waits for a new connection only if the client has
//! no other; further ones are made on a thread of their own.
//!
//! A connection that has ended says nothing about the server (a restart, a router that has
//! forgotten it, an administrator). So its request is sent again at once, after its backend has
//! ended; one thread sees to that for all that had requests there. The same is done when a
//! connection that was not used for five seconds does not answer: it may have been cut in silence.
//! Only a forced unlock is never sent twice.
//!
//! **Do not use a pooler** (PgBouncer, pgcat, RDS Proxy): messages would be lost, and ending a
//! backend would hit other clients, which is also true where each client has a backend for its
//! whole session. A client recognizes a pooler that logs it in by itself, and fails with
//! [`Unsupported`](crate::ErrorKind::Unsupported): put the server itself into the URL.
//!
//! It needs PostgreSQL 14 or later. Grants and renewals are as durable as the server's
//! `synchronous_commit` makes them; a release is asynchronous, because forgetting one in a crash
//! costs one lease and no more.
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
//! With `sql`, nobody else gets the lock before your transaction ends, and a waiter asks again
//! every 20 ms until then. With `sql_at_commit`, your transaction fails if somebody else got the
//! lock, and nobody has to wait; in a session in which triggers do not fire
//! (`session_replication_role = replica`) it is as `sql`. Run either before you read what you will
//! write. A write hold that
//! is downgraded lets readers in at once, even before the commit. A writer whose lease has ended is
//! stale even if only a reader has got the lock since. In `REPEATABLE READ` and `SERIALIZABLE` a
//! late holder gets SQLSTATE 40001 instead of LH001, and a transaction that was prepared (`PREPARE
//! TRANSACTION`) keeps the others waiting until somebody ends it: see
//! [`TransactionFence`](crate::fencing::TransactionFence).
//!
//! # Fail-over
//!
//! Name all hosts in one URL. All must belong to one database cluster (one `system_identifier`): a
//! host of another one is refused with `InvalidInput`, because locks could be held in both. The
//! first connection of a client asks the other hosts too, for a second at most, and each is checked
//! when it is connected to. If two of them take writes, because an old primary goes on beside the
//! new one, the first connection is refused in the same way. After a restore or `pg_upgrade` of
//! several hosts, restart the clients. When a standby is promoted, clients find it, and renew all
//! holds there at once. **With an asynchronous standby a fail-over may forget the last grants**: a
//! lock that the standby did not have yet is free for others, and its holder learns of that at its
//! next renewal. Tokens still grow, so a fence refuses the late holder. If the promoted standby was
//! synchronous (`synchronous_standby_names`, `synchronous_commit` at `on` or more), no grant is
//! forgotten: a call whose commit is cancelled while it waits for the standby fails with
//! `NotReplicated`. A restart or a crash of the server forgets no lock.
//!
//! # The server's clock
//!
//! Leases end by the clock of the server that answers: keep the clocks of the hosts synchronized,
//! or fence.
//!
//! - **It is set back.** A holder that lives keeps its lock, and renews it. One that died keeps it
//!   for one lease from the moment at which somebody asks for the lock or renews it, however far
//!   the clock went. The same is true of read holds, permits and places in a queue. Answers of
//!   counts, and the names of owners, stay longer by as much as the clock was set back, which does
//!   no harm.
//! - **It is set ahead**, or a standby whose clock is ahead is promoted. Every lease seems to have
//!   ended that much earlier, so others get locks whose holders still believe in them, until their
//!   next renewal. No lock can prevent that: fence what must not be written twice.
//!
//! # Long transactions
//!
//! Taking a lock and giving it back leaves two old versions of its row, and PostgreSQL removes
//! them the next time it reads the page. It may not while a transaction is open that could still
//! see them: a dump, a report, a forgotten `BEGIN` in the same database; a transaction that has
//! written in *any* database of the server; a prepared transaction; a standby with
//! `hot_standby_feedback`, or its replication slot. Then each look at the lock passes all versions
//! since, so a lock that is taken often becomes slower with each cycle: after 10 000 cycles each
//! takes half a millisecond to a millisecond, after 30 000 two to thirty. Locks that are taken
//! rarely notice nothing, and all is well again as soon as the transaction ends.
//!
//! - [`LockClient::diagnose`](crate::LockClient::diagnose) names the transaction or slot, and how
//!   to end it, if it is older than five minutes or 100 000 transactions.
//! - Give roles that forget transactions an `idle_in_transaction_session_timeout`.
//! - Let dumps and reports read a standby without `hot_standby_feedback`, or put locks that are
//!   taken very often into a server of their own. Another database is enough against transactions
//!   that only read.
//!
//! Tried and not built: to find the row again by its address takes a third off; to delete and
//! insert it is twenty times slower. An index that leads to the newest version first kept a cycle
//! of the trial below 0.1 ms after 30 000 cycles (2.1 ms without it), but every function would have
//! to look by it, in place of the primary key.
//!
//! # Locks of the database
//!
//! A session that locks leasehold's tables, or a row in them, holds up everybody: `LOCK TABLE`, a
//! `VACUUM FULL` or `ALTER TABLE`, also while it only waits, behind a backup for example. A request
//! waits for a quarter of the I/O timeout, and then nobody has looked at the lock:
//!
//! - *A table*: the call fails with `NotReady`, which names the session (process, role,
//!   `application_name`, state), and for one that waits also those before it.
//! - *The row of a free lock*, which an idle transaction has locked: a try fails in the same way. A
//!   call that waits goes on until its own deadline, and the client logs the session as a warning,
//!   every ten seconds at most. This is the one case in which `Ok(None)` is returned although no
//!   client has the lock.
//! - *The row of a lock that a client holds* changes nothing: the lock is taken. To extend it, to
//!   enter it once more, to give it back or to free it by force fails with `NotReady`, which names
//!   the session.
//!
//! When as many requests wait in this way as the client has connections, its other calls wait for
//! one of these, and fail after the I/O timeout with the same reason.
//!
//! Roles without `pg_read_all_stats` do not see the state of other roles' sessions.
//!
//! # Errors
//!
//! | the server says | [`ErrorKind`](crate::ErrorKind) |
//! |---|---|
//! | wrong password, no such role, no right; a role that switches to one without the rights; no schema, and the role may not create it; tables or functions of another owner | `Denied` |
//! | no such database; hosts of several database clusters; a name that the encoding of the database cannot express | `InvalidInput` |
//! | no schema, and `Postgres::create_schema(false)`; too old; a pooler | `Unsupported` |
//! | too many connections, starting up, a timeout of a lock or a statement; a table, or for a try a row, that [another session has locked](#locks-of-the-database) | `NotReady`: calls that are already waiting go on |
//! | a standby, or read-only | `ReadOnly` |
//! | disk full, out of memory | `Full` |
//! | the backend was ended, the connection broke | `Unreachable` |
#![cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
