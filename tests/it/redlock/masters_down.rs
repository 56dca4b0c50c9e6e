//! Masters that are down, cut off or slow: a majority is enough, and no call waits for the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use leasehold::observe::NodeState;
use leasehold::{ErrorKind, LockClient, Redlock};

use super::behind;
use crate::rig::{CAP, Fault, Proxy, Server, ms, wait_until};
use crate::support::{Masters, ShortLease, wait_for_votes};

#[test]
fn a_minority_may_be_dead_from_the_start_and_a_majority_not() {
    for (count, dead) in [(3, 1), (5, 2)] {
        let mut masters = Masters::start(count);
        for server in &mut masters.0[..dead] {
            server.kill();
        }
        let client = masters.admitted().build().unwrap();
        wait_for_votes(&client, count - dead);
        let guard = client.lock("l").unwrap();
        assert!(guard.is_held());
        guard.unlock().unwrap();
        let down = client.nodes().iter().filter(|node| node.state() == NodeState::Down).count();
        assert_eq!(down, dead);
        assert!(client.nodes()[0].last_error().is_some());
        // The masters come back and vote.
        for server in &mut masters.0[..dead] {
            server.start_again();
        }
        wait_for_votes(&client, count);
        let guard = client.lock("l").unwrap();
        wait_until("all have it", || masters.holding("l") == count);
        guard.unlock().unwrap();
        masters.0[0].kill();
        masters.0[1].kill();
        if count == 5 {
            masters.0[2].kill();
        }
        let error = client.try_lock("l").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoQuorum);
        assert!(error.to_string().matches("lh-").count() >= count, "{error}");
    }
}

/// An action on the first of three masters, which has a proxy in front.
type Step = fn(&mut Masters, &Proxy);

/// What happens to that master, and how it ends.
fn troubles() -> [(&'static str, Step, Step); 4] {
    [
        ("stopped", |masters, _| masters.0[0].suspend(), |masters, _| masters.0[0].resume()),
        ("silent", |_, proxy| proxy.silence(true), |_, proxy| proxy.silence(false)),
        (
            "cut off",
            |_, proxy| (proxy.refuse(true), proxy.cut_all()).1,
            |_, proxy| proxy.refuse(false),
        ),
        ("dead", |masters, _| masters.0[0].kill(), |masters, _| masters.0[0].start_again()),
    ]
}

/// Until then a hold has no master to spare. Its renewal, which brings it there as well, is not due
/// in the time of this test.
#[test]
fn a_hold_reaches_a_master_that_was_away_as_soon_as_that_is_well() {
    for (trouble, begin, end) in &troubles()[..3] {
        let mut masters = Masters::fresh(3);
        let proxy = Proxy::start(&masters.0[0]);
        let client =
            behind(&masters, &[(0, &proxy)]).lease(CAP * 6).io_timeout(ms(1000)).build().unwrap();
        wait_for_votes(&client, 3);
        begin(&mut masters, &proxy);
        // The first is sent there and gets no answer, or fails; the second is not sent there.
        let guards = ["a", "b"].map(|name| client.mutex(name).lock_owned().unwrap());
        end(&mut masters, &proxy);
        for name in ["a", "b"] {
            wait_until(&format!("{trouble}: it has {name}"), || masters.holding(name) == 3);
        }
        masters.0[1].kill();
        for guard in guards {
            guard.extend(CAP * 6).unwrap();
            guard.unlock().unwrap();
        }
    }
}

/// Clients acquire, hold and release locks meanwhile. Afterwards the master has none of the
/// released locks, and votes.
#[test]
fn one_master_in_trouble_stops_nobody() {
    std::thread::scope(|s| {
        for (trouble, begin, end) in troubles() {
            s.spawn(move || nobody_is_stopped_by(trouble, begin, end));
        }
    });
}

fn nobody_is_stopped_by(trouble: &str, begin: Step, end: Step) {
    // Far more time than a healthy master needs on a busy machine.
    let lease = ms(8000);
    let mut masters = Masters::fresh(3);
    let proxy = Proxy::start(&masters.0[0]);
    let mut urls = masters.urls();
    urls[0] = proxy.url();
    let builder = LockClient::builder()
        .redlock(Redlock::new(urls).longest_lease(lease))
        .lease(lease)
        .io_timeout(ms(2000));
    let (a, b) = (builder.clone().build().unwrap(), builder.build().unwrap());
    wait_for_votes(&a, 3);
    wait_for_votes(&b, 3);
    let kept = a.lock("kept").unwrap();
    begin(&mut masters, &proxy);
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < lease + ms(500) {
        let guard = a.lock("l").unwrap_or_else(|e| panic!("{trouble}: {e}"));
        assert!(guard.is_held() && b.try_lock("l").unwrap().is_none(), "{trouble}");
        guard.unlock().unwrap();
        rounds += 1;
    }
    // Clients wait for this master once, and not in every call.
    assert!(rounds > 5, "{trouble}: {rounds} rounds, and waiting each time leaves time for 4");
    assert!(kept.is_held(), "{trouble}: renewed by the others");
    assert!(b.try_lock("kept").unwrap().is_none(), "{trouble}");
    end(&mut masters, &proxy);
    wait_for_votes(&a, 3);
    wait_until(&format!("{trouble}: it has the kept lock, and no other"), || {
        masters.0[0].lock_keys() == ["kept"]
    });
    let left = kept.remaining();
    kept.unlock().unwrap_or_else(|e| panic!("{trouble}, with {left:?} left: {e}"));
    drop((a, b));
    drop(proxy);
    masters.assert_clean();
}

/// Without a majority the hold ends in time; once there is a majority again, the next client gets
/// the lock.
#[test]
fn without_a_majority_a_hold_ends_in_time() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.builder().short_lease(ms(1200)).build().unwrap(), masters.client());
    let guard = a.lock("l").unwrap();
    masters.0[0].suspend();
    masters.0[1].suspend();
    assert!(guard.wait_lost(CAP).is_lost());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(b.try_lock("l").unwrap_err().kind(), ErrorKind::NoQuorum);
    masters.0[0].resume();
    masters.0[1].resume();
    wait_for_votes(&b, 3);
    assert!(b.lock("l").unwrap().is_held());
    drop((a, b));
    masters.assert_clean();
}

/// The dead master never received the requests for these locks, so there is nothing to undo there.
#[test]
fn a_dead_master_leaves_nothing_to_undo() {
    let mut masters = Masters::fresh(3);
    let client = masters.client();
    masters.0[1].kill();
    for _ in 0..200 {
        client.lock("l").unwrap().unlock().unwrap();
    }
    client.close(CAP).unwrap();
}

/// Over TCP the first request after the end of a connection seems to be sent: only the read notices
/// the end.
#[test]
fn idle_tcp_connections_that_ended_fail_no_call() {
    let masters = Masters((0..3).map(|_| Server::start_tcp(&[])).collect());
    let client = masters.admitted().build().unwrap();
    wait_for_votes(&client, 3);
    let end_all = || {
        for server in &masters.0 {
            server.cmd::<u32>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
    };
    for _ in 0..5 {
        let guard = client.lock("l").unwrap();
        end_all();
        let inner = client.lock("l").unwrap();
        end_all();
        inner.unlock().unwrap();
        end_all();
        guard.unlock().unwrap();
        end_all();
    }
    wait_until("all are free", || masters.holding("l") == 0);
}

#[test]
fn a_held_lock_is_busy_with_one_master_dead_and_one_slow() {
    let mut masters = Masters::fresh(3);
    let slow = Proxy::start(&masters.0[2]);
    let a = masters.client();
    let b = behind(&masters, &[(2, &slow)]).build().unwrap();
    wait_for_votes(&b, 3);
    masters.0[0].kill();
    let _guard = a.lock("l").unwrap();
    wait_until("both have it", || masters.0[1..].iter().all(|server| !server.hash("l").is_empty()));
    wait_until("it is noticed", || {
        let _ = b.mutex("x").is_locked();
        b.nodes()[0].state() == NodeState::Down
    });
    slow.inject("EVALSHA", Fault::StallReply(ms(60)));
    let tried = b.try_lock("l");
    slow.wait_hits(1);
    assert!(matches!(tried, Ok(None)), "{tried:?}");
}

#[test]
fn a_master_that_is_down_from_the_start_costs_the_others_nothing() {
    let mut masters = Masters::fresh(3);
    masters.0[0].kill();
    let client = masters.client();
    wait_for_votes(&client, 2);
    let before = masters.0[1].call_count("time");
    let start = Instant::now();
    std::thread::sleep(ms(2000));
    let looks = masters.0[1].call_count("time") - before;
    let took = start.elapsed();
    assert!(u128::from(looks) < 6 * took.as_millis() / 2000, "asked {looks} times in {took:?}");
}

#[test]
fn a_slow_master_does_not_block_the_status_of_nodes() {
    let masters = Masters::fresh(3);
    let slow = Proxy::start(&masters.0[2]);
    let client = behind(&masters, &[(2, &slow)]).io_timeout(ms(1000)).build().unwrap();
    wait_for_votes(&client, 3);
    client.lock("other").unwrap().unlock().unwrap();
    slow.inject_times("EVALSHA", u32::MAX, Fault::StallReply(ms(300)));
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let looks = s.spawn(|| {
            let mut slow = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let start = Instant::now();
                let _ = client.nodes();
                slow.extend(Some(start.elapsed()).filter(|took| *took > ms(150)));
                std::thread::sleep(ms(1));
            }
            slow
        });
        let start = Instant::now();
        while start.elapsed() < ms(3000) {
            client.lock("l").unwrap().unlock().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        // A busy machine may delay some. If the status waited for the master, ten calls would
        // block it.
        let slow = looks.join().unwrap();
        assert!(slow.len() <= 3, "blocked for {slow:?}");
    });
}

#[test]
fn idle_connections_that_ended_fail_no_call() {
    let masters = Masters::fresh(3);
    let client = masters.client();
    wait_for_votes(&client, 3);
    client.lock("l").unwrap().unlock().unwrap();
    for server in &masters.0 {
        server.cmd::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    client.lock("l").unwrap().unlock().unwrap();
}

/// Most masters answer just in time, so the calls of many threads take long one after the other.
#[test]
fn a_call_does_not_wait_for_others_for_longer_than_the_io_timeout() {
    let masters = Masters::fresh(3);
    let proxies = [Proxy::start(&masters.0[0]), Proxy::start(&masters.0[1])];
    let places = [(0, &proxies[0]), (1, &proxies[1])];
    let client = behind(&masters, &places).connections(1).io_timeout(ms(4000)).build().unwrap();
    wait_for_votes(&client, 3);
    client.lock("warm").unwrap().unlock().unwrap();
    wait_until("nothing is held", || masters.holding("warm") == 0);
    for proxy in &proxies {
        proxy.inject_times("slow", u32::MAX, Fault::StallReply(ms(2500)));
    }
    let outcomes: Vec<_> = std::thread::scope(|s| {
        let lock = |n: usize| client.try_lock(format!("slow{n}")).map(|guard| guard.is_some());
        let threads: Vec<_> = (0..5).map(|n| s.spawn(move || lock(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let is_busy = |e: &leasehold::Error| {
        e.kind() == ErrorKind::Unreachable && e.to_string().contains("which is the maximum")
    };
    assert!(outcomes.iter().any(Result::is_ok), "{outcomes:?}");
    assert!(
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).any(is_busy),
        "{outcomes:?}"
    );
    for proxy in &proxies {
        assert!(proxy.disarm());
    }
    let holding = |n: usize| masters.holding(&format!("slow{n}"));
    wait_until("nothing is left", || (0..5).all(|n| holding(n) == 0));
}

/// No master was asked for it.
#[test]
fn a_lease_that_is_too_long_is_none_that_can_last() {
    let mut masters = Masters::start(3);
    let client = masters
        .builder_with(|masters| masters.longest_lease(CAP * 2).admit_fresh_nodes(true))
        .lease(CAP)
        .build()
        .unwrap();
    wait_for_votes(&client, 3);
    let guard = client.mutex("l").lock_owned().unwrap();
    let refused = guard.extend(CAP * 60).unwrap_err();
    assert_eq!((refused.kind(), refused.name()), (ErrorKind::InvalidInput, Some("l")), "{refused}");
    for master in &mut masters.0 {
        master.kill();
    }
    let text = client.close(ms(300)).unwrap_err().to_string();
    let (_, rest) = text.split_once("for ").expect(&text);
    let seconds: f64 = rest.split(' ').next().unwrap().parse().expect(&text);
    assert!(seconds < (CAP * 2).as_secs_f64(), "{text}");
}
