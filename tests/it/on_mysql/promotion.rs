//! A replica that takes over from the primary, without waiting for it: the newest grants may be
//! missing there, and whoever has such a hold is told.

use std::time::Duration;

use leasehold::LockClient;

use crate::rig::{CAP, Mysql, ms, wait_until};

/// The lease of the holds: renewed before the replica is promoted, and again soon after it.
const LEASE: Duration = Duration::from_secs(12);

/// Has `replica` repeat from now on what `primary` writes, and refuse other writes.
fn follow(replica: &Mysql, primary: &Mysql) {
    let version = primary.query("SELECT VERSION()").remove(0).remove(0);
    let is_mariadb = version.contains("MariaDB");
    let is_old = is_mariadb || version.starts_with("8.0");
    let at = primary.query(if is_old { "SHOW MASTER STATUS" } else { "SHOW BINARY LOG STATUS" });
    let file = &at[0][0];
    let place = &at[0][1];
    let port = primary.port();
    let (change, source, replicate) = if is_mariadb {
        ("CHANGE MASTER TO", "master", "START SLAVE")
    } else {
        // Its passwords are not sent without TLS or this key.
        ("CHANGE REPLICATION SOURCE TO get_source_public_key=1,", "source", "START REPLICA")
    };
    replica.query(&format!(
        "{change} {source}_host='127.0.0.1',{source}_port={port},{source}_user='app',\
         {source}_password='secret',{source}_log_file='{file}',{source}_log_pos={place}"
    ));
    replica.query(replicate);
    replica.query("SET GLOBAL read_only=1");
}

fn stop_following(replica: &Mysql) {
    let version = replica.query("SELECT VERSION()").remove(0).remove(0);
    let who = if version.contains("MariaDB") { "SLAVE" } else { "REPLICA" };
    replica.query(&format!("STOP {who}"));
}

fn url_of_both(one: &Mysql, other: &Mysql) -> String {
    let database = one.database();
    format!("mysql://app:secret@127.0.0.1:{},127.0.0.1:{}/{database}", one.port(), other.port())
}

#[test]
fn a_promoted_replica_keeps_what_it_has_and_the_rest_is_lost() {
    let settings =
        |id: &'static str| Mysql::start_with(&["--log-bin=binlog", "--binlog-format=ROW", id]);
    let primary = settings("--server-id=1");
    let replica = settings("--server-id=2");
    follow(&replica, &primary);
    let url = url_of_both(&primary, &replica);
    let client = || {
        let builder = LockClient::builder().url(&url).lease(LEASE).io_timeout(ms(2000));
        builder.build().unwrap()
    };
    let (holder, other) = (client(), client());
    let kept = holder.lock("kept").unwrap();
    wait_until("the replica has the grant", || replica.held() == ["kept"]);
    let token = kept.fencing_token().unwrap();
    stop_following(&replica);
    let forgotten = holder.lock("forgotten").unwrap();
    primary.kill();
    replica.query("SET GLOBAL read_only=0");

    assert!(forgotten.wait_lost(CAP).is_lost());
    drop(forgotten);
    wait_until("it is renewed at the new primary", || {
        let left = "SELECT ends-TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)) FROM leasehold_lock WHERE name='kept'";
        replica.number_of(left) > i64::try_from((LEASE - ms(3000)).as_micros()).unwrap()
    });
    assert!(kept.is_held());
    assert!(other.try_lock("kept").unwrap().is_none());
    kept.unlock().unwrap();
    let next = other.lock("kept").unwrap();
    assert!(next.fencing_token().unwrap() > token, "tokens grow");
    next.unlock().unwrap();
    drop((holder, other));
    replica.assert_clean();
}

/// A user who may write in spite of `read_only` finds the new primary all the same.
#[test]
fn whoever_may_write_to_a_demoted_primary_does_not() {
    let (demoted, promoted) = (Mysql::start_with(&[]), Mysql::start_with(&[]));
    for server in [&demoted, &promoted] {
        let version = server.query("SELECT VERSION()").remove(0).remove(0);
        let right =
            if version.contains("MariaDB") { "READ_ONLY ADMIN" } else { "CONNECTION_ADMIN" };
        server.query(&format!("GRANT {right} ON *.* TO app"));
    }
    promoted.query("SET GLOBAL read_only=1");
    let url = url_of_both(&demoted, &promoted);
    let builder = LockClient::builder().url(&url).lease(LEASE).io_timeout(ms(2000));
    let client = builder.build().unwrap();
    let forgotten = client.lock("k").unwrap();
    client.semaphore("s").try_set_permits(1).unwrap();
    demoted.query("SET GLOBAL read_only=1");
    promoted.query("SET GLOBAL read_only=0");
    let fresh = client.lock("n").unwrap();
    assert_eq!((demoted.held(), promoted.held()), (vec!["k".to_owned()], vec!["n".to_owned()]));
    assert!(forgotten.wait_lost(CAP).is_lost(), "it is renewed at the new primary, or not at all");
    fresh.unlock().unwrap();
    drop((forgotten, client));
    promoted.assert_clean();
}

/// What a demoted primary says of locks is out of date, for as long as it runs.
#[test]
fn whoever_only_looks_leaves_a_demoted_primary() {
    let (demoted, promoted) = (Mysql::start_with(&[]), Mysql::start_with(&[]));
    // It makes the tables.
    LockClient::open(&promoted.url()).unwrap().lock("k").unwrap().unlock().unwrap();
    promoted.query("SET GLOBAL read_only=1");
    let url = url_of_both(&demoted, &promoted);
    let client = || {
        let builder = LockClient::builder().url(&url).lease(10 * CAP).io_timeout(ms(2000));
        builder.build().unwrap()
    };
    let (holder, waiter, looking) = (client(), client(), client());
    let guard = holder.lock("k").unwrap();
    assert!(looking.mutex("k").is_locked().unwrap());
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            let next = waiter.try_lock_for("k", CAP).unwrap();
            next.map(leasehold::ReentrantMutexGuard::unlock)
        });
        wait_until("it waits", || waiter.stats().waiting() == 1);
        demoted.query("SET GLOBAL read_only=1");
        let row = demoted
            .query("SELECT HEX(holder),ends,token FROM leasehold_lock WHERE name='k'")
            .remove(0);
        promoted.query(&format!(
            "UPDATE leasehold_lock SET holder=UNHEX('{}'),level=1,ends={},token={} WHERE name='k'",
            row[0], row[1], row[2]
        ));
        promoted.query("SET GLOBAL read_only=0");
        guard.unlock().unwrap();
        waits.join().unwrap().expect("it is free at the new primary").unwrap();
    });
    assert!(!looking.mutex("k").is_locked().unwrap());
    assert_eq!((demoted.held(), promoted.held()), (vec!["k".to_owned()], Vec::new()));
    drop((holder, waiter, looking));
    promoted.assert_clean();
}
