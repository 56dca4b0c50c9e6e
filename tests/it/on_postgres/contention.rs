//! Many callers compete for one row: none is refused or starved by that, and nothing is left.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::LockClient;

use super::{ends_of, server};
use crate::rig::{Postgres, ms, wait_until};
use crate::support::Clients;

/// Waits for a locked row longer than a busy machine may leave a backend without the processor.
fn patient(server: &Postgres) -> LockClient {
    server.builder().lease(Duration::from_secs(60)).io_timeout(ms(20_000)).build().unwrap()
}

/// Concurrent readers sometimes find the row locked, although there is no writer.
#[test]
fn readers_are_never_told_of_a_writer_that_is_not_there() {
    let server = server!();
    let clients: Vec<_> = (0..6).map(|_| patient(&server)).collect();
    std::thread::scope(|s| {
        for client in &clients {
            s.spawn(move || {
                for turn in 0..250 {
                    let read = client.rw_lock("r").try_read().unwrap();
                    read.unwrap_or_else(|| panic!("busy in turn {turn}")).unlock().unwrap();
                }
            });
        }
    });
    drop(clients);
    server.assert_clean();
}

/// A statement of the sweep does not see what was committed after it began. Here each lasts so long
/// that readers commit meanwhile.
#[test]
fn a_sweep_removes_no_row_that_a_reader_has_just_taken() {
    let server = server!();
    let clients: Vec<_> = (0..3).map(|_| patient(&server)).collect();
    server.run_sql(
        "DELETE FROM leasehold.lock WHERE name = 'r'; \
         INSERT INTO leasehold.lock (name, kind) SELECT 'full ' || i, 'r' FROM generate_series(1, 20000) i; \
         INSERT INTO leasehold.share SELECT 'full ' || i, 'x:1', 1, now() + interval '1 h' FROM generate_series(1, 20000) i",
    );
    let sweeps = AtomicU32::new(0);
    std::thread::scope(|s| {
        let sweeps = &sweeps;
        let readers: Vec<_> = clients
            .iter()
            .map(|client| {
                s.spawn(move || {
                    while sweeps.load(Ordering::SeqCst) < 60 {
                        client.rw_lock("r").read()?.unlock()?;
                    }
                    Ok::<_, leasehold::Error>(())
                })
            })
            .collect();
        let mut db = server.connect();
        while sweeps.fetch_add(1, Ordering::SeqCst) < 60 {
            db.batch_execute("SELECT leasehold_v1.sweep_locks(0, 1000)").unwrap();
        }
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(
            read.iter().all(Result::is_ok),
            "the row of a held read lock was removed: {read:?}"
        );
    });
    drop(clients);
    server.run_sql(
        "DELETE FROM leasehold.lock WHERE name LIKE 'full %'; DELETE FROM leasehold.share",
    );
    server.assert_clean();
}

/// A writer whose lease has ended no longer holds the lock once a reader has acquired it, and its
/// transaction is refused.
#[test]
fn a_fence_does_not_hold_beside_a_reader_that_took_the_lock_over() {
    let server = server!();
    let (a, b) = (server.client(), server.client());
    let write = a.rw_lock("r").write().unwrap();
    let fence = write.fence_sql().unwrap();
    server.run_sql("UPDATE leasehold.lock SET ends = now() - interval '1 ms'");
    let read = b.rw_lock("r").try_read().unwrap().expect("the lease of the writer has ended");
    let refused = server
        .connect()
        .execute(fence.sql(), &[&fence.name(), &fence.token().as_i64()])
        .unwrap_err();
    assert_eq!(refused.code().unwrap().code(), leasehold::fencing::TransactionFence::STALE);
    read.unlock().unwrap();
    drop((write, a, b));
    server.assert_clean();
}

/// A reader's renewal is in progress when its lease ends, and the writer waits for that.
#[test]
fn a_writer_sees_the_reader_whose_renewal_it_has_waited_for() {
    let server = server!();
    drop(server.client());
    let mut renewing = server.connect();
    server.run_sql("SELECT leasehold_v1.read_acquire('r', 'reader:1', 3000, 0, 0)");
    let mut renewal = renewing.transaction().unwrap();
    let renewed = "SELECT (leasehold_v1.renew('{r}', '{reader:1}', '{60000}', false))[1]::bigint";
    assert_eq!(renewal.query_one(renewed, &[]).unwrap().get::<_, i64>(0), 1);
    wait_until("the lease has ended for others", || {
        server.number_of("SELECT count(*) FROM leasehold.share WHERE ends < clock_timestamp()") == 1
    });
    std::thread::scope(|s| {
        let writes = s.spawn(|| {
            server
                .number_of("SELECT status::bigint FROM leasehold_v1.write_acquire('r', 'writer:1', 60000, 0, 0)")
        });
        wait_until("the writer waits for the renewal", || {
            server.number_of(
                "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND wait_event_type = 'Lock'",
            ) == 1
        });
        renewal.commit().unwrap();
        assert_eq!(writes.join().unwrap(), 0, "a reader holds it");
    });
    drop(renewing);
    server.run_sql("SELECT leasehold_v1.rw_release('r', 'reader:1', 0, 0, '')");
    server.assert_clean();
}

/// Others lock the row of a lock all the time, each for a moment: a renewal gets a turn among them.
#[test]
fn a_renewal_does_not_starve_on_a_row_that_is_always_locked() {
    let server = server!();
    let client = server.builder().lease(ms(16_000)).io_timeout(ms(8000)).build().unwrap();
    let guard = client.lock("k").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let over = &over;
        for _ in 0..4 {
            s.spawn(|| {
                let mut db = server.connect();
                while !over.load(Ordering::SeqCst) {
                    // The next one is already waiting when this one ends.
                    let mut transaction = db.transaction().unwrap();
                    transaction
                        .execute(
                            "SELECT FROM leasehold.lock WHERE name = 'k' FOR NO KEY UPDATE",
                            &[],
                        )
                        .unwrap();
                    transaction.execute("SELECT pg_sleep(0.02)", &[]).unwrap();
                    transaction.commit().unwrap();
                }
            });
        }
        // Not one that panics: the others go on until it is over.
        let began = Instant::now();
        let before = ends_of(&server, "k");
        while ends_of(&server, "k") <= before && began.elapsed() < ms(16_000) {
            std::thread::sleep(ms(50));
        }
        let renewed = ends_of(&server, "k") > before;
        over.store(true, Ordering::SeqCst);
        assert!(renewed && guard.is_held());
    });
    guard.unlock().unwrap();
    drop(client);
    server.assert_clean();
}

/// Hundreds of fair waiters that ask in turn would lock the row all the time.
#[test]
fn a_fair_waiter_keeps_its_place_without_a_lock_of_the_row() {
    let server = server!();
    drop(server.client());
    let mut db = server.connect();
    db.batch_execute("SET lock_timeout = '5s'").unwrap();
    let mut ask = |holder: &str, place: i64| {
        let sql = format!(
            "SELECT status, place FROM leasehold_v1.fair_acquire('q', '{holder}:1', 60000, 0, 60000, {place}, 'c')"
        );
        db.query_one(&sql, &[]).map(|row| (row.get::<_, i32>(0), row.get::<_, i64>(1)))
    };
    assert_eq!(ask("holder", 0).unwrap().0, 1);
    let (first, second) = (ask("first", 0).unwrap().1, ask("second", 0).unwrap().1);
    server.run_sql("UPDATE leasehold.waiter SET deadline = now() + interval '30 s'");
    let mut other = server.connect();
    let mut transaction = other.transaction().unwrap();
    transaction.execute("SELECT FROM leasehold.lock FOR UPDATE", &[]).unwrap();
    let kept = || {
        server.number_of(
            "SELECT count(*) FROM leasehold.waiter WHERE deadline > now() + interval '50 s'",
        )
    };
    assert_eq!((ask("second", second).unwrap(), kept()), ((0, second), 1));
    assert_eq!((ask("first", first).unwrap(), kept()), ((0, first), 2));
    transaction.commit().unwrap();
    // Behind a dead waiter some call must remove that one.
    server.run_sql(&format!(
        "UPDATE leasehold.waiter SET deadline = now() - interval '1 s' WHERE place = {first}"
    ));
    assert_eq!(ask("second", second).unwrap(), (0, second));
    assert_eq!(server.number_of("SELECT count(*) FROM leasehold.waiter"), 1);
    server.run_sql("SELECT leasehold_v1.fair_release('q', 'holder:1', 0, 0, '')");
    assert_eq!(ask("second", second).unwrap().0, 1);
    server.run_sql("SELECT leasehold_v1.fair_release('q', 'second:1', 0, 0, '')");
    drop((db, other));
    server.assert_clean();
}

/// The record that makes a change of a count repeatable is removed once its result is known.
#[test]
fn changes_of_counts_leave_no_rows_behind() {
    let server = server!();
    let client = server.client();
    let permits = client.counting_semaphore("c");
    permits.try_set_permits(3).unwrap();
    for n in 0..200 {
        permits.acquire().unwrap().release().unwrap();
        permits.add_permits(if n % 2 == 0 { 1 } else { -1 }).unwrap();
        client.latch("l").set_count(1).unwrap();
        client.latch("l").count_down().unwrap();
    }
    let marks = server.number_of("SELECT count(*) FROM leasehold.once");
    assert!(marks <= 3, "{marks} records of known results");
    assert_eq!(permits.available_permits().unwrap(), 3);
    // The record of permits that are in use is kept: their return may have to be repeated.
    let out = permits.acquire().unwrap();
    let taken = "SELECT count(*) FROM leasehold.once WHERE status = 3";
    assert_eq!(server.number_of(taken), 1);
    out.release().unwrap();
    assert_eq!(server.number_of(taken), 0);
    drop((permits, client));
    server.assert_clean();
}

/// What an earlier run has taken is given back in the order of the names, whatever the plan of a
/// statement: others lock rows in that order, and the two would wait for each other.
#[test]
fn a_repeat_gives_back_in_the_order_of_names() {
    let server = server!();
    drop(server.client());
    // In the order of the rows in the table, c comes before b.
    for (name, holder) in [("a", "other:1"), ("c", "me:1"), ("b", "me:1")] {
        server.run_sql(&format!("SELECT leasehold_v1.acquire('{name}', '{holder}', 60000, 0, 0)"));
    }
    let mut other = server.connect();
    let mut transaction = other.transaction().unwrap();
    transaction.execute("SELECT FROM leasehold.lock WHERE name = 'b' FOR UPDATE", &[]).unwrap();
    std::thread::scope(|s| {
        let repeats = s.spawn(|| {
            let mut db = server.connect();
            // The plan that reads the whole table.
            db.batch_execute("SET enable_nestloop = off; SET enable_indexscan = off; SET enable_bitmapscan = off").unwrap();
            let sql = "SELECT status FROM leasehold_v1.multi_acquire('{a,b,c}', '{me:1,me:1,me:1}', '{0,0,0}', 60000, 0, true)";
            db.query_one(sql, &[]).map(|row| row.get::<_, i32>(0))
        });
        wait_until("the repeat waits", || {
            server.number_of(
                "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND wait_event_type = 'Lock'",
            ) == 1
        });
        transaction
            .execute("SELECT FROM leasehold.lock WHERE name = 'c' FOR UPDATE NOWAIT", &[])
            .expect("c is later");
        transaction.commit().unwrap();
        assert_eq!(repeats.join().unwrap().unwrap(), 0, "a is taken");
    });
    assert_eq!(server.held(), ["a"]);
    server.run_sql("SELECT leasehold_v1.release('a', 'other:1', 0, '')");
    drop(other);
    server.assert_clean();
}

/// Many releases that wait for rows are repeated in the background, on the thread that renews.
#[test]
fn releases_that_wait_for_rows_cost_no_other_hold_its_lease() {
    let server = server!();
    let builder = server.builder().lease(ms(6000)).io_timeout(ms(2000)).connections(16);
    let client = builder.build().unwrap();
    let kept = client.lock("kept").unwrap();
    let guards: Vec<_> =
        (0..96).map(|n| client.mutex(format!("n{n}")).lock_owned().unwrap()).collect();
    let mut other = server.connect();
    let mut transaction = other.transaction().unwrap();
    transaction.execute("SELECT FROM leasehold.lock WHERE name LIKE 'n%' FOR UPDATE", &[]).unwrap();
    std::thread::scope(|s| {
        for guard in guards {
            s.spawn(|| guard.unlock().unwrap_err());
        }
    });
    assert!(kept.wait_lost(ms(9000)).is_still_held());
    transaction.rollback().unwrap();
    wait_until("all are released", || server.held() == ["kept"]);
    kept.unlock().unwrap();
    drop((client, other));
    server.assert_clean();
}
