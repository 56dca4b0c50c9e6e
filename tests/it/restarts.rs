//! The server restarts, is emptied, or loses a connection: what holders and waiters notice, and
//! that tokens increase nevertheless.

use std::time::{Duration, Instant};

use leasehold::ErrorKind;

use crate::rig::{Server, wait_until};
use crate::support::{Clients, ShortLease};

const LEASE: Duration = Duration::from_millis(3000);

/// A server with its data on disk still has the hold after a restart, and renewal continues.
#[test]
fn a_restart_with_data_keeps_the_hold() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let builder = server.builder().lease(Duration::from_secs(6));
    let client = builder.io_timeout(Duration::from_secs(5)).build().unwrap();
    let guard = client.lock("job").unwrap();
    server.restart();
    assert_eq!(server.hash("job").len(), 1);
    std::thread::sleep(Duration::from_secs(7));
    assert!(guard.is_held(), "renewed over new connections");
    assert!(server.client().try_lock("job").unwrap().is_none());
    guard.unlock().unwrap();
}

/// A server without its data has forgotten the hold: the holder is notified at the next renewal,
/// and the next holder's token is larger although the counter is gone.
#[test]
fn a_restart_without_data_is_a_loss_and_tokens_grow_over_it() {
    let mut server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let guard = client.lock("job").unwrap();
        let token = guard.fencing_token().unwrap().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        server.restart();
        assert!(guard.wait_lost(Duration::from_secs(10)).is_lost());
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    }
    let other = server.client().lock("job").unwrap();
    assert!(other.fencing_token().unwrap().get() > last);
}

/// A server that has taken over knows the hold, and not that its lease was extended. The holder
/// believes in the extension, so its visits put it back: for a renewed lease and a fixed one.
#[test]
fn an_extension_that_was_forgotten_is_put_back() {
    let server = Server::start();
    let [one, other] = [(); 2].map(|()| server.builder().lease(LEASE).build().unwrap());
    let renewed = one.lock("renewed").unwrap();
    let fixed = other.mutex("fixed").with_lease(LEASE).lock().unwrap();
    for guard in [&renewed, &fixed] {
        guard.extend(Duration::from_secs(60)).unwrap();
        server.cmd::<()>(&["PEXPIRE", guard.name(), "3000"]);
    }
    for guard in [renewed, fixed] {
        wait_until("it is put back", || server.cmd::<i64>(&["PTTL", guard.name()]) > 30_000);
        assert!(guard.is_held() && guard.remaining() < Duration::from_secs(60));
        guard.unlock().unwrap();
    }
    assert_eq!(other.stats().total().renewals(), 0, "a fixed lease is not renewed");
}

#[test]
fn flushall_is_a_loss_for_the_holder() {
    let server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let guard = client.lock("job").unwrap();
    server.cmd::<()>(&["FLUSHALL"]);
    assert!(guard.wait_lost(Duration::from_secs(10)).is_lost());
}

/// Every connection, including the subscriber, is killed while a call waits, and the lock is
/// released while nobody is subscribed.
#[test]
fn a_missed_release_is_found_after_the_reconnect() {
    let server = Server::start();
    let (holder, waiter) = (server.client(), server.client());
    for _ in 0..3 {
        let guard = holder.lock("job").unwrap();
        std::thread::scope(|s| {
            let waiting = s.spawn(|| waiter.lock("job").map(|g| g.unlock()));
            wait_until("the waiter is subscribed", || !server.channels().is_empty());
            server.cmd::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            let start = Instant::now();
            drop(guard);
            waiting.join().unwrap().unwrap().unwrap();
            // Far shorter than the lease of 30 s, after which a timer would have found it.
            assert!(start.elapsed() < Duration::from_secs(10));
        });
    }
}

/// The subscriber connection is a black hole: waiters poll by timer, and `close` does not wait for
/// it.
#[test]
fn a_waiter_that_receives_no_messages_polls() {
    let server = Server::start();
    server.cmd::<()>(&[
        "ACL",
        "SETUSER",
        "unsubscribed",
        "on",
        ">pw",
        "~*",
        "&*",
        "+@all",
        "-subscribe",
    ]);
    let holder = server.client();
    let url = format!("{}?user=unsubscribed&pass=pw", server.url());
    let waiter = leasehold::LockClient::open(&url).unwrap();
    let guard = holder.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| waiter.lock("job").map(|g| g.unlock()));
        wait_until("the waiter has tried", || server.call_count("evalsha") >= 4);
        drop(guard);
        waiting.join().unwrap().unwrap().unwrap();
    });
    waiter.close(Duration::from_secs(5)).unwrap();
}
