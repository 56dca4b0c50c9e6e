//! What a review of Redlock found: each test is one way in which it went wrong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use leasehold::{Builder, ErrorKind, LockClient, NodeState};

use crate::rig::{Fault, Masters, Proxy, Server, ms, wait_for_votes, wait_until};

/// Over the masters, with proxies in front of those at the places given.
fn behind(masters: &Masters, proxies: &[(usize, &Proxy)]) -> Builder {
    let mut urls = masters.urls();
    for (at, proxy) in proxies {
        urls[*at] = proxy.url();
    }
    LockClient::builder().urls(urls).redlock()
}

#[test]
fn a_master_that_came_back_with_old_data_has_no_vote_for_a_client_that_slept() {
    // Over TCP the first write to a connection that has ended succeeds, and only the read fails.
    let mut masters = Masters((0..3).map(|_| Server::start_tcp(&["--dbfilename", "old.rdb"])).collect());
    wait_for_votes(&masters.builder().admit_fresh_nodes().build().unwrap(), 3);
    let (a, b) = (masters.client(), masters.client());
    // Its connections lie idle from here on.
    b.lock("other").unwrap().unlock().unwrap();
    wait_until("nothing stands", || masters.holding("other") == 0);
    wait_for_votes(&b, 3);
    masters.0[..2].iter().for_each(|server| server.cmd::<()>(&["SAVE"]));
    let guard = a.lock("l").unwrap();
    wait_until("all have it", || masters.holding("l") == 3);
    for server in &mut masters.0[..2] {
        server.restart();
    }
    let second = b.try_lock("l");
    assert!(guard.is_held());
    assert!(!matches!(second, Ok(Some(_))), "two have it: {guard:?} and {second:?}");
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
        wait_until("it listens", || masters.0.iter().all(|server| !server.channels().is_empty()));
        std::thread::sleep(ms(200));
        let before = masters.0[0].call_count("evalsha");
        std::thread::sleep(ms(1000));
        let tries = masters.0[0].call_count("evalsha") - before;
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
        assert!(tries < 20, "{tries} tries in a second");
    });
}

#[test]
fn a_lock_that_is_held_is_busy_also_with_one_master_dead_and_one_slower() {
    let mut masters = Masters::fresh(3);
    let slow = Proxy::start(&masters.0[2]);
    let a = masters.client();
    let b = behind(&masters, &[(2, &slow)]).build().unwrap();
    wait_for_votes(&b, 3);
    masters.0[0].kill();
    let _guard = a.lock("l").unwrap();
    wait_until("both have it", || masters.0[1..].iter().all(|server| !server.hash("l").is_empty()));
    wait_until("it is seen", || {
        let _ = b.mutex("x").is_locked();
        b.nodes()[0].state() == NodeState::Down
    });
    slow.inject("EVALSHA", Fault::StallReply(ms(60)));
    let tried = b.try_lock("l");
    slow.wait_hits(1);
    assert!(matches!(tried, Ok(None)), "{tried:?}");
}

#[test]
fn a_slow_master_does_not_keep_the_watchdog_from_renewing() {
    let masters = Masters::fresh(3);
    let slow = Proxy::start(&masters.0[2]);
    let client = behind(&masters, &[(2, &slow)]).lease(ms(2000)).io_timeout(ms(400)).build().unwrap();
    wait_for_votes(&client, 3);
    let guard = client.lock("kept").unwrap();
    slow.inject_times("EVALSHA", u32::MAX, Fault::StallReply(ms(100)));
    let start = Instant::now();
    let mut cycles = 0;
    while start.elapsed() < ms(6000) {
        if let Ok(Some(guard)) = client.try_lock(&format!("l{cycles}")) {
            let _ = guard.unlock();
        }
        cycles += 1;
        std::thread::sleep(ms(10));
        assert!(guard.is_held(), "lost after {:?} and {cycles} cycles", start.elapsed());
    }
}

#[test]
fn what_a_master_runs_after_a_stall_longer_than_the_lease_is_undone_as_well() {
    let masters = Masters::fresh(3);
    let client = masters.builder().lease(ms(3000)).io_timeout(ms(600)).build().unwrap();
    wait_for_votes(&client, 3);
    client.lock("other").unwrap().unlock().unwrap();
    masters.0[..2].iter().for_each(Server::suspend);
    let tried = client.try_lock("l");
    assert_eq!(tried.unwrap_err().kind(), ErrorKind::NoQuorum);
    std::thread::sleep(ms(5000));
    masters.0[..2].iter().for_each(Server::resume);
    let start = Instant::now();
    wait_until("it is undone", || {
        masters.holding("l") == 0
            && masters.0[0].client_lines().len() > 1
            && client.nodes().iter().all(|node| node.state() == NodeState::Voting)
    });
    assert!(start.elapsed() < ms(2500), "it stood for {:?}, as long as its lease", start.elapsed());
}

#[test]
fn a_call_is_not_told_that_there_is_no_quorum_because_other_calls_left_replies_owed() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let places: Vec<(usize, &Proxy)> = proxies.iter().enumerate().collect();
    let client = behind(&masters, &places).io_timeout(ms(2000)).build().unwrap();
    wait_for_votes(&client, 3);
    // Two connections to each of them.
    proxies.iter().for_each(|proxy| proxy.inject_times("warm", 2, Fault::StallReply(ms(100))));
    std::thread::scope(|s| {
        s.spawn(|| client.lock("warm1").unwrap().unlock().unwrap());
        s.spawn(|| client.lock("warm2").unwrap().unlock().unwrap());
    });
    wait_until("nothing stands", || masters.holding("warm1") + masters.holding("warm2") == 0);
    std::thread::sleep(ms(300));
    // Each is owed one reply, which nobody waits for.
    proxies[0].inject("late0", Fault::StallReply(ms(1500)));
    let _first = client.lock("late0").unwrap();
    proxies[1].inject("late1", Fault::StallReply(ms(1500)));
    let _second = client.lock("late1").unwrap();
    // And their other connections are in use.
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

#[test]
fn a_long_io_timeout_does_not_cost_the_lease() {
    let masters = Masters::fresh(3);
    let hole = Proxy::start(&masters.0[2]);
    let client = behind(&masters, &[(2, &hole)]).lease(ms(1500)).io_timeout(ms(1400)).build().unwrap();
    wait_for_votes(&client, 3);
    let guard = client.lock("l").unwrap();
    hole.silence(true);
    let start = Instant::now();
    while start.elapsed() < ms(4000) {
        assert!(guard.is_held(), "lost after {:?}", start.elapsed());
        std::thread::sleep(ms(10));
    }
}

#[test]
fn a_durable_master_votes_at_once_also_while_another_is_dead() {
    let servers = (0..3).map(|_| Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"])).collect();
    let mut masters = Masters(servers);
    wait_for_votes(&masters.builder().admit_fresh_nodes().build().unwrap(), 3);
    let client = masters.builder().durable_nodes().build().unwrap();
    wait_for_votes(&client, 3);
    client.lock("l").unwrap().unlock().unwrap();
    masters.0[0].kill();
    masters.0[1].restart();
    wait_until("a lock can be had", || client.lock("l").is_ok());
}

#[test]
fn a_master_that_is_down_from_the_start_costs_the_others_nothing() {
    let mut masters = Masters::fresh(3);
    masters.0[0].kill();
    let client = masters.client();
    wait_for_votes(&client, 2);
    let before = masters.0[1].call_count("time");
    std::thread::sleep(ms(2000));
    let looks = masters.0[1].call_count("time") - before;
    assert!(looks < 6, "asked {looks} times in two seconds");
}

#[test]
fn a_slow_master_blocks_nobody_who_looks_at_it() {
    let masters = Masters::fresh(3);
    let slow = Proxy::start(&masters.0[2]);
    let client = behind(&masters, &[(2, &slow)]).io_timeout(ms(1000)).build().unwrap();
    wait_for_votes(&client, 3);
    client.lock("other").unwrap().unlock().unwrap();
    slow.inject_times("EVALSHA", u32::MAX, Fault::StallReply(ms(300)));
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let looks = s.spawn(|| {
            let mut longest = ms(0);
            while !done.load(Ordering::Relaxed) {
                let start = Instant::now();
                let _ = client.nodes();
                longest = longest.max(start.elapsed());
                std::thread::sleep(ms(1));
            }
            longest
        });
        let start = Instant::now();
        while start.elapsed() < ms(3000) {
            client.lock("l").unwrap().unlock().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        let longest = looks.join().unwrap();
        assert!(longest < ms(150), "blocked for {longest:?}");
    });
}

#[test]
fn probes_of_black_holes_do_not_keep_the_watchdog_from_renewing() {
    let masters = Masters::fresh(9);
    let proxies: Vec<Proxy> = masters.0[..4].iter().map(Proxy::start).collect();
    let places: Vec<(usize, &Proxy)> = proxies.iter().enumerate().collect();
    let client = behind(&masters, &places).lease(ms(2000)).io_timeout(ms(500)).build().unwrap();
    wait_for_votes(&client, 9);
    let guard = client.lock("l").unwrap();
    proxies.iter().for_each(|proxy| proxy.silence(true));
    let start = Instant::now();
    while start.elapsed() < ms(12_000) {
        assert!(guard.is_held(), "lost after {:?}", start.elapsed());
        std::thread::sleep(ms(10));
    }
}

#[test]
fn connections_that_ended_while_they_lay_idle_fail_no_call() {
    let masters = Masters::fresh(3);
    let client = masters.client();
    wait_for_votes(&client, 3);
    client.lock("l").unwrap().unlock().unwrap();
    for server in &masters.0 {
        server.cmd::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    client.lock("l").unwrap().unlock().unwrap();
}
