//! The behaviour of every primitive on a cluster.

use std::time::Instant;

use leasehold::observe::NodeState;
use leasehold::{ErrorKind, LockClient};

use super::{builder, builder_with, client, names_on_each_node};
use crate::contract::primitives::{Exclusive, PRIMITIVES};
use crate::rig::{CAP, Cluster, Fault, PROMPT, ms, wait_for, wait_until};
use crate::support::count_under_the_lock;

/// Acquired by one client, waited for by the other, released, and granted to the other one
/// promptly.
fn in_turns(label: &str, one: &dyn Exclusive, two: &dyn Exclusive) {
    let first = one.try_lock().unwrap().unwrap_or_else(|| panic!("{label}: it is free"));
    assert!(two.try_lock_for(ms(50)).unwrap().is_none(), "{label}: it is taken");
    std::thread::scope(|s| {
        let second = s.spawn(|| {
            let start = Instant::now();
            let guard = two
                .try_lock_for(CAP)
                .unwrap()
                .unwrap_or_else(|| panic!("{label}: it becomes free"));
            guard.unlock().unwrap();
            start.elapsed()
        });
        std::thread::sleep(ms(200));
        first.unlock().unwrap();
        let waited = second.join().unwrap();
        assert!(waited < PROMPT, "{label}: woken by a message and not by a timer: {waited:?}");
    });
}

#[test]
fn every_lock_works_on_the_node_of_its_slot() {
    let cluster = Cluster::start_primaries();
    for sharded in [None, Some(false)] {
        let build = || match sharded {
            None => client(&cluster),
            Some(on) => builder_with(&cluster, |nodes| nodes.sharded_channels(on)).build().unwrap(),
        };
        let (one, two) = (build(), build());
        for name in names_on_each_node(&cluster, 1) {
            std::thread::scope(|s| {
                for primitive in PRIMITIVES.iter().filter(|primitive| primitive.is_plain_row()) {
                    let (one, two, name) =
                        (one.clone(), two.clone(), format!("{{{name}}}{}", primitive.label));
                    s.spawn(move || {
                        (primitive.prepare)(&one, &name);
                        let (first, second) = (
                            (primitive.open)(one.clone(), &name, None),
                            (primitive.open)(two, &name, None),
                        );
                        in_turns(primitive.label, &*first, &*second);
                        if primitive.label.starts_with("semaphore") {
                            one.semaphore(&name).delete().unwrap();
                        }
                    });
                }
            });
        }
        drop((one, two));
        cluster.assert_clean();
    }
}

#[test]
fn latches_counts_and_fenced_values_work_on_the_node_of_their_slot() {
    let cluster = Cluster::start_primaries();
    let (one, two) = (client(&cluster), client(&cluster));
    for name in names_on_each_node(&cluster, 1) {
        let (latch, gate) = (one.latch(&name), two.latch(&name));
        assert!(latch.try_set_count(2).unwrap());
        std::thread::scope(|s| {
            let waiter = s.spawn(|| gate.wait_for(PROMPT).unwrap());
            latch.count_down().unwrap();
            assert_eq!(gate.count().unwrap(), 1);
            latch.count_down().unwrap();
            assert!(waiter.join().unwrap(), "{name}");
        });
        let permits = one.counting_semaphore(format!("{name}-permits"));
        assert!(permits.try_set_permits(1).unwrap().is_new());
        let permit = permits.acquire().unwrap();
        assert!(two.counting_semaphore(format!("{name}-permits")).try_acquire().unwrap().is_none());
        permit.release().unwrap();
        permits.delete().unwrap();
        // Its keys and those of its changes have the slot of the name.
        let limiter = one.rate_limiter(format!("{name}-rate"));
        assert!(limiter.try_set_rate(2, CAP).unwrap());
        assert!(two.rate_limiter(limiter.name()).try_acquire(2).unwrap());
        assert!(!limiter.try_acquire(1).unwrap());
        limiter.set_rate(1, ms(50)).unwrap();
        limiter.acquire(1).unwrap();
        limiter.acquire(1).unwrap();
        assert_eq!(limiter.rate().unwrap(), Some((1, ms(50))));
        assert!(limiter.delete().unwrap());

        let guard = one.lock(&name).unwrap();
        let value = one.fenced_value(format!("{name}-value"));
        value.claim(guard.fencing_token().unwrap()).unwrap().write(b"new").unwrap();
        assert_eq!(
            cluster
                .cmd_at_owner::<u32>(&format!("{name}-value"), &["DEL", &format!("{name}-value")]),
            1
        );
    }
    drop((one, two));
    cluster.assert_clean();
}

#[test]
fn readers_share_and_writers_exclude() {
    let cluster = Cluster::start_primaries();
    let (one, two) = (client(&cluster), client(&cluster));
    for name in names_on_each_node(&cluster, 1) {
        let (lock, other) = (one.rw_lock(&name), two.rw_lock(&name));
        let (first, second) = (lock.read().unwrap(), other.read().unwrap());
        // Its own thread reads, which a lock may refuse at once.
        match other.try_write() {
            Ok(won) => assert!(won.is_none()),
            Err(e) => assert_eq!(e.kind(), leasehold::ErrorKind::Conflict, "{e}"),
        }
        std::thread::scope(|s| {
            let writer = s.spawn(|| {
                drop(two.rw_lock(&name).try_write_for(CAP).unwrap().expect("readers leave"));
            });
            std::thread::sleep(ms(100));
            first.unlock().unwrap();
            second.unlock().unwrap();
            writer.join().unwrap();
        });
    }
    drop((one, two));
    cluster.assert_clean();
}

#[test]
fn a_multi_lock_over_several_slots_is_all_or_none() {
    let cluster = Cluster::start_primaries();
    let (one, two) = (client(&cluster), client(&cluster));
    let names = names_on_each_node(&cluster, 1);
    let all = one.multi(&names);
    for taken in &names {
        let guard = two.lock(taken).unwrap();
        assert!(all.try_lock().unwrap().is_none(), "{taken} is taken");
        // Names that it acquired before it found this one taken are free again.
        for free in names.iter().filter(|name| *name != taken) {
            drop(two.mutex(free).try_lock().unwrap().expect("free again"));
        }
        drop(guard);
    }
    let guard = all.lock().unwrap();
    for name in &names {
        assert!(two.mutex(name).try_lock().unwrap().is_none(), "{name}");
    }
    // Re-entry, and a wait that ends when all are released.
    drop(all.lock().unwrap());
    std::thread::scope(|s| {
        let waiter = s
            .spawn(|| drop(two.multi(&names).try_lock_for(CAP).unwrap().expect("it becomes free")));
        std::thread::sleep(ms(100));
        guard.unlock().unwrap();
        waiter.join().unwrap();
    });
    drop((all, one, two));
    cluster.assert_clean();
}

/// A reply about the second name was lost, and the repeat finds the first one taken: the hold of
/// the lost request is released.
#[test]
fn a_multi_lock_gives_back_what_an_earlier_attempt_took() {
    let cluster = Cluster::start_with(crate::rig::ClusterOptions {
        replicas: false,
        proxies: true,
        ..Default::default()
    });
    let on = |node, letter| {
        let mut all = (0..).map(move |n| format!("{letter}-{n}"));
        all.find(|name| cluster.owner(cluster.slot(name)) == node).unwrap()
    };
    let (first, second) = (on(0, "a"), on(1, "b"));
    let [one, two, three] = [500, 5000, 5000]
        .map(|io| builder(&cluster).lease(ms(60_000)).io_timeout(ms(io)).build().unwrap());
    // From now on the nodes know the script.
    drop(one.multi([&first, &second]).lock().unwrap());
    let lost = cluster.node(1).proxy();
    // Until this client once gets the first name between two attempts of the caller.
    let comes_between = || {
        let guard = two.lock(&first).unwrap();
        let hits = lost.hits();
        lost.inject(&second, Fault::BlackHoleReply);
        let came_between = std::thread::scope(|s| {
            let caller = s.spawn(|| {
                one.multi([&first, &second]).try_lock_for(ms(4000)).is_ok_and(|all| all.is_some())
            });
            std::thread::sleep(ms(500));
            guard.unlock().unwrap();
            lost.wait_hits(hits + 1);
            // Sent while that call waits for the reply, so that this one can get the first name
            // when it is released.
            let guard = three.lock(&first).unwrap();
            let has_got_all = caller.join().unwrap();
            guard.unlock().unwrap();
            !has_got_all
        });
        wait_until("the second name is free", || two.mutex(&second).try_lock().unwrap().is_some());
        came_between
    };
    wait_for(4 * CAP, "another client comes between", comes_between);
    drop((one, two, three));
    cluster.assert_clean();
}

/// Both acquire the same names in opposite order: without a common order, or while holding one of
/// them, they would wait for each other forever.
#[test]
fn multi_locks_over_several_slots_do_not_wait_for_each_other() {
    let cluster = Cluster::start_primaries();
    let names = names_on_each_node(&cluster, 1);
    let counter = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|s| {
        for turn in 0..4 {
            let (names, cluster, counter) = (&names, &cluster, &counter);
            s.spawn(move || {
                let client = client(cluster);
                let some: Vec<&String> = names.iter().cycle().skip(turn).take(2).collect();
                for _ in 0..20 {
                    let guard = client.multi(some.iter().map(|name| name.as_str())).lock().unwrap();
                    counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(counter.into_inner(), 80);
    cluster.assert_clean();
}

#[test]
fn a_cluster_says_who_has_which_slots() {
    let cluster = Cluster::start_primaries();
    let client = client(&cluster);
    let nodes = client.nodes();
    assert_eq!(nodes.len(), 3);
    let mut slots: Vec<u16> =
        nodes.iter().flat_map(|node| node.slots().iter().cloned().flatten()).collect();
    slots.sort_unstable();
    assert!(slots.into_iter().eq(0..16384));
    assert!(nodes.iter().all(|node| node.state() == NodeState::Voting), "{nodes:?}");
}

#[test]
fn what_a_cluster_cannot_do_is_refused_before_anything_is_sent() {
    let cluster = Cluster::start_primaries();
    let kind = |built: leasehold::Result<LockClient>| built.unwrap_err().kind();
    let urls = cluster.urls();
    let with_db = urls.iter().map(|url| format!("{url}3"));
    assert_eq!(
        kind(LockClient::builder().cluster(leasehold::Cluster::new(with_db)).build()),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(
            LockClient::builder().cluster(leasehold::Cluster::new(["redis+unix:///tmp/s"])).build()
        ),
        ErrorKind::InvalidInput
    );
    let one = LockClient::open(&urls[0]).unwrap_err();
    assert_eq!(one.kind(), ErrorKind::Unsupported);
    assert!(one.to_string().contains("Builder::cluster"), "{one}");
    let server = crate::rig::Server::start_tcp(&[]);
    let alone =
        LockClient::builder().cluster(leasehold::Cluster::new([server.url()])).build().unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::Unsupported, "{alone}");

    let client = client(&cluster);
    assert_eq!(client.latch("a{b}c").try_set_count(1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(client.lock("a{b").unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// One watchdog and one subscriber, however many nodes there are.
#[test]
fn two_threads_serve_all_nodes() {
    let cluster = Cluster::start_primaries();
    let settings = || builder(&cluster).lease(ms(6000)).io_timeout(ms(2000));
    let client = settings().client_name("cl2").build().unwrap();
    let names = names_on_each_node(&cluster, 2);
    let guards: Vec<_> = names.iter().map(|name| client.lock(name).unwrap()).collect();
    let other = settings().client_name("cl3").build().unwrap();
    std::thread::scope(|s| {
        for name in &names {
            let other = &other;
            s.spawn(move || assert!(other.mutex(name).try_lock_for(ms(7000)).unwrap().is_none()));
        }
        #[cfg(target_os = "linux")]
        for name in ["lh-renew-cl2", "lh-notify-cl3"] {
            wait_until(name, || crate::rig::threads_named(name) == 1);
        }
    });
    // They were renewed for more than one lease.
    for guard in guards {
        guard.unlock().unwrap();
    }
    drop((client, other));
    cluster.assert_clean();
}

#[test]
fn an_exact_counter_under_one_lock() {
    let cluster = Cluster::start_primaries();
    let server = crate::rig::Server::start();
    server.cmd::<()>(&["SET", "counter", "0"]);
    let client = client(&cluster);
    count_under_the_lock(&client, &server.url(), 8);
    assert_eq!(server.cmd::<u32>(&["GET", "counter"]), 160);
    drop(client);
    cluster.assert_clean();
}
