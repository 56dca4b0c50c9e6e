//! Shards that fail over, and shards that are slow or gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::observe::NodeState;

use super::{builder, client, names_on_each_node};
use crate::rig::{CAP, Cluster, ms, wait_until};

/// One shard is suspended or dead: holds on the others are renewed, and locks there are acquired
/// and released without delay.
#[test]
fn a_shard_that_hangs_costs_the_others_nothing() {
    let cluster = Cluster::start_with(crate::rig::ClusterOptions {
        replicas: false,
        // The cluster itself does not notice within this test.
        node_timeout: 60_000,
        ..Default::default()
    });
    let client = builder(&cluster).lease(ms(6000)).io_timeout(ms(2000)).build().unwrap();
    let names = names_on_each_node(&cluster, 2);
    let guards: Vec<_> = names.iter().map(|name| client.lock(name).unwrap()).collect();
    cluster.node(0).suspend();
    let lost =
        std::thread::scope(|s| s.spawn(|| guards[0].wait_lost(CAP).is_lost()).join().unwrap());
    assert!(lost, "notified of the loss when the lease ended");
    // After more than another lease the others are still held.
    std::thread::sleep(ms(3000));
    assert!(guards[2..].iter().all(|guard| guard.is_held()));
    let free = format!("{{{}}}free", names[3]);
    drop(client.lock(&free).unwrap());
    let down = client.try_lock(format!("{{{}}}free", names[0])).unwrap_err();
    assert_eq!(down.kind(), ErrorKind::Unreachable, "{down}");
    cluster.node(0).resume();
    drop(guards);
    wait_until("it answers again", || client.try_lock(format!("{{{}}}free", names[0])).is_ok());
    assert!(
        client.nodes().iter().all(|node| node.state() == NodeState::Voting),
        "{:?}",
        client.nodes()
    );
    drop(client);
    cluster.assert_clean();
}

/// Requests of unknown outcome at two shards, of which one stays unreachable: what ran late at the
/// other one is undone.
#[test]
fn a_shard_that_hangs_does_not_keep_others_from_being_tidied_up() {
    let cluster = Cluster::start_with(crate::rig::ClusterOptions {
        replicas: false,
        node_timeout: 60_000,
        ..Default::default()
    });
    let hasty =
        builder(&cluster).lease(Duration::from_secs(60)).io_timeout(ms(1500)).build().unwrap();
    let names = names_on_each_node(&cluster, 1);
    for (node, name) in names.iter().enumerate().take(2) {
        // Over an existing connection.
        drop(hasty.lock(name).unwrap());
        cluster.node(node).suspend();
        assert!(hasty.try_lock(name).is_err());
    }
    cluster.node(1).resume();
    let other = client(&cluster);
    wait_until("a late grant is undone", || {
        other.try_lock(&names[1]).is_ok_and(|guard| guard.is_some())
    });
    cluster.node(0).resume();
    wait_until("and the other one", || {
        other.try_lock(&names[0]).is_ok_and(|guard| guard.is_some())
    });
    drop((hasty, other));
    cluster.assert_clean();
}

/// The primary is killed: holds continue at the replica that has them, waiters wait through the
/// failover, tokens increase, and nothing is counted twice.
#[test]
fn a_shard_fails_over_under_load() {
    let mut cluster = Cluster::start();
    let store = crate::rig::Server::start();
    store.cmd::<()>(&["SET", "counter", "0"]);
    let slot = cluster.slot("job");
    let stop = AtomicBool::new(false);
    let urls = cluster.urls();
    let connect = || {
        leasehold::LockClient::builder()
            .cluster(leasehold::Cluster::new(&urls).replicas(1))
            .lease(Duration::from_secs(4))
            .build()
            .unwrap()
    };
    let counted = std::thread::scope(|s| {
        let worker = || {
            s.spawn(|| {
                let client = connect();
                let mut redis = redis::Client::open(store.url()).unwrap().get_connection().unwrap();
                let (mut counted, mut last) = (0, None);
                while !stop.load(Ordering::Relaxed) {
                    let Ok(Some(guard)) = client.try_lock_for("job", CAP) else { continue };
                    let token = guard.fencing_token().unwrap();
                    assert!(Some(token) > last, "{token:?} after {last:?}");
                    last = Some(token);
                    let before: u32 = redis::cmd("GET").arg("counter").query(&mut redis).unwrap();
                    if guard.ensure_held().is_ok() {
                        redis::cmd("SET")
                            .arg("counter")
                            .arg(before + 1)
                            .query::<()>(&mut redis)
                            .unwrap();
                        counted += 1;
                    }
                }
                counted
            })
        };
        let workers: Vec<_> = (0..4).map(|_| worker()).collect();
        let at_least =
            |n: u32| wait_until("it counts", || store.cmd::<u32>(&["GET", "counter"]) >= n);
        at_least(20);
        let before = store.cmd::<u32>(&["GET", "counter"]);
        // It comes back as the replica that acknowledges the grants of the new primary.
        let old = cluster.owner(slot);
        cluster.fail_over_primary_of(slot);
        cluster.node_mut(old).start_again();
        at_least(before + 20);
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum::<u32>()
    });
    assert_eq!(store.cmd::<u32>(&["GET", "counter"]), counted);
}

/// A replicated hold continues at the new primary; its waiter is woken there.
#[test]
fn a_hold_goes_on_after_the_failover_of_its_shard() {
    let mut cluster = Cluster::start();
    // A failover takes several seconds on a busy machine.
    let (one, two) = (builder(&cluster).lease(ms(12_000)).build().unwrap(), client(&cluster));
    let guard = one.lock("kept").unwrap();
    let slot = cluster.slot("kept");
    assert_eq!(cluster.cmd_at_owner::<u32>("kept", &["WAIT", "1", "5000"]), 1);
    let token = guard.fencing_token().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            two.try_lock_for("kept", Duration::from_secs(30))
                .unwrap()
                .expect("it becomes free")
                .fencing_token()
                .unwrap()
        });
        std::thread::sleep(ms(100));
        cluster.fail_over_primary_of(slot);
        let left = || cluster.cmd_at_owner::<i64>("kept", &["PTTL", "kept"]);
        let before = left();
        wait_until("it is renewed at the new primary", || left() > before);
        assert!(guard.is_held());
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap() > token);
    });
}
