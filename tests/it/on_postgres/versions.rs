//! The functions of an older version beside those of this one, over the same tables.

use fallible_iterator::FallibleIterator;
use leasehold::POSTGRES_SCHEMA;

use super::server;
use crate::rig::{ms, wait_until};
use crate::support::Clients;

/// The name of the locks, and its channel: see `requests::channel_of`.
const NAME: &str = "foobar";
const CHANNEL: &str = "leasehold_85944171f73967e8";

/// The script of an older version, whose functions do the same.
pub(super) fn older() -> String {
    POSTGRES_SCHEMA.replace("leasehold_v1", "leasehold_v0")
}

#[test]
fn two_versions_share_a_lock_and_wake_each_other() {
    let server = server!();
    let client = server.client();
    server.run_sql(&older());
    let mut db = server.connect();
    db.batch_execute(&format!("LISTEN {CHANNEL}")).unwrap();
    let status =
        |call: &str| server.number_of(&format!("SELECT status::bigint FROM leasehold_v0.{call}"));
    let acquire = format!("acquire('{NAME}', 'older:1', 60000, 0, 1)");
    let guard = client.lock(NAME).unwrap();
    assert_eq!(status(&acquire), 0, "this version holds it");
    guard.unlock().unwrap();
    let woken = db.notifications().timeout_iter(ms(10_000)).next();
    assert!(matches!(woken, Ok(Some(_))), "{woken:?}");
    assert_eq!(status(&acquire), 1);
    assert!(client.try_lock(NAME).unwrap().is_none());
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock(NAME).unwrap().unlock().unwrap());
        wait_until("it waits", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        assert_eq!(status(&format!("release('{NAME}', 'older:1', 0, '{CHANNEL}')")), 2);
        // Long before the lease would have ended.
        wait_until("the older version's message woke it", || waiter.is_finished());
    });
    drop((client, db));
    server.assert_clean();
}

/// Each version has a trigger of its own, and both check each fence at the end of a transaction.
#[test]
fn two_versions_check_a_fence() {
    let server = server!();
    let client = server.client();
    server.run_sql(&older());
    let guard = client.lock(NAME).unwrap();
    let fence = guard.fence_sql().unwrap();
    let token = fence.token().as_i64();
    let mut db = server.connect();
    for version in ["leasehold_v0", "leasehold_v1"] {
        for function in ["fence", "fence_at_commit"] {
            let sql = format!("SELECT {version}.{function}($1, $2)");
            for (token, holds) in [(token, true), (token - 1, false)] {
                let held = db.execute(&sql, &[&fence.name(), &token]).is_ok();
                assert_eq!(held, holds, "{version}.{function}");
            }
        }
    }
    guard.unlock().unwrap();
    drop((client, db));
    server.assert_clean();
}
