//! Exclusion and order between both sides, for each kind of lock.

use leasehold::{ErrorKind, LockClient};

use crate::driver::{World, curator, world};
use crate::kinds::{KINDS, Kind};
use crate::rig::zookeeper::ZooKeeper;
use crate::rig::{ms, wait_until};

/// Runs each kind in its own threads, with its own name.
fn for_each_kind(test: &str, point: impl Fn(&World, &Kind, &str) + Sync) {
    for_each(&KINDS, test, point);
}

fn for_each(kinds: &[Kind], test: &str, point: impl Fn(&World, &Kind, &str) + Sync) {
    let world = world();
    std::thread::scope(|s| {
        for kind in kinds {
            let (world, point) = (&world, &point);
            s.spawn(move || point(world, kind, &format!("{test}/{}", kind.label)));
        }
    });
}

/// The length of the queue of a name.
fn queue(server: &ZooKeeper, name: &str) -> usize {
    server.children(&format!("/{name}")).len()
}

#[track_caller]
fn wait_for_queue(server: &ZooKeeper, name: &str, length: usize) {
    wait_until(&format!("{length} in the queue of {name}"), || queue(server, name) == length);
}

#[test]
fn ours_holds_and_curator_waits() {
    for_each_kind("ours-holds", |World { jvm, server }, kind, name| {
        let (client, java) = (LockClient::open(&server.url()).unwrap(), jvm.thread());
        let held = kind.take(&client, name);
        assert_eq!(java.call(&kind.command(name, "tryLock 100")), "false", "{name}");
        wait_for_queue(server, name, 1);
        java.begin_waiting_until(&kind.command(name, "lock"), || queue(server, name) == 2);
        assert!(held.is_held());
        held.unlock().unwrap();
        java.answer();
        assert!(kind.try_for(&client, name, ms(0)).unwrap().is_none(), "{name}");
        assert!(kind.try_for(&client, name, ms(100)).unwrap().is_none(), "{name}");
        java.call(&kind.command(name, "unlock"));
        kind.take(&client, name).unlock().unwrap();
        wait_for_queue(server, name, 0);
    });
}

#[test]
fn curator_holds_and_ours_waits() {
    for_each_kind("curator-holds", |World { jvm, server }, kind, name| {
        let (client, java) = (LockClient::open(&server.url()).unwrap(), jvm.thread());
        for _ in 0..2 {
            java.call(&kind.command(name, "lock"));
        }
        assert!(kind.try_for(&client, name, ms(0)).unwrap().is_none(), "{name}");
        std::thread::scope(|s| {
            let waiter = s.spawn(|| kind.take(&client, name));
            wait_for_queue(server, name, 2);
            java.call(&kind.command(name, "unlock"));
            assert!(!waiter.is_finished(), "{name}: one level is left");
            java.call(&kind.command(name, "unlock"));
            let held = waiter.join().unwrap();
            assert!(held.is_held());
            assert_eq!(java.call(&kind.command(name, "tryLock 100")), "false", "{name}");
            held.unlock().unwrap();
        });
        assert_eq!(java.call(&kind.command(name, "tryLock 2000")), "true", "{name}");
        java.call(&kind.command(name, "unlock"));
    });
}

/// A lock is granted in the order of arrival, on either side, and whichever waiters gave up in
/// between. Without the multi-lock: Curator's, which waits in one queue after another, can be
/// between two of ours, which wait in both, so that nobody proceeds. The same happens among
/// Curator's own.
#[test]
fn turns_are_in_the_order_of_the_queue() {
    for_each(&KINDS[..3], "order", |World { jvm, server }, kind, name| {
        let clients: Vec<_> = (0..3).map(|_| LockClient::open(&server.url()).unwrap()).collect();
        let javas: Vec<_> = (0..3).map(|_| jvm.thread()).collect();
        javas[0].call(&kind.command(name, "lock"));
        std::thread::scope(|s| {
            let first = s.spawn(|| kind.take(&clients[0], name));
            wait_for_queue(server, name, 2);
            let gives_up = s.spawn(|| kind.try_for(&clients[1], name, ms(1500)).unwrap());
            wait_for_queue(server, name, 3);
            javas[1].begin_waiting_until(&kind.command(name, "lock"), || queue(server, name) == 4);
            let third = s.spawn(|| kind.take(&clients[2], name));
            wait_for_queue(server, name, 5);
            javas[2].begin_waiting_until(&kind.command(name, "lock"), || queue(server, name) == 6);
            assert!(gives_up.join().unwrap().is_none());
            wait_for_queue(server, name, 5);

            javas[0].call(&kind.command(name, "unlock"));
            let first = first.join().unwrap();
            assert!(javas[1].waits() && javas[2].waits() && !third.is_finished(), "{name}");
            let token = first.token;
            first.unlock().unwrap();
            javas[1].answer();
            assert!(javas[2].waits() && !third.is_finished(), "{name}");
            javas[1].call(&kind.command(name, "unlock"));
            let third = third.join().unwrap();
            assert!(javas[2].waits(), "{name}");
            assert!(third.token > token, "{name}: {} after {token}", third.token);
            third.unlock().unwrap();
            javas[2].answer();
        });
        javas[2].call(&kind.command(name, "unlock"));
        wait_for_queue(server, name, 0);
    });
}

#[test]
fn what_a_killed_process_held_comes_free() {
    let world = World::with(&["session=5000"]);
    let other = curator(&world.server.address(), &["session=5000"]);
    let client = LockClient::builder().url(world.server.url()).lease(ms(5000)).build().unwrap();
    let (dead, waits) = (world.jvm.thread(), other.thread());
    dead.call("mutex m lock");
    std::thread::scope(|s| {
        let ours = s.spawn(|| client.mutex("m").lock_owned().unwrap());
        wait_for_queue(&world.server, "m", 2);
        waits.begin_waiting_until("mutex m lock", || queue(&world.server, "m") == 3);
        assert!(!ours.is_finished());
        world.jvm.kill();
        let ours = ours.join().unwrap();
        assert!(waits.waits());
        drop(ours);
    });
    waits.answer();
}

/// Only Java asks a holder to release, and only Java does so.
#[test]
fn a_revoker_changes_nothing_for_our_hold() {
    let world = world();
    let client = LockClient::open(&world.server.url()).unwrap();
    let (java, waits) = (world.jvm.thread(), world.jvm.thread());
    let guard = client.mutex("revoked").lock_owned().unwrap();
    let node = &world.server.children("/revoked")[0];
    java.call(&format!("mutex revoked revoke /revoked/{node}"));
    assert_eq!(world.server.node(&format!("/revoked/{node}")).unwrap().data, b"__REVOKE__");
    waits.begin_waiting_until("mutex revoked lock", || queue(&world.server, "revoked") == 2);
    assert!(guard.is_held());
    guard.unlock().unwrap();
    waits.answer();
    waits.call("mutex revoked unlock");
}

/// Deleted by Java's own tools, or by anybody else: the loss is noticed, and the lock still works.
#[test]
fn a_node_that_somebody_deletes_is_a_lost_hold() {
    let world = world();
    let client = LockClient::builder().url(world.server.url()).lease(ms(6000)).build().unwrap();
    let java = world.jvm.thread();
    let guard = client.mutex("deleted").lock_owned().unwrap();
    java.begin_waiting_until("mutex deleted lock", || queue(&world.server, "deleted") == 2);
    let own = world
        .server
        .ephemerals()
        .into_iter()
        .map(|(_, path)| path)
        .filter(|path| path.starts_with("/deleted/"));
    let session = world.jvm.session();
    let own: Vec<_> = own
        .filter(|path| world.server.node(path).is_some_and(|node| node.owner != session))
        .collect();
    world.server.look(|session| session.delete(&own[0])).unwrap();
    java.answer();
    wait_until("the loss is noticed", || !guard.is_held());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    java.call("mutex deleted unlock");
}
