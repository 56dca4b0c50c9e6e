//! What operators see: holders, lists, owners, the diagnosis.

use std::time::Duration;

use leasehold::observe::{Check, Severity};

use crate::rig::{CAP, Mysql, wait_until};
use crate::support::Clients;

#[test]
fn holders_and_their_owners_are_shown() {
    let server = Mysql::shared();
    let client = server.builder().owner("payer").build().unwrap();
    let other = server.client();
    let _guards: Vec<_> = ["a", "b", "b2"].map(|name| client.lock(name).unwrap()).into();
    let _again = client.lock("b").unwrap();
    assert_eq!(other.locks("b*").unwrap().len(), 2);
    let all = other.locks("*").unwrap();
    assert_eq!(all.len(), 3, "{all:?}");
    let holder = other.mutex("b").holder().unwrap().unwrap();
    assert_eq!(holder.hold_count(), 2);
    wait_until("the owner is known", || {
        format!("{:?}", other.mutex("a").holder().unwrap()).contains("payer")
    });
    assert!(other.mutex("c").holder().unwrap().is_none());
}

#[test]
fn a_minimum_hold_keeps_the_lock_under_another_holder() {
    let server = Mysql::shared();
    let (a, b) = (server.client(), server.client());
    let guard = a.mutex("job").min_hold(Duration::from_secs(5)).lock().unwrap();
    guard.unlock().unwrap();
    assert!(b.try_lock("job").unwrap().is_none());
    drop(b.mutex("job").try_lock_for(CAP).unwrap().expect("it ends by itself"));
}

#[test]
fn a_diagnosis_says_what_is_wrong() {
    let server = Mysql::shared();
    let found = server.client().diagnose();
    assert_eq!(found.count(Severity::Problem), 0, "{found:?}");
    let of = |check| found.findings().iter().find(|finding| finding.check() == check).unwrap();
    assert_eq!(of(Check::Schema).severity(), Severity::Ok);
    // The servers of the tests do not flush at each commit.
    assert_eq!(of(Check::Persistence).severity(), Severity::Warning);
    server.query("DROP PROCEDURE leasehold_fence");
    let strict = leasehold::Mysql::new(server.url()).create_schema(false);
    let client = leasehold::LockClient::builder().mysql(strict).connect_lazily().build().unwrap();
    let found = client.diagnose();
    let schema = found.findings().iter().find(|finding| finding.check() == Check::Schema).unwrap();
    assert_eq!(schema.severity(), Severity::Problem, "{found:?}");
}

/// Names that nobody has keep their rows, and a list reads those of other prefixes never.
#[test]
fn a_list_reads_no_row_behind_its_prefix() {
    let server = Mysql::start();
    let client = server.builder().key_prefix("a-").build().unwrap();
    let guard = client.lock("1").unwrap();
    let names: Vec<String> = (0..1000).map(|n| format!("('b-{n}')")).collect();
    server.query(&format!("INSERT INTO leasehold_lock (name) VALUES {}", names.join(",")));
    let read = || {
        let rows = server.query("SHOW GLOBAL STATUS LIKE 'Handler_read_next'");
        rows[0][1].parse::<u64>().unwrap()
    };
    let before = read();
    let found = client.locks("*").unwrap();
    assert_eq!(found.len(), 1);
    assert!(read() - before < 500, "{}", read() - before);
    guard.unlock().unwrap();
}
