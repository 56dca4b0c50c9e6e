//! An election is the plain lock of its name: Curator's `LeaderSelector` takes part in it, without
//! a term.

use std::time::Duration;

use leasehold::LockClient;

use crate::driver::{World, curator, world};
use crate::java::{Candidate, is_java, is_ours, watch_until};
use crate::rig::{ms, wait_until};

/// A third of it passes until a leader learns that it was asked.
const LEASE: Duration = ms(6000);

#[test]
fn a_leader_and_a_leader_selector_exclude_each_other() {
    let world = world();
    let (server, java) = (&world.server, world.jvm.thread());
    let client = LockClient::builder().url(server.url()).lease(ms(3000)).build().unwrap();
    let seen = client.election("scheduler");
    let mut watch = seen.watch();
    java.call("selector scheduler start");
    java.call("selector scheduler leads");
    watch_until(&mut watch, is_java);
    let leader = seen.leader().unwrap();
    assert!(is_java(leader.as_ref()), "{leader:?}");
    assert!(!seen.request().unwrap(), "Curator reads no requests");

    let mut candidate = Candidate::start(&server.url(), LEASE, "scheduler");
    candidate.waits();
    wait_until("Curator sees both", || {
        java.call("selector scheduler participants") == "curator*,other"
    });
    assert_eq!(java.call("selector scheduler isLeader"), "true");
    java.call("selector scheduler end");
    let mut term = candidate.leads();
    for _ in 0..2 {
        let leader = seen.leader().unwrap();
        assert!(is_ours(leader.as_ref(), term), "{leader:?} in the term {term}");
        watch_until(&mut watch, |leader| is_ours(leader, term));
        wait_until("Curator stands again", || {
            java.call("selector scheduler participants") == "curator,other*"
        });
        assert_eq!(java.call("selector scheduler isLeader"), "false");
        assert_eq!(java.call("selector scheduler leader"), "other*");
        assert!(seen.request().unwrap());
        candidate.ended();
        java.call("selector scheduler leads");
        watch_until(&mut watch, is_java);
        // It stood back until it saw Curator lead.
        candidate.waits();
        assert_eq!(java.call("selector scheduler leader"), "curator*");
        java.call("selector scheduler end");
        let next = candidate.leads();
        assert!(next > term, "{next} after {term}");
        term = next;
    }
    java.call("selector scheduler close");
    candidate.stop();
    wait_until("nobody leads", || seen.leader().unwrap().is_none());
}

/// Neither side releases anything: the session of the other one ends.
#[test]
fn a_killed_leader_is_followed_on_either_side() {
    let World { jvm, server } = World::with(&["session=5000"]);
    let other = curator(&server.address(), &["session=5000"]);
    let seen = LockClient::open(&server.url()).unwrap().election("scheduler");
    let (dead, java) = (jvm.thread(), other.thread());
    dead.call("selector scheduler start");
    dead.call("selector scheduler leads");
    let mut candidate = Candidate::start(&server.url(), ms(5000), "scheduler");
    candidate.waits();
    jvm.kill();
    let term = candidate.leads();
    assert!(is_ours(seen.leader().unwrap().as_ref(), term));
    java.call("selector scheduler start");
    wait_until("Curator waits", || {
        java.call("selector scheduler participants") == "curator,other*"
    });
    candidate.kill();
    java.call("selector scheduler leads");
    let leader = seen.leader().unwrap();
    assert!(is_java(leader.as_ref()), "{leader:?}");
    java.call("selector scheduler close");
    wait_until("nobody leads", || seen.leader().unwrap().is_none());
}
