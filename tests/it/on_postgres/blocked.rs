//! Locks of the database that sessions outside have: nobody can look at the lock, which is not
//! "taken".

use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use super::server;
use crate::rig::{CAP, Postgres, ms, wait_until};
use crate::support::Clients;

fn client(server: &Postgres) -> LockClient {
    server
        .builder()
        .lease(Duration::from_secs(60))
        .outage_timeout(Duration::from_secs(60))
        .build()
        .unwrap()
}

/// The process of a connection.
fn process(db: &mut postgres::Client) -> i32 {
    db.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0)
}

#[test]
fn a_table_that_is_locked_is_an_error_with_the_session_and_not_a_lock_that_is_taken() {
    let server = server!();
    let client = client(&server);
    client.lock("free").unwrap().unlock().unwrap();
    let mut other = server.connect();
    let pid = process(&mut other);
    other.batch_execute("SET application_name = 'the-backup'; BEGIN").unwrap();
    other.batch_execute("LOCK TABLE leasehold.lock IN ACCESS EXCLUSIVE MODE").unwrap();
    for outcome in [
        client.try_lock("free").map(drop),
        client.try_lock_for("free", ms(3000)).map(drop),
        client.multi(["free", "too"]).try_lock().map(drop),
        client.rw_lock("rw").try_read().map(drop),
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotReady, "{error}");
        let said = error.to_string();
        assert!(
            said.contains(&pid.to_string())
                && said.contains("the-backup")
                && said.contains("Exclusive"),
            "{said}"
        );
    }
    other.batch_execute("COMMIT").unwrap();
    client.try_lock("free").unwrap().expect("it is free").unlock().unwrap();
    drop((client, other));
    server.assert_clean();
}

/// A backup reads, `VACUUM FULL` waits for it, and everybody waits behind that.
#[test]
fn a_session_that_waits_for_the_table_before_all_others_is_named_with_the_one_it_waits_for() {
    let server = server!();
    let client = client(&server);
    client.lock("free").unwrap().unlock().unwrap();
    let (mut backup, mut vacuum) = (server.connect(), server.connect());
    let (reads, waits) = (process(&mut backup), process(&mut vacuum));
    backup.batch_execute("BEGIN; LOCK TABLE leasehold.lock IN ACCESS SHARE MODE").unwrap();
    std::thread::scope(|s| {
        let vacuum = s.spawn(move || vacuum.batch_execute("VACUUM FULL leasehold.lock"));
        wait_until("it waits", || {
            server.number_of(&format!(
                "SELECT count(*) FROM pg_locks WHERE pid = {waits} AND NOT granted"
            )) > 0
        });
        let outcome = client.try_lock("free").map(drop);
        backup.batch_execute("COMMIT").unwrap();
        vacuum.join().unwrap().unwrap();
        let said = outcome.unwrap_err().to_string();
        assert!(said.contains(&waits.to_string()) && said.contains(&reads.to_string()), "{said}");
    });
    client.try_lock("free").unwrap().expect("it is free").unlock().unwrap();
    drop((client, backup));
    server.assert_clean();
}

#[test]
fn a_row_that_an_idle_session_has_locked_is_an_error_with_that_session() {
    let server = server!();
    let client = client(&server);
    client.lock("free").unwrap().unlock().unwrap();
    let mut other = server.connect();
    let pid = process(&mut other);
    other
        .batch_execute("BEGIN; SELECT FROM leasehold.lock WHERE name = 'free' FOR UPDATE")
        .unwrap();
    let error = client.try_lock("free").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady, "{error}");
    assert!(
        error.to_string().contains(&pid.to_string()) && error.to_string().contains("idle"),
        "{error}"
    );
    let error = client.multi(["free", "too"]).try_lock().map(drop).unwrap_err();
    assert!(
        error.kind() == ErrorKind::NotReady && error.to_string().contains(&pid.to_string()),
        "{error}"
    );
    client.try_lock("another").unwrap().expect("that row is not locked").unlock().unwrap();
    // Who waits for the lock waits for the row as well, until its own deadline.
    assert!(client.try_lock_for("free", ms(900)).unwrap().is_none());
    std::thread::scope(|s| {
        let waits = s.spawn(|| client.lock("free").map(drop));
        std::thread::sleep(ms(700));
        other.batch_execute("COMMIT").unwrap();
        waits.join().unwrap().unwrap();
    });
    drop((client, other));
    server.assert_clean();
}

#[test]
fn a_lock_that_is_held_is_taken_whoever_has_locked_its_row() {
    let server = server!();
    let (client, holder) = (client(&server), server.client());
    let guard = holder.lock("held").unwrap();
    let mut other = server.connect();
    other
        .batch_execute("BEGIN; SELECT FROM leasehold.lock WHERE name = 'held' FOR UPDATE")
        .unwrap();
    assert!(client.try_lock("held").unwrap().is_none());
    // To be notified, a waiter writes into the row.
    assert!(client.try_lock_for("held", ms(900)).unwrap().is_none());
    other.batch_execute("COMMIT").unwrap();
    guard.unlock().unwrap();
    drop((client, holder, other));
    server.assert_clean();
}

/// Nobody has looked at the hold: it is neither entered nor lost.
#[test]
fn whoever_reenters_a_lock_whose_row_is_locked_keeps_it() {
    let server = server!();
    let client = client(&server);
    let (plain, fair, rw) = (client.mutex("plain"), client.fair("fair"), client.rw_lock("rw"));
    let data = client.mutex("data").with_data("x");
    let guards = (plain.lock().unwrap(), fair.lock().unwrap(), data.lock().unwrap());
    let mut other = server.connect();
    let pid = process(&mut other).to_string();
    let not_ready = |outcome: leasehold::Result<()>| {
        let error = outcome.unwrap_err();
        assert!(
            error.kind() == ErrorKind::NotReady && error.to_string().contains(&pid),
            "{error:?}"
        );
    };
    let begin = "BEGIN; SELECT FROM leasehold.lock FOR UPDATE";
    let write = rw.write().unwrap();
    other.batch_execute(begin).unwrap();
    not_ready(plain.lock().map(drop));
    not_ready(plain.try_lock_for(ms(3000)).map(drop));
    not_ready(client.multi(["plain"]).try_lock_for(CAP).map(drop));
    not_ready(client.multi(["free", "plain"]).try_lock_for(CAP).map(drop));
    not_ready(fair.lock().map(drop));
    not_ready(data.lock().map(drop));
    not_ready(rw.write().map(drop));
    assert!(guards.0.is_held() && guards.1.is_held() && guards.2.is_held() && write.is_held());
    other.batch_execute("COMMIT").unwrap();
    plain.lock().unwrap().unlock().unwrap();
    write.unlock().unwrap();
    let read = rw.read().unwrap();
    other.batch_execute(begin).unwrap();
    not_ready(rw.read().map(drop));
    assert!(read.is_held());
    other.batch_execute("COMMIT").unwrap();
    rw.read().unwrap().unlock().unwrap();
    read.unlock().unwrap();
    guards.0.unlock().unwrap();
    guards.1.unlock().unwrap();
    guards.2.unlock().unwrap();
    drop((plain, fair, data, rw, client, other));
    server.assert_clean();
}

/// A multi-lock waits for the name that it cannot have, neither for its own hold of another one nor
/// in the queue of one that is free.
#[test]
fn a_multi_lock_waits_for_the_name_whose_row_is_locked() {
    let server = server!();
    let client = client(&server);
    client.lock("z").unwrap().unlock().unwrap();
    let mut other = server.connect();
    let both = |own: bool| {
        let own = own.then(|| client.lock("a").unwrap());
        let both = client.multi(["a", "z"]).try_lock_for(CAP).unwrap();
        both.expect("the transaction has ended long before").unlock().unwrap();
        drop(own);
    };
    for own in [true, false] {
        other
            .batch_execute("BEGIN; SELECT FROM leasehold.lock WHERE name = 'z' FOR UPDATE")
            .unwrap();
        std::thread::scope(|s| {
            let waits = s.spawn(|| both(own));
            wait_until("it waits", || client.stats().waiting() == 1);
            if !own {
                let free = client.try_lock_for("a", ms(3000)).unwrap();
                free.expect("nobody has it").unlock().unwrap();
            }
            other.batch_execute("COMMIT").unwrap();
            waits.join().unwrap();
        });
    }
    drop((client, other));
    server.assert_clean();
}

/// The answers that it has are not lost with those that it has not.
#[test]
fn an_extension_that_fails_for_one_name_reports_the_loss_of_another() {
    let server = server!();
    let client = client(&server);
    let several = client.multi(["a", "b", "c"]).lock().unwrap();
    let mut other = server.connect();
    other
        .batch_execute("UPDATE leasehold.lock SET holder = NULL, level = 0 WHERE name = 'c'")
        .unwrap();
    other.batch_execute("BEGIN; SELECT FROM leasehold.lock WHERE name = 'b' FOR UPDATE").unwrap();
    let error = several.extend(Duration::from_secs(60)).unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Lost, Some("c")), "{error:?}");
    assert!(!several.is_held());
    other.batch_execute("COMMIT").unwrap();
    drop((several, client, other));
    server.assert_clean();
}
