//! What a connection learns about its session and its server, and what it has prepared there.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use super::{server, url_of_both};
use crate::rig::{Postgres, ms, wait_until};
use crate::support::Clients;

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
