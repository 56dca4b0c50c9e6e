//! Who removes what is no longer used, if no program lives for ten minutes.

use super::server;
use crate::rig::{Postgres, wait_until};
use crate::support::Clients;

/// Adds names that nobody has used for a day.
fn leave(server: &Postgres, rows: u32) {
    server.run_sql(&format!(
        "INSERT INTO leasehold.lock (name, kind, ends) \
         SELECT 'old ' || i, 'x', now() - interval '1 day' FROM generate_series(1, {rows}) i ON CONFLICT DO NOTHING"
    ));
}

fn left(server: &Postgres) -> i64 {
    server.number_of("SELECT count(*) FROM leasehold.lock WHERE name LIKE 'old %'")
}

/// When the last sweep left nothing, before now.
fn last_swept(server: &Postgres, ago: &str) {
    server.run_sql(&format!("UPDATE leasehold.meta SET swept = clock_timestamp() - interval '{ago}'"));
}

/// As a client does.
const SWEEP: &str = "SELECT leasehold_v2.sweep(3600, 1000)";

#[test]
fn a_program_that_takes_one_lock_removes_what_earlier_ones_left() {
    let server = server!();
    // In the future: the clock was stepped back since.
    for ago in ["11 minutes", "1 year", "-1 hour"] {
        leave(&server, 50);
        last_swept(&server, ago);
        let client = server.client();
        let guard = client.lock("k").unwrap();
        wait_until("the old rows are removed", || left(&server) == 0);
        guard.unlock().unwrap();
    }
    server.assert_clean();
}

#[test]
fn of_many_programs_one_sweeps() {
    let server = server!();
    // One has just left nothing.
    leave(&server, 50);
    last_swept(&server, "10 s");
    assert_eq!((server.number_of(SWEEP), left(&server)), (0, 50));
    // One is sweeping.
    last_swept(&server, "1 day");
    let mut db = server.connect();
    let mut sweeps = db.transaction().unwrap();
    sweeps.execute("SELECT FROM leasehold.meta FOR UPDATE", &[]).unwrap();
    assert_eq!((server.number_of(SWEEP), left(&server)), (0, 50), "it does not wait");
    sweeps.rollback().unwrap();
    assert_eq!((server.number_of(SWEEP), left(&server)), (50, 0));
    drop(db);
    server.assert_clean();
}

/// However short the programs live: each removes a batch until none is left.
#[test]
fn a_full_batch_leaves_the_next_sweep_due() {
    let server = server!();
    leave(&server, 2300);
    last_swept(&server, "1 day");
    let removed = [1000, 1000, 300, 0].map(|_| server.number_of(SWEEP));
    assert_eq!(removed, [1000, 1000, 300, 0]);
    leave(&server, 1);
    assert_eq!(server.number_of(SWEEP), 0, "the last one left nothing");
    server.assert_clean();
}

/// Tables of a build that did not remember its sweeps, until somebody runs the script again.
#[test]
fn tables_that_do_not_remember_their_sweeps_can_be_used() {
    let server = server!();
    server.run_sql("ALTER TABLE leasehold.meta DROP COLUMN swept");
    let client = server.client();
    client.lock("k").unwrap().unlock().unwrap();
    drop(client);
    server.run_sql(leasehold::POSTGRES_SCHEMA);
    leave(&server, 50);
    last_swept(&server, "11 minutes");
    let client = server.client();
    let guard = client.lock("k").unwrap();
    wait_until("the old rows are removed", || left(&server) == 0);
    guard.unlock().unwrap();
    drop(client);
    server.assert_clean();
}
