//! An election is the plain lock of its name: Redisson's `RLock` takes part in it, without a term.

use std::time::Duration;

use crate::java::{Candidate, is_java, is_ours, watch_until};
use crate::jvm::listeners;
use crate::rig::{Server, ms};
use crate::support::{Clients, ShortLease};
use crate::world::{World, prompt, world};

/// A third of it passes until a leader learns that it was asked.
const LEASE: Duration = ms(6000);

fn on_channel(server: &Server, name: &str) -> bool {
    listeners(server, &format!("redisson_lock__channel:{{{name}}}")) > 0
}

#[test]
fn a_leader_and_an_rlock_of_the_name_exclude_each_other() {
    let world = world();
    let (server, java) = (&world.server, world.jvm.thread());
    let client = server.builder().short_lease(ms(2000)).build().unwrap();
    let seen = client.election("scheduler");
    let mut watch = seen.watch();
    java.call("lock scheduler lock");
    watch_until(&mut watch, is_java);
    let leader = seen.leader().unwrap();
    assert!(is_java(leader.as_ref()), "{leader:?}");
    assert!(!seen.request().unwrap(), "Java does not stand for election");

    let mut candidate = Candidate::start(&server.url(), LEASE, "scheduler");
    candidate.waits();
    assert_eq!(java.call("lock scheduler isHeld"), "true");
    let unlock = || drop(java.call("lock scheduler unlock"));
    let mut term = prompt(unlock, || candidate.leads());
    for _ in 0..2 {
        let leader = seen.leader().unwrap();
        assert!(is_ours(leader.as_ref(), term), "{leader:?} in the term {term}");
        watch_until(&mut watch, |leader| is_ours(leader, term));
        assert_eq!(java.call("lock scheduler tryLock"), "false");
        java.begin_waiting(server, "lock scheduler lock", "scheduler", on_channel);
        assert!(seen.request().unwrap());
        candidate.ended();
        prompt(|| {}, || java.answer());
        watch_until(&mut watch, is_java);
        // It stood back until it saw Java lead.
        candidate.waits();
        let next = prompt(unlock, || candidate.leads());
        assert!(next > term, "{next} after {term}");
        term = next;
    }
    candidate.stop();
    assert!(seen.leader().unwrap().is_none());
    assert_eq!(java.call("lock scheduler isLocked"), "false");
}

/// Neither side releases anything: the lease of the other one ends.
#[test]
fn a_killed_leader_is_followed_on_either_side() {
    let World { jvm, server } = World::with(&["watchdog=3000"]);
    let java = jvm.thread();
    let seen = server.client().election("scheduler");
    let mut first = Candidate::start(&server.url(), ms(3000), "scheduler");
    let term = first.leads();
    java.begin_waiting(&server, "lock scheduler lock", "scheduler", on_channel);
    first.kill();
    java.answer();
    let leader = seen.leader().unwrap();
    assert!(is_java(leader.as_ref()), "{leader:?}");
    let mut second = Candidate::start(&server.url(), ms(3000), "scheduler");
    second.waits();
    jvm.kill();
    let next = second.leads();
    assert!(next > term, "{next} after {term}");
    assert!(is_ours(seen.leader().unwrap().as_ref(), next));
    second.stop();
    assert!(seen.leader().unwrap().is_none());
}
