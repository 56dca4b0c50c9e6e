//! Several locks acquired as one, on a real server: all or nothing, in any order, in competition
//! with clients that acquire one of them.

mod faults;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, LockClient};

use crate::rig::{Child, Server, ms, wait_until};
use crate::support::Clients;

/// Far longer than anything takes that does not wait for a lease.
const SOON: Duration = Duration::from_secs(10);
/// Long enough that no test can pass because a lease ended.
const LONG: Duration = Duration::from_secs(120);

fn patient(server: &Server) -> LockClient {
    server.builder().lease(LONG).build().unwrap()
}

/// A holder that is not a leasehold client, such as a Redisson client.
fn hold(server: &Server, name: &str) {
    server.cmd::<u32>(&["HSET", name, "dddddddd-dddd-4ddd-8ddd-dddddddddddd:57", "1"]);
    server.cmd::<u32>(&["PEXPIRE", name, "120000"]);
}

fn give_up(server: &Server, name: &str) {
    server.cmd::<u32>(&["DEL", name]);
    server.cmd::<u32>(&["PUBLISH", &format!("redisson_lock__channel:{{{name}}}"), "0"]);
}

fn listens(server: &Server, name: &str) -> bool {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    server.channels().contains(&channel)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(
    result: leasehold::Result<T>,
    kind: ErrorKind,
    name: Option<&str>,
) -> Error {
    let e = result.unwrap_err();
    assert_eq!((e.kind(), e.name()), (kind, name), "{e:?}");
    e
}

#[test]
fn it_excludes_and_is_excluded_by_whoever_takes_one_of_them() {
    let server = Server::start();
    let (a, b) = (patient(&server), patient(&server));
    let all = a.multi(["c", "a", "b"]).lock().unwrap();
    assert_eq!((all.name(), all.names().collect::<Vec<_>>()), ("a, b, c", vec!["a", "b", "c"]));
    assert!(all.is_held() && all.remaining() > LONG / 2 && all.hold_count() == 1);
    for name in ["a", "b", "c"] {
        assert!(b.try_lock(name).unwrap().is_none(), "{name}");
        assert!(b.multi(["d", name]).try_lock().unwrap().is_none(), "{name}");
        assert!(b.fair(name).try_lock().unwrap().is_none(), "{name}");
        assert!(a.mutex(name).holder().unwrap().unwrap().is_this_client());
        let same_client =
            std::thread::scope(|s| s.spawn(|| a.try_lock(name).unwrap().is_none()).join().unwrap());
        assert!(same_client, "{name}");
    }
    assert!(b.try_lock("d").unwrap().is_some(), "not part of it");
    all.unlock().unwrap();
    for name in ["a", "b", "c"] {
        let one = b.lock(name).unwrap();
        assert!(a.multi(["a", "b", "c"]).try_lock().unwrap().is_none(), "{name}");
        assert!(a.multi(["a", "b", "c"]).try_lock_owned_for(ms(20)).unwrap().is_none(), "{name}");
        assert_eq!(server.lock_keys(), [name], "no part of it is acquired");
        drop(one);
    }
    assert!(a.multi(["a", "b", "c"]).try_lock().unwrap().is_some());
    drop((a, b));
    server.assert_clean();
}

/// An observer sees both locks or none at any moment, whoever holds them.
#[test]
fn nobody_ever_sees_half_of_it() {
    const LOOK: &str = "return {redis.call('hgetall', 'a'), redis.call('hgetall', 'b')}";
    let server = Server::start();
    let clients = [patient(&server), patient(&server)];
    let (over, seen) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut watcher = server.connect();
            while !over.load(Ordering::SeqCst) {
                let [a, b]: [Vec<String>; 2] =
                    redis::cmd("EVAL").arg(LOOK).arg(0).query(&mut watcher).unwrap();
                assert_eq!(a, b, "only one of them, or two holders");
                seen.fetch_add(u32::from(!a.is_empty()), Ordering::SeqCst);
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|n| {
                let names = if n < 2 { ["a", "b"] } else { ["b", "a"] };
                let lock = clients[n % 2].multi(names);
                s.spawn(move || {
                    for _ in 0..60 {
                        lock.lock().unwrap().unlock().unwrap();
                        drop(lock.try_lock_for(ms(1)).unwrap());
                    }
                })
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert!(seen.load(Ordering::SeqCst) > 0, "it was held when it was checked");
    assert!(server.lock_keys().is_empty());
}

const ACCOUNTS: usize = 5;
const TRANSFERS: usize = 40;

/// Moves one unit between accounts with separate reads and writes, so only the lock keeps the sum
/// exact.
fn transfers(url: &str, seed: usize) {
    let client = LockClient::builder().url(url).lease(LONG).build().unwrap();
    let mut db = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut random = seed;
    let mut draw = || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("account{}", (random >> 33) % ACCOUNTS)
    };
    for turn in 0..TRANSFERS {
        // In a random order, and with more names than needed.
        let (from, to, other) = (draw(), draw(), draw());
        let guard = match turn % 2 {
            0 => client.multi([&from, &to, &other]).lock().unwrap(),
            _ => client.multi([&from, &to]).try_lock_for(LONG).unwrap().expect("it becomes free"),
        };
        for (account, change) in [(&from, -1), (&to, 1)] {
            let key = format!("balance:{account}");
            let old: i64 = redis::cmd("GET").arg(&key).query(&mut db).unwrap();
            redis::cmd("SET").arg(&key).arg(old + change).exec(&mut db).unwrap();
        }
        redis::cmd("INCR").arg("balance:turns").exec(&mut db).unwrap();
        guard.unlock().unwrap();
    }
}

#[test]
fn orders_do_not_matter_and_counts_are_exact() {
    let server = Server::start();
    for account in 0..ACCOUNTS {
        server.cmd::<()>(&["SET", &format!("balance:account{account}"), "100"]);
    }
    let url = server.url();
    let child = |n: &str| {
        Child::spawn("multi::transferring_process", &[("LEASEHOLD_TEST_URL", &*url), ("SEED", n)])
    };
    let mut children = [child("11"), child("12")];
    std::thread::scope(|s| {
        for seed in 0..4 {
            let url = &url;
            s.spawn(move || transfers(url, seed));
        }
    });
    for child in &mut children {
        child.expect("done");
    }
    for child in children {
        child.wait();
    }
    let balance = |account| server.cmd::<i64>(&["GET", &format!("balance:account{account}")]);
    assert_eq!((0..ACCOUNTS).map(balance).sum::<i64>(), 100 * ACCOUNTS as i64);
    assert_eq!(server.cmd::<usize>(&["GET", "balance:turns"]), 6 * TRANSFERS);
    for key in &server.lock_keys() {
        assert!(key.starts_with("balance:"), "{key} is left");
    }
}

#[test]
#[ignore = "a program for other tests"]
fn transferring_process() {
    let [url, seed] = ["LEASEHOLD_TEST_URL", "SEED"].map(|name| std::env::var(name).unwrap());
    transfers(&url, seed.parse().unwrap());
    println!("@@done");
}

#[test]
fn names_are_checked_before_anything_is_sent() {
    let server = Server::start();
    let client = server.client();
    let before = server.call_count("evalsha");
    let none: [&str; 0] = [];
    for (names, bad) in [
        (&none[..], None),
        (&["a", ""], Some("")),
        (&["a", "b{c"], Some("b{c")),
        (&["a", "}b"], Some("}b")),
    ] {
        let multi = client.multi(names);
        assert_eq!(multi.names().count(), 0);
        refused(multi.lock(), ErrorKind::InvalidInput, bad);
        refused(multi.try_lock(), ErrorKind::InvalidInput, bad);
        refused(multi.try_lock_for(ms(10)), ErrorKind::InvalidInput, bad);
        refused(multi.try_lock_until(Instant::now()), ErrorKind::InvalidInput, bad);
        refused(multi.lock_owned(), ErrorKind::InvalidInput, bad);
        refused(multi.try_lock_owned(), ErrorKind::InvalidInput, bad);
    }
    let many = |n: usize| (0..n).map(|i| format!("name{i}"));
    let e = refused(client.multi(many(1001)).try_lock(), ErrorKind::InvalidInput, None);
    assert!(e.to_string().contains("1001"), "{e}");
    let fixed = client.multi(["a", "b"]).with_lease(ms(1));
    refused(fixed.try_lock(), ErrorKind::InvalidInput, Some("a, b"));
    refused(
        client.multi(["a", "b"]).max_hold(Duration::ZERO).lock(),
        ErrorKind::InvalidInput,
        Some("a, b"),
    );
    assert_eq!(server.call_count("evalsha"), before, "nothing was sent");

    let thousand = client.multi(many(1000).chain(many(1000)));
    let guard = thousand.lock().unwrap();
    assert_eq!(guard.name(), "name0, name1, name10 and 997 more");
    assert_eq!((guard.names().count(), server.lock_keys().len()), (1000, 1000));
    guard.extend(LONG).unwrap();
    assert!(guard.remaining() > LONG / 2);
    guard.unlock().unwrap();
    assert!(server.lock_keys().is_empty());
    let twice = client.multi(["a", "b", "a"]).lock_owned().unwrap();
    assert_eq!(
        (twice.names().count(), server.hash("a").values().next().unwrap().as_str()),
        (2, "1")
    );
    let slices: Vec<String> = vec!["c".into()];
    drop(client.multi(&slices).try_lock().unwrap().expect("one name is enough"));
}

#[test]
fn it_enters_again_what_the_thread_holds() {
    let server = Server::start();
    let (client, other) = (patient(&server), patient(&server));
    let count = |name: &str| server.hash(name).into_values().next();
    let single = client.lock("b").unwrap();
    let multi = client.multi(["a", "b", "c"]).lock().unwrap();
    assert_eq!((count("a").as_deref(), count("b").as_deref()), (Some("1"), Some("2")));
    assert_eq!((single.hold_count(), multi.hold_count()), (2, 1));
    assert_eq!(
        multi.fencing_token("b").unwrap(),
        single.fencing_token().unwrap(),
        "of the hold, whoever entered it first"
    );
    let inner = client.lock("c").unwrap();
    let again = client.multi(["c", "b", "a"]).try_lock().unwrap().unwrap();
    assert_eq!(["a", "b", "c"].map(|name| count(name).unwrap()), ["2", "3", "3"]);
    assert!(
        client.multi(["a", "d"]).try_lock_owned().unwrap().is_none(),
        "owned forms never re-enter"
    );
    // In any order.
    multi.unlock().unwrap();
    assert_eq!(["a", "b", "c"].map(|name| count(name).unwrap()), ["1", "2", "2"]);
    single.unlock().unwrap();
    inner.unlock().unwrap();
    assert!(again.is_held());
    for name in ["a", "b", "c"] {
        assert!(other.try_lock(name).unwrap().is_none(), "{name}");
    }
    again.unlock().unwrap();
    assert!(server.lock_keys().is_empty());
    // A callback of a dropped guard must not run although the hold continues.
    let outer = client.lock("b").unwrap();
    let reported = std::sync::Arc::new(AtomicU32::new(0));
    let multi = client.multi(["a", "b"]).lock().unwrap();
    let count = reported.clone();
    multi.on_lost(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    multi.unlock().unwrap();
    let last = reported.clone();
    outer.on_lost(move |_| {
        last.fetch_add(10, Ordering::SeqCst);
    });
    server.cmd::<u32>(&["DEL", "b"]);
    refused(client.multi(["a", "b"]).lock(), ErrorKind::Lost, Some("b"));
    wait_until("the other guard's is called", || reported.load(Ordering::SeqCst) >= 10);
    assert_eq!(reported.load(Ordering::SeqCst), 10);
    assert!(server.lock_keys().is_empty(), "nothing is left of a call that met a loss");
    refused(outer.unlock(), ErrorKind::Lost, Some("b"));
    drop((client, other));
    server.assert_clean();
}

#[test]
fn a_lock_of_another_kind_or_no_lock_is_reported_and_nothing_is_acquired() {
    let server = Server::start();
    let client = patient(&server);
    let writer = client.rw_lock("r").write().unwrap();
    let fair = client.fair("f").lock().unwrap();
    server.cmd::<u32>(&["RPUSH", "list", "x"]);
    let before = server.lock_keys().len();
    refused(client.multi(["a", "r", "z"]).lock(), ErrorKind::Conflict, Some("r"));
    refused(client.multi(["a", "f", "z"]).lock(), ErrorKind::Conflict, Some("f"));
    refused(client.multi(["a", "r", "z"]).lock_owned(), ErrorKind::WrongType, Some("r"));
    refused(client.multi(["a", "list", "z"]).try_lock(), ErrorKind::WrongType, Some("list"));
    assert!(
        client.multi(["a", "f"]).try_lock_owned().unwrap().is_none(),
        "a fair lock is held like any other lock"
    );
    server.cmd::<()>(&["SET", "redisson_lock_token:{t}", "x"]);
    assert!(client.multi(["a", "t", "z"]).try_lock().is_err(), "a counter that is not a number");
    assert_eq!(server.lock_keys().len(), before, "{:?}", server.lock_keys());
    drop((writer, fair));
}

#[test]
fn a_foreign_holder_blocks_it_and_its_message_wakes() {
    let server = Server::start();
    let client = patient(&server);
    hold(&server, "b");
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.multi(["a", "b", "c"]).lock().map(|guard| guard.is_held()));
        wait_until("it waits for b", || listens(&server, "b"));
        assert!(!listens(&server, "a") && !listens(&server, "c") && server.lock_keys() == ["b"]);
        let start = Instant::now();
        give_up(&server, "b");
        assert!(waiter.join().unwrap().unwrap());
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    });
    assert!(server.lock_keys().is_empty());
}

#[test]
fn it_waits_for_one_name_after_the_other() {
    let server = Server::start();
    let client = patient(&server);
    for round in 0..2 {
        for name in ["a", "b", "c"] {
            hold(&server, name);
        }
        std::thread::scope(|s| {
            let waiter =
                s.spawn(|| client.multi(["c", "b", "a"]).lock().map(|guard| guard.is_held()));
            wait_until("it waits for a", || listens(&server, "a"));
            give_up(&server, "a");
            wait_until("it waits for b", || listens(&server, "b"));
            // While it waits for b it is not queued for a.
            if round == 1 {
                client.lock("a").unwrap().unlock().unwrap();
                assert!(client.try_lock_for("a", SOON).unwrap().is_some());
            }
            // A lock that it does not wait for.
            give_up(&server, "c");
            hold(&server, "c");
            give_up(&server, "b");
            wait_until("it waits for c", || listens(&server, "c"));
            assert_eq!(server.lock_keys(), ["c"]);
            give_up(&server, "c");
            assert!(waiter.join().unwrap().unwrap());
        });
        wait_until("the channels are unsubscribed", || server.channels().is_empty());
    }
}

#[test]
fn a_thread_of_the_same_client_wakes_it() {
    let server = Server::start();
    let client = patient(&server);
    let (a, b) = (client.mutex("a").lock_owned().unwrap(), client.mutex("b").lock_owned().unwrap());
    std::thread::scope(|s| {
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                s.spawn(|| {
                    let guard = client.multi(["a", "b"]).lock().unwrap();
                    assert!(guard.is_held());
                    Instant::now()
                })
            })
            .collect();
        let singles = s.spawn(|| client.lock("b").unwrap().unlock());
        std::thread::sleep(ms(30));
        a.unlock().unwrap();
        std::thread::sleep(ms(30));
        let start = Instant::now();
        b.unlock().unwrap();
        singles.join().unwrap().unwrap();
        for waiter in waiters {
            assert!(waiter.join().unwrap() - start < SOON);
        }
    });
    assert!(server.lock_keys().is_empty());
}

#[test]
fn deadlines_leave_nothing() {
    let server = Server::start();
    let client = patient(&server);
    hold(&server, "b");
    for wait in [0, 1, 30, 120] {
        let start = Instant::now();
        assert!(client.multi(["a", "b", "c"]).try_lock_for(ms(wait)).unwrap().is_none());
        assert!(
            client.multi(["a", "b", "c"]).try_lock_owned_until(start + ms(wait)).unwrap().is_none()
        );
        assert!(start.elapsed() >= ms(wait) && start.elapsed() < SOON);
        assert_eq!(server.lock_keys(), ["b"]);
    }
    server.cmd::<u32>(&["DEL", "b"]);
    drop(client);
    server.assert_clean();
}

#[test]
fn a_wait_costs_what_a_plain_one_does_however_long() {
    let server = Server::start();
    let client = patient(&server);
    hold(&server, "b");
    let multi = client.multi((0..20).map(|n| format!("a{n}")).chain(["b".to_owned()]));
    // Before counting: the first wait loads the script and opens the subscriber connection.
    assert!(multi.try_lock_for(ms(50)).unwrap().is_none());
    wait_until("the channel is unsubscribed", || server.channels().is_empty());
    server.cmd::<()>(&["CONFIG", "RESETSTAT"]);
    assert!(multi.try_lock_for(ms(1500)).unwrap().is_none());
    let calls = server.calls();
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    // An attempt, a subscription, another attempt.
    assert!(of("evalsha") <= 2 && of("subscribe") <= 1 && of("publish") == 0, "{calls:?}");
    // A free lock takes one command to acquire and one to release, whatever the number of names.
    server.cmd::<u32>(&["DEL", "b"]);
    multi.lock().unwrap().unlock().unwrap();
    server.cmd::<()>(&["CONFIG", "RESETSTAT"]);
    multi.lock().unwrap().unlock().unwrap();
    assert_eq!(server.call_count("evalsha"), 2);
}

#[test]
fn every_name_has_tokens_that_grow() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for turn in 0..6 {
        let guard = if turn % 2 == 0 { &client } else { &other }.multi(["a", "b"]).lock().unwrap();
        refused(guard.fencing_token("c").map(drop), ErrorKind::InvalidInput, Some("c"));
        for name in ["a", "b"] {
            let token = guard.fencing_token(name).unwrap().get();
            assert!(last.insert(name, token).is_none_or(|before| token > before), "{name}");
        }
        drop(guard);
        let single = other.lock("b").unwrap().fencing_token().unwrap().get();
        assert!(last.insert("b", single).unwrap() < single);
    }
    assert!(server.pttl("redisson_lock_token:{a}") > 0);
    drop(client.multi(["k", "l"]).keep_token().lock().unwrap());
    assert_eq!(
        ["k", "l"].map(|name| server.pttl(&format!("redisson_lock_token:{{{name}}}"))),
        [-1, -1]
    );
    let without = server.builder().fencing(false).build().unwrap();
    refused(
        without.multi(["x", "y"]).lock().unwrap().fencing_token("x").map(drop),
        ErrorKind::InvalidInput,
        Some("x"),
    );
    assert!(!server.cmd::<bool>(&["EXISTS", "redisson_lock_token:{x}"]));
}

/// Those of its names that have data, and those that have none, are extended by one request.
#[test]
fn an_extension_moves_the_end_of_data_whatever_the_other_names_have() {
    let server = Server::start();
    let client = patient(&server);
    let data = client.mutex("b").with_data(b"d").lock().unwrap();
    let all = client.multi(["a", "b", "c"]).lock().unwrap();
    let until = || server.hash("leasehold_data:{b}")["until"].parse::<u64>().unwrap();
    let before = until();
    all.extend(LONG * 10).unwrap();
    let moved = Duration::from_millis(until() - before);
    assert!(moved > LONG * 8, "{moved:?}");
    drop((all, data, client));
    server.assert_clean();
}
