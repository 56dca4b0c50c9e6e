//! Locks in a MySQL or MariaDB database.
//! [`choosing_a_store`](crate::guide::choosing_a_store) compares it with the other stores.
//!
//! Cargo feature `mysql`. Guards, renewal, losses, waiting, errors and tokens stay the same.
//!
//! ```no_run
//! # #[cfg(feature = "mysql")] {
//! let client = leasehold::LockClient::open("mysql://app:secret@db.internal/shop")?;
//! let guard = client.lock("nightly report")?;
//! # drop(guard); }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! # What you get over `SELECT … FOR UPDATE`
//!
//! A row lock lives as long as its transaction: it needs a connection for each lock that is held,
//! has no lease (a holder that is stuck keeps it for eight hours, the default `wait_timeout`), is
//! not re-entrant, and is lost without notice when the connection breaks. `GET_LOCK` has the same
//! faults, and nothing survives a restart. Here a lock is a row with a lease, renewed in the
//! background over one connection, however many locks are held; the guard reports when it is lost;
//! and you can *fence* your own transaction by a lock, so that a late holder cannot commit.
//!
//! **What it costs.** A lock and its unlock are two commits, and each is flushed to the disk, where
//! `FOR UPDATE` and one write are one commit: it takes about twice as long as that. Whoever waits
//! looks at the row again and again, because MySQL wakes nobody: the pause is an eighth of the wait
//! so far, from 1 ms to a quarter of a second. Take such a lock some times a second, and not
//! thousands of times; where that is not enough, use Redis.
//!
//! # What works
//!
//! The plain lock in all its forms: re-entrant, owned guards,
//! [`min_hold`](crate::ReentrantMutex::min_hold), fixed leases, cancelled waits, fencing tokens,
//! [the fenced transaction](#fencing-your-transaction), forced unlocks, lists and the diagnosis.
//! [Read-write locks](crate::RwLock), [semaphores](crate::Semaphore) and [several locks as
//! one](crate::MultiLock), all or none. A name is of one kind while it is held, or has permits; a
//! call of another kind then fails with [`WrongType`](crate::ErrorKind::WrongType).
//!
//! Everything else is refused with [`Unsupported`](crate::ErrorKind::Unsupported) and the reason:
//! fair locks, whose waiters would all write; latches and counting semaphores; rate limiters, data,
//! elections and scheduled jobs. Threads of one client still get a lock in the order in which they
//! came.
//!
//! # The URL
//!
//! `mysql://user[:password]@host[:port][,host[:port]..]/database[?parameter=..]`; `mariadb://` is
//! the same. A unix socket is a host that is its path, with `%2F` for each `/`:
//! `mysql://app@%2Frun%2Fmysqld%2Fmysqld.sock/shop`. Of several hosts the one that takes writes is
//! used. Parameters that are not in this table are refused.
//!
//! | parameter | |
//! |---|---|
//! | `ssl-mode` | `disabled`; `preferred` (the default: TLS where the server has it) and `required`, which check no certificate; `verify_identity`. Over unix sockets there is no TLS |
//! | `ssl-ca` | the file of the authority, for `verify_identity`; without it those of the system. [`Builder::tls`](crate::Builder) sets the same and more, and means `verify_identity` |
//!
//! TLS needs the cargo feature `tls` too; without it, `preferred` connects without TLS. Log-in is
//! by `caching_sha2_password`, `mysql_native_password`, or the system's user over a unix socket.
//! The first needs TLS or a unix socket at least once for each user after the server has started,
//! because the server then asks for the password itself.
//!
//! # Tables and rights
//!
//! The first connection creates what is missing: four tables and a procedure, whose names begin
//! with `leasehold_`. Where the user may not, or with `Mysql::create_schema(false)`, an
//! administrator runs `leasehold::MYSQL_SCHEMA` (`leasehold schema --mysql`). A user then needs
//! these rights and no others:
//!
//! ```sql
//! GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON shop.leasehold_lock TO app@'%';
//! GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON shop.leasehold_share TO app@'%';
//! GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON shop.leasehold_fence TO app@'%';
//! GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON shop.leasehold_client TO app@'%';
//! GRANT EXECUTE ON PROCEDURE shop.leasehold_fence TO app@'%';
//! ```
//!
//! **All clients that share locks must log in as one user**, because a client has to end its own
//! connections after a lost answer (`KILL`), and a user may end only those of its own.
//!
//! Tables and a procedure of these names that are not of this release, tables of another engine
//! than InnoDB, and triggers on the tables, which would run somebody else's code, are refused.
//! (MySQL shows a trigger only to whoever has the right `TRIGGER`, MariaDB to all.) A name that was
//! used once keeps its row, so that its tokens grow for ever: use names of what there is, and not a
//! new one for each request. `mysqldump` leaves the procedure out, unless it is told `--routines`;
//! the next connection creates it again.
//!
//! # Servers
//!
//! It needs MySQL 8.0 or MariaDB 10.6, and was tested on MySQL 8.0, 8.4 and 9.7 and on MariaDB
//! 10.11.
//!
//! - **A crash forgets nothing** if `innodb_flush_log_at_trx_commit` and `sync_binlog` are 1, which
//!   is the default of MySQL. MariaDB's `sync_binlog` is 0.
//!   [`diagnose`](crate::LockClient::diagnose) warns of other values: a server that forgets the
//!   last grants may grant a lock twice.
//! - **A failover to a replica** may forget the newest grants, unless the replica was
//!   semi-synchronous and did not lag; their holders learn of it at their next renewal. Whoever
//!   promotes a replica has to stop the old primary first. Name both in the URL: the client uses
//!   the one that takes writes. **Set `read_only` on each replica**, which is not the default: if
//!   two hosts of a URL take writes, a client refuses to connect (`InvalidInput`), because a lock
//!   could be held in both. The first connection of a client asks the other hosts, for a second at
//!   most. A client leaves a server that has become read-only with its next request, also if its
//!   user may write in spite of that (`SUPER`, `READ_ONLY ADMIN`).
//! - **Galera** is refused: it has no `GET_LOCK`, by which a client makes sure that a lost request
//!   cannot run any more. So are proxies that share sessions (ProxySQL, MaxScale, RDS Proxy): the
//!   client recognizes them by the number of its connection. No proxy was tested.
//! - **A clock that is set back** makes leases last longer by as much; one that is set forward ends
//!   them early, and a holder does not notice before its next renewal.
//! - With `binlog_format=STATEMENT` nothing can be locked.
//!
//! A client has at most [`connections`](crate::Builder::connections) (4) for calls, one for
//! renewals, one that looks for whoever waits, and for a moment one more. A statement waits a
//! second for a row that somebody else has locked: a try then fails with `NotReady`, and a call
//! that waits goes on. A lock by which a transaction is fenced is busy at once.
//!
//! What an administrator has set for all sessions does not reach those of a client: it sets
//! `sql_mode`, `autocommit`, `completion_type`, isolation, time zone and limits for itself. A
//! server whose transactions only read (`transaction_read_only`) is refused, as one that is
//! `read_only`.
//!
//! # Fencing your transaction
//!
//! A lease is not proof: a holder can be suspended past its lease and wake up in the middle of its
//! work. Where lock and data are in one database, the transaction itself can check. `fence_sql` of
//! a guard gives a [`TransactionFence`](crate::fencing::TransactionFence). Run its statement, `CALL
//! leasehold_fence(?, ?)` with name and token, **first** in your transaction, on your own
//! connection, with any library:
//!
//! | then | |
//! |---|---|
//! | another holder has taken the lock since | it fails with SQLSTATE `LH001` (error 1644): roll back |
//! | nobody has, also if it was given up | until the transaction ends nobody else gets the lock, even if its lease ends; renewals, re-entries and the unlock are not held up |
//!
//! `sql_at_commit` is the same statement, for the end of the transaction: MySQL cannot check at
//! `COMMIT`. A transaction that reads in `REPEATABLE READ` before its fence may have read what is
//! out of date; MariaDB from 11.6 on refuses such a fence (error 1020). The first `fence_sql` for a
//! name writes a row for it, so it asks the server, and can fail as any call can.
//!
//! A holder that is suspended inside its transaction keeps the lock until the server ends its
//! connection: set `wait_timeout` for that session to what you can wait, in seconds.
//!
//! The example `mysql` moves money under a fence.
