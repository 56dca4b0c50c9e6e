//! Threads of leasehold and Redisson, in two processes each, take turns.

use std::time::Duration;

use leasehold::{Builder, ErrorKind, LockClient, Redis};

use crate::java::{Jvm, Process, THREADS, compete, is_long, rounds};
use crate::rig::{Server, ms, wait_until};
use crate::world::World;

/// Errors while servers are unreachable, or have too few replicas for now.
pub(crate) const OUTAGES: [ErrorKind; 4] =
    [ErrorKind::Unreachable, ErrorKind::NotReady, ErrorKind::Protocol, ErrorKind::NotReplicated];
/// The lease of locks in milliseconds: it limits how long a dead process keeps a lock, and how long
/// a Redisson waiter sleeps after a missed message.
pub(crate) const LEASE: u64 = 10_000;

/// The timeouts of killed waiters for fair locks.
pub(crate) const WAITER_TIMEOUT: Duration = ms(1500);
pub(crate) const JAVA_WAITER_TIMEOUT: Duration = ms(2000);

pub(crate) fn client(server: &Server) -> LockClient {
    builder(&server.url()).lease(ms(LEASE)).build().unwrap()
}

pub(crate) fn builder(url: &str) -> Builder {
    let server = Redis::new(url).java_waiter_timeout(JAVA_WAITER_TIMEOUT);
    LockClient::builder().redis(server).waiter_timeout(WAITER_TIMEOUT)
}

pub(crate) fn java(server: &Server) -> Jvm {
    Jvm::start(server, &[&format!("watchdog={LEASE}"), "fairWait=2000"])
}

#[test]
fn never_two_inside() {
    let world = World::with(&[&format!("watchdog={LEASE}"), "fairWait=2000"]);
    let second = java(&world.server);
    let client = client(&world.server);
    let mut process = Process::start(&world.server.url(), ms(LEASE));
    for primitive in ["lock", "fenced", "fair", "rw", "multi", "permits", "counting"] {
        let jvms = [&world.jvm, &second];
        let (ours, theirs) = compete(&client, &mut process, jvms, world.server.dir(), primitive);
        if primitive == "fair" {
            let (least, most) = (ours.turns.min(theirs.turns), ours.turns.max(theirs.turns));
            assert!(4 * least > most, "equally many threads, one queue: {least} turns and {most}");
        }
    }
    for primitive in ["permits", "counting"] {
        assert_eq!(world.server.cmd::<String>(&["GET", &format!("stress-{primitive}")]), "1");
        world.server.cmd::<u32>(&["DEL", &format!("stress-{primitive}")]);
    }
    // Redisson marks an unlock with a key that expires after a while; before version 4 nothing
    // deletes it earlier.
    wait_until("no lock is left behind", || {
        world.server.lock_keys().iter().all(|key| key.starts_with("redisson_unlock_latch:"))
    });
}

#[test]
fn nobody_passes_a_latch_before_all_have_counted() {
    let world = World::with(&[]);
    let second = Jvm::start(&world.server, &[]);
    let client = client(&world.server);
    let mut process = Process::start(&world.server.url(), ms(LEASE));
    let (turns, players) = (if is_long() { 500 } else { 40 }, 4 * THREADS);
    for round in 0..turns {
        assert!(client.latch(format!("stress-{round}")).try_set_count(players as u32).unwrap());
    }
    let path = world.server.dir().join("latch");
    std::fs::write(&path, "").unwrap();
    let javas: Vec<_> =
        [&world.jvm, &second].iter().flat_map(|jvm| (0..THREADS).map(|_| jvm.thread())).collect();
    for java in &javas {
        java.begin(&format!("latch stress rounds {} {turns} {players}", path.display()));
    }
    process.begin_rounds(&path, turns, players, THREADS);
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| rounds(&client, &path, turns, players));
        }
    });
    process.end_rounds();
    for java in &javas {
        assert_eq!(java.answer(), turns.to_string());
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), (turns * players) as u64);
    wait_until("nothing is left behind", || world.server.lock_keys().is_empty());
}
