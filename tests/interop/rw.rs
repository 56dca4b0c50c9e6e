//! Readers of both libraries, and a writer of each.

use std::time::Duration;

use crate::jvm::{Waits, listeners};
use crate::rig::{CAP, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};
use crate::world::{World, prompt, world};

fn waits(server: &Server, name: &str) -> bool {
    listeners(server, &format!("redisson_rwlock:{{{name}}}")) > 0
}

fn both_wait(server: &Server, name: &str) -> bool {
    listeners(server, &format!("redisson_rwlock:{{{name}}}")) == 2
}

#[test]
fn readers_of_both_libraries_read_together_and_keep_both_writers_out() {
    let world = world();
    let (client, java, writer) = (world.client(), world.jvm.thread(), world.jvm.thread());
    let rw = client.rw_lock("rw1");
    let ours = rw.read_owned().unwrap();
    java.call("read rw1 lock");
    java.call("read rw1 lock");
    // From a separate client: a second reader of the same client would share its hold if it follows
    // within milliseconds.
    let other = world.client();
    let more = other.rw_lock("rw1").read_owned().unwrap();
    assert_eq!(rw.holders().unwrap().len(), 3);
    assert_eq!(java.call("read rw1 holdCount"), "2");
    assert!(rw.try_write_owned().unwrap().is_none());
    assert_eq!(writer.call("write rw1 tryLock"), "false");
    writer.begin_waiting(&world.server, "write rw1 lock", "rw1", waits);
    ours.unlock().unwrap();
    more.unlock().unwrap();
    java.call("read rw1 unlock");
    assert!(writer.waits(), "one reader is left");
    prompt(|| drop(java.call("read rw1 unlock")), || writer.answer());
    assert!(rw.try_read_owned().unwrap().is_none());
    writer.call("write rw1 unlock");
}

#[test]
fn a_leasehold_writer_waits_for_redisson_readers() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let rw = client.rw_lock("rw2");
    java.call("read rw2 lock");
    std::thread::scope(|s| {
        let writer = s.spawn(|| rw.try_write_owned_for(CAP).unwrap().unwrap());
        wait_until("we wait", || waits(&world.server, "rw2"));
        let guard = prompt(|| drop(java.call("read rw2 unlock")), || writer.join().unwrap());
        assert_eq!(java.call("read rw2 tryLock"), "false");
        assert_eq!(java.call("write rw2 tryLock"), "false");
        java.begin("read rw2 lock");
        prompt(|| guard.unlock().unwrap(), || java.answer());
        java.call("read rw2 unlock");
    });
}

#[test]
fn a_writers_release_lets_the_readers_of_both_libraries_in() {
    let world = world();
    let client = world.client();
    let readers: Vec<_> = (0..3).map(|_| world.jvm.thread()).collect();
    for (writer, name) in [("Java", "rw3"), ("ours", "rw3b")] {
        let rw = client.rw_lock(name);
        // Behind a writer of the same client a leasehold reader needs no message.
        let shown: Waits = if writer == "Java" { both_wait } else { waits };
        let (java, ours) = match writer {
            "Java" => {
                let java = world.jvm.thread();
                java.call(&format!("write {name} lock"));
                (Some(java), None)
            }
            _ => (None, Some(rw.write_owned().unwrap())),
        };
        std::thread::scope(|s| {
            let ours_too = s.spawn(|| rw.try_read_owned_for(CAP).unwrap().unwrap());
            for reader in &readers {
                reader.begin_waiting(&world.server, &format!("read {name} lock"), name, shown);
            }
            let release = || match (java, ours) {
                (Some(java), _) => drop(java.call(&format!("write {name} unlock"))),
                (_, ours) => ours.unwrap().unlock().unwrap(),
            };
            let guard = prompt(release, || {
                for reader in &readers {
                    drop(reader.answer());
                }
                ours_too.join().unwrap()
            });
            assert_eq!(rw.holders().unwrap().len(), 4, "after a writer of {writer}");
            for reader in &readers {
                drop(reader.call(&format!("read {name} unlock")));
            }
            guard.unlock().unwrap();
        });
        assert!(!rw.is_locked().unwrap());
    }
}

/// Redisson tries, subscribes, tries again and only then waits. A message `1` between the last two
/// wakes nobody: with that message alone 3 of 600 readers slept until their wait hint ended. (Other
/// tests check that a `00` follows.)
#[test]
fn a_leasehold_writers_release_reaches_a_redisson_reader_that_is_about_to_wait() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    for n in 0..300 {
        let name = format!("rw6-{n}");
        let guard = client.rw_lock(&name).write_owned().unwrap();
        java.begin(&format!("read {name} lock"));
        wait_until("it is subscribed", || waits(&world.server, &name));
        std::thread::sleep(Duration::from_micros(rand::random_range(0..2500)));
        prompt(|| guard.unlock().unwrap(), || java.answer());
        java.call(&format!("read {name} unlock"));
    }
}

/// Leasehold wakes the readers. Redisson does not, after a read that was acquired inside a write
/// and ends first: they wait for the lease.
#[test]
fn a_downgrade_is_seen_by_the_other_library() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let rw = client.rw_lock("rw4");
    let writing = rw.write_owned().unwrap();
    java.begin_waiting(&world.server, "read rw4 lock", "rw4", waits);
    let mut writing = Some(writing);
    let mut reading = None;
    prompt(|| reading = Some(writing.take().unwrap().downgrade().unwrap()), || java.answer());
    assert_eq!(world.jvm.thread().call("write rw4 tryLock"), "false");
    java.call("read rw4 unlock");
    reading.unwrap().unlock().unwrap();

    java.call("write rw4 lock");
    java.call("read rw4 lock");
    assert!(rw.try_read_owned().unwrap().is_none());
    java.call("write rw4 unlock");
    let beside = rw.try_read_owned().unwrap().expect("Java only reads now");
    assert!(rw.try_write_owned().unwrap().is_none());
    java.call("read rw4 unlock");
    assert!(beside.is_held());
    beside.unlock().unwrap();
    assert!(!rw.is_locked().unwrap());
}

/// The renewals and releases of each library do not affect the read holds of the other.
#[test]
fn readers_of_both_libraries_are_renewed_beside_each_other() {
    let world = World::with(&["watchdog=5000"]);
    let client = world.server.builder().short_lease(ms(5000)).build().unwrap();
    let (java, other) = (world.jvm.thread(), world.jvm.thread());
    let rw = client.rw_lock("rw5");
    let ours = rw.read_owned().unwrap();
    java.call("read rw5 lock");
    let start = std::time::Instant::now();
    while start.elapsed() < ms(11_000) {
        // Other readers acquire and release.
        rw.read_owned().unwrap().unlock().unwrap();
        other.call("read rw5 lock");
        other.call("read rw5 unlock");
        assert!(rw.try_write_owned_for(ms(50)).unwrap().is_none());
        assert_eq!(other.call("write rw5 tryLock 700"), "false");
        assert!(ours.is_held());
    }
    ours.unlock().unwrap();
    assert_eq!(other.call("write rw5 tryLock"), "false", "Java still reads");
    java.call("read rw5 unlock");
    assert_eq!(other.call("write rw5 tryLock"), "true");
}

/// Java's renewals set the TTL of the whole lock to a tenth of our lease, or less; then Java dies.
#[test]
fn our_readers_outlive_a_java_reader_with_a_shorter_watchdog() {
    let world = World::with(&["watchdog=3000"]);
    let (client, java) = (world.client(), world.jvm.thread());
    let first = client.rw_lock("rw7").read_owned().unwrap();
    java.call("read rw7 lock");
    java.call("read rw8 lock");
    let second = client.rw_lock("rw8").with_lease(Duration::from_secs(300)).read_owned().unwrap();
    for (name, guard) in [("rw7", &first), ("rw8", &second)] {
        wait_until("Java has shortened the lock", || (1..=3000).contains(&world.server.pttl(name)));
        wait_until("our hold was shortened too", || guard.remaining() <= ms(3000));
    }
    world.jvm.kill();
    let start = std::time::Instant::now();
    while start.elapsed() < ms(4200) {
        for (name, guard) in [("rw7", &first), ("rw8", &second)] {
            assert!(
                world.server.pttl(name) > 0,
                "a writer could be in {:?} after Java's end",
                start.elapsed()
            );
            assert!(guard.is_held());
        }
        std::thread::sleep(ms(10));
    }
    wait_until("nothing can shorten it any more", || second.remaining() > Duration::from_secs(200));
    first.unlock().unwrap();
    second.unlock().unwrap();
    assert!(client.rw_lock("rw8").try_write().unwrap().is_some());
}
