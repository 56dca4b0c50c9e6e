//! What each primitive is in ZooKeeper. `contract::each_kind` covers what holds for all stores.

use std::time::Duration;

use leasehold::ErrorKind;

use super::{LONG, children, client, client_of, server};
use crate::rig::zookeeper::{EPHEMERAL_SEQUENTIAL, PERSISTENT};
use crate::rig::{PROMPT, ms, wait_until};

const CURATOR: &str = "_c_6c1d4dfc-7a43-4e2c-9a9a-0d3e1e1d2c3b-";

#[test]
fn a_hold_is_one_node_of_curators_form() {
    let server = server!();
    let client = client(&server);
    let mut look = server.raw();
    let (outer, inner) = (client.lock("job").unwrap(), client.lock("job").unwrap());
    let nodes = children(&mut look, "/job");
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert!(
        nodes[0].starts_with("_c_") && nodes[0].contains("-lock-") && &nodes[0][17..18] == "8",
        "{nodes:?}"
    );
    let node = look.get(&format!("/job/{}", nodes[0])).unwrap();
    assert_eq!(outer.fencing_token().unwrap().get(), node.czxid.unsigned_abs());
    assert_eq!(client.lease(), LONG);
    drop((inner, outer));
    look.close();
    drop(client);
    server.assert_clean();
}

#[test]
fn a_downgrade_keeps_the_place_of_the_writer() {
    let server = server!();
    let client = client(&server);
    let mut look = server.raw();
    let guard = client.rw_lock("data").write().unwrap();
    let inside = client.rw_lock("data").read().unwrap();
    let nodes = children(&mut look, "/data");
    assert_eq!(nodes.len(), 1, "only the client knows of a read inside a write");
    drop(inside);
    let guard = guard.downgrade().unwrap();
    assert_eq!(children(&mut look, "/data"), [nodes[0].replace("__WRIT__", "__READ__")]);
    guard.unlock().unwrap();
    look.close();
    drop(client);
    server.assert_clean();
}

/// A long write hold is watched. The deletion of its node by the downgrade is not a loss.
#[test]
fn a_write_hold_that_has_lasted_is_downgraded() {
    let server = server!();
    let client = client_of(&server.url(), |builder| builder.lease(ms(3000)));
    let guard = client.rw_lock("data").write().unwrap();
    wait_until("its node is watched", || !server.watches().is_empty());
    let guard = guard.downgrade().unwrap();
    wait_until("the reader's node is watched", || {
        server.watches().iter().any(|(_, path)| path.contains("__READ__")) || !guard.is_held()
    });
    guard.ensure_held().unwrap();
    guard.unlock().unwrap();
    drop(client);
    server.assert_clean();
}

/// Their directories and the parents of those are created in the same transaction.
#[test]
fn many_new_names_are_taken_as_one() {
    let server = server!();
    let client = client(&server);
    let names: Vec<String> = (0..400).map(|n| format!("orders/{}/{n}", n % 3)).collect();
    let guard = client.multi(&names).try_lock().unwrap().expect("none of them is held");
    assert_eq!(server.ephemerals().len(), names.len());
    guard.unlock().unwrap();
    drop(client);
    server.assert_clean();
}

#[test]
fn a_semaphore_never_has_less_than_no_permits() {
    let server = server!();
    let client = client(&server);
    let pool = client.semaphore("pool");
    assert_eq!(pool.try_set_permits(3).unwrap(), leasehold::SetPermits::New);
    assert_eq!(pool.add_permits(-4).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(pool.add_permits(2).unwrap(), 5);
    // In Java, one that waits looks like one that is held.
    let held = pool.acquire_many(4).unwrap();
    let mut java = server.raw();
    for free in [0, 0] {
        java.create(&format!("/pool/leases/{CURATOR}lease-"), b"", EPHEMERAL_SEQUENTIAL).unwrap();
        assert_eq!(pool.available_permits().unwrap(), free);
    }
    let seen = client.inspect("pool").unwrap().unwrap();
    assert_eq!(seen.locks()[0].number(), Some(0));
    java.close();
    held.release().unwrap();
    assert!(pool.delete().unwrap());
    drop((pool, client));
    server.assert_clean();
}

#[test]
fn a_latch_is_a_shared_count_of_curators() {
    let server = server!();
    let client = client(&server);
    let latch = client.latch("start");
    latch.set_count(2).unwrap();
    assert_eq!(server.node("/start").unwrap().data, [0, 0, 0, 2]);
    std::thread::scope(|s| {
        let waits = s.spawn(|| latch.wait_for(PROMPT).unwrap());
        wait_until("it waits", || server.watches().iter().any(|(_, path)| path == "/start"));
        // Java changes it.
        server.look(|session| session.set("/start", &[0; 4]).unwrap());
        assert!(waits.join().unwrap());
    });
    assert!(latch.delete().unwrap());
    drop((latch, client));
    server.assert_clean();
}

#[test]
fn a_latch_for_which_nobody_waits_any_more_is_not_watched() {
    let server = server!();
    let client = client(&server);
    // Two spellings of one name.
    let (latch, slashed) = (client.latch("start"), client.latch("/start"));
    latch.set_count(1).unwrap();
    let is_watched = || !server.watches().is_empty();
    std::thread::scope(|s| {
        let waits = s.spawn(|| slashed.wait_for(PROMPT).unwrap());
        wait_until("it is watched", is_watched);
        assert!(!latch.wait_for(ms(10)).unwrap());
        latch.count_down().unwrap();
        assert!(waits.join().unwrap());
    });
    wait_until("it is not watched any more", || !is_watched());
    latch.set_count(1).unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| latch.wait_for(PROMPT).unwrap());
        wait_until("it is watched again", is_watched);
        latch.count_down().unwrap();
        assert!(waits.join().unwrap());
    });
    // Of the waits of a moment ago.
    wait_until("it is not watched any more", || !is_watched());
    latch.set_count(1).unwrap();
    server.look(|session| session.create("/start/below", b"", PERSISTENT).unwrap());
    let error = latch.delete().unwrap_err();
    assert!(
        error.kind() == ErrorKind::WrongType && error.to_string().contains("/start/below"),
        "{error}"
    );
    server.look(|session| session.delete("/start/below").unwrap());
    assert!(latch.delete().unwrap());
    drop((latch, slashed, client));
    server.assert_clean();
}

/// All nodes whose names end in a sequence number take turns, whoever created them.
#[test]
fn nodes_of_others_take_turns_or_are_named() {
    let server = server!();
    let client = client(&server);
    let mut java = server.raw();
    let theirs = java
        .create_below_containers(
            &format!("/job/{CURATOR}lock-"),
            b"192.168.0.1",
            EPHEMERAL_SEQUENTIAL,
        )
        .unwrap();
    java.create("/job/zzz", b"", PERSISTENT).unwrap();
    assert!(client.try_lock("job").unwrap().is_none());
    let holder = client.mutex("job").holder().unwrap().unwrap();
    assert_eq!(holder.id(), &CURATOR[3..39]);
    std::thread::scope(|s| {
        let waits = s.spawn(|| client.try_lock_for("job", PROMPT).unwrap().is_some());
        wait_until("it waits", || server.watches().iter().any(|(_, path)| *path == theirs));
        java.delete(&theirs).unwrap();
        assert!(waits.join().unwrap(), "a node after all numbers disturbs nobody");
    });
    java.create("/job/!x", b"", PERSISTENT).unwrap();
    for outcome in [client.try_lock_for("job", LONG), client.lock("job").map(Some)] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(error.to_string().contains("/job/!x"), "{error}");
    }
    java.delete("/job/!x").unwrap();
    drop(client.lock("job").unwrap());
    java.delete("/job/zzz").unwrap();
    java.close();
    drop(client);
    server.assert_clean();
}

/// A Java reader inside its write hold arrives later, but is nevertheless before us.
#[test]
fn a_nested_reader_of_java_is_waited_for() {
    let server = server!();
    let client = client(&server);
    let mut java = server.raw();
    let write = java
        .create_below_containers(&format!("/data/{CURATOR}__WRIT__"), b"", EPHEMERAL_SEQUENTIAL)
        .unwrap();
    std::thread::scope(|s| {
        let writer = s.spawn(|| client.rw_lock("data").write().unwrap().unlock());
        wait_until("it waits", || server.watches().iter().any(|(_, path)| *path == write));
        let read = write.replace("__WRIT__", "__READ__");
        java.create(&read, b"", crate::rig::zookeeper::EPHEMERAL).unwrap();
        java.delete(&write).unwrap();
        wait_until("it waits for the reader", || {
            server.watches().iter().any(|(_, path)| *path == read)
        });
        assert!(!writer.is_finished());
        java.delete(&read).unwrap();
        writer.join().unwrap().unwrap();
    });
    java.close();
    drop(client);
    server.assert_clean();
}

#[test]
fn what_a_session_cannot_do_is_refused_with_the_reason() {
    let server = server!();
    let client = client_of(&server.url(), |builder| builder.lease(Duration::from_secs(5)));
    let refused = |error: leasehold::Error, why: &str| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(client.counting_semaphore("x").try_acquire().unwrap_err(), "without a holder");
    refused(client.rate_limiter("x").try_acquire(1).unwrap_err(), "on Redis");
    refused(
        client.mutex("x").with_lease(Duration::from_secs(6)).lock().unwrap_err(),
        "longer than the session",
    );
    let guard = client.lock("x").unwrap();
    refused(
        client.fenced_value("x").claim(guard.fencing_token().unwrap()).unwrap_err(),
        "fencing token",
    );
    drop(guard);
    for name in ["a//b", "a/", "..", "_c_a", "zookeeper/x", "a/locks"] {
        assert_eq!(client.try_lock(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
    }
    drop(client);
    server.assert_clean();
}
