//! What an administrator has set for all sessions.

use std::time::Duration;

use leasehold::observe::{Check, Severity};
use leasehold::{ErrorKind, LockClient};

use crate::rig::{Mysql, ms, wait_until};
use crate::support::{Clients, ShortLease};

fn is_mariadb(server: &Mysql) -> bool {
    server.query("SELECT VERSION()")[0][0].contains("MariaDB")
}

/// Everything that a client does, over one connection for calls: its transactions come before what
/// is a transaction of its own.
fn all_works(server: &Mysql, prefix: &str) {
    let build = || server.builder().connections(1).key_prefix(prefix).short_lease(ms(4500));
    let (a, b) = (build().build().unwrap(), build().build().unwrap());
    // This session has the settings, too.
    let number = |sql: &str| {
        server.number_of(&format!("SET SESSION sql_big_selects=1,sql_safe_updates=0;{sql}"))
    };
    let held = |name: &str| {
        let taken = "SELECT COUNT(*) FROM leasehold_lock WHERE holder IS NOT NULL AND name=";
        number(&format!("{taken}'{prefix}{name}'")) == 1
    };
    a.rw_lock("rw").read().unwrap().unlock().unwrap();
    let guards: Vec<_> = ["x1", "x2", "x3"].map(|name| a.lock(name).unwrap()).into();
    for name in ["x1", "x2", "x3"] {
        assert!(held(name), "{prefix} it is committed");
        assert!(b.try_lock(name).unwrap().is_none(), "{prefix}");
    }
    assert_eq!(b.locks("x*").unwrap().len(), 3, "{prefix}");
    let ends = format!("SELECT MIN(ends) FROM leasehold_lock WHERE name LIKE '{prefix}x_'");
    let first = number(&ends);
    wait_until("all are renewed together", || number(&ends) > first);
    let once = number(&ends);
    wait_until("and once more", || number(&ends) > once);
    assert!(guards.iter().all(|guard| guard.is_held()));
    let all = a.multi(["m1", "m2", "m3"]);
    let multi = all.lock().unwrap();
    assert!(held("m1") && held("m3") && b.multi(["m2", "m3"]).try_lock().unwrap().is_none());
    multi.unlock().unwrap();
    assert!(!held("m1") && !held("m3"), "{prefix}");
    let permits = a.semaphore("permits");
    assert!(permits.try_set_permits(3).unwrap().is_new());
    let two = permits.acquire_many(2).unwrap();
    assert!(b.semaphore("permits").try_acquire_many(2).unwrap().is_none());
    two.release().unwrap();
    assert!(b.semaphore("permits").try_acquire_many(3).unwrap().is_some());
    let write = a.rw_lock("rw").write().unwrap();
    assert!(b.rw_lock("rw").try_read().unwrap().is_none());
    let read = write.downgrade().unwrap();
    assert!(b.rw_lock("rw").try_read().unwrap().is_some());
    read.unlock().unwrap();
    // A fence is passed, and the name taken by a holder of each kind.
    let fenced = a.lock("x4").unwrap();
    fenced.fence_sql().unwrap();
    fenced.unlock().unwrap();
    b.lock("x4").unwrap().unlock().unwrap();
    b.multi(["x4", "x5"]).lock().unwrap().unlock().unwrap();
    b.rw_lock("x4").read().unwrap().unlock().unwrap();
    b.rw_lock("x4").write().unwrap().unlock().unwrap();
    for guard in guards {
        guard.unlock().unwrap();
    }
    drop((a, b));
    let left = format!(
        "SELECT COUNT(*) FROM leasehold_lock WHERE holder<>'~s' AND ends>1 AND name LIKE '{prefix}%'"
    );
    assert_eq!(number(&left), 0, "{prefix}");
}

/// Each takes as long as two renewals, so there are several servers.
#[test]
fn settings_for_all_sessions_do_not_matter() {
    let servers = [(); 4].map(|()| Mysql::start());
    let mut settings = vec![
        "completion_type=1",
        "completion_type=2",
        "sql_select_limit=1",
        "sql_safe_updates=1",
        "max_join_size=1",
        "unique_checks=0,@@global.foreign_key_checks=0",
        "wait_timeout=1,@@global.interactive_timeout=1",
        "lock_wait_timeout=1000",
        "autocommit=0",
        "max_sort_length=64",
    ];
    if is_mariadb(&servers[0]) {
        settings.extend([
            "idle_transaction_timeout=1,@@global.idle_write_transaction_timeout=1",
            "max_statement_time=0.9",
            "query_cache_type=1,@@global.query_cache_size=1048576",
            "innodb_snapshot_isolation=1",
            "sql_mode='ORACLE'",
            "sql_mode='EMPTY_STRING_IS_NULL'",
        ]);
    } else {
        settings.push("max_execution_time=900");
    }
    std::thread::scope(|s| {
        let parts = settings.chunks(settings.len().div_ceil(servers.len()));
        for (server, settings) in servers.iter().zip(parts) {
            s.spawn(|| each_works(server, settings));
        }
    });
}

fn each_works(server: &Mysql, settings: &[&str]) {
    for (n, setting) in settings.iter().enumerate() {
        println!("{setting}");
        server.query(&format!("SET GLOBAL {setting}"));
        all_works(server, &format!("p{n}"));
        for one in setting.split(',') {
            let name = one.split('=').next().unwrap().trim_start_matches("@@global.");
            server.query(&format!("SET GLOBAL {name}=DEFAULT"));
        }
    }
}

/// A statement waits for a row, and a limit for its time must not end it: that is another error.
#[test]
fn a_limit_for_the_time_of_statements_does_not_end_a_wait_for_a_row() {
    let server = Mysql::start();
    let limit =
        if is_mariadb(&server) { "max_statement_time=0.8" } else { "max_execution_time=800" };
    server.query(&format!("SET GLOBAL {limit}"));
    let client = server.builder().io_timeout(ms(5000)).build().unwrap();
    client.lock("job").unwrap().unlock().unwrap();
    let mut db = server.connect();
    db.query("START TRANSACTION; SELECT * FROM leasehold_lock WHERE name='job' FOR UPDATE")
        .unwrap();
    let error = client.try_lock("job").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady, "{error:?}");
    assert!(error.to_string().contains("end the transaction"), "{error}");
}

/// As `read_only`: nothing can be locked there, and clients look for another host.
#[test]
fn a_server_whose_transactions_only_read_is_read_only() {
    let server = Mysql::start();
    let client = server.client();
    let guard = client.lock("job").unwrap();
    let variable = if is_mariadb(&server) { "tx_read_only" } else { "transaction_read_only" };
    server.query(&format!("SET GLOBAL {variable}=1"));
    let error = LockClient::open(&server.tcp_url("")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
    let found = client.diagnose();
    let role = found.findings().iter().find(|finding| finding.check() == Check::Role).unwrap();
    assert_eq!(role.severity(), Severity::Problem, "{found:?}");
    guard.extend(Duration::from_secs(60)).unwrap();
    server.end_connections();
    let error = client.try_lock("other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
    server.query(&format!("SET GLOBAL {variable}=0"));
    wait_until("it takes writes again", || client.try_lock("other").is_ok());
    guard.unlock().unwrap();
}
