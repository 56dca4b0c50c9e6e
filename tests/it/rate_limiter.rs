//! The rate limiter: how many permits are given within an interval, who waits for how long, and
//! that lost replies take nothing twice.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{CancelToken, ErrorKind, LockClient, Primitive};

use crate::rig::{CAP, Fault, Proxy, Server, ms, wait_until};
use crate::support::Clients;

const HOUR: Duration = Duration::from_secs(3600);

fn kind<T: std::fmt::Debug>(outcome: leasehold::Result<T>) -> ErrorKind {
    outcome.unwrap_err().kind()
}

/// The same on Redis and in memory.
fn a_limiter_gives_its_rate(client: &LockClient) {
    let limiter = client.rate_limiter("api");
    let unset = limiter.try_acquire(1).unwrap_err();
    assert_eq!((unset.kind(), unset.name()), (ErrorKind::Conflict, Some("api")));
    assert!(unset.to_string().contains("try_set_rate"), "{unset}");
    assert_eq!(kind(limiter.acquire(1)), ErrorKind::Conflict);
    assert_eq!(limiter.available_permits().unwrap(), 0);
    assert_eq!(limiter.rate().unwrap(), None);
    assert!(!limiter.delete().unwrap());

    assert!(limiter.try_set_rate(5, HOUR).unwrap());
    assert!(!limiter.try_set_rate(9, ms(1)).unwrap());
    assert_eq!(limiter.rate().unwrap(), Some((5, HOUR)));
    assert!(limiter.try_acquire(2).unwrap());
    limiter.acquire(1).unwrap();
    assert_eq!(limiter.available_permits().unwrap(), 2);
    assert!(!limiter.try_acquire(3).unwrap(), "all or none");
    assert!(!limiter.try_acquire_for(3, ms(20)).unwrap());
    assert!(!limiter.try_acquire_until(3, Instant::now() + ms(20)).unwrap());
    assert!(limiter.try_acquire_for(2, ms(20)).unwrap());
    let beyond = limiter.try_acquire(6).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::Conflict);
    assert!(beyond.to_string().contains("5 permits"), "{beyond}");

    limiter.set_rate(7, ms(1)).unwrap();
    assert_eq!(limiter.rate().unwrap(), Some((7, ms(1))));
    limiter.acquire(7).unwrap();
    limiter.acquire(7).unwrap();
    assert!(limiter.delete().unwrap());
    assert_eq!(kind(limiter.acquire(1)), ErrorKind::Conflict);
}

fn bad_input_is_refused(client: &LockClient) {
    let limiter = client.rate_limiter("bad");
    for bad in [0, 1 << 31, u32::MAX] {
        assert_eq!(kind(limiter.try_set_rate(bad, HOUR)), ErrorKind::InvalidInput, "{bad}");
        assert_eq!(kind(limiter.set_rate(bad, HOUR)), ErrorKind::InvalidInput, "{bad}");
        assert_eq!(kind(limiter.acquire(bad)), ErrorKind::InvalidInput, "{bad}");
        assert_eq!(kind(limiter.try_acquire(bad)), ErrorKind::InvalidInput, "{bad}");
    }
    for bad in [Duration::ZERO, Duration::from_secs(366 * 24 * 3600), Duration::MAX] {
        assert_eq!(kind(limiter.try_set_rate(1, bad)), ErrorKind::InvalidInput, "{bad:?}");
    }
    assert_eq!(limiter.rate().unwrap(), None, "nothing was sent");
    assert!(limiter.try_set_rate(i32::MAX as u32, Duration::from_nanos(1)).unwrap());
    assert_eq!(limiter.rate().unwrap(), Some((i32::MAX as u64, ms(1))), "rounded up");
    assert!(limiter.try_acquire(i32::MAX as u32).unwrap());
}

/// Of five acquisitions at a rate of two within `per`, the last comes two intervals after the
/// first.
fn waiters_sleep_until_permits_come_back(client: &LockClient) {
    let per = ms(150);
    let limiter = client.rate_limiter("paced");
    assert!(limiter.try_set_rate(2, per).unwrap());
    let begun = Instant::now();
    let taken = AtomicU32::new(0);
    std::thread::scope(|s| {
        for _ in 0..5 {
            s.spawn(|| {
                client.rate_limiter("paced").acquire(1).unwrap();
                taken.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(taken.load(Ordering::Relaxed), 5);
    // The server counts whole milliseconds.
    assert!(begun.elapsed() > per * 2 - ms(3), "{:?}", begun.elapsed());
}

#[test]
fn a_limiter_follows_its_rate() {
    let server = Server::start();
    for client in [server.client(), LockClient::in_memory()] {
        a_limiter_gives_its_rate(&client);
        bad_input_is_refused(&client);
        waiters_sleep_until_permits_come_back(&client);
    }
}

/// The answer says when permits come back: a waiter asks once, and once more then.
#[test]
fn a_waiter_does_not_poll() {
    let server = Server::start();
    let client = server.client();
    let limiter = client.rate_limiter("api");
    limiter.try_set_rate(1, ms(3000)).unwrap();
    limiter.acquire(1).unwrap();
    limiter.available_permits().unwrap();
    let before = server.call_count("evalsha");
    limiter.acquire(1).unwrap();
    let asked = server.call_count("evalsha") - before;
    // At once, as the first in the queue, and when the permit is back; once more if the server's
    // clock was a little behind.
    assert!((3..=4).contains(&asked), "{asked}");
    assert!(server.channels().is_empty(), "nobody sends a message that it could listen for");
    assert!(client.stats().primitive(Primitive::RateLimiter).is_some(), "its calls are counted");
}

#[test]
fn a_wait_ends_by_a_cancel_a_stop_a_deletion_and_another_rate() {
    let server = Server::start();
    for client in [server.client(), LockClient::in_memory()] {
        let limiter = client.rate_limiter("api");
        limiter.try_set_rate(1, HOUR).unwrap();
        limiter.acquire(1).unwrap();
        let token = CancelToken::new();
        let waiting = |limiter: leasehold::RateLimiter, end: &dyn Fn()| {
            std::thread::scope(|s| {
                let waiter = s.spawn(move || limiter.acquire(1));
                wait_until("it waits", || !client.snapshot().waits().is_empty());
                end();
                waiter.join().unwrap()
            })
        };
        let cancellable = limiter.clone().with_cancel(&token);
        assert_eq!(kind(waiting(cancellable, &|| token.cancel())), ErrorKind::Cancelled);
        waiting(limiter.clone(), &|| limiter.set_rate(1, HOUR).unwrap()).unwrap();
        let deleted = waiting(limiter.clone(), &|| assert!(limiter.delete().unwrap()));
        assert_eq!(kind(deleted), ErrorKind::Conflict);
        limiter.try_set_rate(1, HOUR).unwrap();
        limiter.acquire(1).unwrap();
        let stopped = waiting(limiter.clone(), &|| client.stop_waiting());
        assert_eq!(kind(stopped), ErrorKind::Closed);
    }
}

#[test]
fn other_types_under_the_name_are_refused_and_left_alone() {
    let server = Server::start();
    let client = server.client();
    let guard = client.lock("lock").unwrap();
    server.cmd::<()>(&["HSET", "hash", "a", "1"]);
    server.cmd::<()>(&["SET", "text", "x"]);
    let before = server.hash("lock");
    for name in ["lock", "hash", "text"] {
        let limiter = client.rate_limiter(name);
        assert_eq!(kind(limiter.try_set_rate(1, HOUR)), ErrorKind::WrongType, "{name}");
        assert_eq!(kind(limiter.set_rate(1, HOUR)), ErrorKind::WrongType, "{name}");
        assert_eq!(kind(limiter.try_acquire(1)), ErrorKind::WrongType, "{name}");
        assert_eq!(kind(limiter.rate()), ErrorKind::WrongType, "{name}");
        assert_eq!(kind(limiter.delete()), ErrorKind::WrongType, "{name}");
    }
    assert_eq!(server.hash("lock"), before);
    guard.unlock().unwrap();
    // The other way round.
    let limiter = client.rate_limiter("api");
    limiter.try_set_rate(1, HOUR).unwrap();
    assert_eq!(kind(client.try_lock("api")), ErrorKind::WrongType);
    assert_eq!(kind(client.mutex("api").force_unlock()), ErrorKind::WrongType);
    assert_eq!(kind(client.semaphore("api").try_acquire()), ErrorKind::WrongType);
    assert_eq!(kind(client.lock("{api}:permits")), ErrorKind::InvalidInput);
    assert_eq!(kind(client.latch("{api}:value").count()), ErrorKind::InvalidInput);
    server.cmd::<()>(&["HSET", "each", "rate", "1", "interval", "9", "type", "1"]);
    let each = client.rate_limiter("each");
    assert!(!each.try_set_rate(1, HOUR).unwrap());
    assert_eq!(kind(each.try_acquire(1)), ErrorKind::Unsupported);
    assert_eq!(kind(each.available_permits()), ErrorKind::Unsupported);
    assert!(each.delete().unwrap());
}

/// A client that had set the keepAliveTime of Redisson: all keys live on with each use.
#[test]
fn a_limiter_ends_after_its_keep_alive_time() {
    let server = Server::start();
    let limiter = server.client().rate_limiter("api");
    let fields = ["rate", "5", "interval", "1000", "type", "0", "keepAliveTime", "900000"];
    server.cmd::<()>(&[&["HSET", "api"][..], &fields].concat());
    server.cmd::<()>(&["PEXPIRE", "api", "10000"]);
    limiter.acquire(1).unwrap();
    for key in ["api", "{api}:value", "{api}:permits"] {
        assert!(server.cmd::<i64>(&["PTTL", key]) > 800_000, "{key}");
    }
    // Without one, they end with the key of the limiter.
    server.cmd::<()>(&["HSET", "api", "keepAliveTime", "0"]);
    server.cmd::<()>(&["PEXPIRE", "api", "500000"]);
    limiter.acquire(1).unwrap();
    for key in ["api", "{api}:value", "{api}:permits"] {
        assert!((1..=500_000).contains(&server.cmd::<i64>(&["PTTL", key])), "{key}");
    }
}

/// Redisson takes any `long` for a rate; the scripts count with numbers that end at 2^53.
#[test]
fn a_limiter_of_java_without_a_limit_keeps_a_number_that_java_can_read() {
    let server = Server::start();
    let most = i64::MAX.to_string();
    server.cmd::<()>(&["HSET", "api", "rate", &most, "interval", "1000", "type", "0"]);
    server.client().rate_limiter("api").acquire(3).unwrap();
    assert!(server.cmd::<i64>(&["DECRBY", "{api}:value", "1"]) > 1 << 50);
}

const FAULTS: [Fault; 6] = [
    Fault::CutBeforeSend,
    Fault::CutAfterApplied,
    Fault::CutReplyAt(1),
    Fault::CutReplyAt(3),
    Fault::BlackHoleReply,
    Fault::Garbage,
];

#[test]
fn lost_replies_take_no_permit_twice_and_keep_none() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let direct = server.client().rate_limiter("api");
    direct.try_set_rate(5, HOUR).unwrap();
    for fault in FAULTS {
        let client = LockClient::builder().url(proxy.url()).io_timeout(ms(1500)).build().unwrap();
        let limiter = client.rate_limiter("api");
        // The call gives up, and what it took is freed in the background; or it is repeated.
        proxy.inject("{api}:permits", fault);
        let taken = i64::from(limiter.try_acquire(2).is_ok_and(|taken| taken)) * 2;
        wait_until(&format!("what was lost is free again after {fault:?}"), || {
            direct.available_permits().unwrap() == 5 - taken
        });
        // The connection was idle, so that the request may be repeated at once.
        proxy.inject("{api}:permits", fault);
        let taken = taken + i64::from(limiter.try_acquire(1).is_ok_and(|taken| taken));
        wait_until(&format!("a repeat takes nothing twice after {fault:?}"), || {
            direct.available_permits().unwrap() == 5 - taken
        });
        // A change of the rate is repeated by its call, and its repeat frees nothing.
        proxy.inject("leasehold_once:{api}", fault);
        let set = limiter.set_rate(5, HOUR);
        assert!(
            set.is_ok() || matches!(fault, Fault::Garbage | Fault::CutBeforeSend),
            "{fault:?}: {set:?}"
        );
        direct.set_rate(5, HOUR).unwrap();
    }
    proxy.wait_hits(3 * FAULTS.len() as u32);
}

/// A call that waits, and whose reply is lost while it does, gets its permits once.
#[test]
fn a_waiting_call_survives_a_lost_reply() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let direct = server.client().rate_limiter("api");
    direct.try_set_rate(2, ms(4000)).unwrap();
    let client = LockClient::builder().url(proxy.url()).io_timeout(ms(1500)).build().unwrap();
    direct.acquire(2).unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.rate_limiter("api").try_acquire_for(1, CAP));
        wait_until("it waits", || !client.snapshot().waits().is_empty());
        proxy.inject("{api}:permits", Fault::CutAfterApplied);
        assert!(waiter.join().unwrap().unwrap());
    });
    proxy.wait_hits(1);
    assert_eq!(server.cmd::<u32>(&["ZCARD", "{api}:permits"]), 1);
    assert_eq!(server.cmd::<i64>(&["GET", "{api}:value"]), 1);
}

/// The request reaches the server after the acquisition was undone.
#[test]
fn a_late_acquire_takes_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let direct = server.client().rate_limiter("api");
    direct.try_set_rate(5, HOUR).unwrap();
    let client = LockClient::builder().url(proxy.url()).io_timeout(ms(1500)).build().unwrap();
    proxy.inject("{api}:permits", Fault::Hold);
    assert!(client.rate_limiter("api").try_acquire(2).is_err());
    wait_until("it is undone", || client.stats().unknown_outcomes() == 0);
    proxy.release_held();
    assert_eq!(direct.available_permits().unwrap(), 5);
}

/// Eight threads of two clients.
#[test]
fn the_rate_holds_under_contention() {
    const RATE: u32 = 10;
    let per = ms(120);
    let server = Server::start();
    let clients = [server.client(), server.client()];
    clients[0].rate_limiter("api").try_set_rate(RATE, per).unwrap();
    let begun = Instant::now();
    std::thread::scope(|s| {
        for client in clients.iter().cycle().take(8) {
            s.spawn(|| {
                for _ in 0..8 {
                    client.rate_limiter("api").acquire(1).unwrap();
                }
            });
        }
    });
    // 64 permits: ten at once, and then at most ten in each interval.
    assert!(begun.elapsed() > per * 6 - ms(7), "{:?}", begun.elapsed());
    let taken = server.cmd::<u32>(&["ZCARD", "{api}:permits"]);
    assert_eq!(server.cmd::<u32>(&["GET", "{api}:value"]), RATE - taken);
}
