//! Who removes what is no longer used, if no program lives for ten minutes.

use leasehold::LockClient;

use super::server;
use crate::rig::{Fault, Postgres, Proxy, ms, wait_until};
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
    server.run_sql(&format!(
        "UPDATE leasehold.meta SET swept = clock_timestamp() - interval '{ago}'"
    ));
}

/// As a client does. Says whether it was due, and whether the next one is due at once.
fn sweep(server: &Postgres) -> (bool, bool) {
    let is = |what: &str| server.number_of(&format!("SELECT ({what})::int::bigint")) == 1;
    let was_due = is("leasehold_v1.sweep(3600, 1000) IS NOT NULL");
    (was_due, was_due && is("leasehold_v1.sweep_locks(3600, 1000)"))
}

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
    assert_eq!((sweep(&server), left(&server)), ((false, false), 50));
    // One is sweeping.
    last_swept(&server, "1 day");
    let mut db = server.connect();
    let mut sweeps = db.transaction().unwrap();
    sweeps.execute("SELECT FROM leasehold.meta FOR UPDATE", &[]).unwrap();
    assert_eq!((sweep(&server), left(&server)), ((false, false), 50), "it does not wait");
    sweeps.rollback().unwrap();
    assert_eq!((sweep(&server), left(&server)), ((true, false), 0));
    drop(db);
    server.assert_clean();
}

/// However short the programs live: each removes a batch until none is left.
#[test]
fn a_full_batch_leaves_the_next_sweep_due() {
    let server = server!();
    leave(&server, 2300);
    last_swept(&server, "1 day");
    for after in [1300, 300, 0] {
        assert_eq!((sweep(&server), left(&server)), ((true, after > 0), after));
    }
    leave(&server, 1);
    assert_eq!(sweep(&server), (false, false), "the last one left nothing");
    // Of what readers have left.
    server.run_sql(
        "INSERT INTO leasehold.share (name, holder, level, ends) \
         SELECT 'r', 'reader ' || i, 1, now() - interval '1 day' FROM generate_series(1, 1500) i",
    );
    last_swept(&server, "1 day");
    assert_eq!(
        [sweep(&server), sweep(&server), sweep(&server)],
        [(true, true), (true, false), (false, false)]
    );
    server.assert_clean();
}

/// The table of locks takes longer than a statement may. The rest is removed all the same, and the
/// next program does not begin again.
#[test]
fn a_table_that_is_too_large_to_sweep_keeps_nothing_else() {
    let server = server!();
    leave(&server, 50);
    server.run_sql(
        "INSERT INTO leasehold.share (name, holder, level, ends) VALUES ('r', 'dead', 1, now() - interval '1 day'); \
         CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS \
           $$ BEGIN PERFORM pg_sleep(60); RETURN OLD; END $$; \
         CREATE TRIGGER slow BEFORE DELETE ON leasehold.lock FOR EACH ROW EXECUTE FUNCTION public.slow()",
    );
    last_swept(&server, "1 day");
    let client = server.builder().lease(ms(9000)).io_timeout(ms(6000)).build().unwrap();
    let guard = client.lock("k").unwrap();
    wait_until("what the reader has left is removed", || {
        server.number_of("SELECT count(*) FROM leasehold.share") == 0
    });
    let ends = || {
        server.number_of(
            "SELECT (extract(epoch FROM ends) * 1000)::bigint FROM leasehold.lock WHERE name = 'k'",
        )
    };
    let before = ends();
    wait_until("it is renewed", || ends() > before);
    assert!(guard.is_held());
    assert_eq!((sweep(&server).0, left(&server)), (false, 50));
    guard.unlock().unwrap();
    drop(client);
    server.run_sql("DROP TRIGGER slow ON leasehold.lock");
    server.assert_clean();
}

/// A connection that was cut in silence keeps a sweep waiting. The calls have their own, and a
/// renewal does not wait for as long as a call may.
#[test]
fn a_sweep_without_an_answer_delays_no_call() {
    let server = server!();
    leave(&server, 50);
    last_swept(&server, "1 day");
    let proxy = Proxy::before_postgres(&server);
    let client = LockClient::builder()
        .url(proxy.url())
        .connections(1)
        .lease(ms(8000))
        .io_timeout(ms(7000))
        .build()
        .unwrap();
    proxy.inject("leasehold_v1.sweep(", Fault::BlackHoleReply);
    let guard = client.lock("k").unwrap();
    proxy.wait_hits(1);
    let last_asked = |what: &str| {
        server.number_of(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
             AND query LIKE '%leasehold_v1.%' AND query {what} '%sweep(%'"
        ))
    };
    wait_until("it has begun", || last_asked("LIKE") == 1);
    assert_eq!(last_asked("NOT LIKE"), 1, "the connection of the calls is another one");
    client.try_lock("other").unwrap().unwrap().unlock().unwrap();
    guard.unlock().unwrap();
    drop((client, proxy));
    server.assert_clean();
}
