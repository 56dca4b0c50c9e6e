//! The data and the lock in one transaction: a late holder cannot commit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::fencing::TransactionFence;
use leasehold::{ErrorKind, LockClient};

use super::{ends_of, server};
use crate::rig::Postgres;
use crate::rig::{CAP, ms, wait_until};
use crate::support::Clients;

fn state_of(error: &postgres::Error) -> String {
    error.code().map_or_else(|| format!("{error:?}"), |code| code.code().to_owned())
}

fn run(
    db: &mut impl postgres::GenericClient,
    sql: &str,
    fence: &TransactionFence,
) -> Result<(), postgres::Error> {
    db.execute(sql, &[&fence.name(), &fence.token().as_i64()]).map(drop)
}

fn accounts(server: &Postgres) {
    server.run_sql("CREATE TABLE account (id int PRIMARY KEY, balance bigint); INSERT INTO account VALUES (1, 100)");
}

fn balance(server: &Postgres) -> i64 {
    server.number_of("SELECT balance FROM account")
}

/// Simulates a lease that ended while its holder was suspended: the guard does not know it yet.
fn expire(server: &Postgres, name: &str) {
    server.run_sql(&format!(
        "UPDATE leasehold.lock SET ends = now() - interval '1 ms' WHERE name = '{name}'"
    ));
}

/// Every guard that has a token has a fence.
fn each_kind(
    client: &LockClient,
    mut test: impl FnMut(&str, TransactionFence, Box<dyn FnOnce()>, &dyn Fn() -> bool),
) {
    {
        let guard = client.mutex("plain").lock_owned().unwrap();
        let fence = guard.fence_sql().unwrap();
        let other = client.clone();
        let free = move || other.mutex("plain").try_lock_owned().unwrap().is_some();
        test("plain", fence, Box::new(move || guard.unlock().unwrap()), &free);
    }
    {
        let guard = client.fair("fair").lock_owned().unwrap();
        let fence = guard.fence_sql().unwrap();
        let other = client.clone();
        let free = move || other.fair("fair").try_lock_owned().unwrap().is_some();
        test("fair", fence, Box::new(move || guard.unlock().unwrap()), &free);
    }
    {
        let guard = client.multi(["multi", "more"]).lock_owned().unwrap();
        let fence = guard.fence_sql("multi").unwrap();
        let other = client.clone();
        let free = move || other.multi(["multi", "less"]).try_lock_owned().unwrap().is_some();
        test("multi", fence, Box::new(move || guard.unlock().unwrap()), &free);
    }
    for mode in ["write", "read"] {
        let guard = client.rw_lock("data").write_owned().unwrap();
        let fence = guard.fence_sql().unwrap();
        let other = client.clone();
        let free = move || match mode {
            "write" => other.rw_lock("data").try_write_owned().unwrap().is_some(),
            _ => other.rw_lock("data").try_read_owned().unwrap().is_some(),
        };
        test("data", fence, Box::new(move || guard.unlock().unwrap()), &free);
    }
}

/// Interleavings 2 and 3: the fence finds a newer holder; nobody gets the lock before the
/// transaction ends, even after the release and after the end of the lease.
#[test]
fn nobody_gets_it_before_the_transaction_is_through() {
    let server = server!();
    accounts(&server);
    let client = server.client();
    let mut db = server.connect();
    each_kind(&client, |name, fence, unlock, is_free| {
        let mut other = server.connect();
        let mut transaction = other.transaction().unwrap();
        run(&mut transaction, fence.sql(), &fence).unwrap();
        transaction.execute("UPDATE account SET balance = balance - 1", &[]).unwrap();
        expire(&server, name);
        assert!(!is_free(), "{name}: its lease has ended, and the transaction has not");
        transaction.commit().unwrap();
        server.run_sql(&format!(
            "UPDATE leasehold.lock SET ends = now() + interval '1 minute' WHERE name = '{name}'"
        ));
        let mut transaction = other.transaction().unwrap();
        run(&mut transaction, fence.sql(), &fence).unwrap();
        // The release does not wait for the fence.
        unlock();
        assert!(!is_free(), "{name}: it was released, and the transaction is still open");
        transaction.commit().unwrap();
        assert!(is_free(), "{name}: the transaction is over");
        // A stale holder is refused.
        let error = run(&mut db, fence.sql(), &fence).unwrap_err();
        assert_eq!(state_of(&error), TransactionFence::STALE, "{name}");
    });
    assert_eq!(balance(&server), 95);
    drop((client, db));
    server.assert_clean();
}

/// Interleaving 1: A was suspended in its transaction before the fence, and B has the lock.
#[test]
fn a_late_holder_cannot_commit() {
    let server = server!();
    accounts(&server);
    let (a, b) = (server.client(), server.client());
    let mut db = server.connect();
    for at_commit in [false, true] {
        let late = a.lock("account").unwrap();
        let fence = late.fence_sql().unwrap();
        let mut transaction = db.transaction().unwrap();
        if at_commit {
            run(&mut transaction, fence.sql_at_commit(), &fence).unwrap();
        }
        transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 1", &[]).unwrap();
        expire(&server, "account");
        let next = b.try_lock("account").unwrap().expect("A does not block it");
        let refused = if !at_commit {
            run(&mut transaction, fence.sql(), &fence).and_then(|()| transaction.commit())
        } else {
            transaction.commit()
        };
        assert_eq!(state_of(&refused.unwrap_err()), TransactionFence::STALE);
        assert_eq!(balance(&server), 100, "nothing of it is committed");
        let own = next.fence_sql().unwrap();
        let mut transaction = db.transaction().unwrap();
        run(&mut transaction, own.sql_at_commit(), &own).unwrap();
        transaction.commit().unwrap();
        next.unlock().unwrap();
        assert_eq!(late.unlock().unwrap_err().kind(), ErrorKind::Lost);
    }
    assert_eq!(server.number_of("SELECT count(*) FROM leasehold.fenced"), 0);
    drop((a, b, db));
    server.assert_clean();
}

/// Interleaving 3: while the transaction is open, the holder renews and re-enters, and waiters of
/// any kind occupy no connection that others need.
#[test]
fn renewals_pass_and_waiters_wait_for_the_end() {
    let server = server!();
    let a = server.builder().lease(ms(9000)).io_timeout(ms(6000)).build().unwrap();
    let b = server.builder().connections(1).build().unwrap();
    let guard = a.lock("k").unwrap();
    let fence = guard.fence_sql().unwrap();
    let mut db = server.connect();
    let mut transaction = db.transaction().unwrap();
    run(&mut transaction, fence.sql(), &fence).unwrap();
    let committed = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let waits = [
            s.spawn(|| {
                let guard = b.lock("k").unwrap();
                assert!(committed.load(Ordering::SeqCst));
                guard.unlock().unwrap();
            }),
            s.spawn(|| {
                let guard = b.fair("k").lock().unwrap();
                assert!(committed.load(Ordering::SeqCst));
                guard.unlock().unwrap();
            }),
        ];
        wait_until("both wait", || {
            server.number_of("SELECT (SELECT count(*) FROM leasehold.waiter) + (SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL)") == 2
        });
        let before = ends_of(&server, "k");
        while ends_of(&server, "k") <= before {
            assert!(guard.is_held(), "it is renewed");
            a.lock("k").unwrap().unlock().unwrap();
            b.lock("another").unwrap().unlock().unwrap();
            std::thread::sleep(ms(50));
        }
        guard.unlock().unwrap();
        std::thread::sleep(ms(300));
        committed.store(true, Ordering::SeqCst);
        transaction.commit().unwrap();
        for waits in waits {
            waits.join().unwrap();
        }
    });
    drop((a, b, db));
    server.assert_clean();
}

/// A hold is passed between the threads of a client without a request, but not past a fence, of
/// which the next thread would not know.
#[test]
fn a_fenced_hold_does_not_pass_to_another_thread() {
    let server = server!();
    let client = server.client();
    let committed = AtomicU32::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let mut db = server.connect();
                for turn in 0..12 {
                    let guard = client.lock("k").unwrap();
                    if turn % 3 > 0 {
                        // Allows passing on: runs begin, with tokens that were drawn in advance.
                        continue;
                    }
                    let fence = guard.fence_sql().unwrap();
                    let mut transaction = db.transaction().unwrap();
                    run(&mut transaction, fence.sql(), &fence).unwrap();
                    assert_eq!(
                        committed.fetch_add(1, Ordering::SeqCst),
                        0,
                        "one transaction at a time"
                    );
                    drop(guard);
                    std::thread::sleep(ms(5));
                    committed.fetch_sub(1, Ordering::SeqCst);
                    transaction.commit().unwrap();
                    // The hold was released, so its token is stale, whatever this client's threads
                    // hold.
                    assert_eq!(
                        state_of(&run(&mut db, fence.sql(), &fence).unwrap_err()),
                        TransactionFence::STALE
                    );
                }
            });
        }
    });
    drop(client);
    server.assert_clean();
}

/// Interleaving 4: A is suspended after its fence. The server ends its transaction.
#[test]
fn a_suspended_transaction_keeps_nobody_waiting_for_ever() {
    let server = server!();
    accounts(&server);
    let (a, b) = (server.client(), server.client());
    let guard = a.lock("k").unwrap();
    let fence = guard.fence_sql().unwrap();
    let mut db = server.connect();
    db.batch_execute("SET idle_in_transaction_session_timeout = 3000").unwrap();
    let mut transaction = db.transaction().unwrap();
    run(&mut transaction, fence.sql(), &fence).unwrap();
    transaction.execute("UPDATE account SET balance = 0", &[]).unwrap();
    expire(&server, "k");
    let next = b.try_lock_for("k", CAP).unwrap().expect("the server has ended it");
    assert!(transaction.commit().is_err());
    assert_eq!(balance(&server), 100);
    next.unlock().unwrap();
    drop((guard, a, b, db));
    server.assert_clean();
}

/// Many holders with leases that are too short, and a read-modify-write without any other
/// protection.
#[test]
fn no_update_is_lost_under_leases_that_are_too_short() {
    let server = server!();
    accounts(&server);
    let (done, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        for n in 0..4 {
            let (client, done, refused, server) = (server.client(), &done, &refused, &server);
            s.spawn(move || {
                let mut db = server.connect();
                for turn in 0..12_u64 {
                    // The first may be in time on a busy machine, too.
                    let lease = if turn == 0 { ms(2000) } else { ms(40) };
                    let lock = client.mutex("k").with_lease(lease);
                    let Ok(guard) = lock.lock() else { continue };
                    let fence = guard.fence_sql().unwrap();
                    let at_commit = (n + turn) % 2 == 0;
                    let mut write = || -> Result<(), postgres::Error> {
                        let mut transaction = db.transaction()?;
                        let sql = if at_commit { fence.sql_at_commit() } else { fence.sql() };
                        run(&mut transaction, sql, &fence)?;
                        let old: i64 =
                            transaction.query_one("SELECT balance FROM account", &[])?.get(0);
                        std::thread::sleep(Duration::from_millis(turn * 5));
                        transaction.execute("UPDATE account SET balance = $1", &[&(old + 1)])?;
                        transaction.commit()
                    };
                    // Occasionally late on purpose.
                    std::thread::sleep(Duration::from_millis(turn * 7 % 60));
                    match write() {
                        Ok(()) => done.fetch_add(1, Ordering::SeqCst),
                        Err(error) => {
                            assert_eq!(state_of(&error), TransactionFence::STALE);
                            refused.fetch_add(1, Ordering::SeqCst)
                        }
                    };
                    drop(guard);
                }
            });
        }
    });
    let (done, refused) = (done.into_inner(), refused.into_inner());
    assert!(done > 0, "{refused} refused");
    assert_eq!(balance(&server), 100 + i64::from(done), "{done} done, {refused} refused");
    server.assert_clean();
}

#[test]
fn only_a_database_has_transactions() {
    let client = LockClient::in_memory();
    let guard = client.lock("k").unwrap();
    assert_eq!(guard.fence_sql().unwrap_err().kind(), ErrorKind::Unsupported);
    let server = server!();
    let client = server.builder().fencing(false).build().unwrap();
    assert_eq!(client.lock("k").unwrap().fence_sql().unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// The snapshot is older than what happened to the lock. A late holder commits nothing; a lock that
/// was given up and that nobody has taken harms nobody.
#[test]
fn a_late_holder_cannot_commit_from_an_old_snapshot() {
    let server = server!();
    accounts(&server);
    let (a, b) = (server.client(), server.client());
    let mut committed = 100;
    for (level, late) in
        [("READ COMMITTED", "LH001"), ("REPEATABLE READ", "40001"), ("SERIALIZABLE", "40001")]
    {
        for at_commit in [false, true] {
            for takes_over in [true, false] {
                let guard = a.lock("k").unwrap();
                let fence = guard.fence_sql().unwrap();
                let sql = if at_commit { fence.sql_at_commit() } else { fence.sql() };
                let mut db = server.connect();
                db.batch_execute(&format!(
                    "BEGIN ISOLATION LEVEL {level}; SELECT balance FROM account"
                ))
                .unwrap();
                guard.unlock().unwrap();
                let taken = takes_over.then(|| b.try_lock("k").unwrap().unwrap());
                let outcome = run(&mut db, sql, &fence).and_then(|()| {
                    db.batch_execute("UPDATE account SET balance = balance + 1; COMMIT")
                });
                let case = format!("{level}, at commit: {at_commit}, taken: {takes_over}");
                match outcome {
                    Ok(()) => {
                        assert!(!takes_over && late == "40001", "{case}: it committed");
                        committed += 1;
                    }
                    Err(error) => {
                        let wanted = if takes_over { late } else { TransactionFence::STALE };
                        assert_eq!(state_of(&error), wanted, "{case}");
                        let _ = db.batch_execute("ROLLBACK");
                        // What a repetition of the transaction is told.
                        let again = run(&mut db, fence.sql(), &fence).unwrap_err();
                        assert_eq!(state_of(&again), TransactionFence::STALE, "{case}");
                    }
                }
                assert_eq!(balance(&server), committed, "{case}");
                drop(taken);
            }
        }
    }
    drop((a, b));
    server.assert_clean();
}

/// A reader takes over the lock of a writer that has given it up, or was forced out: that changes
/// nothing that a fence of an old snapshot looks at, unless the reader writes it.
#[test]
fn a_late_writer_cannot_commit_from_an_old_snapshot_beside_a_reader() {
    let server = server!();
    accounts(&server);
    let (a, b) = (server.client(), server.client());
    for (level, late) in
        [("READ COMMITTED", "LH001"), ("REPEATABLE READ", "40001"), ("SERIALIZABLE", "40001")]
    {
        for at_commit in [false, true] {
            for way in ["released", "forced", "downgraded and released"] {
                let write = a.rw_lock("data").write().unwrap();
                let fence = write.fence_sql().unwrap();
                let sql = if at_commit { fence.sql_at_commit() } else { fence.sql() };
                let mut db = server.connect();
                db.batch_execute(&format!(
                    "BEGIN ISOLATION LEVEL {level}; SELECT balance FROM account"
                ))
                .unwrap();
                match way {
                    "released" => write.unlock().unwrap(),
                    "forced" => {
                        assert!(b.rw_lock("data").force_unlock().unwrap());
                        drop(write);
                    }
                    _ => write.downgrade().unwrap().unlock().unwrap(),
                }
                let read = b.rw_lock("data").try_read().unwrap().expect("the writer has left");
                let refused = run(&mut db, sql, &fence).and_then(|()| {
                    db.batch_execute("UPDATE account SET balance = balance + 1; COMMIT")
                });
                let case = format!("{level}, at commit: {at_commit}, {way}");
                assert_eq!(
                    refused.map_err(|error| state_of(&error)),
                    Err(late.to_owned()),
                    "{case}"
                );
                read.unlock().unwrap();
            }
        }
    }
    assert_eq!(balance(&server), 100);
    drop((a, b));
    server.assert_clean();
}

/// The limit for an idle transaction is set where none or a longer one was set, in any unit. To
/// look at it in `pg_settings` takes the server forty times as long as the rest of a fence, so a
/// fence works where that view does not exist.
#[test]
fn a_fence_limits_the_idle_time_and_keeps_a_shorter_limit() {
    let server = server!();
    let client = server.client();
    let guard = client.lock("k").unwrap();
    let fence = guard.fence_sql().unwrap();
    let mut db = server.connect();
    // Hidden in this database.
    db.batch_execute("SET allow_system_table_mods = on; ALTER VIEW pg_settings RENAME TO hidden")
        .unwrap();
    let units = [
        ("0", "10s"),
        ("1d", "10s"),
        ("1min", "10s"),
        ("10001", "10s"),
        ("10s", "10s"),
        ("9s", "9s"),
        ("7001", "7001ms"),
    ];
    for (own, wanted) in units {
        db.batch_execute(&format!(
            "SET idle_in_transaction_session_timeout = '{own}'; SET intervalstyle = 'sql_standard'"
        ))
        .unwrap();
        let mut transaction = db.transaction().unwrap();
        run(&mut transaction, fence.sql(), &fence).unwrap();
        let limit: String = transaction
            .query_one("SELECT current_setting('idle_in_transaction_session_timeout')", &[])
            .unwrap()
            .get(0);
        assert_eq!(limit, wanted, "of {own}");
        transaction.commit().unwrap();
        let after: String = db
            .query_one("SELECT current_setting('idle_in_transaction_session_timeout')", &[])
            .unwrap()
            .get(0);
        assert_ne!((&*after, own), ("10s", "0"), "it ends with the transaction");
    }
    guard.unlock().unwrap();
    drop((client, db));
    server.assert_clean();
}
