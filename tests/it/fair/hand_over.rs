//! A lock that its release gives to the next waiter.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use super::{queue, wait_for_queue};
use crate::lua::script;
use crate::rig::{Fault, Proxy, Server, ms, wait_until};
use crate::support::Clients;

/// Long enough to reveal a lock that is left behind.
const LEASE: Duration = Duration::from_secs(60);
/// More than the answer of a healthy server takes on a busy machine.
const IO: Duration = ms(1500);
const LATE: Duration = ms(2000);

#[test]
fn a_turn_within_a_client_costs_one_request() {
    const THREADS: usize = 8;
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    // The first round loads the scripts.
    for round in 0..2 {
        let guard = b.fair("t").lock().unwrap();
        let asked = server.call_count("evalsha");
        let mut tokens = Vec::new();
        let before = std::thread::scope(|s| {
            let mut waiters = Vec::new();
            for n in 0..THREADS {
                waiters.push(s.spawn(|| {
                    let guard = a.fair("t").lock().unwrap();
                    let token = guard.fencing_token().unwrap();
                    guard.unlock().unwrap();
                    token
                }));
                wait_for_queue(&server, n + 1);
            }
            wait_until("they are subscribed", || server.channels().len() == THREADS);
            // Each asks once more when its subscription is confirmed.
            let mut before = 0;
            wait_until("all of them sleep", || {
                let known = std::mem::replace(&mut before, server.call_count("evalsha"));
                std::thread::sleep(ms(20));
                before >= asked + 2 * THREADS as u64 && known == before
            });
            guard.unlock().unwrap();
            tokens.extend(waiters.into_iter().map(|waiter| waiter.join().unwrap()));
            before
        });
        assert!(tokens.is_sorted(), "{tokens:?}");
        // Each has sent its first attempt earlier, and each release is the grant of the next.
        let sent = server.call_count("evalsha") - before;
        assert!(round == 0 || sent <= THREADS as u64 + 4, "{sent} requests for {THREADS} turns");
    }
    drop((a, b));
    server.assert_clean();
}

/// The thread that releases the lock does not know whether the next one has it.
#[test]
fn a_lost_release_strands_nobody_and_leaves_no_lock() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let sha: String = server.cmd(&["SCRIPT", "LOAD", script("fair_release")]);
    let other = server.client();
    let faults = [
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
    let mut round = 0;
    // A waiter that is not asleep yet is not given the lock, but notified.
    while let Some(fault) = faults.get(round as usize).copied() {
        let url = proxy.url();
        let client = LockClient::builder().url(url).lease(LEASE).io_timeout(IO).build().unwrap();
        let is_inside = AtomicBool::new(false);
        let guard = other.fair("t").lock().unwrap();
        let mut tokens = Vec::new();
        std::thread::scope(|s| {
            let mut waiters = Vec::new();
            for n in 0..4 {
                let (client, is_inside) = (&client, &is_inside);
                waiters.push(s.spawn(move || {
                    let guard = client.fair("t").lock().unwrap();
                    assert!(!is_inside.swap(true, Ordering::SeqCst), "{fault:?}: two holders");
                    let token = guard.fencing_token().unwrap();
                    is_inside.store(false, Ordering::SeqCst);
                    // The thread whose release is lost may get an error.
                    let _ = guard.unlock();
                    token
                }));
                wait_for_queue(&server, n + 1);
            }
            proxy.inject(&sha, fault);
            guard.unlock().unwrap();
            tokens.extend(waiters.into_iter().map(|waiter| waiter.join().unwrap()));
        });
        round = proxy.hits();
        assert!(tokens.is_sorted(), "{fault:?}: {tokens:?}");
        wait_until(&format!("{fault:?} leaves no lock"), || server.lock_keys().is_empty());
        assert!(queue(&server).is_empty(), "{fault:?}");
    }
}

/// The next holder is of the same client, whose thread cannot tell it. Its own next look is 40 s away.
#[test]
fn a_lost_release_wakes_the_waiters_of_its_client() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let sha: String = server.cmd(&["SCRIPT", "LOAD", script("fair_release")]);
    for fault in [Fault::CutRequestAt(1), Fault::CutAfterApplied, Fault::CutReplyAt(6)] {
        let builder = LockClient::builder().url(proxy.url()).lease(LEASE).io_timeout(IO);
        let client = builder.waiter_timeout(ms(120_000)).build().unwrap();
        let guard = client.fair("t").lock().unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                let guard = client.fair("t").try_lock_for(ms(20_000)).unwrap();
                guard.expect("the release was lost, and its turn came").unlock().unwrap();
            });
            wait_for_queue(&server, 1);
            wait_until("it is subscribed", || server.channels().len() == 1);
            proxy.inject(&sha, fault);
            // It may be repeated at once, and then succeed.
            let _ = guard.unlock();
            waiter.join().unwrap();
        });
        drop(client);
        wait_until(&format!("{fault:?} leaves no lock"), || server.lock_keys().is_empty());
    }
}

/// The request is held back until its connection counts as lost: it must not run after that.
#[test]
fn a_release_that_arrives_late_changes_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let sha: String = server.cmd(&["SCRIPT", "LOAD", script("fair_release")]);
    let client =
        LockClient::builder().url(proxy.url()).lease(LEASE).io_timeout(IO).build().unwrap();
    let other = server.client();
    let is_released = AtomicBool::new(false);
    proxy.inject(&sha, Fault::Hold);
    // A waiter that is not asleep yet is not given the lock, but notified.
    while proxy.hits() == 0 {
        let guard = other.fair("t").lock().unwrap();
        let mut errors = Vec::new();
        std::thread::scope(|s| {
            let mut waiters = Vec::new();
            for n in 0..4 {
                waiters.push(s.spawn(|| {
                    let guard = client.fair("t").lock().unwrap();
                    if proxy.hits() > 0 && !is_released.swap(true, Ordering::SeqCst) {
                        let holders = server.hash("t");
                        proxy.release_held();
                        assert_eq!(server.hash("t"), holders);
                        assert!(guard.is_held() && holders.len() == 1);
                    }
                    guard.unlock().err().map(|e| e.kind())
                }));
                wait_for_queue(&server, n + 1);
            }
            guard.unlock().unwrap();
            errors.extend(waiters.into_iter().filter_map(|waiter| waiter.join().unwrap()));
        });
        let lost = [ErrorKind::Unreachable];
        assert_eq!(errors, if proxy.hits() == 0 { &lost[..0] } else { &lost });
    }
    assert!(is_released.load(Ordering::SeqCst));
    wait_until("nothing is left", || server.lock_keys().is_empty());
}

/// A release gives the lock for as long as a place lasts. Whoever wants something else asks for it.
#[test]
fn what_a_release_cannot_give_is_asked_for() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let without_tokens = server.builder().fencing(false).build().unwrap();
    let waits = |from: &LockClient, take: &(dyn Fn() + Sync)| {
        let guard = from.fair("t").lock().unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(take);
            wait_for_queue(&server, 1);
            guard.unlock().unwrap();
            waiter.join().unwrap();
        });
    };
    let token = || client.fair("t").lock().unwrap().fencing_token().unwrap();
    let before = token();
    waits(&without_tokens, &|| {
        let guard = client.fair("t").lock().unwrap();
        assert!(guard.fencing_token().unwrap() > before, "the release drew none");
    });
    waits(&other, &|| {
        let guard = client.fair("t").with_lease(ms(1500)).lock().unwrap();
        assert!(guard.is_held() && guard.remaining() <= ms(1500));
        assert!((1..=1500).contains(&server.pttl("t")), "less than a place lasts");
    });
    waits(&other, &|| {
        let guard = client.fair("t").with_lease(LEASE).lock().unwrap();
        assert!(guard.remaining() > ms(50_000) && server.pttl("t") > 50_000, "more than a place");
    });
    // The counter is lost while they wait: the release draws none below the floor.
    let before = token();
    let guard = other.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(token);
        wait_for_queue(&server, 1);
        server.cmd::<()>(&["DEL", "redisson_lock_token:{t}"]);
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap() > before);
    });
    drop((client, other, without_tokens));
    server.assert_clean();
}

/// Neither the longer rest of the previous lease nor the client's own lease.
#[test]
fn the_next_holder_has_its_own_lease() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let guard = other.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        let first =
            s.spawn(|| client.fair("t").with_lease(LEASE).lock().unwrap().unlock().unwrap());
        wait_for_queue(&server, 1);
        let second = s.spawn(|| {
            let guard = client.fair("t").with_lease(ms(9000)).lock().unwrap();
            let left = server.pttl("t");
            assert!(left > 0 && left <= 9000, "{left}");
            assert!(guard.remaining() <= ms(9000));
            guard.unlock().unwrap();
        });
        wait_for_queue(&server, 2);
        guard.unlock().unwrap();
        first.join().unwrap();
        second.join().unwrap();
    });
    drop((client, other));
    server.assert_clean();
}
