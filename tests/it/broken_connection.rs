//! One connection of a client is broken while the server is healthy: what callers notice.

use std::time::Instant;

use leasehold::LockClient;

use crate::rig::{Fault, Proxy, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};

/// Timers alone would notice it after a lease, and pings after 13 s for a lease of 30 s.
#[test]
fn a_subscriber_that_is_half_open_is_replaced_soon() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::builder().url(proxy.url()).short_lease(ms(3000)).build().unwrap();
    let other = server.client();
    let held = other.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("job").unwrap().unlock().unwrap());
        wait_until("it is subscribed", || !server.channels().is_empty());
        let before = proxy.subscribers();
        proxy.leave_subscribers_half_open();
        let began = Instant::now();
        wait_until("it is subscribed over another connection", || proxy.subscribers() > before);
        assert!(began.elapsed() < ms(15_000), "after {:?}", began.elapsed());
        held.unlock().unwrap();
        waiter.join().unwrap();
    });
    client.close(ms(2_000)).unwrap();
}

/// Here the pings are ten seconds apart; a waiter whose timer ends without a message checks the
/// connection at once.
#[test]
fn a_waiter_that_missed_a_release_has_its_subscriber_checked() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::open(&proxy.url()).unwrap();
    // Simulates a client that releases the lock and a next one that acquires it at once: no attempt
    // of the waiter can come between.
    let take = |holder: &str, lease: &str| {
        let script = "redis.call('del', 'job') redis.call('hset', 'job', ARGV[1], 1) redis.call('pexpire', 'job', ARGV[2])";
        server.cmd::<()>(&["EVAL", script, "0", holder, lease]);
    };
    // A script that the server does not know yet is sent twice.
    client.lock("job").unwrap().unlock().unwrap();
    take("first", "3000");
    let before = server.call_count("evalsha");
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("job").unwrap().unlock().unwrap());
        wait_until("it is subscribed", || !server.channels().is_empty());
        // Otherwise it would find the second holder at its attempt after the subscription, and
        // sleep for that one's lease.
        wait_until("it tried again", || server.call_count("evalsha") >= before + 2);
        let before = proxy.subscribers();
        proxy.leave_subscribers_half_open();
        let began = Instant::now();
        // The message of the release is lost; when the first holder's lease ends, the waiter finds
        // the second one.
        take("second", "20000");
        wait_until("it listens on another connection", || proxy.subscribers() > before);
        assert!(began.elapsed() < ms(12_000), "after {:?}", began.elapsed());
        server.cmd::<()>(&["DEL", "job"]);
        server.cmd::<()>(&["PUBLISH", "redisson_lock__channel:{job}", "0"]);
        waiter.join().unwrap();
    });
    client.close(ms(2_000)).unwrap();
}

/// The leader of the queue pauses before its next attempt, while the server is healthy.
#[test]
fn a_call_after_a_connection_was_cut_gets_no_stale_error() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::open(&proxy.url()).unwrap();
    let other = server.client();
    let held = other.lock("job").unwrap();
    std::thread::scope(|s| {
        let leader = s.spawn(|| client.lock("job").unwrap().unlock().unwrap());
        wait_until("the leader is subscribed", || !server.channels().is_empty());
        for round in 1..=8 {
            proxy.inject("job", Fault::CutAfterApplied);
            server.cmd::<i64>(&["PUBLISH", "redisson_lock__channel:{job}", "0"]);
            proxy.wait_hits(round);
            let newcomers: Vec<_> = (0..4)
                .map(|_| s.spawn(|| client.mutex("job").try_lock_owned_for(ms(100))))
                .collect();
            for newcomer in newcomers {
                assert!(newcomer.join().unwrap().unwrap().is_none(), "round {round}");
            }
        }
        held.unlock().unwrap();
        leader.join().unwrap();
    });
    client.close(ms(2_000)).unwrap();
    drop(other);
    server.assert_clean();
}

#[test]
fn new_calls_fail_at_once_while_the_server_is_down_and_waiters_wait_on() {
    let mut server = Server::start();
    let client = server.builder().lease(ms(20_000)).build().unwrap();
    let other = server.client();
    let held = other.lock("job").unwrap();
    std::thread::scope(|s| {
        let leader = s.spawn(|| client.lock("job").unwrap().unlock().unwrap());
        wait_until("the leader is subscribed", || !server.channels().is_empty());
        server.kill();
        // A thread that queues up before the leader has noticed the outage waits with the leader.
        wait_until("the leader has noticed", || client.try_lock_for("job", ms(1)).is_err());
        for _ in 0..5 {
            let began = Instant::now();
            client.try_lock_for("job", ms(10_000)).map(|_| ()).unwrap_err();
            assert!(began.elapsed() < ms(5_000), "it did not wait for the leader");
            std::thread::sleep(ms(20));
        }
        server.start_again();
        leader.join().unwrap();
    });
    drop(held);
    client.close(ms(5_000)).unwrap();
}

#[test]
fn a_waiter_that_gives_up_says_after_how_long_and_why() {
    let mut server = Server::start();
    let client = server.builder().outage_timeout(ms(300)).build().unwrap();
    let other = server.client();
    let held = other.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("job").map(|_| ()).unwrap_err().to_string());
        wait_until("it is subscribed", || !server.channels().is_empty());
        server.kill();
        let reported = waiter.join().unwrap();
        assert!(
            reported.contains("given up after") && reported.contains("outage_timeout"),
            "{reported}"
        );
    });
    drop(held);
}

/// A server closes idle connections (`timeout`), or a proxy does. No byte of the request was sent,
/// so also one that must not run twice is sent again.
#[test]
fn every_call_works_after_the_idle_connections_were_closed() {
    let server = Server::start();
    let client = server.client();
    let holder = server.client();
    let _held = holder.lock("job").unwrap();
    let close = || {
        let mut admin = server.connect();
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut admin).unwrap();
    };
    for _ in 0..3 {
        client.try_lock("warm").unwrap().unwrap().unlock().unwrap();
        close();
        client.mutex("job").force_unlock().unwrap();
        close();
        client.mutex("job").is_locked().unwrap();
        close();
        client.try_lock("warm").unwrap().unwrap().unlock().unwrap();
    }
}

/// A NAT that has forgotten a connection, or a host that is gone, swallows what is sent, and nobody
/// says so. Keepalive finds it only later.
#[test]
fn a_call_after_a_long_pause_outlives_a_connection_that_was_cut_in_silence() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::builder().url(proxy.url()).io_timeout(ms(2000)).build().unwrap();
    let guard = client.lock("job").unwrap();
    std::thread::sleep(ms(5_200));
    proxy.inject("job", Fault::BlackHoleReply);
    guard.unlock().unwrap();
    std::thread::sleep(ms(5_200));
    proxy.inject("job", Fault::BlackHoleReply);
    let guard = client.try_lock("job").unwrap().unwrap();
    assert!(guard.is_held());
    guard.unlock().unwrap();
    // A server that hangs is no such connection: the next call fails after its timeout.
    proxy.inject("job", Fault::BlackHoleReply);
    assert!(client.try_lock("job").is_err());
    drop(client);
    drop(proxy);
    server.assert_clean();
}
