//! The behaviour of each primitive, beyond the contract.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::ErrorKind;

use super::{LONG, children, client, client_of, server};
use crate::rig::zookeeper::{EPHEMERAL_SEQUENTIAL, PERSISTENT};
use crate::rig::{PROMPT, ms, wait_until};

const CURATOR: &str = "_c_6c1d4dfc-7a43-4e2c-9a9a-0d3e1e1d2c3b-";

#[test]
fn a_mutex_is_reentrant_and_has_growing_tokens() {
    let server = server!();
    let (a, b) = (client(&server), client(&server));
    let mut look = server.raw();
    let outer = a.lock("job").unwrap();
    let inner = a.lock("job").unwrap();
    assert_eq!(
        (outer.hold_count(), inner.fencing_token().unwrap()),
        (2, outer.fencing_token().unwrap())
    );
    let nodes = children(&mut look, "/job");
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert!(
        nodes[0].starts_with("_c_") && nodes[0].contains("-lock-") && &nodes[0][17..18] == "8",
        "{nodes:?}"
    );
    let node = look.get(&format!("/job/{}", nodes[0])).unwrap();
    assert_eq!(outer.fencing_token().unwrap().get(), node.czxid.unsigned_abs());
    assert!(b.try_lock("job").unwrap().is_none());
    assert!(b.try_lock_for("job", ms(50)).unwrap().is_none());
    let holder = b.mutex("job").holder().unwrap().unwrap();
    assert!(holder.id().starts_with(a.id()) && !holder.is_this_client(), "{holder:?}");
    drop(inner);
    assert!(b.try_lock("job").unwrap().is_none());
    let token = outer.fencing_token().unwrap();
    outer.unlock().unwrap();
    let next = b.try_lock("job").unwrap().unwrap();
    assert!(next.fencing_token().unwrap() > token);
    assert!(a.mutex("job").force_unlock().unwrap() && !a.mutex("job").force_unlock().unwrap());
    assert_eq!(next.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(a.lease(), LONG);
    look.close();
    drop((a, b));
    server.assert_clean();
}

#[test]
fn a_fair_lock_is_given_in_the_order_of_arrival() {
    let server = server!();
    let (a, b) = (client(&server), client(&server));
    let guard = a.fair("job").lock().unwrap();
    let order = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for n in 0..4_usize {
            let (client, order) = (if n % 2 == 0 { &a } else { &b }, &order);
            s.spawn(move || {
                let guard = client.fair("job").lock().unwrap();
                order.lock().push(n);
                guard.unlock().unwrap();
            });
            wait_until("it waits", || client.fair("job").queue_len().unwrap() == n + 1);
        }
        assert_eq!(b.fair("job").position().unwrap(), Some(1));
        guard.unlock().unwrap();
    });
    assert_eq!(*order.lock(), [0, 1, 2, 3]);
    drop((a, b));
    server.assert_clean();
}

#[test]
fn readers_share_and_a_writer_downgrades() {
    let server = server!();
    let (a, b) = (client(&server), client(&server));
    let mut look = server.raw();
    let readers = (a.rw_lock("data").read().unwrap(), b.rw_lock("data").read().unwrap());
    assert!(b.rw_lock("data").try_write().is_err(), "this thread reads");
    std::thread::scope(|s| {
        let is_write = |node: &String| node.contains("__WRIT__");
        assert!(s.spawn(|| b.rw_lock("data").try_write().unwrap().is_none()).join().unwrap());
        wait_until("the try leaves", || !children(&mut look, "/data").iter().any(is_write));
        let waits = s.spawn(|| b.rw_lock("data").write().unwrap().unlock().unwrap());
        wait_until("a writer waits", || children(&mut look, "/data").iter().any(is_write));
        let reads = s.spawn(|| a.rw_lock("data").try_read().unwrap().is_some());
        assert!(!reads.join().unwrap(), "a waiting writer goes first");
        drop(readers);
        waits.join().unwrap();
    });
    let guard = a.rw_lock("data").write().unwrap();
    let inside = a.rw_lock("data").read().unwrap();
    assert_eq!(
        children(&mut look, "/data").len(),
        1,
        "only the client knows of a read inside a write"
    );
    drop(inside);
    let write = children(&mut look, "/data").pop().unwrap();
    let other = || {
        std::thread::scope(|s| {
            s.spawn(|| b.rw_lock("data").try_read().unwrap().is_some()).join().unwrap()
        })
    };
    assert!(!other());
    let guard = guard.downgrade().unwrap();
    let read = children(&mut look, "/data").pop().unwrap();
    assert_eq!(read, write.replace("__WRIT__", "__READ__"), "with the writer's queue entry");
    assert!(other());
    let writes = || {
        std::thread::scope(|s| {
            s.spawn(|| b.rw_lock("data").try_write().unwrap().is_some()).join().unwrap()
        })
    };
    assert!(!writes());
    guard.unlock().unwrap();
    assert!(writes());
    look.close();
    drop((a, b));
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

/// A waiting local reader has a queue entry in ZooKeeper before a writer of its client that queues
/// later: neither may wait for the other.
#[test]
fn readers_and_writers_of_one_client_get_in_turn_by_turn() {
    let server = server!();
    let (a, b) = (client(&server), client(&server));
    let (inside, done) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        for n in 0..8 {
            let (client, inside, done) = (if n % 2 == 0 { &a } else { &b }, &inside, &done);
            s.spawn(move || {
                for turn in 0..15 {
                    if (n + turn) % 3 == 0 {
                        let guard = client.rw_lock("data").write().unwrap();
                        assert_eq!(inside.fetch_add(100, Ordering::SeqCst), 0, "a writer is alone");
                        inside.fetch_sub(100, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    } else {
                        let guard = client.rw_lock("data").read().unwrap();
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 100, "no writer is inside");
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 120);
    drop((a, b));
    server.assert_clean();
}

#[test]
fn several_locks_are_taken_as_one() {
    let server = server!();
    let (a, b) = (client(&server), client(&server));
    let mut look = server.raw();
    let one = b.lock("b").unwrap();
    assert!(a.multi(["c", "b", "a"]).try_lock().unwrap().is_none());
    wait_until("nothing is left", || {
        children(&mut look, "/a").is_empty() && children(&mut look, "/c").is_empty()
    });
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            let guard = a.multi(["c", "b", "a"]).lock().unwrap();
            let tokens = ["a", "b", "c"].map(|name| guard.fencing_token(name).unwrap());
            guard.unlock().unwrap();
            tokens
        });
        wait_until("it is in all queues", || {
            ["a", "b", "c"].iter().all(|name| !children(&mut look, &format!("/{name}")).is_empty())
                && children(&mut look, "/b").len() == 2
        });
        let token = one.fencing_token().unwrap();
        one.unlock().unwrap();
        assert!(waits.join().unwrap()[1] > token);
    });
    // A call that gives up leaves nothing behind.
    let one = b.lock("b").unwrap();
    assert!(a.multi(["c", "b", "a"]).try_lock_for(ms(50)).unwrap().is_none());
    assert!(children(&mut look, "/a").is_empty() && children(&mut look, "/c").is_empty());
    drop(one);
    look.close();
    drop((a, b));
    server.assert_clean();
}

/// Two calls that share names are in the same order in all of their queues, whatever the order of
/// their names. And a thread that waits for one name alone does not block its own client.
#[test]
fn multi_locks_do_not_wait_for_each_other() {
    let server = server!();
    let clients = [client(&server), client(&server)];
    let (inside, done) = ([const { AtomicU32::new(0) }; 6], AtomicU32::new(0));
    std::thread::scope(|s| {
        for n in 0..6_usize {
            let (client, inside, done) = (&clients[n % 2], &inside, &done);
            s.spawn(move || {
                for turn in 0..20 {
                    let first = (n * 7 + turn * 5) % 6;
                    let chosen = [first, (first + 1 + turn % 2) % 6, (first + 3) % 6];
                    let names = chosen.map(|name| format!("name-{name}"));
                    let enter = |name: usize| {
                        assert_eq!(inside[name].fetch_add(1, Ordering::SeqCst), 0, "alone");
                    };
                    let leave =
                        |name: usize| assert_eq!(inside[name].fetch_sub(1, Ordering::SeqCst), 1);
                    if turn % 4 == 3 {
                        let guard = client.lock(&names[0]).unwrap();
                        enter(first);
                        leave(first);
                        guard.unlock().unwrap();
                    } else {
                        let guard = client.multi(&names).lock().unwrap();
                        for name in &chosen {
                            enter(*name);
                        }
                        for name in &chosen {
                            leave(*name);
                        }
                        guard.unlock().unwrap();
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 120);
    drop(clients);
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
fn permits_are_counted() {
    let server = server!();
    let (a, b) = (client(&server), client(&server));
    let pool = a.semaphore("pool");
    assert_eq!(pool.try_acquire().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(pool.try_set_permits(3).unwrap(), leasehold::SetPermits::New);
    assert_eq!(pool.try_set_permits(5).unwrap(), leasehold::SetPermits::Different { current: 3 });
    let two = pool.acquire_many(2).unwrap();
    let one = b.semaphore("pool").try_acquire().unwrap().unwrap();
    assert_eq!((pool.available_permits().unwrap(), pool.acquired_permits().unwrap()), (0, 3));
    assert!(pool.try_acquire().unwrap().is_none());
    assert_eq!(
        pool.try_acquire_many(4).unwrap_err().kind(),
        ErrorKind::Conflict,
        "there are never so many"
    );
    std::thread::scope(|s| {
        let waits =
            s.spawn(|| b.semaphore("pool").try_acquire_many_for(2, PROMPT).unwrap().is_some());
        wait_until("it waits", || {
            server.ephemerals().iter().any(|(_, path)| path.starts_with("/pool/locks/"))
        });
        drop(two);
        assert!(waits.join().unwrap());
    });
    assert_eq!(pool.add_permits(2).unwrap(), 4);
    let id = b.semaphore("pool").acquire().unwrap().forget();
    assert_eq!(pool.acquired_permits().unwrap(), 2);
    pool.release(&id).unwrap();
    assert_eq!(pool.release(&id).unwrap_err().kind(), ErrorKind::Lost, "already returned");
    assert_eq!(pool.acquired_permits().unwrap(), 1);
    assert_eq!(pool.add_permits(-6).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(pool.delete().unwrap() && !pool.delete().unwrap());
    assert_eq!(one.release().unwrap_err().kind(), ErrorKind::Lost);
    drop((pool, a, b));
    server.assert_clean();
}

/// A call that meets another one at its turn must not report that there is no permit.
#[test]
fn free_permits_are_had_by_all_who_try_at_once() {
    let server = server!();
    let clients = [client(&server), client(&server)];
    assert_eq!(
        clients[0].semaphore("pool").try_set_permits(12).unwrap(),
        leasehold::SetPermits::New
    );
    let start = std::sync::Barrier::new(12);
    let held = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for n in 0..12 {
            let (client, start, held) = (&clients[n % 2], &start, &held);
            s.spawn(move || {
                start.wait();
                let permit = client.semaphore("pool").try_acquire().unwrap();
                held.lock().push(permit.expect("a permit is free").forget());
            });
        }
    });
    assert!(clients[0].semaphore("pool").try_acquire().unwrap().is_none());
    assert!(clients[0].semaphore("pool").delete().unwrap());
    drop(clients);
    server.assert_clean();
}

#[test]
fn a_latch_opens_when_it_is_counted_down() {
    let server = server!();
    let (a, b) = (client(&server), client(&server));
    let latch = a.latch("start");
    assert!(latch.try_wait().unwrap(), "an unset latch is open");
    latch.set_count(2).unwrap();
    assert_eq!(latch.set_count(2).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(
        server.node("/start").unwrap().data,
        [0, 0, 0, 2],
        "in the format of Curator's SharedCount"
    );
    assert!(!latch.try_wait().unwrap());
    assert!(!latch.wait_for(ms(30)).unwrap());
    std::thread::scope(|s| {
        let waits =
            [&a, &b].map(|client| s.spawn(|| client.latch("start").wait_for(PROMPT).unwrap()));
        wait_until("both wait", || {
            server.watches().iter().filter(|(_, path)| path == "/start").count() == 2
        });
        assert_eq!((b.latch("start").count_down().unwrap(), latch.count().unwrap()), (1, 1));
        assert_eq!(b.latch("start").count_down().unwrap(), 0);
        assert!(waits.into_iter().all(|thread| thread.join().unwrap()));
    });
    assert_eq!(latch.count_down().unwrap(), 0, "it stays open");
    latch.set_count(1).unwrap();
    assert!(latch.delete().unwrap() && latch.try_wait().unwrap());
    // Java changes it.
    latch.set_count(3).unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| a.latch("start").wait_for(PROMPT).unwrap());
        wait_until("it waits", || server.watches().iter().any(|(_, path)| path == "/start"));
        server.look(|session| session.set("/start", &[0; 4]).unwrap());
        assert!(waits.join().unwrap());
    });
    assert!(latch.delete().unwrap());
    drop((latch, a, b));
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
