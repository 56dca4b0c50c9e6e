//! What a server does that a client must survive, or tell.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use crate::rig::{CAP, Fault, Mysql, PROMPT, Proxy, ms, wait_until};
use crate::support::{Clients, ShortLease};

#[test]
fn a_client_survives_the_end_of_its_connections() {
    let server = Mysql::shared();
    let client = server.client();
    let guard = client.lock("job").unwrap();
    for _ in 0..5 {
        server.end_connections();
        client.lock("job").unwrap().unlock().unwrap();
        client.lock("other").unwrap().unlock().unwrap();
        guard.extend(Duration::from_secs(60)).unwrap();
    }
    guard.unlock().unwrap();
    drop(client);
    server.assert_clean();
}

/// Threads that count under the lock while connections are ended all the time.
#[test]
fn killed_connections_cost_no_exclusion() {
    let server = Mysql::shared();
    let clients: Vec<LockClient> = (0..2).map(|_| server.client()).collect();
    let (inside, counted) =
        (std::sync::atomic::AtomicU32::new(0), std::sync::atomic::AtomicU32::new(0));
    use std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..4)
            .map(|n| {
                let (client, inside, counted) = (&clients[n % 2], &inside, &counted);
                s.spawn(move || {
                    let mut last = 0;
                    while counted.load(SeqCst) < 60 {
                        let Ok(guard) = client.lock("job") else { continue };
                        let token = guard.fencing_token().unwrap().as_i64();
                        assert!(token > last, "tokens grow");
                        last = token;
                        assert_eq!(inside.fetch_add(1, SeqCst), 0, "two holders");
                        std::thread::sleep(ms(1));
                        inside.fetch_sub(1, SeqCst);
                        counted.fetch_add(1, SeqCst);
                        let _ = guard.unlock();
                    }
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            server.end_connections();
            std::thread::sleep(ms(10));
        }
    });
    wait_until("nothing is held", || server.held().is_empty());
    drop(clients);
    server.assert_clean();
}

#[test]
fn holds_survive_a_restart() {
    let server = Mysql::start();
    let client = server.builder().io_timeout(ms(3000)).build().unwrap();
    let guard = client.lock("job").unwrap();
    server.kill();
    server.run();
    guard.extend(Duration::from_secs(60)).unwrap();
    assert!(guard.is_held() && server.client().try_lock("job").unwrap().is_none());
    guard.unlock().unwrap();
    wait_until("nothing is held", || server.held().is_empty());
    drop(client);
    server.assert_clean();
}

/// A waiter gets in after a restart, too.
#[test]
fn a_waiter_survives_a_restart() {
    let server = Mysql::start();
    let (a, b) = (server.client(), server.client());
    let guard = a.lock("job").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.lock("job").unwrap().unlock().unwrap());
        // Its first request is answered: only then an outage is not told to the call.
        wait_until("it waits", || b.stats().waiting() == 1);
        server.kill();
        server.run();
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
}

#[test]
fn a_lease_ends_in_time_while_the_server_is_suspended() {
    let server = Mysql::start();
    let client = server.builder().short_lease(ms(1500)).build().unwrap();
    let guard = client.lock("job").unwrap();
    let began = Instant::now();
    server.suspend();
    assert!(guard.wait_lost(CAP).is_lost());
    assert!(!guard.is_held());
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    let error = client.try_lock("other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    server.resume();
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    wait_until("locks work again", || client.try_lock("job").is_ok_and(|guard| guard.is_some()));
    drop(client);
    server.assert_clean();
}

#[test]
fn a_read_only_server_is_refused_and_found_again() {
    let server = Mysql::start();
    let client = server.client();
    client.lock("job").unwrap().unlock().unwrap();
    server.query("SET GLOBAL read_only=1");
    // Root may still write; a new connection does not want to.
    server.end_connections();
    let error = client.try_lock("job").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
    let app = LockClient::open(&server.tcp_url("")).unwrap_err();
    assert_eq!(app.kind(), ErrorKind::ReadOnly, "{app:?}");
    server.query("SET GLOBAL read_only=0");
    wait_until("it takes writes again", || client.try_lock("job").is_ok());
}

/// Its primary becomes a replica, and the other host of the URL is the primary from then on.
#[test]
fn the_host_that_takes_writes_is_used() {
    let (one, two) = (Mysql::start(), Mysql::start());
    two.query("SET GLOBAL read_only=1");
    let url = format!("mysql://app:secret@127.0.0.1:{},127.0.0.1:{}/test", two.port(), one.port());
    // Not as root, who may write in any case.
    one.query("CREATE USER poor@'%' IDENTIFIED BY 'pw'; GRANT ALL ON test.* TO poor@'%'");
    two.query("SET GLOBAL read_only=0; CREATE USER poor@'%' IDENTIFIED BY 'pw'; GRANT ALL ON test.* TO poor@'%'; \
               SET GLOBAL read_only=1");
    let client = LockClient::open(&url.replace("app:secret", "poor:pw")).unwrap();
    client.lock("job").unwrap().unlock().unwrap();
    assert!(one.number_of("SELECT COUNT(*) FROM leasehold_lock") == 1);
    one.query("SET GLOBAL read_only=1");
    two.query("SET GLOBAL read_only=0");
    // Over the connection that it has, it learns that the server takes no writes any more.
    client.lock("job").unwrap().unlock().unwrap();
    assert!(two.number_of("SELECT COUNT(*) FROM leasehold_lock") == 1);
}

/// A replica that nobody has made read-only: some clients could have their locks there.
#[test]
fn two_hosts_that_take_writes_are_refused() {
    let (one, two) = (Mysql::start(), Mysql::start());
    let url = |ports: [u16; 2]| {
        let hosts = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
        format!("mysql://app:secret@{hosts}/test")
    };
    let both = url([one.port(), two.port()]);
    // The other one is asked for a second.
    let error = (0..5).find_map(|_| LockClient::open(&both).err()).expect("both take writes");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    assert!(error.to_string().contains("read_only"), "{error}");
    two.query("SET GLOBAL read_only=1");
    LockClient::open(&both).unwrap().lock("job").unwrap().unlock().unwrap();
    // One that is down, and one server under two names.
    two.kill();
    LockClient::open(&both).unwrap().lock("job").unwrap().unlock().unwrap();
    let twice = url([one.port(), one.port()]).replacen("127.0.0.1", "localhost", 1);
    LockClient::open(&twice).unwrap().lock("job").unwrap().unlock().unwrap();
}

/// The row is locked by a transaction that is not one of a client: a try cannot say who has the
/// lock, and a call that waits goes on.
#[test]
fn a_stranger_that_has_locked_the_row_is_told_to_a_try() {
    let server = Mysql::shared();
    let client = server.builder().lease(Duration::from_secs(60)).io_timeout(ms(8000));
    let client = client.build().unwrap();
    client.lock("job").unwrap().unlock().unwrap();
    let mut db = server.connect();
    db.query("START TRANSACTION; SELECT * FROM leasehold_lock WHERE name='job' FOR UPDATE")
        .unwrap();
    let error = client.try_lock("job").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady, "{error:?}");
    assert!(error.to_string().contains("end the transaction"), "{error}");
    // Others are not affected, and neither is a renewal of them.
    let other = client.lock("other").unwrap();
    other.extend(Duration::from_secs(60)).unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| client.lock("job").unwrap().unlock().unwrap());
        std::thread::sleep(ms(1200));
        db.query("ROLLBACK").unwrap();
        waits.join().unwrap();
    });
}

/// One locked row delays the renewal of the other holds by a second at most.
#[test]
fn a_locked_row_costs_the_other_holds_nothing() {
    let server = Mysql::shared();
    let client = server.builder().lease(ms(6000)).io_timeout(ms(5000)).build().unwrap();
    let guards: Vec<_> = (0..20).map(|n| client.lock(format!("n{n}").as_str()).unwrap()).collect();
    let mut db = server.connect();
    db.query("START TRANSACTION; SELECT * FROM leasehold_lock WHERE name='n7' FOR UPDATE").unwrap();
    assert!(guards[7].wait_lost(CAP).is_lost(), "it cannot be renewed");
    let held = guards.iter().enumerate().filter(|(n, _)| *n != 7).all(|(_, guard)| guard.is_held());
    assert!(held, "the others are");
    db.query("ROLLBACK").unwrap();
}

/// Many releases that wait for rows are repeated in the background, on the thread that renews.
#[test]
fn releases_that_wait_for_rows_cost_no_other_hold_its_lease() {
    let server = Mysql::shared();
    let builder = server.builder().lease(ms(6000)).io_timeout(ms(5000)).connections(16);
    let client = builder.build().unwrap();
    let kept = client.lock("kept").unwrap();
    let guards: Vec<_> =
        (0..32).map(|n| client.mutex(format!("n{n}")).lock_owned().unwrap()).collect();
    let mut db = server.connect();
    db.query("START TRANSACTION; SELECT * FROM leasehold_lock WHERE name LIKE 'n%' FOR UPDATE")
        .unwrap();
    std::thread::scope(|s| {
        for guard in guards {
            s.spawn(|| guard.unlock().unwrap_err());
        }
    });
    assert!(kept.wait_lost(ms(9000)).is_still_held());
    db.query("ROLLBACK").unwrap();
    wait_until("all are released", || server.held() == ["kept"]);
    kept.unlock().unwrap();
    drop((client, db));
    server.assert_clean();
}

#[test]
fn a_full_server_is_not_ready() {
    let server = Mysql::start_with(&["--max-connections=10"]);
    let client = server.builder().connections(1).build().unwrap();
    let guard = client.lock("job").unwrap();
    let mut visitors = Vec::new();
    // A connection that has just ended may leave room for a moment.
    wait_until("it is full", || {
        while let Ok(visitor) = crate::rig::mysql::Client::connect(&server.socket(), "test") {
            visitors.push(visitor);
            assert!(visitors.len() < 20);
        }
        let Err(error) = LockClient::open(&server.tcp_url("")) else { return false };
        assert_eq!(error.kind(), ErrorKind::NotReady, "{error:?}");
        assert!(error.to_string().contains("max_connections"), "{error}");
        true
    });
    // Who has a connection goes on.
    client.lock("other").unwrap().unlock().unwrap();
    guard.unlock().unwrap();
    visitors.clear();
    wait_until("it has room again", || LockClient::open(&server.tcp_url("")).is_ok());
}

/// A host that lets the client log in and then hangs costs the first connection as long as one that
/// is down, and not an I/O timeout.
#[test]
fn another_host_that_hangs_does_not_hold_up_the_first_connection() {
    let (primary, other) = (Mysql::start(), Mysql::start());
    other.query("SET GLOBAL read_only=1");
    let proxy = Proxy::before_mysql(&other);
    proxy.inject("IS_USED_LOCK", Fault::BlackHoleReply);
    let host = |url: String| url.split(['@', '/']).nth(3).unwrap().to_owned();
    let url = format!("mysql://root@{},{}/test", host(primary.url()), host(proxy.url()));
    let connects = std::thread::spawn(move || {
        let builder = LockClient::builder().url(url).lease(100 * CAP).io_timeout(10 * CAP);
        builder.build().unwrap().lock("job").unwrap().unlock().unwrap();
    });
    wait_until("it is connected", || connects.is_finished());
    connects.join().unwrap();
    proxy.wait_hits(1);
}

/// The answers that it has are not lost with those that it has not.
#[test]
fn an_extension_that_fails_for_one_name_reports_the_loss_of_another() {
    let server = Mysql::shared();
    let long = Duration::from_secs(60);
    let client = server.builder().lease(long).io_timeout(ms(5000)).build().unwrap();
    let both = client.multi(["a", "b"]).lock().unwrap();
    server.query("UPDATE leasehold_lock SET holder=NULL,level=0 WHERE name='a'");
    let mut db = server.connect();
    db.query("START TRANSACTION; SELECT name FROM leasehold_lock WHERE name='b' FOR UPDATE")
        .unwrap();
    let error = both.extend(long).unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Lost, Some("a")), "{error:?}");
    assert!(!both.is_held());
    db.query("ROLLBACK").unwrap();
    drop((both, client, db));
    server.assert_clean();
}
