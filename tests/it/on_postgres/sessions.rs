//! What a connection learns about its session and its server, and what it has prepared there.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient, Once};

use super::{server, url_of_both};
use crate::rig::{Postgres, ms, wait_until};
use crate::support::{Clients, ShortLease};

const LONG: Duration = Duration::from_secs(60);

/// Such a session can neither see when its backend has started nor end it.
#[test]
fn a_session_of_another_role_than_the_one_that_logged_in_is_refused_with_the_reason() {
    let server = server!(Postgres::start());
    drop(server.client());
    server.run_sql(
        "CREATE ROLE owner; CREATE ROLE app LOGIN IN ROLE owner; ALTER ROLE app SET role = owner; \
         GRANT USAGE ON SCHEMA leasehold, leasehold_v1 TO owner; GRANT ALL ON ALL TABLES IN SCHEMA leasehold TO owner",
    );
    let url = server.url().replace("leasehold@", "app@");
    let error = LockClient::open(&url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(
        error.to_string().contains("\"app\"") && error.to_string().contains("\"owner\""),
        "{error}"
    );
    // The remedy in the message.
    server.run_sql("GRANT pg_read_all_stats, pg_signal_backend TO owner");
    let client = LockClient::open(&url).unwrap();
    client.lock("k").unwrap().unlock().unwrap();
    drop(client);
    server.run_sql(
        "REVOKE pg_read_all_stats, pg_signal_backend FROM owner; ALTER ROLE app RESET role",
    );
    drop(LockClient::open(&url).unwrap());
    server.assert_clean();
}

/// With two primaries in one URL each lock could be held in both.
#[test]
fn all_hosts_belong_to_one_database_cluster() {
    let one = server!(Postgres::start_with("wal_level = replica"));
    let other = server!(Postgres::start_anew());
    drop(one.client());
    for url in [url_of_both(&one, &other), url_of_both(&other, &one)] {
        let error = LockClient::open(&url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("another database cluster"), "{error}");
    }
    // A server that was down when the client started.
    other.stop("fast");
    let client = LockClient::builder().url(url_of_both(&one, &other)).lease(LONG).build().unwrap();
    let guard = client.lock("k").unwrap();
    other.run();
    one.stop("fast");
    let error = client.try_lock("other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("another database cluster"), "{error}");
    one.run();
    wait_until("it works again", || client.try_lock("other").is_ok_and(|won| won.is_some()));
    guard.unlock().unwrap();
    drop(client);
    // A standby belongs to the cluster of its primary.
    let standby = one.standby("hot_standby = on");
    standby.run();
    drop(LockClient::open(&url_of_both(&standby, &one)).unwrap());
    one.assert_clean();
}

/// Each connect would hash the password for hours, before the server has proven its identity.
#[test]
fn a_server_that_asks_for_too_many_rounds_of_hashing_is_refused() {
    let server = server!(Postgres::start());
    // A verifier whose password nobody has. Not by CREATE ROLE, which would hash as often.
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    server.run_sql(&format!(
        "CREATE ROLE app LOGIN; UPDATE pg_authid SET rolpassword = 'SCRAM-SHA-256$2000000000:c2FsdA==${key}:{key}' \
         WHERE rolname = 'app'"
    ));
    std::fs::write(
        server.data().join("pg_hba.conf"),
        "local all leasehold trust\nlocal all all scram-sha-256\n",
    )
    .unwrap();
    server.run_sql("SELECT pg_reload_conf()");
    let url = server.url().replace("leasehold@", "app:secret@");
    let asks = std::thread::spawn(move || {
        loop {
            let error = LockClient::builder()
                .postgres(leasehold::Postgres::new(&url).create_schema(false))
                .build()
                .unwrap_err();
            // Before it reads the file's rules it lets the client in, which finds no schema.
            if error.kind() != ErrorKind::Unsupported {
                return error;
            }
        }
    });
    wait_until("it is refused", || asks.is_finished());
    let error = asks.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("2000000000"), "{error}");
}

/// A request whose statement could not be prepared, and one behind it in the same write whose
/// statement was: the connection knows which of them it has prepared.
#[test]
fn a_connection_knows_what_it_has_prepared_after_an_error() {
    let server = server!();
    let client =
        server.builder().connections(1).lease(LONG).io_timeout(ms(12_000)).build().unwrap();
    let held = client.mutex("held").lock_owned().unwrap();
    server.run_sql("SELECT leasehold_v1.acquire('busy', 'another:1', 1, 0, 0)");
    let mut other = server.connect();
    let mut transaction = other.transaction().unwrap();
    transaction.execute("SELECT FROM leasehold.lock WHERE name = 'busy' FOR UPDATE", &[]).unwrap();
    let waits = "SELECT coalesce(max(pid), 0)::bigint FROM pg_stat_activity \
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
    std::thread::scope(|s| {
        // The only connection waits for the row.
        let busy = s.spawn(|| drop(client.try_lock("busy")));
        wait_until("it waits", || server.number_of(waits) > 0);
        let backend = server.number_of(waits);
        // No release was sent yet on this connection, and no batch of acquires.
        let overload = "leasehold_v1.release(text, text, bigint, text)";
        server.run_sql(&format!(
            "CREATE FUNCTION {overload} RETURNS TABLE (status int, value bigint) LANGUAGE sql AS 'SELECT 0, 0::bigint'"
        ));
        let unlock = s.spawn(move || held.unlock());
        let takes: Vec<_> = ["x", "y"]
            .map(|name| client.mutex(name))
            .map(|lock| s.spawn(move || lock.lock_owned().unwrap()))
            .into();
        // They queue for the connection, and are sent together.
        std::thread::sleep(ms(300));
        transaction.rollback().unwrap();
        busy.join().unwrap();
        let error = unlock.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Server, "the function is ambiguous: {error}");
        server.run_sql(&format!("DROP FUNCTION {overload}"));
        for take in takes {
            take.join().unwrap().unlock().unwrap();
        }
        let lives = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}");
        assert_eq!(server.number_of(&lives), 1, "the connection was closed");
    });
    drop((client, other));
    server.assert_clean();
}

/// Everything that a client does.
fn all_works(server: &Postgres, url: &str, prefix: &str) {
    let build = || LockClient::builder().url(url).client_name("leasehold").key_prefix(prefix);
    // Short enough to be renewed once, and long enough for a busy machine.
    let build = || build().short_lease(ms(6000)).build().unwrap();
    let (a, b) = (build(), build());
    let guards: Vec<_> = ["x1", "x2", "x3"].map(|name| a.lock(name).unwrap()).into();
    for name in ["x1", "x2", "x3"] {
        assert!(b.try_lock(name).unwrap().is_none(), "{prefix}");
        let left = b.mutex(name).holder().unwrap().unwrap().remaining().unwrap();
        assert!(left > ms(100) && left <= ms(6000), "{prefix} {left:?}");
    }
    assert_eq!(b.locks("x*").unwrap().len(), 3, "{prefix}");
    let ends = format!(
        "SELECT (extract(epoch FROM min(ends)) * 1000000)::bigint FROM leasehold.lock WHERE name LIKE '{prefix}x_'"
    );
    let first = server.number_of(&ends);
    wait_until("all are renewed", || server.number_of(&ends) > first + 400_000);
    assert!(guards.iter().all(|guard| guard.is_held()));
    let multi = a.multi(["m1", "m2"]).lock().unwrap();
    assert!(b.multi(["m2", "m3"]).try_lock().unwrap().is_none());
    multi.unlock().unwrap();
    let fair = a.fair("fair").with_data("\\ \"x\" \u{1f512}").lock().unwrap();
    let holder = b.fair("fair").holder().unwrap().unwrap();
    assert_eq!(holder.data(), Some("\\ \"x\" \u{1f512}".as_bytes()), "{prefix}");
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.fair("fair").lock().unwrap().unlock().unwrap());
        wait_until("it waits", || b.fair("fair").queue_len().unwrap() == 1);
        fair.unlock().unwrap();
        waits.join().unwrap();
    });
    let permits = a.semaphore("permits");
    assert!(permits.try_set_permits(3).unwrap().is_new());
    let two = permits.acquire_many(2).unwrap();
    assert!(b.semaphore("permits").try_acquire_many(2).unwrap().is_none());
    two.release().unwrap();
    assert!(permits.delete().unwrap());
    let write = a.rw_lock("rw").write().unwrap();
    assert!(b.rw_lock("rw").try_read().unwrap().is_none());
    write.downgrade().unwrap().unlock().unwrap();
    a.latch("latch").set_count(1).unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.latch("latch").wait().unwrap());
        a.latch("latch").count_down().unwrap();
        waits.join().unwrap();
    });
    // In a session that has the settings.
    let fence = guards[0].fence_sql().unwrap();
    let fenced = |what: &str, token: i64| {
        let call = format!("SELECT leasehold_v1.{what}('{}', {token})", fence.name());
        server.connect().batch_execute(&format!("BEGIN; {call}; COMMIT"))
    };
    for what in ["fence", "fence_at_commit"] {
        fenced(what, fence.token().as_i64()).unwrap();
        assert!(fenced(what, fence.token().as_i64() - 1).is_err(), "{prefix} {what}");
    }
    let job = a.once("job", "2026-11-23T02:00Z");
    assert!(matches!(job.run(|_| Ok::<_, ()>(())).unwrap(), Once::Done(())));
    assert!(matches!(job.run(|_| Ok::<_, ()>(())).unwrap(), Once::AlreadyDone { .. }));
    let older = b.once("job", "2026-11-22T02:00Z").run(|_| Ok::<_, ()>(())).unwrap();
    assert!(matches!(older, Once::Passed { .. }), "{older:?}");
    assert!(job.forget().unwrap());
    for guard in guards {
        guard.unlock().unwrap();
    }
    drop((a, b));
    assert!(server.held().is_empty(), "{prefix} {:?}", server.held());
}

/// What an administrator may set for the role of the clients, or for their database.
const SETTINGS: [&str; 33] = [
    "statement_timeout = 1000",
    "lock_timeout = 1",
    "transaction_timeout = 1",
    "idle_in_transaction_session_timeout = 1",
    "idle_session_timeout = 300",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_deferrable = on",
    "standard_conforming_strings = off",
    "search_path = ''",
    "client_encoding = 'LATIN1'",
    "row_security = off",
    "TimeZone = 'Pacific/Apia'",
    "DateStyle = 'SQL, DMY'",
    "IntervalStyle = 'sql_standard'",
    "IntervalStyle = 'iso_8601'",
    "bytea_output = 'escape'",
    "extra_float_digits = -15",
    "array_nulls = off",
    "transform_null_equals = on",
    "quote_all_identifiers = on",
    "synchronous_commit = off",
    "lc_messages = 'C'",
    "plpgsql.variable_conflict = 'use_column'",
    "plpgsql.variable_conflict = 'use_variable'",
    "plpgsql.extra_errors = 'all'",
    "session_replication_role = 'replica'",
    "force_parallel_mode = on",
    "enable_indexscan = off",
    "enable_seqscan = off",
    "track_activities = off",
    "work_mem = '64kB'",
    "client_min_messages = 'debug5'",
    "plan_cache_mode = 'force_custom_plan'",
];

/// Each takes as long as a renewal, so there are several servers.
#[test]
fn settings_of_a_role_do_not_matter() {
    std::thread::scope(|s| {
        for settings in SETTINGS.chunks(SETTINGS.len().div_ceil(4)) {
            s.spawn(|| each_works(settings));
        }
    });
}

fn each_works(settings: &[&str]) {
    let server = server!(Postgres::start());
    let url = server.url();
    for (n, setting) in settings.iter().enumerate() {
        let mut db = server.connect();
        if db.batch_execute(&format!("ALTER ROLE leasehold SET {setting}")).is_err() {
            // Of another version.
            continue;
        }
        println!("{setting}");
        all_works(&server, &url, &format!("p{n}"));
        db.batch_execute("ALTER ROLE leasehold RESET ALL").unwrap();
    }
    server.assert_clean();
}
