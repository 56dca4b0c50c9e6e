//! Clients of an earlier release, whose functions are those of version 1, together with clients of
//! this one, over the same tables.

use super::contention::read_beside_sweeps;
use super::server;
use crate::rig::{Postgres, ms, wait_until};
use crate::support::Clients;

/// The script of the earlier release.
pub(super) const SCHEMA: &str = include_str!("schema_v1.sql");

fn channel(name: &str) -> String {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("leasehold_{hash:016x}")
}

/// Independent of the order of the scripts, even if the earlier release's is run again.
fn both_releases() -> Postgres {
    let server = Postgres::shared();
    server.run_sql("DROP SCHEMA leasehold, leasehold_v2 CASCADE");
    server.run_sql(SCHEMA);
    drop(server.client());
    server.run_sql(SCHEMA);
    server
}

#[test]
fn two_releases_share_a_lock() {
    let server = server!(both_releases());
    let client = server.client();
    let guard = client.lock("k").unwrap();
    let take =
        "SELECT status::bigint FROM leasehold_v1.acquire('k', 'earlier:1', 60000, 0, 1, NULL)";
    assert_eq!(server.number_of(take), 0, "this release holds it");
    guard.unlock().unwrap();
    assert_eq!(server.number_of(take), 1);
    assert!(client.try_lock("k").unwrap().is_none());
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("k").unwrap().unlock().unwrap());
        wait_until("it waits", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        let release = format!(
            "SELECT status::bigint FROM leasehold_v1.release('k', 'earlier:1', 0, '{}')",
            channel("k")
        );
        assert_eq!(server.number_of(&release), 2);
        // Long before the lease of the earlier release would have ended.
        wait_until("the message of the earlier release woke it", || waiter.is_finished());
    });
    drop(client);
    server.assert_clean();
}

/// A read lock excludes the writers of both releases, and neither sweep removes its row.
#[test]
fn two_releases_share_a_read_lock() {
    let server = server!(both_releases());
    let client = server.client();
    let read = client.rw_lock("r").read().unwrap();
    let status = |function: &str, holder: &str| {
        server.number_of(&format!(
            "SELECT status::bigint FROM leasehold_v1.{function}_acquire('r', 'earlier:{holder}', 60000, 0, 0, NULL)"
        ))
    };
    assert_eq!((status("write", "w"), status("read", "r")), (0, 1));
    read.unlock().unwrap();
    assert!(
        client.rw_lock("r").try_write().unwrap().is_none(),
        "a reader of the earlier release holds it"
    );
    server.run_sql("SELECT leasehold_v1.rw_release('r', 'earlier:r', 0, 0, '')");
    let write = client.rw_lock("r").try_write().unwrap().unwrap();
    assert_eq!((status("write", "w"), status("read", "r")), (0, 0));
    write.unlock().unwrap();
    assert_eq!(status("write", "w"), 1);
    assert!(client.rw_lock("r").try_read().unwrap().is_none());
    server.run_sql("SELECT leasehold_v1.rw_release('r', 'earlier:w', 0, 0, '')");

    drop(client);
    read_beside_sweeps(&server, "leasehold_v1.sweep(60, 1000)");
}

/// Each fence of a transaction is checked at its end by the functions of both releases.
#[test]
fn two_releases_check_a_fence() {
    let server = server!(both_releases());
    let client = server.client();
    let guard = client.lock("k").unwrap();
    let fence = guard.fence_sql().unwrap();
    let mut db = server.connect();
    for version in ["leasehold_v1", "leasehold_v2"] {
        for (token, holds) in [(fence.token().as_i64(), true), (fence.token().as_i64() - 1, false)]
        {
            let sql = format!("SELECT {version}.fence_at_commit($1, $2)");
            assert_eq!(db.execute(&sql, &[&fence.name(), &token]).is_ok(), holds, "{version}");
        }
    }
    guard.unlock().unwrap();
    drop((client, db));
    server.assert_clean();
}

/// Waiters of both releases queue in one order.
#[test]
fn two_releases_share_a_queue() {
    let server = server!(both_releases());
    let client = server.builder().waiter_timeout(ms(60_000)).build().unwrap();
    let first = client.fair("q").lock().unwrap();
    std::thread::scope(|s| {
        let second = s.spawn(|| client.fair("q").lock().unwrap().unlock().unwrap());
        wait_until("it waits", || server.number_of("SELECT count(*) FROM leasehold.waiter") == 1);
        let ask = "SELECT status::bigint FROM leasehold_v1.fair_acquire('q', 'earlier:1', 60000, 0, 60000, 0, 'c', NULL)";
        assert_eq!(server.number_of(ask), 0);
        first.unlock().unwrap();
        second.join().unwrap();
        assert_eq!(server.number_of(ask), 1, "its turn");
        let third = s.spawn(|| client.fair("q").lock().unwrap().unlock().unwrap());
        wait_until("it waits", || server.number_of("SELECT count(*) FROM leasehold.waiter") == 1);
        server.run_sql("SELECT leasehold_v1.fair_release('q', 'earlier:1', 0, 0, '')");
        wait_until("the message of the earlier release woke it", || third.is_finished());
    });
    drop(client);
    server.assert_clean();
}

/// Functions of this version without its youngest one, and tables without the columns that it
/// needs: they are completed, and what is held stays held.
#[test]
fn what_a_build_before_the_first_release_has_left_is_completed() {
    let server = server!(Postgres::shared());
    let client = server.client();
    let guard = client.lock("k").unwrap();
    for table in ["lock", "share", "waiter"] {
        server.run_sql(&format!("ALTER TABLE leasehold.{table} DROP COLUMN since CASCADE"));
    }
    server.run_sql("DROP FUNCTION leasehold_v2.set_back, leasehold_v2.sweep_locks CASCADE");
    let later = server.client();
    assert!(later.try_lock("k").unwrap().is_none());
    assert_eq!(later.locks("*").unwrap().len(), 1);
    guard.unlock().unwrap();
    later.lock("k").unwrap().unlock().unwrap();
    drop((client, later));
    server.assert_clean();
}
