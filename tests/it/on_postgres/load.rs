//! Many threads over few connections, and many holds.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::server;
use crate::rig::Postgres;
use crate::rig::{CAP, ms, wait_until};
use crate::support::Clients;

/// 64 threads send their requests together over four connections.
#[test]
fn many_threads_share_few_connections() {
    let server = server!();
    let client = server.client();
    let most = AtomicU32::new(0);
    std::thread::scope(|s| {
        for n in 0..64 {
            let (client, most) = (&client, &most);
            s.spawn(move || {
                for turn in 0..8 {
                    // A name of its own, and one that all compete for.
                    let guard = client.lock(format!("own-{n}")).unwrap();
                    assert!(guard.fencing_token().is_ok());
                    if turn % 4 == 0 {
                        let shared = client.lock("shared").unwrap();
                        assert_eq!(most.fetch_add(1, Ordering::SeqCst), 0);
                        most.fetch_sub(1, Ordering::SeqCst);
                        shared.unlock().unwrap();
                    }
                    guard.unlock().unwrap();
                }
            });
        }
    });
    // Four for calls, one for renewals, one for messages.
    assert!(server.backends() <= 6, "{}", server.backends());
    drop(client);
    server.assert_clean();
}

/// Opening another connection takes longer than the timeout of a call that finds none free: an
/// existing connection serves the call.
#[test]
fn a_call_does_not_wait_for_a_new_connection_while_another_serves() {
    let server = server!(Postgres::start());
    let client = server.builder().io_timeout(ms(5000)).build().unwrap();
    client.lock("k").unwrap().unlock().unwrap();
    // Long compared with anything else here.
    server.run_sql("ALTER SYSTEM SET post_auth_delay = 6");
    server.run_sql("SELECT pg_reload_conf()");
    let mut db = server.connect();
    wait_until("new backends are slow", || {
        let start = Instant::now();
        db = server.connect();
        start.elapsed() > ms(5500)
    });
    std::thread::scope(|s| {
        for n in 0..8 {
            let client = &client;
            s.spawn(move || {
                for turn in 0..5 {
                    let start = Instant::now();
                    let won = client.try_lock_for(format!("own-{n}-{turn}"), ms(500)).unwrap();
                    assert!(start.elapsed() < ms(5500), "{:?}", start.elapsed());
                    won.expect("nobody else asks for it").unlock().unwrap();
                }
            });
        }
    });
    db.batch_execute("ALTER SYSTEM RESET post_auth_delay").unwrap();
    db.batch_execute("SELECT pg_reload_conf()").unwrap();
    drop((client, db));
    server.assert_clean();
}

/// An acquire whose row is locked by another transaction does not delay those that are sent with
/// it.
#[test]
fn a_locked_row_holds_up_no_batch() {
    let server = server!();
    let client = server.builder().connections(2).build().unwrap();
    client.lock("locked").unwrap().unlock().unwrap();
    let mut other = server.connect();
    let mut transaction = other.transaction().unwrap();
    transaction.execute("SELECT FROM leasehold.lock FOR UPDATE", &[]).unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            client
                .try_lock_for("locked", Duration::from_secs(30))
                .unwrap()
                .unwrap()
                .unlock()
                .unwrap();
        });
        let others: Vec<_> = (0..12)
            .map(|n| {
                let client = &client;
                s.spawn(move || {
                    for _ in 0..10 {
                        client.lock(format!("own-{n}")).unwrap().unlock().unwrap();
                    }
                })
            })
            .collect();
        // Not one that panics: they may wait for the row.
        let start = Instant::now();
        while !others.iter().all(|other| other.is_finished()) && start.elapsed() < CAP {
            std::thread::sleep(ms(10));
        }
        let all = others.iter().all(|other| other.is_finished());
        transaction.commit().unwrap();
        waits.join().unwrap();
        assert!(all, "they wait for the row, too");
    });
    drop((client, other));
    server.assert_clean();
}

/// Waiting writes nothing to the server's log, however long it lasts.
#[test]
fn a_wait_writes_nothing() {
    let server = server!(Postgres::start_with(
        "autovacuum = off\nbgwriter_lru_maxpages = 0\ncheckpoint_timeout = 1h"
    ));
    let holder = server.builder().lease(Duration::from_secs(300)).build().unwrap();
    let client = server.builder().client_name("waiter").lease(ms(1000)).io_timeout(ms(900));
    let client = client.build().unwrap();
    let guard = holder.lock("k").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| client.lock("k").unwrap().unlock().unwrap());
        wait_until("it waits", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        // Only the row is compared: the server logs a snapshot of its own every 15 s.
        let row = || {
            server
                .texts("SELECT concat_ws(' ', ctid, xmin, xmax, wants, wanted) FROM leasehold.lock")
        };
        let before = row();
        let asked = || {
            server.number_of(
                "SELECT coalesce((extract(epoch FROM max(query_start)) * 1000000)::bigint, 0) FROM pg_stat_activity \
                 WHERE application_name = 'waiter' AND query LIKE '%acquire%'",
            )
        };
        // Its timer for a lost message is a lease. Before that it asks once more when it listens.
        for _ in 0..2 {
            let last = asked();
            wait_until("it has asked again", || asked() > last);
        }
        assert_eq!(row(), before);
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    drop((holder, client));
    server.assert_clean();
}

/// Holds are renewed in batches, which does not grow the table, and sweeping leaves nothing.
#[test]
fn ten_thousand_holds_are_renewed() {
    let server = server!();
    let client = server.builder().lease(Duration::from_secs(24)).build().unwrap();
    let names: Vec<String> = (0..10_000).map(|n| format!("hold-{n:05}")).collect();
    let sets: Vec<_> =
        names.chunks(500).map(|names| client.multi(names).lock_owned().unwrap()).collect();
    let size = || server.number_of("SELECT pg_total_relation_size('leasehold.lock')");
    let (before, first) = (
        size(),
        server
            .number_of("SELECT (extract(epoch FROM min(ends)) * 1000)::bigint FROM leasehold.lock"),
    );
    wait_until("all are renewed", || {
        server
            .number_of("SELECT (extract(epoch FROM min(ends)) * 1000)::bigint FROM leasehold.lock")
            > first
    });
    assert!(sets.iter().all(|set| set.is_held()));
    assert!(size() < before * 2, "{before} {}", size());
    for set in sets {
        set.unlock().unwrap();
    }
    let floor = server.number_of("SELECT max(token) FROM leasehold.lock");
    server.run_sql("SELECT leasehold_v1.sweep(-60, 20000), leasehold_v1.sweep_locks(-60, 20000)");
    assert_eq!(server.number_of("SELECT count(*) FROM leasehold.lock"), 0);
    // Tokens of a swept name continue to increase.
    let guard = client.lock("hold-00000").unwrap();
    assert!(guard.fencing_token().unwrap().as_i64() > floor);
    assert_eq!(server.number_of("SELECT floor FROM leasehold.meta"), floor);
    guard.unlock().unwrap();
    drop(client);
    server.assert_clean();
}
