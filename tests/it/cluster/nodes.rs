//! Nodes that hang, are dead, are empty or forget; slots that no node serves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Builder, ErrorKind, LockClient};

use super::{builder, client, names_on_each_node};
use crate::rig::{Cluster, ClusterOptions, Server, free_port, ms, wait_until};

/// Far longer than anything takes that does not wait for it.
const PATIENT: Duration = Duration::from_secs(12);

fn works(client: &LockClient, name: &str) {
    client.lock(name).unwrap().unlock().unwrap();
}

/// Checks that `work` is faster than the time for which a node that hangs would delay it.
fn promptly<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    assert!(start.elapsed() < PATIENT, "{what}: {:?}", start.elapsed());
    done
}

fn of<'u>(urls: impl IntoIterator<Item = &'u String>) -> Builder {
    LockClient::builder()
        .cluster(leasehold::Cluster::new(urls.into_iter().cloned()))
        .lease(PATIENT * 6)
        .io_timeout(PATIENT)
}

#[test]
fn seeds_may_hang_be_dead_or_be_replicas() {
    let mut cluster =
        Cluster::start_with(ClusterOptions { node_timeout: 60_000, ..ClusterOptions::default() });
    let (urls, names) = (cluster.urls(), names_on_each_node(&cluster, 1));
    let replicas = of(&urls[3..]).build().unwrap();
    for name in &names {
        works(&replicas, name);
    }
    assert_eq!(replicas.nodes().len(), 3);
    cluster.node_mut(4).kill();
    // A replica, then each primary: the others are reached at once.
    for hangs in [3, 0, 1, 2] {
        cluster.node(hangs).suspend();
        let seeds = [&urls[hangs], &urls[4], &urls[5]];
        promptly("one hangs, one is dead", || {
            let client = of(seeds).build().unwrap();
            names
                .iter()
                .enumerate()
                .filter(|(node, _)| *node != hangs)
                .for_each(|(_, name)| works(&client, name));
        });
        cluster.node(hangs).resume();
    }
    drop(replicas);
    cluster.assert_clean();
}

#[test]
fn without_any_seed_or_slot_it_says_so() {
    let nobody = || of(&["redis://127.0.0.1:1/".to_owned(), "redis://127.0.0.1:2/".to_owned()]);
    let e = promptly("nobody", || nobody().build().unwrap_err());
    assert_eq!(e.kind(), ErrorKind::Unreachable, "{e:?}");
    let lazy = nobody().connect_lazily().build().unwrap();
    let e = promptly("nobody", || lazy.lock("job").unwrap_err());
    assert_eq!((e.kind(), e.name()), (ErrorKind::Unreachable, Some("job")), "{e:?}");

    let empty = Server::start_tcp(&["--cluster-enabled", "yes"]);
    let e = promptly("no slots", || of(&[empty.url()]).build().unwrap_err());
    assert_eq!(e.kind(), ErrorKind::NotReady, "{e:?}");
    assert!(e.to_string().contains("create"), "{e}");
    let lazy = of(&[empty.url()]).connect_lazily().build().unwrap();
    let e = promptly("no slots", || lazy.lock("job").unwrap_err());
    assert_eq!((e.kind(), e.name()), (ErrorKind::NotReady, Some("job")), "{e:?}");
    // Next to nodes that have slots it does no harm.
    let cluster = Cluster::start_primaries();
    let client = of([&empty.url(), &cluster.urls()[0]]).build().unwrap();
    works(&client, "job");
    drop((lazy, client));
    empty.assert_clean();
    cluster.assert_clean();
}

/// As behind NAT: the address in the settings is right, and the one that the node announces is not.
#[test]
fn an_address_that_only_the_cluster_names_is_said_to_be_its() {
    let port = free_port().to_string();
    let announced = ["--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", &port];
    let node = Server::start_tcp(&[&["--cluster-enabled", "yes"][..], &announced].concat());
    let slots: Vec<String> = (0..16384).map(|slot| slot.to_string()).collect();
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    node.cmd::<()>(&[&["CLUSTER", "ADDSLOTS"], &slots[..]].concat());
    wait_until("it serves its slots", || {
        node.cmd::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    });
    let e = of(&[node.url()]).build().and_then(|client| client.lock("job").map(drop)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}");
    assert!(
        e.to_string().contains(&format!("127.0.0.1:{port}; the cluster named this address")),
        "{e}"
    );
    // One of the settings is not.
    let e = of(&["redis://127.0.0.1:1/".to_owned()]).build().unwrap_err();
    assert!(!e.to_string().contains("named"), "{e}");

    let (announced, reachable) = (port.parse::<u16>().unwrap(), node.port());
    let mapped = move |to: u16| {
        let nodes = leasehold::Cluster::new([node.url()]);
        LockClient::builder().cluster(nodes.map_addresses(move |host, port| {
            if port == announced { (host.to_owned(), to) } else { (host.to_owned(), port) }
        }))
    };
    let (client, other) = (mapped(reachable).build().unwrap(), mapped(reachable).build().unwrap());
    let held = client.lock("job").unwrap();
    std::thread::scope(|s| {
        // Release messages and renewals use the map, too.
        let waits =
            s.spawn(|| other.try_lock_for("job", PATIENT).unwrap().expect("it is freed").unlock());
        wait_until("it waits", || other.snapshot().waits().len() == 1);
        held.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
    let e = mapped(1).build().and_then(|client| client.lock("job").map(drop)).unwrap_err();
    assert!(e.to_string().contains("map_addresses made 127.0.0.1:1 of it"), "{e}");
}

/// Removes the slot of one name from all nodes.
fn uncover(cluster: &Cluster, name: &str) {
    let slot = cluster.slot(name).to_string();
    for node in 0..3 {
        cluster.node(node).cmd::<()>(&["CLUSTER", "DELSLOTS", &slot]);
    }
}

#[test]
fn a_slot_that_nobody_serves_is_an_outage_of_its_names() {
    for full_coverage in ["no", "yes"] {
        let args = ["--cluster-require-full-coverage", full_coverage];
        let cluster = Cluster::start_with(ClusterOptions {
            replicas: false,
            args: &args,
            ..ClusterOptions::default()
        });
        let names = names_on_each_node(&cluster, 2);
        let short = || builder(&cluster).lease(ms(6000)).io_timeout(ms(2000));
        let client = short().build().unwrap();
        let held: Vec<_> = [1, 3, 5].map(|at| client.lock(&names[at]).unwrap()).into();
        uncover(&cluster, &names[0]);
        let serves = |node| {
            cluster.node(node).cmd::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        };
        wait_until("all nodes know", || (0..3).all(|node| serves(node) == (full_coverage == "no")));
        for client in [&client, &short().connect_lazily().build().unwrap()] {
            let e = promptly("no node serves it", || client.lock(&names[0]).unwrap_err());
            assert_eq!((e.kind(), e.name()), (ErrorKind::NotReady, Some(&*names[0])), "{e:?}");
            for name in [&names[2], &names[4]] {
                match full_coverage {
                    "no" => works(client, name),
                    _ => assert_eq!(client.lock(name).unwrap_err().kind(), ErrorKind::NotReady),
                }
            }
        }
        if full_coverage == "no" {
            std::thread::sleep(ms(6600));
            assert!(held.iter().all(|guard| guard.is_held()), "renewed");
            // A node serves it again.
            cluster.node(1).cmd::<()>(&[
                "CLUSTER",
                "ADDSLOTS",
                &cluster.slot(&names[0]).to_string(),
            ]);
            wait_until("it can be taken", || client.try_lock(&names[0]).is_ok());
        }
        held.into_iter().for_each(drop);
        drop(client);
    }
}

/// A node forgets the scripts, and another one comes back empty.
#[test]
fn a_node_may_forget_scripts_and_data() {
    let mut cluster = Cluster::start_with(ClusterOptions {
        replicas: false,
        node_timeout: 60_000,
        ..ClusterOptions::default()
    });
    let names = names_on_each_node(&cluster, 2);
    let (one, two) = (client(&cluster), client(&cluster));
    let held: Vec<_> = [1, 3, 5].map(|at| one.lock(&names[at]).unwrap()).into();
    cluster.node(1).cmd::<()>(&["SCRIPT", "FLUSH"]);
    for name in names.iter().step_by(2) {
        works(&one, name);
    }
    held[1].extend(Duration::from_secs(60)).unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            two.try_lock_for(&names[5], PATIENT).unwrap().expect("it is forgotten").is_held()
        });
        wait_until("it waits", || !super::channels(cluster.node(2)).is_empty());
        // The waiter continues through the time in which the node refuses writes.
        cluster.node_mut(2).restart();
        assert!(waiter.join().unwrap());
    });
    works(&one, &names[4]);
    for (at, guard) in held.into_iter().enumerate() {
        assert_eq!(
            guard.unlock().map_err(|e| e.kind()),
            if at == 2 { Err(ErrorKind::Lost) } else { Ok(()) }
        );
    }
    drop((one, two));
    cluster.assert_clean();
}

/// Each call that finds a primary dead has the map read, and nobody has to be connected to for it.
#[test]
fn while_a_primary_is_down_no_connections_are_made_to_the_others() {
    const THREADS: usize = 20;
    let mut cluster = Cluster::start_with(ClusterOptions {
        node_timeout: 60_000,
        replicas: false,
        ..ClusterOptions::default()
    });
    let names = names_on_each_node(&cluster, THREADS);
    let client = builder(&cluster).connections(4).build().unwrap();
    let failures = AtomicUsize::new(0);
    cluster.node_mut(0).kill();
    let others = [cluster.node(1).connect(), cluster.node(2).connect()];
    let received = |mut connection: redis::Connection| {
        let stats: String = redis::cmd("INFO").arg("stats").query(&mut connection).unwrap();
        let count = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"))
            .unwrap();
        (count.trim().parse::<usize>().unwrap(), connection)
    };
    let before = others.map(received);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let (client, names, failures) = (&client, &names, &failures);
            s.spawn(move || {
                let began = Instant::now();
                while began.elapsed() < Duration::from_secs(3) {
                    for node in 0..3 {
                        let tried = client.try_lock(&names[node * THREADS + thread]);
                        failures.fetch_add(usize::from(tried.is_err()), Ordering::Relaxed);
                    }
                    std::thread::sleep(ms(20));
                }
            });
        }
    });
    assert!(failures.into_inner() > 100, "the dead node was asked all the time");
    // Four for calls, one for renewals and undos, and some more when one of them was replaced.
    for (count, connection) in before {
        let made = received(connection).0 - count;
        assert!(made <= 12, "{made} connections to a node that is well");
    }
    drop(client);
}
