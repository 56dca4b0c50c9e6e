//! Shards that hang or die, connections that are cut: there are never two holders, and nothing is
//! left.

use std::time::{Duration, Instant};

use leasehold::{Builder, ErrorKind, LockClient};

use super::{builder, builder_with, channels, names_on_each_node};
use crate::rig::{
    CAP, Cluster, ClusterOptions, Fault, PROMPT, Server, ms, threads_named, wait_until,
};
use crate::support::Load;

/// Long enough that nothing here can pass because a lease ended.
pub(super) const LONG: Duration = Duration::from_secs(120);

/// Three primaries whose timeout is so long that they do not consider each other dead.
pub(super) fn patient(proxies: bool) -> Cluster {
    Cluster::start_with(ClusterOptions {
        replicas: false,
        node_timeout: 60_000,
        proxies,
        ..Default::default()
    })
}

/// Limits the cost of a reply that never arrives.
fn impatient(cluster: &Cluster) -> Builder {
    // The client's own record is removed once, and stays for a lease if that fails.
    builder(cluster).lease(LONG).io_timeout(ms(1000)).announce_owner(false)
}

fn works(client: &LockClient, name: &str) {
    client.lock(name).unwrap().unlock().unwrap();
}

fn assert_outage(what: &str, e: &leasehold::Error) {
    use ErrorKind::{NotReady, Protocol, Unreachable};
    assert!([Unreachable, NotReady, Protocol].contains(&e.kind()), "{what}: {e:?}");
}

/// The old primary still considers itself one when it comes back, and answers any client that asks.
/// No replica acknowledges its grants; then it becomes a replica, and no client asks it any more.
#[test]
fn a_primary_hangs_under_load_and_comes_back() {
    let cluster = Cluster::start();
    let sum = Server::start();
    let builder = || builder_with(&cluster, |nodes| nodes.replicas(1));
    let build = || builder().lease(ms(4000)).io_timeout(ms(1000)).build().unwrap();
    let clients = [build(), build()];
    let slot = cluster.slot("job");
    let late = Load::run(&[&clients[0], &clients[1]], &sum, |load| {
        load.wait_for_more(50);
        let number = cluster.owner(slot);
        let old = cluster.node(number);
        old.suspend();
        wait_until("the replica is promoted", || cluster.owner(slot) != number);
        old.resume();
        load.wait_for_more(50);
        wait_until("it is a replica", || old.info("replication", "role") == "slave");
        // A new connection probes its rights by a script without keys, which a replica runs too.
        let ran = old.call_count("hexists");
        load.wait_for_more(50);
        assert_eq!(old.call_count("hexists"), ran, "a replica grants nothing");
    });
    assert_eq!(late, 0);
    drop(clients);
    cluster.wait_ok();
    cluster.assert_clean();
}

/// The client holds nothing, so no watchdog notices the failover, and its subscription is at the
/// primary that hangs.
#[test]
fn a_client_that_only_waits_gets_in_after_the_failover_of_its_shard() {
    let cluster = Cluster::start();
    let (one, two) = (builder(&cluster).lease(ms(6000)), builder(&cluster).lease(ms(4000)));
    let (one, two) = (one.build().unwrap(), two.build().unwrap());
    let guard = one.lock("kept").unwrap();
    assert_eq!(cluster.cmd_at_owner::<u32>("kept", &["WAIT", "1", "5000"]), 1);
    let (slot, token) = (cluster.slot("kept"), guard.fencing_token().unwrap());
    let old = cluster.owner(slot);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            two.try_lock_for("kept", 2 * CAP)
                .unwrap()
                .expect("it becomes free")
                .fencing_token()
                .unwrap()
        });
        wait_until("it is subscribed", || !channels(cluster.node(old)).is_empty());
        cluster.node(old).suspend();
        let new = cluster.owner(slot);
        assert_ne!(new, old);
        // If this is sent to the old primary, it is repeated in the background.
        let released = guard.unlock();
        assert!(waiter.join().unwrap() > token, "{released:?}");
    });
    cluster.node(old).resume();
    drop((one, two));
    cluster.wait_ok();
    cluster.assert_clean();
}

#[test]
fn a_connection_that_is_cut_leaves_nothing() {
    const FAULTS: [Fault; 8] = [
        Fault::CutBeforeSend,
        Fault::CutRequestAt(1),
        Fault::CutRequestAt(200),
        Fault::CutAfterApplied,
        Fault::CutReplyAt(3),
        Fault::BlackHoleReply,
        Fault::StallReply(ms(1500)),
        Fault::Garbage,
    ];
    let cluster = patient(true);
    let names = names_on_each_node(&cluster, 3);
    let direct = builder(&cluster).lease(LONG).build().unwrap();
    std::thread::scope(|s| {
        for node in 0..3 {
            let (cluster, names, direct) = (&cluster, &names[3 * node..3 * node + 3], &direct);
            let proxy = cluster.node(node).proxy();
            s.spawn(move || {
                let name = &names[0];
                let free = || cluster.node(node).cmd::<u32>(&["EXISTS", name]) == 0;
                for fault in FAULTS.into_iter().skip(node).step_by(3) {
                    let client = impatient(cluster).build().unwrap();
                    proxy.inject(name, fault);
                    match client.try_lock(name) {
                        Err(e) => assert_outage(&format!("{fault:?}"), &e),
                        // The connection could have ended while idle, so the request was repeated.
                        Ok(Some(guard)) => guard.unlock().unwrap(),
                        Ok(None) => panic!("{fault:?}: no other client has it"),
                    }
                    wait_until(&format!("{fault:?} leaves nothing"), free);
                    let guard = client.lock(name).unwrap();
                    proxy.inject(name, fault);
                    match guard.extend(2 * LONG) {
                        Err(e) => assert_outage(&format!("{fault:?}"), &e),
                        Ok(()) => assert!(guard.remaining() > LONG),
                    }
                    assert!(guard.is_held(), "{fault:?}");
                    proxy.inject(name, fault);
                    if let Err(e) = guard.unlock() {
                        assert_outage(&format!("{fault:?}"), &e);
                    }
                    wait_until(&format!("{fault:?} frees it"), free);
                    assert!(!proxy.disarm(), "{fault:?} has happened");
                    works(direct, name);
                }
            });
        }
    });
    drop(direct);
    cluster.assert_clean();
}

/// The reply is lost, and at the time of the undo another node owns the slot.
#[test]
fn an_unknown_outcome_is_settled_at_the_new_node_of_its_slot() {
    let cluster = patient(true);
    let names = names_on_each_node(&cluster, 1);
    for (node, fault) in
        [Fault::CutAfterApplied, Fault::Hold, Fault::CutBeforeSend].into_iter().enumerate()
    {
        let (name, to) = (&names[node], (node + 1) % 3);
        let (slot, client) = (cluster.slot(name), impatient(&cluster).build().unwrap());
        let direct = builder(&cluster).lease(LONG).build().unwrap();
        let exists = |at: usize| cluster.node(at).lock_keys().contains(name);
        let lose = |call: &mut dyn FnMut() -> leasehold::Result<()>, at: usize, to: usize| {
            let proxy = cluster.node(at).proxy();
            proxy.inject(name, fault);
            proxy.refuse(true);
            // In the background nothing can be undone before the slot has moved.
            let e = call().unwrap_err();
            assert_outage(&format!("{fault:?}"), &e);
            cluster.migrate_slot(slot, to);
            proxy.refuse(false);
        };
        lose(&mut || client.try_lock(name).map(drop), node, to);
        if fault == Fault::Hold {
            cluster.node(node).proxy().release_held();
        }
        wait_until(&format!("{fault:?} leaves nothing"), || !exists(to) && !exists(node));
        works(&direct, name);
        if fault != Fault::Hold {
            let mut guard = Some(client.lock(name).unwrap());
            lose(&mut || guard.take().unwrap().unlock(), to, node);
            wait_until(&format!("{fault:?} frees it"), || !exists(to) && !exists(node));
        }
        works(&direct, name);
        works(&client, name);
    }
    cluster.assert_clean();
}

/// An undo at one shard waits for no other shard, and no renewal waits for an undo.
#[test]
fn a_shard_that_hangs_delays_no_undo_and_no_renewal_of_another() {
    let cluster = patient(true);
    let names = names_on_each_node(&cluster, 2);
    // A wait for the whole I/O timeout would cost the watchdog the leases of the others.
    let client = builder(&cluster).lease(ms(4000)).io_timeout(ms(3900)).build().unwrap();
    let held = client.lock(&names[2]).unwrap();
    works(&client, &names[0]);
    cluster.node(0).suspend();
    assert_outage("the shard hangs", &client.try_lock(&names[0]).unwrap_err());
    let other = impatient(&cluster).connect_lazily().build().unwrap();
    assert_outage("the shard hangs", &other.try_lock(&names[1]).unwrap_err());
    cluster.node(1).proxy().inject(&names[3], Fault::BlackHoleReply);
    assert_outage("the reply is lost", &other.try_lock(&names[3]).unwrap_err());
    let start = Instant::now();
    let exists = || cluster.node(1).cmd::<u32>(&["EXISTS", &names[3]]) == 1;
    wait_until("it is undone", || !exists());
    assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    std::thread::sleep(ms(4000));
    assert!(held.is_held());
    cluster.node(0).resume();
    held.unlock().unwrap();
    drop((client, other));
    cluster.assert_clean();
}

/// One shard hangs, or dies, during the acquire of a multi-lock: what was acquired is released.
#[test]
fn a_multi_lock_takes_none_when_a_shard_dies() {
    let cluster = patient(true);
    let names = names_on_each_node(&cluster, 1);
    let direct = builder(&cluster).lease(LONG).build().unwrap();
    for dead in 0..3 {
        let client = impatient(&cluster).build().unwrap();
        let others =
            || names.iter().enumerate().filter(|(node, _)| *node != dead).map(|(_, name)| name);
        let free = |name: &String| cluster.cmd_at_owner::<u32>(name, &["EXISTS", name]) == 0;
        cluster.node(dead).suspend();
        assert_outage("a shard hangs", &client.multi(&names).try_lock().unwrap_err());
        wait_until("the others are free", || others().all(free));
        for name in others() {
            works(&direct, name);
        }
        cluster.node(dead).resume();
        wait_until("all are free", || names.iter().all(free));

        // It dies before the release as well: nothing of the hold is left on the others.
        let guard = client.multi(&names).lock().unwrap();
        cluster.node(dead).suspend();
        assert_outage("a shard hangs", &guard.unlock().unwrap_err());
        wait_until("the others are free", || others().all(free));
        cluster.node(dead).resume();
        wait_until("all are free", || names.iter().all(free));

        // Only the request or the reply is lost.
        for fault in [Fault::CutBeforeSend, Fault::CutReplyAt(3)] {
            let client = impatient(&cluster).build().unwrap();
            cluster.node(dead).proxy().inject(&names[dead], fault);
            match client.multi(&names).try_lock() {
                Err(e) => assert_outage(&format!("{fault:?}"), &e),
                Ok(won) => won.expect("no other client has one").unlock().unwrap(),
            }
            wait_until(&format!("{fault:?} leaves none"), || names.iter().all(free));
        }
        direct.multi(&names).try_lock().unwrap().expect("all are free").unlock().unwrap();
    }
    drop(direct);
    cluster.assert_clean();
}

/// Holds and a waiter are on all shards when the client ends, and one shard hangs.
#[test]
fn close_and_drop_leave_nothing_while_a_shard_is_down() {
    let cluster = patient(false);
    let names = names_on_each_node(&cluster, 2);
    for (client_name, close) in [("clz", true), ("drp", false)] {
        let build = || builder(&cluster).lease(ms(6000)).io_timeout(ms(1000));
        let (client, holder) =
            (build().client_name(client_name).build().unwrap(), build().build().unwrap());
        let guards: Vec<_> = (0..3).map(|node| client.lock(&names[2 * node]).unwrap()).collect();
        let waited_for: Vec<_> =
            (0..3).map(|node| holder.lock(&names[2 * node + 1]).unwrap()).collect();
        std::thread::scope(|s| {
            let wait = |node: usize| {
                client.try_lock_for(&names[2 * node + 1], ms(2500)).map(|won| won.is_some())
            };
            let waiters: Vec<_> = (0..3).map(|node| s.spawn(move || wait(node))).collect();
            wait_until("all wait", || (0..3).all(|node| !channels(cluster.node(node)).is_empty()));
            cluster.node(0).suspend();
            if close {
                let start = Instant::now();
                // This fails because one of the holds is on the shard that is down.
                assert!(client.close(ms(2000)).is_err());
                assert!(start.elapsed() < CAP, "{:?}", start.elapsed());
            }
            for waiter in waiters {
                let outcome = waiter.join().unwrap();
                assert!(!matches!(outcome, Ok(true)), "{outcome:?}");
            }
        });
        drop(guards);
        drop(client);
        wait_until("its threads have ended", || {
            ["lh-renew-", "lh-notify-"]
                .iter()
                .all(|kind| threads_named(&format!("{kind}{client_name}")) == 0)
        });
        let of_client = |node: usize| {
            cluster
                .node(node)
                .client_lines()
                .iter()
                .any(|line| line.contains(&format!("name={client_name}")))
        };
        wait_until("it has left the others", || !of_client(1) && !of_client(2));
        cluster.node(0).resume();
        wait_until("it has left", || !of_client(0));
        drop(waited_for);
        drop(holder);
        wait_until("the leases end", || {
            (0..3).all(|node| cluster.node(node).lock_keys().is_empty())
        });
    }
    cluster.assert_clean();
}

#[test]
fn a_fork_owns_nothing_and_harms_nothing() {
    let cluster = patient(false);
    let hosts: Vec<String> = cluster
        .urls()
        .iter()
        .map(|url| url["redis://".len()..].trim_end_matches('/').to_owned())
        .collect();
    let url = format!("redis+cluster://{}", hosts.join(","));
    crate::processes::assert_forks_own_nothing(&url);
    cluster.assert_clean();
}
