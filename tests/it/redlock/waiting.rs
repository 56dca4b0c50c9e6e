//! Waiters are woken by releases, and cost the masters little.

use std::time::{Duration, Instant};

use crate::rig::{ms, wait_until};
use crate::support::Masters;

#[test]
fn a_waiter_is_woken_by_the_release() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    for _ in 0..3 {
        let guard = a.lock("l").unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| b.lock("l").map(|guard| guard.is_held()));
            wait_until("it is subscribed", || {
                masters.0.iter().all(|server| !server.channels().is_empty())
            });
            let start = Instant::now();
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap().unwrap());
            // Far shorter than the lease, after which it would have polled.
            assert!(start.elapsed() < Duration::from_secs(10));
        });
    }
    drop((a, b));
    masters.assert_clean();
}

#[test]
fn a_waiter_is_woken_while_a_master_is_dead_and_when_it_is_back() {
    let mut masters = Masters::fresh(3);
    let open =
        || masters.builder_with(|masters| masters.longest_lease(ms(30_000))).build().unwrap();
    let (a, b) = (open(), open());
    for round in 0..3 {
        match round {
            1 => masters.0[0].kill(),
            2 => masters.0[0].start_again(),
            _ => {}
        }
        let guard = a.lock("l").unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| b.lock("l").map(|guard| guard.is_held()));
            wait_until("it is subscribed", || {
                !masters.0[1].channels().is_empty() && !masters.0[2].channels().is_empty()
            });
            let start = Instant::now();
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap().unwrap());
            assert!(start.elapsed() < Duration::from_secs(10), "woken by the message");
        });
        wait_until("it is no longer subscribed", || masters.0[1].channels().is_empty());
    }
}

/// While nothing happens, and while one master is down, clients send almost nothing.
#[test]
fn a_waiter_and_a_dead_master_cost_little() {
    let mut masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    masters.0[0].kill();
    let guard = a.lock("l").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock("l").map(|guard| guard.is_held()));
        wait_until("it is subscribed", || !masters.0[1].channels().is_empty());
        masters.0[1].cmd::<()>(&["CONFIG", "RESETSTAT"]);
        std::thread::sleep(ms(1500));
        let calls = masters.0[1].call_count("evalsha") + masters.0[1].call_count("eval");
        assert!(calls <= 4, "{calls} scripts in 1.5 s");
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
}

#[test]
fn a_waiter_sleeps_while_a_minority_is_free() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    let guard = a.lock("l").unwrap();
    wait_until("all have it", || masters.holding("l") == 3);
    masters.0[2].cmd::<()>(&["DEL", "l"]);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock("l").map(|guard| guard.is_held()));
        wait_until("it is subscribed", || {
            masters.0.iter().all(|server| !server.channels().is_empty())
        });
        std::thread::sleep(ms(200));
        let before = masters.0[0].call_count("evalsha");
        std::thread::sleep(ms(1000));
        let tries = masters.0[0].call_count("evalsha") - before;
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
        assert!(tries < 20, "{tries} attempts in a second");
    });
}
