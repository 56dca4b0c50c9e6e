//! The count-down latch: all waiters continue at zero, exactly once, whatever messages are lost.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use crate::rig::{Fault, Proxy, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};

const CHANNEL: &str = "redisson_countdownlatch__channel__{l}";

/// The messages on the latch's channel while `work` runs.
fn messages(server: &Server, work: impl FnOnce()) -> Vec<String> {
    let mut connection = server.connect();
    let mut subscriber = connection.as_pubsub();
    subscriber.subscribe(CHANNEL).unwrap();
    work();
    server.cmd::<u32>(&["PUBLISH", CHANNEL, "end"]);
    let said = std::iter::from_fn(|| {
        Some(subscriber.get_message().unwrap().get_payload::<String>().unwrap())
    });
    said.take_while(|payload| payload != "end").collect()
}

#[test]
fn deleting_lets_all_waiters_continue() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let latch = a.latch("l");
    assert!(!latch.delete().unwrap());
    latch.set_count(7).unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.latch("l").wait());
        wait_until("it is subscribed", || !server.channels().is_empty());
        let said = messages(&server, || assert!(latch.delete().unwrap()));
        assert_eq!(said, ["1", "0"], "1 alone wakes no Java waiter");
        waiter.join().unwrap().unwrap();
    });
    latch.set_count(1).unwrap();
    latch.delete().unwrap();
    drop((latch, a, b));
    server.assert_clean();
}

/// Counted once and published once: a `0` while the count is positive would make Redisson's waiters
/// spin.
#[test]
fn a_count_whose_reply_is_lost_counts_once() {
    std::thread::scope(|s| {
        for fault in [
            Fault::CutAfterApplied,
            Fault::CutReplyAt(2),
            Fault::BlackHoleReply,
            Fault::StallReply(ms(2500)),
        ] {
            for count in [1, 3] {
                s.spawn(move || counts_once(fault, count));
            }
        }
    });
}

fn counts_once(fault: Fault, count: u32) {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let direct = server.client().latch("l");
    let client = LockClient::builder().url(proxy.url()).io_timeout(ms(2000)).build().unwrap();
    let said = messages(&server, || {
        proxy.inject("leasehold_once:{l}", fault);
        assert!(
            client.latch("l").try_set_count(count).unwrap(),
            "{fault:?}: its own repeat found its count"
        );
        assert_eq!(direct.count().unwrap(), count);
        proxy.inject("leasehold_once:{l}", fault);
        assert_eq!(client.latch("l").count_down().unwrap(), count - 1, "{fault:?}");
        assert_eq!(direct.count().unwrap(), count - 1, "{fault:?}");
    });
    assert_eq!(said, if count == 1 { vec!["1", "0"] } else { vec!["1"] }, "{fault:?}");
    proxy.inject("leasehold_once:{l}", fault);
    assert_eq!(client.latch("l").delete().unwrap(), count > 1, "{fault:?}");
    proxy.wait_hits(3);
}

/// The request reaches the server after the caller got an error: it must not run then.
#[test]
fn a_late_count_is_not_counted_twice() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let direct = server.client().latch("l");
    direct.set_count(5).unwrap();
    let client = LockClient::builder().url(proxy.url()).io_timeout(ms(2000)).build().unwrap();
    proxy.inject("leasehold_once:{l}", Fault::Hold);
    assert_eq!(client.latch("l").count_down().unwrap(), 4, "the repeat counted");
    proxy.release_held();
    assert_eq!(direct.count().unwrap(), 4);
    direct.delete().unwrap();
}

#[test]
fn a_missed_message_delays_a_waiter_and_strands_nobody() {
    let mut server = Server::start();
    // A waiter polls at least once per lease, and a restart may take longer than that on a busy
    // machine.
    let a = server
        .builder()
        .short_lease(ms(2000))
        .outage_timeout(Duration::from_secs(15))
        .build()
        .unwrap();
    let b = server.client();
    for round in ["deleted by hand", "flushed", "restarted", "connections killed"] {
        b.latch("l").set_count(1).unwrap();
        // Otherwise the subscription of the previous round would be mistaken for this one.
        wait_until("nobody is subscribed", || server.channels().is_empty());
        std::thread::scope(|s| {
            let waiter = s.spawn(|| a.latch("l").wait());
            wait_until("it is subscribed", || !server.channels().is_empty());
            match round {
                "deleted by hand" => server.cmd::<()>(&["DEL", "l"]),
                "flushed" => server.cmd::<()>(&["FLUSHALL"]),
                "restarted" => server.restart(),
                _ => {
                    server.cmd::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                    b.latch("l").count_down().map(drop).unwrap();
                }
            }
            waiter.join().unwrap().unwrap();
        });
    }
    drop((a, b));
    server.assert_clean();
}

#[test]
fn a_closed_client_and_another_type_are_reported() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    a.latch("l").set_count(1).unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.latch("l").wait().unwrap_err().kind());
        wait_until("it is subscribed", || !server.channels().is_empty());
        b.close(Duration::from_secs(5)).unwrap();
        assert_eq!(waiter.join().unwrap(), ErrorKind::Closed);
    });
    assert_eq!(b.latch("l").count_down().unwrap_err().kind(), ErrorKind::Closed);
    let held = a.lock("other").unwrap();
    let other = a.latch("other");
    for kind in [
        other.try_set_count(1).map(drop),
        other.count_down().map(drop),
        other.count().map(drop),
        other.wait(),
        other.delete().map(drop),
    ] {
        assert_eq!(kind.unwrap_err().kind(), ErrorKind::WrongType);
    }
    assert!(held.is_held());
    server.cmd::<()>(&["SET", "l", "x"]);
    assert_eq!(a.latch("l").wait().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(a.latch("a{").wait().unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// Most waiters poll when the latch counts again.
#[test]
fn a_latch_set_anew_right_behind_its_last_count_lets_everybody_go_on() {
    let server = Server::start();
    let (waiting, counting) = ([server.client(), server.client()], server.client().latch("l"));
    for round in ["counted down", "deleted", "deleted again", "the clock was set back"] {
        if round == "the clock was set back" {
            let ahead = server.cmd::<(u64, u64)>(&["TIME"]).0 + 3600;
            let opened = (ahead * 1_000_000).to_string();
            server.cmd::<()>(&["SET", "leasehold_once:{l}:opened", &opened, "PX", "60000"]);
        }
        counting.try_set_count(1).unwrap();
        let looks = server.call_count("get");
        std::thread::scope(|s| {
            let waiters: Vec<_> = (0..40)
                .map(|n| {
                    let latch = waiting[n % 2].latch("l");
                    s.spawn(move || latch.wait_for(Duration::from_secs(30)).unwrap())
                })
                .collect();
            // Each poll reads the count and the last opening; a waiter polls again until its client
            // is subscribed, so the number alone does not prove that the last one has polled.
            wait_until("all have polled, and wait", || {
                let polled = server.call_count("get") - looks;
                let wait: usize = waiting.iter().map(|client| client.stats().waiting()).sum();
                polled >= 2 * (40 + 2) && wait == 40
            });
            if round == "counted down" {
                assert_eq!(counting.count_down().unwrap(), 0);
            } else {
                assert!(counting.delete().unwrap());
            }
            counting.set_count(1).unwrap();
            let through = waiters
                .into_iter()
                .filter_map(|waiter| waiter.join().unwrap().then_some(()))
                .count();
            assert_eq!(through, 40, "{round}");
        });
        // Later callers wait for the new latch.
        assert!(!waiting[0].latch("l").try_wait().unwrap());
        assert!(!waiting[1].latch("l").wait_for(ms(50)).unwrap());
    }
    counting.delete().unwrap();
}

/// All threads of a client are woken, not only the first.
#[test]
fn fifty_threads_cost_little_and_all_continue() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    b.latch("l").set_count(1).unwrap();
    std::thread::scope(|s| {
        for _ in 0..50 {
            s.spawn(|| a.latch("l").wait().unwrap());
        }
        wait_until("it is subscribed", || !server.channels().is_empty());
        b.latch("l").count_down().unwrap();
    });
    assert_eq!(b.latch("l").count().unwrap(), 0);
    // Each polls at the beginning and at the end, and the first one again after it has subscribed.
    // A poll reads the count and the last opening.
    let looks = server.call_count("get") / 2;
    // Each poll by a timer of a busy machine is one more: the limit is far below polling all the time.
    assert!(looks <= 50 * 10, "{looks} looks");
}

/// The request was delayed, its caller got an unknown outcome, and meanwhile the name belongs to
/// another latch.
#[test]
fn a_count_of_unknown_outcome_does_not_run_on_the_next_latch() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (a, b) = (
        LockClient::builder().url(proxy.url()).io_timeout(ms(2000)).build().unwrap(),
        server.client(),
    );
    a.latch("l").set_count(2).unwrap();
    proxy.inject("leasehold_once", Fault::Hold);
    std::thread::scope(|s| {
        let count = s.spawn(|| a.latch("l").count_down());
        proxy.wait_hits(1);
        proxy.refuse(true);
        assert_eq!(count.join().unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
    });
    proxy.refuse(false);
    // In addition to the idempotency key of the count that was set.
    wait_until("it is resolved", || {
        server.cmd::<Vec<String>>(&["KEYS", "leasehold_once:{l}:*"]).len() == 2
    });
    b.latch("l").delete().unwrap();
    b.latch("l").set_count(1).unwrap();
    proxy.release_held();
    assert_eq!(b.latch("l").count().unwrap(), 1);
    b.latch("l").delete().unwrap();
}
