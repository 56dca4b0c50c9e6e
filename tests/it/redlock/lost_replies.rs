//! Lost and late replies leave nothing behind.

use std::time::Instant;

use leasehold::observe::NodeState;
use leasehold::{ErrorKind, LockClient, Redlock};

use super::{FAULTS, behind};
use crate::rig::{Fault, Proxy, ms, wait_until};
use crate::support::{Masters, wait_for_votes};

/// Faults on one, two and all masters, during the acquire and the release: no key remains anywhere,
/// and the next client gets the lock.
#[test]
fn lost_and_late_replies_leave_nothing_behind() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let other = masters.client();
    for fault in FAULTS {
        for broken in 1..=3 {
            let urls = proxies.iter().map(Proxy::url);
            let client = LockClient::builder()
                .redlock(Redlock::new(urls))
                .io_timeout(ms(600))
                .build()
                .unwrap();
            wait_for_votes(&client, 3);
            let what = format!("{fault:?} on {broken}");
            let inject = || proxies[..broken].iter().for_each(|proxy| proxy.inject("{l}", fault));
            inject();
            match client.try_lock("l") {
                Ok(Some(guard)) => {
                    assert!(guard.is_held(), "{what}");
                    guard.unlock().expect(&what);
                }
                Ok(None) => panic!("{what}: no other client has it"),
                Err(e) => assert_eq!(e.kind(), ErrorKind::NoQuorum, "{what}: {e}"),
            }
            wait_until(&format!("{what}: nothing of the acquire is left"), || {
                masters.holding("l") == 0
            });
            wait_for_votes(&client, 3);
            let guard = client.lock("l").expect(&what);
            inject();
            if let Err(e) = guard.unlock() {
                assert_eq!(e.kind(), ErrorKind::NoQuorum, "{what}: {e}");
            }
            wait_until(&format!("{what}: nothing of the hold is left"), || {
                masters.holding("l") == 0
            });
            for proxy in &proxies {
                proxy.inject("no request has this", Fault::CutBeforeSend);
            }
            other.try_lock("l").unwrap().expect(&what).unlock().unwrap();
            wait_for_votes(&client, 3);
            client.try_lock("l").unwrap().expect(&what).unlock().unwrap();
            wait_until(&format!("{what}: nothing is left"), || masters.holding("l") == 0);
        }
    }
}

#[test]
fn an_acquire_that_runs_after_a_stall_longer_than_the_lease_is_undone() {
    let masters = Masters::fresh(3);
    let client = masters.builder().lease(ms(6000)).io_timeout(ms(1200)).build().unwrap();
    wait_for_votes(&client, 3);
    client.lock("other").unwrap().unlock().unwrap();
    for server in &masters.0[..2] {
        server.suspend();
    }
    let tried = client.try_lock("l");
    assert_eq!(tried.unwrap_err().kind(), ErrorKind::NoQuorum);
    std::thread::sleep(ms(8000));
    for server in &masters.0[..2] {
        server.resume();
    }
    let start = Instant::now();
    wait_until("it is undone", || {
        masters.holding("l") == 0
            && masters.0[0].client_lines().len() > 1
            && client.nodes().iter().all(|node| node.state() == NodeState::Voting)
    });
    assert!(
        start.elapsed() < ms(5500),
        "it remained for {:?}, as long as its lease",
        start.elapsed()
    );
}

#[test]
fn pending_replies_of_other_calls_do_not_cost_the_quorum() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let places: Vec<(usize, &Proxy)> = proxies.iter().enumerate().collect();
    let client = behind(&masters, &places).io_timeout(ms(5000)).build().unwrap();
    wait_for_votes(&client, 3);
    // Opens two connections to each master.
    for proxy in &proxies {
        proxy.inject_times("warm", 2, Fault::StallReply(ms(100)));
    }
    std::thread::scope(|s| {
        s.spawn(|| client.lock("warm1").unwrap().unlock().unwrap());
        s.spawn(|| client.lock("warm2").unwrap().unlock().unwrap());
    });
    wait_until("nothing is held", || masters.holding("warm1") + masters.holding("warm2") == 0);
    std::thread::sleep(ms(300));
    // One reply of each master is pending, and no call waits for it.
    proxies[0].inject("late0", Fault::StallReply(ms(2500)));
    let _first = client.lock("late0").unwrap();
    proxies[1].inject("late1", Fault::StallReply(ms(2500)));
    let _second = client.lock("late1").unwrap();
    // The other connections are in use.
    proxies[0].inject("busy", Fault::StallReply(ms(600)));
    proxies[1].inject("busy", Fault::StallReply(ms(600)));
    std::thread::scope(|s| {
        s.spawn(|| client.lock("busy").unwrap().unlock().unwrap());
        proxies[0].wait_hits(4);
        proxies[1].wait_hits(4);
        let got = client.try_lock("l");
        assert!(matches!(got, Ok(Some(_))), "{got:?}");
    });
}

/// Two others were asked first, and one of them hangs.
#[test]
fn a_master_that_was_slow_before_makes_up_the_quorum() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let places: Vec<(usize, &Proxy)> = proxies.iter().enumerate().collect();
    let client = behind(&masters, &places).io_timeout(ms(3000)).build().unwrap();
    wait_for_votes(&client, 3);
    client.lock("warm").unwrap().unlock().unwrap();
    wait_until("nothing is held", || masters.holding("warm") == 0);
    proxies[2].inject("slow", Fault::StallReply(ms(600)));
    let _first = client.lock("slow").unwrap();
    proxies[0].inject("next", Fault::StallReply(ms(5000)));
    client.lock("next").unwrap().unlock().unwrap();
}

/// A firewall that has forgotten the connections to all masters swallows what is sent.
#[test]
fn a_call_after_a_long_pause_outlives_connections_that_were_cut_in_silence() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let redlock = Redlock::new(proxies.iter().map(Proxy::url));
    let client = LockClient::builder().redlock(redlock).io_timeout(ms(1500)).build().unwrap();
    wait_for_votes(&client, 3);
    let guard = client.lock("l").unwrap();
    let cut_after = |pause| {
        std::thread::sleep(pause);
        for proxy in &proxies {
            proxy.inject("{l}", Fault::BlackHoleReply);
        }
    };
    // After a grant that not all had answered in time, it is renewed two seconds later.
    cut_after(ms(8_500));
    guard.unlock().unwrap();
    cut_after(ms(5_500));
    let guard = client.try_lock("l").unwrap().unwrap();
    assert!(guard.is_held());
    guard.unlock().unwrap();
    wait_until("nothing is left", || masters.holding("l") == 0);
}
