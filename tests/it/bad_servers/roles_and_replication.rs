//! Servers that currently accept no writes: replicas, demoted primaries, too few replicas, a disk
//! that cannot be written.

use leasehold::ErrorKind;

use super::{LEASE, all_methods_fail, client, fails, nothing_left, query, settings, works};
use crate::rig::{Server, wait_until};

fn port_of(server: &Server) -> String {
    server.url().trim_end_matches('/').rsplit(':').next().unwrap().to_owned()
}

#[test]
fn a_replica_is_refused() {
    let primary = Server::start_tcp(&[]);
    let replica = Server::start_tcp(&["--replicaof", "127.0.0.1", &port_of(&primary)]);
    let lazy = settings(&replica.url()).connect_lazily().build().unwrap();
    fails(ErrorKind::ReadOnly, None, "connect to the primary", || settings(&replica.url()).build());
    all_methods_fail(&lazy, "job", ErrorKind::ReadOnly, "connect to the primary");
    replica.cmd::<()>(&["REPLICAOF", "NO", "ONE"]);
    works(&lazy, "job");
    drop(lazy);
    replica.assert_clean();
}

#[test]
fn a_primary_that_is_demoted_under_its_clients_and_promoted_again() {
    let server = Server::start();
    let client = client(&server);
    let guard = client.lock("held").unwrap();
    works(&client, "job");
    // A replica of a primary that does not exist: it keeps its data and serves it read-only.
    server.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    all_methods_fail(&client, "job", ErrorKind::ReadOnly, "connect to the primary");
    fails(ErrorKind::ReadOnly, Some("held"), "connect to the primary", || guard.extend(LEASE * 2));
    fails(ErrorKind::ReadOnly, Some("held"), "connect to the primary", || guard.unlock());
    server.cmd::<()>(&["REPLICAOF", "NO", "ONE"]);
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

/// A call that is already waiting continues through the demotion.
#[test]
fn a_waiting_call_survives_a_demotion() {
    let server = Server::start();
    let (a, b) = (client(&server), client(&server));
    let guard = a.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock("job").and_then(|guard| guard.unlock()));
        wait_until("the waiter is subscribed", || !server.channels().is_empty());
        server.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
        fails(ErrorKind::ReadOnly, Some("job"), "primary", || guard.unlock());
        server.cmd::<()>(&["REPLICAOF", "NO", "ONE"]);
        waiter.join().unwrap().unwrap();
    });
    drop((a, b));
    server.assert_clean();
}

#[test]
fn too_few_replicas_and_a_disk_that_cannot_be_written() {
    let gone = std::env::temp_dir().join(format!("lh-gone-{}", std::process::id()));
    std::fs::create_dir_all(&gone).unwrap();
    let server = Server::start_with(&["--dir", gone.to_str().unwrap()]);
    std::fs::remove_dir_all(&gone).unwrap();
    let client = client(&server);
    let cannot_save = || {
        server.cmd::<()>(&["CONFIG", "SET", "save", "3600 1"]);
        let _: redis::RedisResult<String> = query(&mut server.connect(), &["BGSAVE"]);
        wait_until("the save has failed", || {
            server.cmd::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
        });
    };
    let can_save = || server.cmd::<()>(&["CONFIG", "SET", "save", ""]);
    let few = || server.cmd::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let enough = || server.cmd::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    for (says, ill, well) in [
        ("NOREPLICAS", &few as &dyn Fn(), &enough as &dyn Fn()),
        ("MISCONF", &cannot_save, &can_save),
    ] {
        if says == "NOREPLICAS" && server.major() < 7 {
            // Redis 6.2 does not check the number of replicas inside scripts.
            continue;
        }
        let guard = client.lock("held").unwrap();
        ill();
        all_methods_fail(&client, "job", ErrorKind::ReadOnly, says);
        fails(ErrorKind::ReadOnly, Some("held"), says, || guard.extend(LEASE * 2));
        fails(ErrorKind::ReadOnly, Some("held"), says, || guard.unlock());
        // A fresh client can connect: only writes are refused.
        let fresh = settings(&server.url()).build().unwrap();
        fails(ErrorKind::ReadOnly, Some("job"), says, || fresh.try_lock("job"));
        well();
        nothing_left(&server);
        works(&client, "job");
        works(&fresh, "job");
    }
    drop(client);
    server.assert_clean();
}
