//! A database.

use leasehold::observe::{Check, Severity};
use leasehold::{LockClient, POSTGRES_SCHEMA};

use super::{IO_TIMEOUT, diagnosed, is_healthy, only, says};
use crate::rig::{Postgres, wait_until};
use crate::support::Clients;

const GOOD: &str = "fsync = on";

#[test]
fn a_database_that_is_as_it_should_be_has_neither_warnings_nor_problems() {
    let server = Postgres::start_with(GOOD);
    let diagnosis = diagnosed(server.builder());
    is_healthy(&diagnosis);
    says(&diagnosis, Check::Schema, Severity::Note, "the first connection installs it");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'leasehold%'";
    assert_eq!(server.number_of(schemas), 0, "nothing was created");
    drop(server.client());
    let diagnosis = diagnosed(server.builder());
    is_healthy(&diagnosis);
    for (check, text) in [
        (Check::Reachable, "connected"),
        (Check::Tls, "does not leave this machine"),
        (Check::Version, "PostgreSQL"),
        (Check::Pooler, "no pooler"),
        (Check::Role, "a primary"),
        (Check::Connections, "of 60"),
        (Check::Persistence, "synchronous_commit on"),
        (Check::Replication, "no standby"),
        (Check::Transactions, "no transaction keeps"),
        (Check::Schema, "version 1"),
        (Check::Right, "every right"),
        (Check::Clock, "differ"),
        (Check::Latency, "round trips"),
        (Check::Connect, "can be made"),
        (Check::Lease, "survives"),
    ] {
        says(&diagnosis, check, Severity::Ok, text);
    }
    wait_until("its connections are gone", || server.backends() == 0);
}

#[test]
fn settings_that_forget_grants_are_warnings() {
    let server = Postgres::start_with("fsync = off");
    says(&diagnosed(server.builder()), Check::Persistence, Severity::Warning, "fsync is off");
    let server = Postgres::start_with("fsync = on\nsynchronous_commit = off");
    says(
        &diagnosed(server.builder()),
        Check::Persistence,
        Severity::Warning,
        "synchronous_commit is off",
    );
    let server =
        Postgres::start_with("fsync = on\nmax_connections = 8\nsuperuser_reserved_connections = 3");
    says(&diagnosed(server.builder()), Check::Connections, Severity::Warning, "max_connections");
    server.run_sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    says(&diagnosed(server.builder()), Check::Role, Severity::Problem, "read-only");
}

#[test]
fn a_standby_is_a_problem_where_it_is_named_alone() {
    let server = Postgres::start_with(GOOD);
    drop(server.client());
    let standby = server.standby(GOOD);
    standby.run();
    let diagnosis = diagnosed(standby.builder());
    says(&diagnosis, Check::Role, Severity::Problem, "standby");
    only(&diagnosis, &[Check::Role]);
    wait_until("the standby streams", || {
        server.number_of("SELECT count(*) FROM pg_stat_replication") == 1
    });
    says(
        &diagnosed(server.builder()),
        Check::Replication,
        Severity::Note,
        "synchronous_standby_names",
    );
    standby.stop("immediate");
}

#[test]
fn rights_that_are_missing_are_named() {
    let server = Postgres::start_with(GOOD);
    server.run_sql("CREATE ROLE app LOGIN");
    let url = server.url().replace("leasehold@", "app@");
    let ask = || diagnosed(LockClient::builder().url(&url));
    says(&ask(), Check::Schema, Severity::Problem, "POSTGRES_SCHEMA");
    server.run_sql(POSTGRES_SCHEMA);
    says(&ask(), Check::Right, Severity::Problem, "GRANT USAGE ON SCHEMA leasehold");
    server.run_sql(&crate::rig::role_grants());
    is_healthy(&ask());
    for (right, on) in [
        ("SELECT", "leasehold.lock"),
        ("INSERT", "leasehold.share"),
        ("UPDATE", "leasehold.meta"),
        ("SELECT", "leasehold.meta"),
        ("DELETE", "leasehold.waiter"),
        ("DELETE", "leasehold.data"),
        ("USAGE", "SEQUENCE leasehold.place"),
        ("USAGE", "SCHEMA leasehold_v1"),
        ("USAGE", "SCHEMA leasehold"),
    ] {
        server.run_sql(&format!("REVOKE {right} ON {on} FROM app"));
        let diagnosis = ask();
        says(&diagnosis, Check::Right, Severity::Problem, &format!("GRANT {right} ON {on} TO"));
        only(&diagnosis, &[Check::Right]);
        server.run_sql(&format!("GRANT {right} ON {on} TO app"));
    }
    server.run_sql("REVOKE SELECT ON leasehold.client FROM app");
    says(&ask(), Check::Right, Severity::Note, "leasehold.client");
    is_healthy(&ask());
    server.run_sql("UPDATE leasehold.meta SET tables = 99");
    says(&ask(), Check::Schema, Severity::Problem, "99");
}

/// As a warning that names what it is and how to end it. Transactions pass in place of minutes.
#[test]
fn what_keeps_old_versions_of_rows_is_named() {
    let server = Postgres::start_with("fsync = off\nmax_prepared_transactions = 1");
    drop(server.client());
    server.run_sql("CREATE DATABASE other");
    server.run_sql("CREATE ROLE app LOGIN; CREATE ROLE meek LOGIN; GRANT pg_monitor TO app");
    let asked =
        |role: &str| diagnosed(LockClient::builder().url(server.url().replace("leasehold@", role)));
    let many = "DO $$ BEGIN FOR i IN 1 .. 100100 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$";
    // One in another database that only reads concerns nothing here; one that has written does.
    let other = server.url_of_libpq().replace("/postgres", "/other");
    let mut other = postgres::Client::connect(&other, postgres::NoTls).unwrap();
    other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    server.run_sql(many);
    says(&asked("leasehold@"), Check::Transactions, Severity::Ok, "no transaction");
    other.batch_execute("SELECT pg_current_xact_id()").unwrap();
    server.run_sql(many);
    let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let terminate = format!("pg_terminate_backend({pid})");
    says(&asked("leasehold@"), Check::Transactions, Severity::Warning, &terminate);
    other.batch_execute("COMMIT").unwrap();

    let mut db = server.connect();
    db.batch_execute(
        "SET application_name = 'nightly report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1",
    )
    .unwrap();
    says(&asked("leasehold@"), Check::Transactions, Severity::Ok, "no transaction");
    server.run_sql(many);
    let pid: i32 = db.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    // Also for a role that may not see since when.
    for role in ["leasehold@", "app@", "meek@"] {
        let diagnosis = asked(role);
        for text in ["nightly report".to_owned(), format!("pg_terminate_backend({pid})")] {
            says(&diagnosis, Check::Transactions, Severity::Warning, &text);
        }
    }
    db.batch_execute("COMMIT").unwrap();
    says(&asked("leasehold@"), Check::Transactions, Severity::Ok, "no transaction");

    db.batch_execute("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten'")
        .unwrap();
    server.run_sql(many);
    says(
        &asked("leasehold@"),
        Check::Transactions,
        Severity::Warning,
        "ROLLBACK PREPARED 'forgotten'",
    );
    db.batch_execute("ROLLBACK PREPARED 'forgotten'").unwrap();
    says(&asked("leasehold@"), Check::Transactions, Severity::Ok, "no transaction");
}

#[test]
fn a_database_that_is_stopped_or_gone_is_a_finding() {
    let server = Postgres::start_with(GOOD);
    server.suspend();
    let diagnosis = diagnosed(server.builder().io_timeout(IO_TIMEOUT));
    server.resume();
    says(&diagnosis, Check::Reachable, Severity::Problem, "firewall");
    server.stop("immediate");
    let diagnosis = diagnosed(server.builder().io_timeout(IO_TIMEOUT));
    says(&diagnosis, Check::Reachable, Severity::Problem, "firewall");
    assert_eq!(diagnosis.findings().len(), 1, "{diagnosis}");
}
