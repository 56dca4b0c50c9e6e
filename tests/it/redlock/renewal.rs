//! Renewal of holds while masters are slow, silent or lose replies.

use std::time::Instant;

use leasehold::{LockClient, Redlock};

use super::behind;
use crate::rig::{Fault, Proxy, ms, wait_until};
use crate::support::{Masters, wait_for_votes};

/// The last one comes after the I/O timeout of the test.
const LATE_OR_LOST: [Fault; 5] = [
    Fault::CutBeforeSend,
    Fault::CutAfterApplied,
    Fault::CutReplyAt(3),
    Fault::BlackHoleReply,
    Fault::StallReply(ms(1500)),
];

/// A renewal whose replies are lost or late, on any number of masters, ends no hold, and is
/// repeated in time.
#[test]
fn lost_renewals_shorten_nothing() {
    std::thread::scope(|s| {
        for fault in LATE_OR_LOST {
            s.spawn(move || nothing_is_shortened_by(fault));
        }
    });
}

fn nothing_is_shortened_by(fault: Fault) {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let client = LockClient::builder()
        .redlock(Redlock::new(urls))
        .lease(ms(6400))
        .io_timeout(ms(1200))
        .build()
        .unwrap();
    wait_for_votes(&client, 3);
    let guard = client.lock("kept").unwrap();
    let mut hits = [0; 3];
    for broken in 1..=3 {
        for (proxy, hits) in proxies.iter().zip(&mut hits).take(broken) {
            proxy.inject("kept", fault);
            *hits += 1;
        }
        // The fault affects the next renewals.
        for (proxy, hits) in proxies.iter().zip(hits) {
            proxy.wait_hits(hits);
        }
        wait_until(&format!("{fault:?} on {broken}: renewed"), || guard.remaining() > ms(4600));
    }
    assert!(guard.is_held());
    wait_until("all have it", || masters.holding("kept") == 3);
    guard.unlock().unwrap();
    drop((client, proxies));
    masters.assert_clean();
}

#[test]
fn a_slow_master_does_not_keep_the_watchdog_from_renewing() {
    let masters = Masters::fresh(3);
    let slow = Proxy::start(&masters.0[2]);
    let client =
        behind(&masters, &[(2, &slow)]).lease(ms(6000)).io_timeout(ms(1200)).build().unwrap();
    wait_for_votes(&client, 3);
    let guard = client.lock("kept").unwrap();
    slow.inject_times("EVALSHA", u32::MAX, Fault::StallReply(ms(300)));
    let start = Instant::now();
    let mut cycles = 0;
    while start.elapsed() < ms(13_000) {
        if let Ok(Some(guard)) = client.try_lock(format!("l{cycles}")) {
            let _ = guard.unlock();
        }
        cycles += 1;
        std::thread::sleep(ms(10));
        assert!(guard.is_held(), "lost after {:?} and {cycles} cycles", start.elapsed());
    }
}

#[test]
fn a_long_io_timeout_does_not_cost_the_lease() {
    let masters = Masters::fresh(3);
    let hole = Proxy::start(&masters.0[2]);
    let client =
        behind(&masters, &[(2, &hole)]).lease(ms(6000)).io_timeout(ms(5600)).build().unwrap();
    wait_for_votes(&client, 3);
    let guard = client.lock("l").unwrap();
    hole.silence(true);
    let start = Instant::now();
    while start.elapsed() < ms(13_000) {
        assert!(guard.is_held(), "lost after {:?}", start.elapsed());
        std::thread::sleep(ms(10));
    }
}

#[test]
fn probes_of_black_holes_do_not_keep_the_watchdog_from_renewing() {
    let masters = Masters::fresh(9);
    let proxies: Vec<Proxy> = masters.0[..4].iter().map(Proxy::start).collect();
    let places: Vec<(usize, &Proxy)> = proxies.iter().enumerate().collect();
    let client = behind(&masters, &places).lease(ms(6000)).io_timeout(ms(1500)).build().unwrap();
    wait_for_votes(&client, 9);
    let guard = client.lock("l").unwrap();
    for proxy in &proxies {
        proxy.silence(true);
    }
    let start = Instant::now();
    while start.elapsed() < ms(15_000) {
        assert!(guard.is_held(), "lost after {:?}", start.elapsed());
        std::thread::sleep(ms(10));
    }
}
