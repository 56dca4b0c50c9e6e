//! Locks on a majority of several masters.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, NodeState};

use crate::rig::{CAP, Child, Fault, Masters, Proxy, Server, ms, wait_for_votes, wait_until};

#[test]
fn a_lock_is_held_on_all_and_given_back_on_all() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    let mut last = 0;
    for _ in 0..3 {
        let guard = a.lock("l").unwrap();
        wait_until("all have it", || masters.holding("l") == 3);
        assert!(guard.is_held() && b.try_lock("l").unwrap().is_none());
        let token = guard.fencing_token().unwrap().get();
        assert!(token > last);
        last = token;
        {
            let again = a.lock("l").unwrap();
            assert_eq!((again.hold_count(), again.fencing_token()), (2, guard.fencing_token()));
        }
        assert!(b.mutex("l").is_locked().unwrap());
        assert!(a.mutex("l").holder().unwrap().unwrap().is_this_client());
        guard.unlock().unwrap();
        assert!(!a.mutex("l").is_locked().unwrap());
        assert!(b.try_lock("l").unwrap().unwrap().fencing_token().unwrap().get() > last);
    }
    assert_eq!(a.nodes().len(), 3);
    drop((a, b));
    masters.assert_clean();
}

#[test]
fn a_waiter_is_woken_by_the_release() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    for _ in 0..3 {
        let guard = a.lock("l").unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| b.lock("l").map(|guard| guard.is_held()));
            wait_until("it listens", || masters.0.iter().all(|server| !server.channels().is_empty()));
            let start = Instant::now();
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap().unwrap());
            // Far below the lease, after which it would have looked.
            assert!(start.elapsed() < Duration::from_secs(10));
        });
    }
    drop((a, b));
    masters.assert_clean();
}

#[test]
fn a_minority_may_be_dead_from_the_start_and_a_majority_not() {
    for (count, dead) in [(3, 1), (5, 2)] {
        let mut masters = Masters::start(count);
        for server in &mut masters.0[..dead] {
            server.kill();
        }
        let client = masters.builder().admit_fresh_nodes().build().unwrap();
        wait_for_votes(&client, count - dead);
        let guard = client.lock("l").unwrap();
        assert!(guard.is_held());
        guard.unlock().unwrap();
        let down = client.nodes().iter().filter(|node| node.state() == NodeState::Down).count();
        assert_eq!(down, dead);
        assert!(client.nodes()[0].last_error().is_some());
        // They come back, and vote.
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

#[test]
fn contenders_do_not_split_the_vote_for_ever() {
    let masters = Masters::fresh(3);
    let clients: Vec<LockClient> = (0..4).map(|_| masters.client()).collect();
    let (inside, count) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        for client in clients.iter().chain(&clients) {
            s.spawn(|| {
                for _ in 0..20 {
                    let guard = client.lock("l").unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    count.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 160);
    drop(clients);
    masters.assert_clean();
}

/// One that is free is given to somebody, also when all try at once and nobody waits.
#[test]
fn somebody_wins_when_all_try_at_once() {
    let masters = Masters::fresh(3);
    let clients: Vec<LockClient> = (0..3).map(|_| masters.client()).collect();
    let start = std::sync::Barrier::new(3);
    for _ in 0..30 {
        let won: Vec<_> = std::thread::scope(|s| {
            let threads: Vec<_> = clients
                .iter()
                .map(|client| {
                    s.spawn(|| {
                        start.wait();
                        client.mutex("l").try_lock_owned_for(ms(500)).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(won.iter().flatten().count(), 1);
    }
}

/// The majorities of the two have one master in common, which keeps them apart.
#[test]
fn two_clients_whose_majorities_meet_in_one_master() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let cut_off_from = |dead: usize| {
        proxies[dead].refuse(true);
        let mut urls = masters.urls();
        urls[dead] = proxies[dead].url();
        let client = LockClient::builder().urls(urls).redlock().build().unwrap();
        wait_for_votes(&client, 2);
        client
    };
    let (a, b) = (cut_off_from(2), cut_off_from(0));
    let mut last = 0;
    for _ in 0..10 {
        let guard = a.lock("l").unwrap();
        assert!(guard.fencing_token().unwrap().get() > last);
        last = guard.fencing_token().unwrap().get();
        assert!(b.try_lock("l").unwrap().is_none());
        guard.unlock().unwrap();
        let guard = b.lock("l").unwrap();
        assert!(guard.fencing_token().unwrap().get() > last);
        last = guard.fencing_token().unwrap().get();
        assert!(a.try_lock("l").unwrap().is_none());
        guard.unlock().unwrap();
    }
}

const FAULTS: [Fault; 5] = [
    Fault::CutBeforeSend,
    Fault::CutAfterApplied,
    Fault::CutReplyAt(3),
    Fault::BlackHoleReply,
    Fault::StallReply(ms(400)),
];

/// On one, two and all masters, of the acquire and of the release: nothing stays anywhere, and the next gets it.
#[test]
fn lost_and_late_replies_leave_nothing_behind() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let other = masters.client();
    for fault in FAULTS {
        for broken in 1..=3 {
            let urls = proxies.iter().map(Proxy::url);
            let client = LockClient::builder().urls(urls).redlock().io_timeout(ms(600)).build().unwrap();
            wait_for_votes(&client, 3);
            let what = format!("{fault:?} on {broken}");
            let inject = || proxies[..broken].iter().for_each(|proxy| proxy.inject("{l}", fault));
            inject();
            match client.try_lock("l") {
                Ok(Some(guard)) => {
                    assert!(guard.is_held(), "{what}");
                    guard.unlock().expect(&what);
                }
                Ok(None) => panic!("{what}: nobody else has it"),
                Err(e) => assert_eq!(e.kind(), ErrorKind::NoQuorum, "{what}: {e}"),
            }
            wait_until(&format!("{what}: nothing of the acquire stays"), || masters.holding("l") == 0);
            wait_for_votes(&client, 3);
            let guard = client.lock("l").expect(&what);
            inject();
            if let Err(e) = guard.unlock() {
                assert_eq!(e.kind(), ErrorKind::NoQuorum, "{what}: {e}");
            }
            wait_until(&format!("{what}: nothing of the hold stays"), || masters.holding("l") == 0);
            proxies.iter().for_each(|proxy| proxy.inject("no request has this", Fault::CutBeforeSend));
            other.try_lock("l").unwrap().expect(&what).unlock().unwrap();
            wait_for_votes(&client, 3);
            client.try_lock("l").unwrap().expect(&what).unlock().unwrap();
            wait_until(&format!("{what}: nothing stays"), || masters.holding("l") == 0);
        }
    }
}

/// Something done to the first of three masters, which has a proxy in front.
type Step = fn(&mut Masters, &Proxy);

/// What happens to it, and is over again.
fn troubles() -> [(&'static str, Step, Step); 4] {
    [
        ("stopped", |masters, _| masters.0[0].suspend(), |masters, _| masters.0[0].resume()),
        ("silent", |_, proxy| proxy.silence(true), |_, proxy| proxy.silence(false)),
        ("cut off", |_, proxy| (proxy.refuse(true), proxy.cut_all()).1, |_, proxy| proxy.refuse(false)),
        ("dead", |masters, _| masters.0[0].kill(), |masters, _| masters.0[0].start_again()),
    ]
}

/// Locks are taken, kept and given back meanwhile, and once it is over it has no lock of theirs, and votes.
#[test]
fn one_master_in_trouble_stops_nobody() {
    std::thread::scope(|s| {
        for (trouble, begin, end) in troubles() {
            s.spawn(move || nobody_is_stopped_by(trouble, begin, end));
        }
    });
}

fn nobody_is_stopped_by(trouble: &str, begin: Step, end: Step) {
    // Far more than a healthy master needs on a busy machine.
    let lease = ms(4000);
    let mut masters = Masters::fresh(3);
    let proxy = Proxy::start(&masters.0[0]);
    let mut urls = masters.urls();
    urls[0] = proxy.url();
    let builder = LockClient::builder().urls(urls).redlock().lease(lease).longest_lease(lease).io_timeout(ms(1000));
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
    // It is waited for once, and not in every call.
    assert!(rounds > 5, "{trouble}: {rounds} rounds, and waiting each time leaves time for 4");
    assert!(kept.is_held(), "{trouble}: renewed by the others");
    assert!(b.try_lock("kept").unwrap().is_none(), "{trouble}");
    end(&mut masters, &proxy);
    wait_for_votes(&a, 3);
    wait_until(&format!("{trouble}: it has the kept lock, and no other"), || masters.0[0].lock_keys() == ["kept"]);
    let left = kept.remaining();
    kept.unlock().unwrap_or_else(|e| panic!("{trouble}, with {left:?} left: {e}"));
    drop((a, b));
    drop(proxy);
    masters.assert_clean();
}

/// A renewal whose replies are lost or late, on any number of masters, ends nothing, and is repeated in time.
#[test]
fn lost_renewals_shorten_nothing() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let client = LockClient::builder().urls(urls).redlock().lease(ms(1600)).io_timeout(ms(300)).build().unwrap();
    wait_for_votes(&client, 3);
    let guard = client.lock("kept").unwrap();
    let mut hits = [0; 3];
    for fault in FAULTS {
        for broken in 1..=3 {
            for (proxy, hits) in proxies.iter().zip(&mut hits).take(broken) {
                proxy.inject("kept", fault);
                *hits += 1;
            }
            // The next renewals meet it.
            proxies.iter().zip(hits).for_each(|(proxy, hits)| proxy.wait_hits(hits));
            wait_until(&format!("{fault:?} on {broken}: renewed"), || guard.remaining() > ms(1150));
        }
    }
    assert!(guard.is_held());
    wait_until("all have it", || masters.holding("kept") == 3);
    guard.unlock().unwrap();
    drop((client, proxies));
    masters.assert_clean();
}

/// The hold ends in time and the waiter follows, when there is no majority any more.
#[test]
fn without_a_majority_a_hold_ends_in_time() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.builder().lease(ms(1200)).build().unwrap(), masters.client());
    let guard = a.lock("l").unwrap();
    masters.0[0].suspend();
    masters.0[1].suspend();
    assert!(guard.wait_lost(CAP));
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(b.try_lock("l").unwrap_err().kind(), ErrorKind::NoQuorum);
    masters.0[0].resume();
    masters.0[1].resume();
    wait_for_votes(&b, 3);
    assert!(b.lock("l").unwrap().is_held());
    drop((a, b));
    masters.assert_clean();
}

#[test]
fn a_waiter_is_woken_while_a_master_is_dead_and_when_it_is_back() {
    let mut masters = Masters::fresh(3);
    let open = || masters.builder().longest_lease(ms(30_000)).build().unwrap();
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
            wait_until("it listens", || !masters.0[1].channels().is_empty() && !masters.0[2].channels().is_empty());
            let start = Instant::now();
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap().unwrap());
            assert!(start.elapsed() < Duration::from_secs(10), "by the message");
        });
        wait_until("it listens no more", || masters.0[1].channels().is_empty());
    }
}

#[test]
fn what_cannot_rest_on_several_masters_says_so() {
    let masters = Masters::fresh(3);
    let client = masters.client();
    for error in [
        client.fair("l").lock().err(),
        client.fair("l").queue_len().err(),
        client.multi(["l", "m"]).lock().err(),
        client.multi(["l", "m"]).try_lock_owned().err(),
        client.rw_lock("l").read().err(),
        client.rw_lock("l").write().err(),
        client.semaphore("l").acquire().err(),
        client.semaphore("l").try_set_permits(1).err(),
        client.semaphore("l").available_permits().err(),
        client.counting_semaphore("l").acquire().err(),
        client.latch("l").try_set_count(1).err(),
        client.latch("l").wait().err(),
        client.fenced_value("v").claim(token(&client)).err(),
    ] {
        assert_eq!(error.expect("it says so").kind(), ErrorKind::Unsupported);
    }
    drop(client);
    masters.assert_clean();
}

fn token(client: &LockClient) -> leasehold::fencing::FencingToken {
    client.lock("token").unwrap().fencing_token().unwrap()
}

#[test]
fn settings_that_do_not_fit_are_told() {
    let masters = Masters::start(3);
    let urls = masters.urls();
    let redlock = |urls: &[String]| LockClient::builder().urls(urls.to_vec()).redlock();
    let refused = |builder: leasehold::Builder| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    };
    refused(LockClient::builder().urls(urls.clone()));
    refused(redlock(&urls[..2]));
    refused(redlock(&[urls[0].clone(), urls[1].clone(), urls[0].clone()]));
    refused(redlock(&urls).lease(ms(2000)).longest_lease(ms(1000)));
    // One server under two names.
    let tcp = Server::start_tcp(&[]);
    let named = tcp.url().replace("127.0.0.1", "localhost");
    refused(redlock(&[urls[0].clone(), tcp.url(), named]));
    let client = redlock(&urls).admit_fresh_nodes().build().unwrap();
    let error = client.mutex("l").with_lease(ms(60_000)).lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("longest_lease"), "{error}");
    assert_eq!(masters.holding("l"), 0);
}

/// Operators see it, and can free it.
#[test]
fn operators_see_and_free() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.builder().lease(ms(1500)).build().unwrap(), masters.client());
    let guard = a.lock("l").unwrap();
    let holder = b.mutex("l").holder().unwrap().unwrap();
    assert!(!holder.is_this_client() && holder.remaining().is_some_and(|left| left <= ms(1500)));
    assert!(b.mutex("l").force_unlock().unwrap() && !b.mutex("l").force_unlock().unwrap());
    assert!(b.lock("l").unwrap().is_held());
    assert!(guard.wait_lost(CAP));
    // Somebody's who has no majority is nobody's.
    masters.0[0].cmd::<()>(&["HSET", "l", "somebody", "1"]);
    assert!(!b.mutex("l").is_locked().unwrap());
    let _ours = b.lock("l").unwrap();
}

/// `RedissonRedLock` has another id on each master. Whoever waits for it sleeps, and operators see that it is held.
#[test]
fn a_hold_with_another_id_on_each_master_is_one() {
    let masters = Masters::fresh(3);
    let client = masters.client();
    for (n, server) in masters.0.iter().enumerate() {
        server.cmd::<()>(&["HSET", "l", &format!("a8a5ef81-b5b7-4d39-a987-611a1db5d2f{n}:30"), "1"]);
        server.cmd::<()>(&["PEXPIRE", "l", "30000"]);
    }
    let holder = client.mutex("l").holder().unwrap().expect("it is held");
    assert!(!holder.is_this_client() && holder.remaining().is_some_and(|left| left > ms(10_000)));
    assert!(client.mutex("l").is_locked().unwrap());
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.try_lock_for("l", CAP).map(|got| got.is_some()));
        wait_until("it listens", || masters.0.iter().all(|server| !server.channels().is_empty()));
        masters.0[1].cmd::<()>(&["CONFIG", "RESETSTAT"]);
        std::thread::sleep(ms(1000));
        let calls = masters.0[1].call_count("evalsha") + masters.0[1].call_count("eval");
        assert!(calls <= 4, "{calls} scripts in a second");
        for server in &masters.0 {
            server.cmd::<()>(&["DEL", "l"]);
            server.cmd::<()>(&["PUBLISH", "redisson_lock__channel:{l}", "0"]);
        }
        assert!(waiter.join().unwrap().unwrap());
    });
    // Of several threads none has a majority.
    for (n, server) in masters.0.iter().enumerate() {
        server.cmd::<()>(&["HSET", "m", &format!("a8a5ef81-b5b7-4d39-a987-611a1db5d2f{n}:{n}"), "1"]);
    }
    assert!(!client.mutex("m").is_locked().unwrap());
    assert!(client.try_lock("m").unwrap().is_none());
}

/// While it is quiet, and while one is down, the masters are left alone.
#[test]
fn a_waiter_and_a_dead_master_cost_little() {
    let mut masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    masters.0[0].kill();
    let guard = a.lock("l").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock("l").map(|guard| guard.is_held()));
        wait_until("it listens", || !masters.0[1].channels().is_empty());
        masters.0[1].cmd::<()>(&["CONFIG", "RESETSTAT"]);
        std::thread::sleep(ms(1500));
        let calls = masters.0[1].call_count("evalsha") + masters.0[1].call_count("eval");
        assert!(calls <= 4, "{calls} scripts in 1.5 s");
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
}

#[test]
fn eight_processes_count_exactly() {
    let masters = Masters::fresh(3);
    let counter = Server::start();
    counter.cmd::<()>(&["SET", "counter", "0"]);
    let (urls, url) = (masters.urls().join(" "), counter.url());
    let env = [("LEASEHOLD_TEST_URLS", &*urls), ("LEASEHOLD_TEST_URL", &*url)];
    let mut children: Vec<_> = (0..8).map(|_| Child::spawn("redlock::counting_process", &env)).collect();
    for child in &mut children {
        child.expect("done");
    }
    children.into_iter().for_each(Child::wait);
    assert_eq!(counter.cmd::<u32>(&["GET", "counter"]), 8 * 2 * 20);
    masters.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn counting_process() {
    let (urls, url) = (std::env::var("LEASEHOLD_TEST_URLS").unwrap(), std::env::var("LEASEHOLD_TEST_URL").unwrap());
    let client = LockClient::builder().urls(urls.split(' ')).redlock().build().unwrap();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let mut redis = redis::Client::open(&*url).unwrap().get_connection().unwrap();
                for _ in 0..20 {
                    let guard = client.lock("job").unwrap();
                    // Read and write apart: only the lock keeps the counter exact.
                    let old: u32 = redis::cmd("GET").arg("counter").query(&mut redis).unwrap();
                    redis::cmd("SET").arg("counter").arg(old + 1).exec(&mut redis).unwrap();
                    guard.unlock().unwrap();
                }
            });
        }
    });
    drop(client);
    println!("@@done");
}

/// It was never sent anything of the locks taken since, so there is nothing to undo there.
#[test]
fn a_dead_master_leaves_nothing_to_be_settled() {
    let mut masters = Masters::fresh(3);
    let client = masters.client();
    masters.0[1].kill();
    for _ in 0..200 {
        client.lock("l").unwrap().unlock().unwrap();
    }
    client.close(CAP).unwrap();
}

/// What the crate docs say that a user needs more than for one server.
#[test]
fn a_user_with_an_acl_can_use_it() {
    let masters = Masters::fresh(3);
    let rule: Vec<&str> = include_str!("../../src/guide/operations.rs")
        .split("A user with an ACL needs these")
        .nth(1)
        .and_then(|rest| rest.split("maxmemory-policy").next())
        .into_iter()
        .flat_map(|rest| rest.split(|c: char| c.is_whitespace() || "`.,();".contains(c)))
        .filter(|word| word.starts_with(['+', '&']) || word.starts_with("~re") || word.starts_with("~le"))
        .collect();
    assert!(rule.contains(&"+hmget") && rule.contains(&"~leasehold:node") && rule.contains(&"+hset"), "{rule:?}");
    let user = |rule: &[&str]| {
        for server in &masters.0 {
            let words = [&["ACL", "SETUSER", "u", "reset", "on", ">pw", "resetchannels", "~l"], rule].concat();
            server.cmd::<()>(&words);
        }
        let urls = masters.urls().into_iter().map(|url| format!("{url}?user=u&pass=pw"));
        LockClient::builder().urls(urls).redlock()
    };
    let client = user(&rule).build().unwrap();
    let guard = client.lock("l").unwrap();
    guard.extend(ms(30_000)).unwrap();
    guard.unlock().unwrap();
    drop(client);
    let without: Vec<&str> = rule.iter().copied().filter(|word| *word != "+hmget").collect();
    let client = user(&without).connect_lazily().build().unwrap();
    assert_eq!(client.try_lock("l").unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(masters.holding("l"), 0);
}

/// Over TCP the first request after it seems to be sent: the end of the connection is read behind it.
#[test]
fn connections_that_ended_in_their_sleep_fail_no_call() {
    let masters = Masters((0..3).map(|_| Server::start_tcp(&[])).collect());
    let client = masters.builder().admit_fresh_nodes().build().unwrap();
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

/// A client that takes it again on the spot lets another in now and then.
#[test]
fn no_client_keeps_it_for_itself() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    let (done, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                a.lock("l").unwrap().unlock().unwrap();
                turns.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_until("the other one has it", || turns.load(Ordering::SeqCst) > 0);
        let got = (0..20).all(|_| b.try_lock_for("l", Duration::from_secs(5)).unwrap().is_some());
        done.store(true, Ordering::SeqCst);
        assert!(got, "left out");
    });
}

/// Java waits for one master after the other, also for the third when it has two. A vote that was in its way is taken back
/// with a message that is none to ours: one that wakes those who took it would never end.
#[test]
fn a_vote_beside_java_is_taken_back_with_a_message_to_java_alone() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    for (n, server) in masters.0[..2].iter().enumerate() {
        server.cmd::<()>(&["HSET", "l", &format!("a8a5ef81-b5b7-4d39-a987-611a1db5d2f{n}:30"), "1"]);
    }
    let mut java = masters.0[2].connect();
    let mut java = java.as_pubsub();
    java.set_read_timeout(Some(CAP)).unwrap();
    java.subscribe("redisson_lock__channel:{l}").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.try_lock_for("l", CAP).map(|got| got.is_some()));
        wait_until("it listens", || masters.0.iter().all(|server| !server.channels().is_empty()));
        masters.0[1].cmd::<()>(&["CONFIG", "RESETSTAT"]);
        for _ in 0..50 {
            assert!(a.try_lock("l").unwrap().is_none());
            // A number to Java, and the number is 0.
            assert_eq!(java.get_message().unwrap().get_payload::<String>().unwrap(), "00");
        }
        let calls = masters.0[1].call_count("evalsha");
        assert!(calls < 75, "{calls} scripts, 50 of them the other's");
        assert!(a.mutex("l").force_unlock().unwrap());
        assert!(waiter.join().unwrap().unwrap());
    });
}
