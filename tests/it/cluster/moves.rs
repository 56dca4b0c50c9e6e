//! Slots that move while locks are held, waited for and acquired.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::{LockClient, Once};

use super::{builder, client};
use crate::contract::primitives::{PRIMITIVES, Primitive};
use crate::rig::{CAP, Cluster, PROMPT, ms, wait_for, wait_until};
use crate::support::count_under_the_lock;

/// A node that does not own the slot.
fn other_node(cluster: &Cluster, slot: u16) -> usize {
    (cluster.owner(slot) + 1) % 3
}

/// Held before the move; renewed, waited for, released and fenced after it.
#[test]
fn a_hold_survives_the_move_of_its_slot() {
    let cluster = Cluster::start_primaries();
    let renewed = builder(&cluster).lease(ms(6000)).io_timeout(ms(2000)).build().unwrap();
    let (one, two) = (renewed, client(&cluster));
    let names = |primitive: &Primitive| format!("{{moves-{}}}", primitive.label);
    let primitives: Vec<_> =
        PRIMITIVES.iter().filter(|primitive| primitive.is_plain_row()).collect();
    // Not a barrier, at which the others would wait forever for a thread that has failed.
    let (held, released) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|s| {
        for primitive in &primitives {
            let name = names(primitive);
            (primitive.prepare)(&one, &name);
            let (one, two, held, released) = (&one, &two, &held, &released);
            s.spawn(move || {
                let open = |client: &LockClient| (primitive.open)(client.clone(), &name, None);
                let guard = open(one).lock().unwrap();
                let token = guard.token();
                std::thread::scope(|s| {
                    let waiter = s.spawn(|| {
                        open(two).try_lock_for(4 * CAP).unwrap().expect("it becomes free").token()
                    });
                    held.fetch_add(1, Ordering::SeqCst);
                    wait_for(2 * CAP, "the slots have moved", || released.load(Ordering::SeqCst));
                    assert!(guard.is_held(), "{}", primitive.label);
                    let start = Instant::now();
                    guard.unlock().unwrap();
                    let next = waiter.join().unwrap();
                    assert!(start.elapsed() < PROMPT, "{}: woken, not by a timer", primitive.label);
                    assert!(
                        token.is_none() || next > token,
                        "{}: {next:?} after {token:?}",
                        primitive.label
                    );
                });
            });
        }
        wait_until("all are held", || held.load(Ordering::SeqCst) == primitives.len());
        for primitive in &primitives {
            let slot = cluster.slot(&names(primitive));
            cluster.migrate_slot(slot, other_node(&cluster, slot));
        }
        // More than one lease: each hold is renewed at its new node.
        std::thread::sleep(ms(6600));
        released.store(true, Ordering::SeqCst);
    });
    one.semaphore(names(
        primitives.iter().find(|primitive| primitive.label.starts_with("semaphore")).unwrap(),
    ))
    .delete()
    .unwrap();
    drop((one, two));
    cluster.assert_clean();
}

/// The slot is half-moved: some keys are on each node. Holds are renewed and released, and free
/// locks can be acquired once the move is complete.
#[test]
fn a_slot_that_is_half_moved_loses_nothing() {
    let cluster = Cluster::start_primaries();
    let client = builder(&cluster).lease(ms(6000)).io_timeout(ms(2000)).build().unwrap();
    let slot = cluster.slot("{half}");
    let held = client.mutex("{half}held").lock().unwrap();
    let read = client.rw_lock("{half}read").read().unwrap();
    let to = other_node(&cluster, slot);
    cluster.begin_migration(slot, to);
    // Renewed at the node that has the lock, before its keys move and after.
    std::thread::sleep(ms(3300));
    cluster.move_keys(slot, to);
    std::thread::sleep(ms(3300));
    assert!(held.is_held() && read.is_held());
    // The lock is free, so none of its keys exists: the importing node handles it.
    drop(client.mutex("{half}new").try_lock());
    held.unlock().unwrap();
    // Its release names a second key, which does not exist: Redis serves it only after the move.
    drop(read);
    cluster.finish_migration(slot, to);
    drop(client.mutex("{half}held").lock().unwrap());
    drop(client);
    cluster.assert_clean();
}

/// A job that is at work when its slot moves: its success is sent while the lease is on one node and
/// the record on the other, is refused there until the move is complete, and is repeated.
#[test]
fn a_success_is_recorded_while_its_slot_moves() {
    let cluster = Cluster::start_primaries();
    let [one, two] = [(); 2].map(|()| client(&cluster));
    let slot = cluster.slot("report");
    let to = other_node(&cluster, slot);
    let begun = AtomicBool::new(false);
    let refused = || {
        (0..3).any(|node| {
            let info: String = cluster.node(node).cmd(&["INFO", "errorstats"]);
            info.contains("errorstat_TRYAGAIN")
        })
    };
    let done = std::thread::scope(|s| {
        s.spawn(|| {
            wait_until("it is half moved", || begun.load(Ordering::SeqCst));
            wait_for(2 * CAP, "the success is refused", refused);
            cluster.move_keys(slot, to);
            cluster.finish_migration(slot, to);
        });
        one.once("report", "1").run(|job| {
            cluster.begin_migration(slot, to);
            let stay = ["leasehold_done:{report}/1".to_owned()];
            cluster.move_keys_but(slot, to, &stay);
            begun.store(true, Ordering::SeqCst);
            Ok::<_, ()>(job.attempt())
        })
    });
    let done = done.unwrap();
    assert!(matches!(done, Once::Done(1)), "{done:?}");
    let again = two.once("report", "1").run(|_| Ok::<_, ()>(())).unwrap();
    assert!(matches!(again, Once::AlreadyDone { .. }), "{again:?}");
    // The next one has its lease at the new node.
    assert!(matches!(two.once("report", "2").run(|_| Ok::<_, ()>(())).unwrap(), Once::Done(())));
    drop((one, two));
}

/// A reader leaves at the lock's new node, while the other reader's timeout key is still on the old
/// one: that reader must not be considered gone.
#[test]
fn a_reader_that_is_half_moved_keeps_the_lock() {
    let cluster = Cluster::start_primaries();
    let clients: Vec<_> =
        (0..3).map(|_| builder(&cluster).io_timeout(ms(700)).build().unwrap()).collect();
    let [one, two, three] = &clients[..] else { unreachable!() };
    let slot = cluster.slot("half");
    let to = other_node(&cluster, slot);
    let stays = two.rw_lock("half").read().unwrap();
    let of_two: Vec<_> =
        cluster.keys(slot).into_iter().filter(|key| key.contains("rwlock_timeout")).collect();
    assert_eq!(of_two.len(), 1);
    let leaves = one.rw_lock("half").read().unwrap();
    std::thread::scope(|s| {
        let writer = s.spawn(|| three.rw_lock("half").try_write_for(2 * CAP).unwrap().map(drop));
        wait_until("a writer waits", || {
            cluster.keys(slot).iter().any(|key| key.starts_with("leasehold_writer"))
        });
        cluster.begin_migration(slot, to);
        cluster.move_keys_but(slot, to, &of_two);
        // It may be refused or succeed: both are right, and the rest is done in the background.
        let _ = leaves.unlock();
        cluster.move_keys(slot, to);
        cluster.finish_migration(slot, to);
        std::thread::sleep(ms(500));
        assert!(!writer.is_finished(), "a reader still holds it");
        stays.extend(ms(20_000)).unwrap();
        stays.unlock().unwrap();
        let start = Instant::now();
        assert!(writer.join().unwrap().is_some());
        assert!(start.elapsed() < CAP, "not by the end of a lease");
    });
    drop(clients);
    cluster.assert_clean();
}

/// A client that lived through many moves counts exactly, and so do its waiters.
#[test]
fn a_counter_is_exact_while_its_slot_moves_back_and_forth() {
    let cluster = Cluster::start_primaries();
    let store = crate::rig::Server::start();
    store.cmd::<()>(&["SET", "counter", "0"]);
    let (slot, done) = (cluster.slot("job"), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cluster.migrate_slot(slot, other_node(&cluster, slot));
                // The nodes inform each other by gossip: one that learns late of two moves drops
                // its keys.
                std::thread::sleep(ms(200));
            }
        });
        std::thread::scope(|workers| {
            for _ in 0..3 {
                workers.spawn(|| {
                    let client = builder(&cluster).lease(Duration::from_secs(15)).build().unwrap();
                    count_under_the_lock(&client, &store.url(), 2);
                });
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(store.cmd::<u32>(&["GET", "counter"]), 3 * 2 * 20);
    cluster.wait_ok();
    cluster.assert_clean();
}

/// Waiters of all kinds at once, each woken at the new node of its slot.
#[test]
fn waiters_hear_of_releases_at_the_new_node() {
    let cluster = Cluster::start_primaries();
    let (one, two) = (client(&cluster), client(&cluster));
    let latch = one.latch("gate");
    assert!(latch.try_set_count(1).unwrap());
    let lock = one.lock("door").unwrap();
    std::thread::scope(|s| {
        let gate = s.spawn(|| two.latch("gate").wait_for(3 * CAP).unwrap());
        let door = s
            .spawn(|| drop(two.mutex("door").try_lock_for(3 * CAP).unwrap().expect("it is freed")));
        wait_until("both wait", || {
            let channels: usize =
                (0..3).map(|node| super::channels(cluster.node(node)).len()).sum();
            channels == 2
        });
        for name in ["gate", "door"] {
            let slot = cluster.slot(name);
            cluster.migrate_slot(slot, other_node(&cluster, slot));
        }
        wait_until("both wait at the new nodes", || {
            let channels: usize =
                (0..3).map(|node| super::channels(cluster.node(node)).len()).sum();
            channels == 2
        });
        let start = Instant::now();
        latch.count_down().unwrap();
        lock.unlock().unwrap();
        assert!(gate.join().unwrap());
        door.join().unwrap();
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    });
    drop((latch, one, two));
    cluster.assert_clean();
}
