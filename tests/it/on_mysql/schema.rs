//! The tables: who creates them, whose they are, and what a user needs.

use leasehold::{ErrorKind, LockClient, MYSQL_SCHEMA, Mysql};

use crate::rig;
use crate::support::Clients;

fn without_creating(server: &rig::Mysql) -> leasehold::Result<LockClient> {
    LockClient::builder().mysql(Mysql::new(server.url()).create_schema(false)).build()
}

#[test]
fn clients_create_the_tables_at_once() {
    let server = rig::Mysql::shared();
    assert_eq!(without_creating(&server).unwrap_err().kind(), ErrorKind::Unsupported);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| server.client().lock("job").unwrap().unlock().unwrap());
        }
    });
    without_creating(&server).unwrap().lock("job").unwrap().unlock().unwrap();
}

#[test]
fn tables_that_are_dropped_are_created_again() {
    let server = rig::Mysql::shared();
    let client = server.client();
    let guard = client.lock("job").unwrap();
    server.query("DROP TABLE leasehold_lock");
    client.try_lock("other").unwrap().expect("the call makes it").unlock().unwrap();
    let error = guard.extend(std::time::Duration::from_secs(60)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:?}");
}

#[test]
fn what_is_not_ours_is_refused() {
    for (foreign, says) in [
        ("CREATE TABLE leasehold_lock (name INT PRIMARY KEY)", "is not of this release"),
        ("CREATE PROCEDURE leasehold_fence() BEGIN END", "the procedure"),
    ] {
        let server = rig::Mysql::shared();
        server.query(foreign);
        let error = server.builder().build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{foreign}: {error:?}");
        assert!(error.message().contains(says), "{error}");
    }
    let server = rig::Mysql::shared();
    server.client();
    server
        .query("CREATE TRIGGER evil BEFORE UPDATE ON leasehold_lock FOR EACH ROW SET NEW.level=1");
    let error = server.builder().build().unwrap_err();
    assert!(error.message().contains("trigger"), "{error}");
}

/// The rights of the guide are enough, and without one of them the error says so.
#[test]
fn a_user_needs_these_rights_and_no_more() {
    let server = rig::Mysql::start();
    server.client();
    server.query("CREATE USER poor@'%' IDENTIFIED BY 'pw'");
    for right in rig::mysql_grants() {
        server.query(&right.replace("app@'%'", "poor@'%'").replace("shop.", "test."));
    }
    let url = server.tcp_url("").replace("app:secret", "poor:pw");
    let open = || LockClient::builder().mysql(Mysql::new(&url).create_schema(false)).build();
    let client = open().unwrap();
    let guard = client.lock("job").unwrap();
    guard.fence_sql().unwrap();
    assert!(client.mutex("job").is_locked().unwrap());
    assert!(client.mutex("job").force_unlock().unwrap());
    drop(guard);
    let found = client.diagnose();
    assert_eq!(found.count(leasehold::observe::Severity::Problem), 0, "{found:?}");
    // It sees what is not ours.
    let trigger = "TRIGGER evil BEFORE UPDATE ON leasehold_lock";
    server.query(&format!("CREATE {trigger} FOR EACH ROW SET NEW.level=1"));
    let error = open().unwrap_err();
    assert!(error.message().contains("trigger"), "{error}");
    server.query("DROP TRIGGER evil");
    server.query("REVOKE UPDATE ON test.leasehold_lock FROM poor@'%'");
    rig::wait_until("the right is gone", || client.try_lock("job").is_err());
    let error = client.try_lock("job").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

/// Split as a program does that knows `DELIMITER`.
#[test]
fn the_schema_can_be_run_by_hand() {
    let server = rig::Mysql::shared();
    let (tables, rest) = MYSQL_SCHEMA.split_once("DELIMITER //").unwrap();
    server.query(tables);
    server.query(rest.split_once("//").unwrap().0);
    without_creating(&server).unwrap().lock("job").unwrap().unlock().unwrap();
}
