//! Servers that are full, busy or loading.

use leasehold::ErrorKind;

use super::{LEASE, all_methods_fail, client, fails, nothing_left, query, settings, works};
use crate::rig::{Server, logged, ms, record_logs, wait_until};
use crate::support::{Masters, ShortLease};

#[test]
fn a_full_server_takes_no_lock_but_gives_back_those_it_has() {
    let server = Server::start();
    let client = client(&server);
    let short = settings(&server.url()).short_lease(ms(4500)).build().unwrap();
    let renewed = short.lock("renewed").unwrap();
    let (held, owned) = (client.lock("held").unwrap(), client.mutex("owned").lock_owned().unwrap());
    let inner = client.lock("held").unwrap();
    let _taken = client.lock("taken").unwrap();
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    all_methods_fail(&client, "job", ErrorKind::Full, "maxmemory");
    assert!(!server.lock_keys().contains(&"job".to_owned()));
    // A client can still connect, find a lock taken, and be notified of its release.
    let late = settings(&server.url()).build().unwrap();
    assert!(late.try_lock("taken").unwrap().is_none());
    held.extend(LEASE * 2).unwrap();
    inner.unlock().unwrap();
    held.unlock().unwrap();
    std::thread::spawn(move || owned.unlock()).join().unwrap().unwrap();
    assert!(late.mutex("taken").force_unlock().unwrap());
    // It is still held after a whole lease, so it was renewed.
    assert!(renewed.wait_lost(ms(5000)).is_still_held());
    renewed.unlock().unwrap();
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    nothing_left(&server);
    works(&client, "job");
    works(&late, "held");
    drop((client, late, short, _taken));
    server.assert_clean();
}

/// Renewals and releases begin with a change that takes no memory, because a full server refuses
/// others only as the first of a script.
#[test]
fn a_full_server_renews_and_takes_back_holds_of_every_kind() {
    let server = Server::start();
    let lease = ms(4500);
    let client = settings(&server.url()).lease(lease).io_timeout(ms(2000)).build().unwrap();
    let (semaphore, counting, rw) =
        (client.semaphore("s"), client.counting_semaphore("c"), client.rw_lock("rw"));
    semaphore.try_set_permits(1000).unwrap();
    counting.try_set_permits(3).unwrap();
    let (mutex, mutex_inner) = (client.lock("m").unwrap(), client.lock("m").unwrap());
    let (fair, fair_inner) = (client.fair("f").lock().unwrap(), client.fair("f").lock().unwrap());
    let (multi, multi_inner) =
        (client.multi(["x", "y"]).lock().unwrap(), client.multi(["x", "y"]).lock().unwrap());
    let (read, read_inner) =
        (client.rw_lock("r").read().unwrap(), client.rw_lock("r").read().unwrap());
    let (write, write_inner, nested) =
        (rw.write().unwrap(), rw.write().unwrap(), rw.read().unwrap());
    let (permits, counted) =
        (semaphore.acquire_many(600).unwrap(), counting.acquire_many(2).unwrap());
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    // As while a slot moves, or after a renewal by an old Redisson: a level of the reader is gone.
    let levels =
        || server.lock_keys().into_iter().filter(|key| key.starts_with("{r}:")).collect::<Vec<_>>();
    let level = levels().remove(0);
    server.cmd::<()>(&["DEL", &level]);
    assert!(permits.wait_lost(lease * 5 / 4).is_still_held());
    let held = [
        mutex.is_held(),
        fair.is_held(),
        multi.is_held(),
        read.is_held(),
        write.is_held(),
        nested.is_held(),
    ];
    assert_eq!(held, [true; 6], "mutex, fair, multi, read, write, read inside of write");
    wait_until("the renewal makes the level again", || levels().contains(&level));
    mutex.extend(lease * 2).unwrap();
    read.extend(lease * 2).unwrap();
    permits.extend(lease * 2).unwrap();

    mutex_inner.unlock().unwrap();
    fair_inner.unlock().unwrap();
    multi_inner.unlock().unwrap();
    read_inner.unlock().unwrap();
    write_inner.unlock().unwrap();
    // The reader stays.
    write.unlock().unwrap();
    assert_eq!(server.hash("rw")["mode"], "read");
    nested.unlock().unwrap();
    mutex.unlock().unwrap();
    fair.unlock().unwrap();
    multi.unlock().unwrap();
    read.unlock().unwrap();
    permits.release().unwrap();
    counted.release().unwrap();
    assert_eq!(
        (semaphore.available_permits().unwrap(), counting.available_permits().unwrap()),
        (1000, 3)
    );
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    semaphore.delete().unwrap();
    counting.delete().unwrap();
    nothing_left(&server);
    drop((client, semaphore, counting, rw));
    server.assert_clean();
}

#[test]
fn a_server_busy_with_a_script_is_not_ready() {
    let server = Server::start_with(&["--lua-time-limit", "50"]);
    let client = client(&server);
    let guard = client.lock("held").unwrap();
    works(&client, "job");
    let endless = std::thread::scope(|s| {
        let endless =
            s.spawn(|| query::<()>(&mut server.connect(), &["EVAL", "while true do end", "0"]));
        let mut admin = server.connect();
        wait_until("the server is busy", || {
            query::<String>(&mut admin, &["PING"]).is_err_and(|e| e.code() == Some("BUSY"))
        });
        fails(ErrorKind::NotReady, None, "BUSY", || settings(&server.url()).build());
        all_methods_fail(&client, "job", ErrorKind::NotReady, "try again later");
        fails(ErrorKind::NotReady, Some("held"), "BUSY", || guard.extend(LEASE * 2));
        fails(ErrorKind::NotReady, Some("held"), "BUSY", || guard.unlock());
        query::<()>(&mut admin, &["SCRIPT", "KILL"]).unwrap();
        endless.join().unwrap()
    });
    endless.unwrap_err();
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

/// The server does not even answer BUSY yet, so the client gives up by its own clock.
#[test]
fn a_server_that_hangs_in_a_command_is_unreachable() {
    let server = Server::start();
    let client = client(&server);
    works(&client, "job");
    server.suspend();
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&server.url()).build());
    all_methods_fail(&client, "job", ErrorKind::Unreachable, "");
    server.resume();
    nothing_left(&server);
    wait_until("the lock can be acquired", || {
        client.try_lock("job").is_ok_and(|guard| guard.is_some())
    });
    drop(client);
    server.assert_clean();
}

#[test]
fn a_loading_server_is_not_ready() {
    if Server::start().major() < 7 {
        // Redis 6.2 has no setting that makes loading slow enough for this test.
        return;
    }
    // The server loads slowly and answers during that time.
    let args = ["--key-load-delay", "90000", "--loading-process-events-interval-bytes", "1024"];
    let mut server = Server::start_with(&args);
    let (client, url) = (client(&server), server.url());
    let guard = client.lock("held").unwrap();
    for n in 0..100 {
        server.cmd::<()>(&[
            "SET",
            &format!("ballast{n}"),
            &format!("{n:0>2048}").replace('0', "x"),
        ]);
    }
    server.cmd::<()>(&["CONFIG", "SET", "rdbcompression", "no"]);
    server.cmd::<()>(&["SAVE"]);
    server.kill();
    let back = std::thread::spawn(move || {
        server.start_again();
        server
    });
    let mut loading = None;
    wait_until("the server is loading", || match settings(&url).build() {
        Err(e) if e.kind() == ErrorKind::Unreachable => false,
        outcome => {
            loading = Some(outcome.map(drop));
            true
        }
    });
    fails(ErrorKind::NotReady, None, "LOADING", || loading.unwrap());
    all_methods_fail(&client, "job", ErrorKind::NotReady, "try again later");
    fails(ErrorKind::NotReady, Some("held"), "LOADING", || guard.unlock());
    let server = back.join().unwrap();
    for n in 0..100 {
        server.cmd::<()>(&["DEL", &format!("ballast{n}")]);
    }
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

/// The warning is logged once for each client and server, however many connections are made.
#[test]
fn an_evicting_maxmemory_policy_is_warned_about_once() {
    record_logs();
    let server = Server::start();
    let address = server.socket().display().to_string();
    let reported = || logged(log::Level::Warn, &[&address, "allkeys-lru", "noeviction"]).len();
    let with = |maxmemory: &str, policy: &str| {
        server.cmd::<()>(&["CONFIG", "SET", "maxmemory", maxmemory]);
        server.cmd::<()>(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let client = client(&server);
        let guard = client.lock("job").unwrap();
        std::thread::scope(|s| {
            // There are connections for the locks and for the watchdog, and a new one for each that
            // was cut.
            s.spawn(|| works(&client, "other"));
            s.spawn(|| works(&client, "third"));
        });
        server.cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        wait_until("it connects again", || guard.extend(LEASE * 2).is_ok());
        guard.unlock().unwrap();
        reported()
    };
    assert_eq!(with("0", "allkeys-lru"), 0, "without a limit nothing is evicted");
    assert_eq!(with("100mb", "noeviction"), 0);
    assert_eq!(with("100mb", "allkeys-lru"), 1);
    assert_eq!(with("100mb", "allkeys-lru"), 2, "another client");
    let masters = Masters::fresh(3);
    masters.0[1].cmd::<()>(&["CONFIG", "SET", "maxmemory", "100mb"]);
    masters.0[1].cmd::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    drop(masters.client());
    let reported = |n: usize| {
        logged(log::Level::Warn, &[&masters.0[n].socket().display().to_string(), "noeviction"])
            .len()
    };
    assert_eq!([0, 1, 2].map(reported), [0, 1, 0]);
}

/// A server at its limit reports it and closes the new connection. The client still has one
/// connection for renewing its hold.
#[test]
fn at_maxclients_a_hold_is_renewed_over_the_connection_that_is_there() {
    let server = Server::start();
    let mut admin = server.connect();
    let client = settings(&server.url()).short_lease(ms(4500)).connections(1).build().unwrap();
    let open = query::<String>(&mut admin, &["CLIENT", "LIST"]).unwrap().lines().count();
    query::<()>(&mut admin, &["CONFIG", "SET", "maxclients", &open.to_string()]).unwrap();
    fails(ErrorKind::NotReady, None, "maxclients", || settings(&server.url()).build());

    let guard = client.lock("job").unwrap();
    let (mut least, mut renewals) = (i64::MAX, 0);
    wait_until("renewals over more than one lease", || {
        let pttl = query::<i64>(&mut admin, &["PTTL", "job"]).unwrap();
        renewals += u32::from(pttl > least);
        least = pttl;
        !guard.is_held() || renewals > 3
    });
    assert!(guard.is_held(), "lost, although the client has a connection that works");
    query::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "1000"]).unwrap();
    guard.unlock().unwrap();
    drop((client, admin));
    server.assert_clean();
}
