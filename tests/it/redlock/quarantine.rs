//! Masters that have lost data do not vote until every lease that they may have forgotten has
//! ended.

use std::time::Instant;

use leasehold::observe::NodeState;
use leasehold::{ErrorKind, LockClient, Redlock};

use super::{LONGEST, builder, builder_with, holds_on_two};
use crate::rig::{CAP, Server, ms, wait_until};
use crate::support::{Masters, wait_for_votes};

/// With the quarantine the lock stays with its holder. Without it the same steps give the lock to a
/// second holder, which proves that the test covers the quarantine.
#[test]
fn a_master_that_restarts_empty_gives_no_lock_to_a_second_holder() {
    for admission in [true, false] {
        let mut masters = Masters::fresh(3);
        let (a, _proxy) = holds_on_two(&masters);
        let b = builder_with(&masters.urls(), |masters| masters.admit_fresh_nodes(!admission))
            .build()
            .unwrap();
        wait_for_votes(&b, 3);
        let guard = a.lock("l").unwrap();
        assert_eq!(masters.holding("l"), 2);
        masters.0[1].restart();
        if !admission {
            wait_until("the lock is granted twice", || match b.try_lock("l") {
                Ok(second) => second.is_some_and(|second| second.is_held() && guard.is_held()),
                Err(_) => false,
            });
            continue;
        }
        let start = Instant::now();
        let mut quarantined = false;
        while start.elapsed() < LONGEST * 2 {
            if let Ok(Some(second)) = b.try_lock("l") {
                assert!(
                    !guard.is_held() || !second.is_held(),
                    "two holders after {:?}",
                    start.elapsed()
                );
            }
            quarantined |=
                matches!(b.nodes()[1].state(), NodeState::Quarantined { remaining: Some(_) });
        }
        assert!(quarantined, "the quarantine was observed");
        // The hold was renewed on one master only: either it was lost when its lease ended, or it
        // was written again in time.
        masters.wait_until_all_vote();
        drop(guard);
        assert!(b.lock("l").unwrap().is_held());
    }
}

#[test]
fn a_flushed_master_has_no_vote_and_gets_the_hold_again() {
    let masters = Masters::fresh(3);
    let (a, b) =
        (builder(&masters.urls()).build().unwrap(), builder(&masters.urls()).build().unwrap());
    wait_for_votes(&a, 3);
    let guard = a.lock("l").unwrap();
    wait_until("all have it", || masters.holding("l") == 3);
    masters.0[0].cmd::<()>(&["FLUSHALL"]);
    assert!(b.try_lock("l").unwrap().is_none());
    let other = b.lock("other").unwrap();
    wait_until("a client notices", || b.nodes()[0].state() != NodeState::Voting);
    assert!(masters.0[0].hash("l").is_empty() && masters.0[0].hash("other").is_empty());
    wait_for_votes(&b, 3);
    wait_until("all have both again", || {
        masters.holding("l") == 3 && masters.holding("other") == 3
    });
    assert!(guard.is_held() && other.is_held());
    guard.unlock().unwrap();
    other.unlock().unwrap();
    drop((a, b));
    masters.assert_clean();
}

#[test]
fn all_flushed_the_hold_is_lost_and_nobody_has_the_lock_for_the_longest_lease() {
    let masters = Masters::fresh(3);
    let client = builder(&masters.urls()).build().unwrap();
    wait_for_votes(&client, 3);
    let guard = client.lock("l").unwrap();
    let before = guard.fencing_token().unwrap();
    let start = Instant::now();
    for server in &masters.0 {
        server.cmd::<()>(&["FLUSHALL"]);
    }
    let error = client.try_lock_for("other", ms(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    assert!(error.to_string().contains("no vote yet"), "{error}");
    assert!(guard.wait_lost(CAP).is_lost());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    wait_for_votes(&client, 3);
    assert!(start.elapsed() >= LONGEST);
    assert!(client.lock("l").unwrap().fencing_token().unwrap() > before);
}

/// On a first installation a lock call reports the quarantine, and the option skips it.
#[test]
fn a_first_installation_waits_once_or_says_that_it_is_one() {
    let masters = Masters::start(3);
    let client = builder(&masters.urls()).build().unwrap();
    let error = client.try_lock("l").unwrap_err();
    assert!(
        error.kind() == ErrorKind::NoQuorum && error.to_string().contains("admit_fresh_nodes"),
        "{error}"
    );
    assert!(
        client
            .nodes()
            .iter()
            .all(|node| matches!(node.state(), NodeState::Quarantined { remaining: Some(_) }))
    );
    wait_for_votes(&client, 3);
    assert!(client.lock("l").unwrap().is_held());
    // A later client finds that the masters vote.
    let later = builder(&masters.urls()).build().unwrap();
    assert!(later.try_lock("l").unwrap().is_some());
}

/// When a master is emptied a second time its quarantine begins again, also for a client that saw
/// only the first time.
#[test]
fn a_master_that_is_emptied_twice_waits_twice() {
    let mut masters = Masters::fresh(3);
    let client = builder(&masters.urls()).build().unwrap();
    wait_for_votes(&client, 3);
    masters.0[0].restart();
    drop(client.lock("l").unwrap());
    wait_until("it is noticed", || {
        matches!(client.nodes()[0].state(), NodeState::Quarantined { remaining: Some(_) })
    });
    wait_until("most of the time has passed", || match client.nodes()[0].state() {
        NodeState::Quarantined { remaining: Some(remaining) } => remaining < LONGEST / 3,
        _ => false,
    });
    let start = Instant::now();
    masters.0[0].cmd::<()>(&["FLUSHALL"]);
    masters.wait_until_all_vote();
    assert!(
        start.elapsed() >= LONGEST,
        "admitted {:?} after it was emptied again",
        start.elapsed()
    );
}

#[test]
fn durable_masters_vote_at_once_when_they_come_back_with_their_data() {
    let persistent = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut masters =
        Masters((0..3).map(|_| crate::rig::Server::start_with(&persistent)).collect());
    let redlock = Redlock::new(masters.urls()).longest_lease(ms(60_000));
    let open = |redlock| LockClient::builder().redlock(redlock).lease(ms(60_000)).build().unwrap();
    let first = open(redlock.clone().admit_fresh_nodes(true));
    wait_for_votes(&first, 3);
    let client = open(redlock.durable_nodes(true));
    let guard = client.lock("l").unwrap();
    wait_until("all have it", || masters.holding("l") == 3);
    masters.0[0].restart();
    masters.0[1].restart();
    wait_until("they answer", || client.nodes().iter().all(|node| node.state() != NodeState::Down));
    // The next call notices it.
    drop(client.lock("other"));
    masters.wait_until_all_vote();
    assert!(guard.is_held() && masters.holding("l") == 3);
    // A master without its data has forgotten something.
    masters.0[0].cmd::<()>(&["FLUSHALL"]);
    drop(client.lock("other").unwrap());
    wait_until("no vote", || matches!(client.nodes()[0].state(), NodeState::Quarantined { .. }));
}

#[test]
fn a_master_that_came_back_with_old_data_has_no_vote_for_a_client_that_slept() {
    // Over TCP the first write to a connection that has ended succeeds, and only the read fails.
    let mut masters =
        Masters((0..3).map(|_| Server::start_tcp(&["--dbfilename", "old.rdb"])).collect());
    wait_for_votes(&masters.admitted().build().unwrap(), 3);
    let (a, b) = (masters.client(), masters.client());
    // The client's connections are idle from here on.
    b.lock("other").unwrap().unlock().unwrap();
    wait_until("nothing is held", || masters.holding("other") == 0);
    wait_for_votes(&b, 3);
    for server in &masters.0[..2] {
        server.cmd::<()>(&["SAVE"]);
    }
    let guard = a.lock("l").unwrap();
    wait_until("all have it", || masters.holding("l") == 3);
    for server in &mut masters.0[..2] {
        server.restart();
    }
    let second = b.try_lock("l");
    assert!(guard.is_held());
    assert!(!matches!(second, Ok(Some(_))), "two holders: {guard:?} and {second:?}");
}

#[test]
fn a_durable_master_votes_at_once_also_while_another_is_dead() {
    let servers = (0..3)
        .map(|_| Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]))
        .collect();
    let mut masters = Masters(servers);
    wait_for_votes(&masters.admitted().build().unwrap(), 3);
    let client = masters.builder_with(|masters| masters.durable_nodes(true)).build().unwrap();
    wait_for_votes(&client, 3);
    client.lock("l").unwrap().unlock().unwrap();
    masters.0[0].kill();
    masters.0[1].restart();
    wait_until("a lock can be acquired", || client.lock("l").is_ok());
}
