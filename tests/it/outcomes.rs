//! Unknown outcomes: a reply that is lost at any byte never leaves a lock without a guard, and
//! never two holders.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use crate::rig::{Fault, Listen, PROMPT, Proxy, Server, fresh_dir, ms, wait_until};
use crate::support::Clients;

/// Long enough to reveal a lock that is left behind: no test can pass because a lease ended.
const LEASE: Duration = Duration::from_secs(60);
/// More than the answer of a healthy server takes on a busy machine.
const IO: Duration = ms(1500);
const LATE: Duration = ms(2000);

fn client(proxy: &Proxy) -> LockClient {
    LockClient::builder().url(proxy.url()).lease(LEASE).io_timeout(IO).build().unwrap()
}

const ALL_FAULTS: [Fault; 9] = [
    Fault::CutBeforeSend,
    Fault::CutRequestAt(1),
    Fault::CutRequestAt(120),
    Fault::CutAfterApplied,
    Fault::CutReplyAt(1),
    Fault::CutReplyAt(6),
    Fault::BlackHoleReply,
    Fault::StallReply(LATE),
    Fault::Garbage,
];

#[test]
fn a_lost_acquire_leaves_no_lock() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    for (round, fault) in ALL_FAULTS.into_iter().enumerate() {
        let client = client(&proxy);
        // The connection is new, so its end cannot be that of an idle connection, and the call
        // fails.
        let name = format!("fresh{round}");
        proxy.inject(&name, fault);
        match client.try_lock(&name) {
            Err(e) => {
                assert!(
                    matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
                    "{fault:?}: {e:?}"
                );
                assert_eq!(e.name(), Some(&*name));
            }
            // The client assumed that the connection had ended while idle, replaced it, and
            // repeated the request.
            Ok(Some(guard)) => guard.unlock().unwrap(),
            Ok(None) => panic!("{fault:?}: no other client has it"),
        }
        wait_until(&format!("{fault:?} leaves no lock"), || server.lock_keys().is_empty());
        assert!(client.try_lock(&name).unwrap().is_some(), "{fault:?}");
    }
    proxy.wait_hits(ALL_FAULTS.len() as u32);
}

#[test]
fn a_lost_release_frees_the_lock_all_the_same() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    for (round, fault) in ALL_FAULTS.into_iter().enumerate() {
        let client = client(&proxy);
        let name = format!("r{round}");
        let guard = client.lock(&name).unwrap();
        proxy.inject(&name, fault);
        match guard.unlock() {
            Ok(()) => {}
            Err(e) => assert!(
                matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
                "{fault:?}: {e:?}"
            ),
        }
        wait_until(&format!("{fault:?} frees the lock"), || server.lock_keys().is_empty());
    }
    proxy.wait_hits(ALL_FAULTS.len() as u32);
}

/// After a re-entry or inner release of unknown outcome nothing more is sent: the outer hold must
/// not be affected.
#[test]
fn a_lost_reentry_or_inner_release_leaves_the_outer_hold_alone() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    for fault in ALL_FAULTS {
        let client = client(&proxy);
        let outer = client.lock("n").unwrap();
        proxy.inject("n", fault);
        if let Ok(inner) = client.lock("n") {
            drop(inner);
        }
        assert!(outer.is_held(), "{fault:?}");
        let inner = client.lock("n").unwrap();
        assert_eq!(inner.hold_count(), 2);
        proxy.inject("n", fault);
        let _ = inner.unlock();
        assert!(outer.is_held() && outer.hold_count() == 1, "{fault:?}");
        assert_eq!(server.hash("n").len(), 1, "{fault:?}");
        outer.unlock().unwrap();
        assert!(
            server.lock_keys().is_empty(),
            "{fault:?}: the last release ends the hold whatever its count"
        );
    }
}

/// The request itself is delayed: the undo must not overtake it.
#[test]
fn an_acquire_that_arrives_late_leaves_no_lock() {
    arrives_late(&Server::start());
}

/// The address of each connection is this path for the server, and `CLIENT INFO` separates its
/// fields by spaces.
#[test]
fn a_late_acquire_leaves_no_lock_where_the_path_of_the_socket_has_a_space() {
    let folder = fresh_dir().join("a b");
    std::fs::create_dir(&folder).unwrap();
    let socket = folder.join("s");
    let mut server = Server::prepare(Listen::Nowhere, &["--unixsocket", socket.to_str().unwrap()]);
    std::os::unix::fs::symlink(&socket, server.socket()).unwrap();
    server.start_again();
    let clients: String = server.cmd(&["CLIENT", "LIST"]);
    assert!(clients.contains("a b/s:0 "), "{clients}");
    arrives_late(&server);
    std::fs::remove_dir_all(folder).unwrap();
}

fn arrives_late(server: &Server) {
    let proxy = Proxy::start(server);
    let client = client(&proxy);
    drop(client.lock("warm").unwrap());
    server.cmd::<()>(&["CONFIG", "RESETSTAT"]);
    proxy.inject("late", Fault::Hold);
    assert_eq!(client.try_lock("late").unwrap_err().kind(), ErrorKind::Unreachable);
    // The connection of the background is not the first one, so it probes no permission.
    wait_until("the undo has been resolved", || server.call_count("hdel") >= 1);
    proxy.release_held();
    assert!(
        server.lock_keys().is_empty(),
        "its connection was killed before any request about the lock"
    );
    assert!(client.try_lock("late").unwrap().is_some());
}

/// The same without permission for `CLIENT KILL`: the acquire contains a time after which the
/// server refuses it.
#[test]
fn without_permission_for_client_kill_a_late_acquire_is_refused() {
    let server = Server::start();
    server.cmd::<()>(&["ACL", "SETUSER", "meek", "on", ">pw", "~*", "&*", "+@all", "-client"]);
    let proxy = Proxy::start(&server);
    let url = format!("{}?user=meek&pass=pw", proxy.url());
    let client = LockClient::builder().url(url).lease(LEASE).io_timeout(IO).build().unwrap();
    drop(client.lock("warm").unwrap());
    for (name, fault) in [
        ("a", Fault::CutAfterApplied),
        ("b", Fault::BlackHoleReply),
        ("c", Fault::StallReply(LATE)),
    ] {
        proxy.inject(&format!("lock:{name}"), fault);
        match client.try_lock(format!("lock:{name}")) {
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unreachable, "{fault:?}"),
            // To the client the connection may have ended while idle: it repeats the request once
            // the first attempt would be too late.
            Ok(Some(guard)) => guard.unlock().unwrap(),
            Ok(None) => panic!("{fault:?}: no other client has it"),
        }
        wait_until("the lost acquire is undone", || server.lock_keys().is_empty());
    }
    proxy.inject("late", Fault::Hold);
    assert!(client.try_lock("late").is_err());
    // After that time (one I/O timeout), with the connection still open at the server.
    let start = Instant::now();
    wait_until("the not-after has passed", || start.elapsed() > LATE);
    proxy.release_held();
    assert!(server.lock_keys().is_empty(), "it arrived too late");
    assert!(client.try_lock("late").unwrap().is_some());
}

/// The lock was granted, but the reply arrives after the end of the lease: it must not count as a
/// hold.
#[test]
fn a_grant_that_is_read_after_its_lease_is_no_hold() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client =
        LockClient::builder().url(proxy.url()).lease(LEASE).io_timeout(ms(2000)).build().unwrap();
    let mutex = client.mutex("job").with_lease(ms(500));
    // Each has its own name: the fault must not affect the request that undoes the grant before it.
    for name in ["first", "second"] {
        proxy.inject(name, Fault::StallReply(ms(800)));
        let outcome = client.mutex(name).with_lease(ms(500)).try_lock();
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unreachable);
    }
    let holder = server.client().lock("job").unwrap();
    proxy.inject_after("job", 1, Fault::StallReply(ms(800)));
    std::thread::scope(|s| {
        let waiter = s.spawn(|| mutex.lock().map(|guard| guard.is_held()));
        wait_until("the waiter is subscribed", || {
            server.channels().iter().any(|c| c.contains("{job}"))
        });
        drop(holder);
        assert!(waiter.join().unwrap().unwrap(), "a waiting call tries again");
    });
}

#[test]
fn a_server_that_is_suspended_and_resumed_keeps_no_lock() {
    let server = Server::start();
    let client = server.builder().lease(LEASE).io_timeout(ms(800)).build().unwrap();
    drop(client.lock("warm").unwrap());
    server.suspend();
    // The request is in the server's socket buffer, and runs when the server resumes.
    assert_eq!(client.try_lock("asleep").unwrap_err().kind(), ErrorKind::Unreachable);
    server.resume();
    let other = server.client();
    wait_until("the late grant is undone", || other.try_lock("asleep").unwrap().is_some());
    assert_eq!(client.lock("asleep").unwrap().hold_count(), 1);
    drop((client, other));
    server.assert_clean();
}

#[test]
fn a_waiting_call_survives_a_lost_reply_and_a_restart() {
    let mut server = Server::start();
    let (a, b) = (server.client(), server.builder().io_timeout(IO).build().unwrap());
    let guard = a.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock("job").map(|guard| guard.is_held()));
        wait_until("the waiter is subscribed", || {
            server.channels().iter().any(|c| c.contains("{job}"))
        });
        server.kill();
        std::thread::sleep(ms(400));
        server.start_again();
        assert!(
            waiter.join().unwrap().unwrap(),
            "the server came back empty, so the lock was free"
        );
    });
    assert!(guard.is_held(), "it was not notified yet");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn every_reply_of_a_waiting_call_may_be_lost() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    for fault in
        [Fault::CutAfterApplied, Fault::CutBeforeSend, Fault::CutReplyAt(3), Fault::BlackHoleReply]
    {
        for skip in 1..4 {
            let (holder, waiter) = (server.client(), client(&proxy));
            let guard = holder.lock("job").unwrap();
            proxy.inject_after("job", skip, fault);
            std::thread::scope(|s| {
                let waiting = s.spawn(|| waiter.lock("job").map(|g| g.unlock().is_ok()));
                wait_until("the waiter is subscribed", || {
                    server.channels().iter().any(|c| c.contains("{job}"))
                });
                drop(guard);
                let outcome = waiting.join().unwrap();
                assert!(outcome.is_ok(), "{fault:?} after {skip}: {outcome:?}");
            });
            drop(waiter);
            wait_until(&format!("{fault:?} after {skip} leaves no lock"), || {
                server.lock_keys().is_empty()
            });
        }
    }
}

#[test]
fn a_first_attempt_against_a_dead_server_fails_at_once_and_the_client_recovers() {
    let mut server = Server::start();
    let client = server.client();
    drop(client.lock("job").unwrap());
    server.kill();
    let start = Instant::now();
    assert_eq!(client.lock("job").unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(client.try_lock_for("job", LEASE).unwrap_err().kind(), ErrorKind::Unreachable);
    assert!(start.elapsed() < Duration::from_secs(10));
    server.start_again();
    assert!(client.try_lock("job").unwrap().is_some());
}

/// A restart ends every idle connection of the pool: no caller notices it.
#[test]
fn a_restart_between_two_calls_is_not_noticed() {
    let mut server = Server::start();
    let client = server.client();
    std::thread::scope(|s| {
        for n in 0..8 {
            let client = &client;
            s.spawn(move || drop(client.lock(format!("n{n}")).unwrap()));
        }
    });
    server.restart();
    for _ in 0..6 {
        client.lock("job").unwrap().unlock().unwrap();
    }
    let lines = server.client_lines();
    for line in lines.iter().filter(|l| l.contains("name=it-")) {
        let id = line.split([' ', '=']).nth(1).unwrap();
        server.cmd::<u32>(&["CLIENT", "KILL", "ID", id]);
    }
    client.lock("job").unwrap().unlock().unwrap();
    server.cmd::<()>(&["SCRIPT", "FLUSH"]);
    client.lock("job").unwrap().unlock().unwrap();
}

/// The repeat gets an error: the effect of the first attempt remains, and is undone.
#[test]
fn a_lost_acquire_is_undone_also_when_its_repeat_is_refused() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let builder = LockClient::builder().url(proxy.url()).lease(LEASE).io_timeout(PROMPT);
    let client = builder.build().unwrap();
    drop(client.lock("warm").unwrap());
    // Time to notice it and to fill the server.
    proxy.inject("job", Fault::StallThenCut(ms(3000)));
    std::thread::scope(|s| {
        let call = s.spawn(|| client.try_lock("job").map(drop));
        wait_until("the first attempt has run", || server.lock_keys() == ["job"]);
        server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(call.join().unwrap().unwrap_err().kind(), ErrorKind::Full);
    });
    wait_until("its effect is undone", || server.lock_keys().is_empty());
}

/// A waiter behind a leader that is waiting for the server: it is unknown whether another client
/// holds the lock.
#[test]
fn an_outage_is_never_reported_as_a_busy_lock() {
    let mut server = Server::start();
    let client =
        server.builder().io_timeout(IO).outage_timeout(Duration::from_secs(3)).build().unwrap();
    let holder = server.client();
    let guard = holder.lock("job").unwrap();
    std::thread::scope(|s| {
        let start = Instant::now();
        let waiters: Vec<_> = (0..4).map(|_| s.spawn(|| client.lock("job").map(drop))).collect();
        wait_until("they wait", || !server.channels().is_empty());
        server.kill();
        let late = client.try_lock_for("job", ms(1500));
        assert!(late.is_err(), "{late:?}");
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
        }
        // There is one outage for all waiters, not one after another.
        assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    });
    drop(guard);
}

/// `None` means that somebody else has the lock. Once the server hangs that is unknown: to the
/// leader of a queue, which sleeps on an old reply, to those behind it, and to those whose leader
/// still waits for its first reply.
#[test]
fn waiters_of_a_server_that_hangs_do_not_say_that_it_is_taken() {
    let server = Server::start();
    let (holder, client) = (server.client(), server.builder().io_timeout(IO).build().unwrap());
    let guard = holder.mutex("n").with_lease(LEASE).lock().unwrap();
    let kinds =
        |waiters: Vec<std::thread::ScopedJoinHandle<'_, leasehold::Result<bool>>>| -> Vec<_> {
            waiters.into_iter().map(|w| w.join().unwrap().map_err(|e| e.kind())).collect()
        };
    for owned in [false, true] {
        std::thread::scope(|s| {
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let mutex = client.mutex("n");
                    s.spawn(move || {
                        if !owned {
                            mutex.try_lock_for(ms(4000)).map(|guard| guard.is_some())
                        } else {
                            mutex.try_lock_owned_for(ms(4000)).map(|guard| guard.is_some())
                        }
                    })
                })
                .collect();
            wait_until("the leader is subscribed", || !server.channels().is_empty());
            server.suspend();
            let outcomes = kinds(waiters);
            server.resume();
            assert_eq!(outcomes, [Err(ErrorKind::Unreachable); 4]);
        });
        wait_until("nobody is subscribed", || server.channels().is_empty());
    }
    // No reply has arrived yet, and the waiters behind have no time to wait for one.
    server.suspend();
    std::thread::scope(|s| {
        let first = s.spawn(|| {
            client.try_lock_for("m", Duration::from_secs(5)).map(|guard| guard.is_some())
        });
        // So that it mostly becomes the leader.
        std::thread::sleep(ms(20));
        let behind = [s.spawn(|| client.try_lock_for("m", ms(20)).map(|guard| guard.is_some()))];
        assert_eq!(kinds(behind.into()), [Err(ErrorKind::Unreachable)]);
        assert!(first.join().unwrap().is_err());
    });
    server.resume();
    // If the server answers: `None`, and queued waiters cost it little.
    let before = server.call_count("evalsha");
    std::thread::scope(|s| {
        let waiters = (0..10)
            .map(|_| s.spawn(|| client.try_lock_for("n", ms(3000)).map(|guard| guard.is_some())));
        assert_eq!(kinds(waiters.collect()), [Ok(false); 10]);
    });
    let asked = server.call_count("evalsha") - before;
    assert!(asked <= 3 * 10, "{asked} commands");
    guard.unlock().unwrap();
}
