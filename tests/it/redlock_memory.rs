//! Masters that have forgotten something: who may vote, and which tokens they give.

use std::time::{Duration, Instant};

use leasehold::{Builder, ErrorKind, LockClient, NodeState};

use crate::rig::{CAP, Masters, Proxy, ms, wait_for_votes, wait_until};

const LONGEST: Duration = ms(2500);

fn builder(urls: &[String]) -> Builder {
    LockClient::builder().urls(urls.to_vec()).redlock().lease(LONGEST).longest_lease(LONGEST)
}

/// A client that holds `l` on the first two of three masters only: it has never seen the third.
fn holds_on_two(masters: &Masters) -> (LockClient, Proxy) {
    let proxy = Proxy::start(&masters.0[2]);
    proxy.refuse(true);
    let mut urls = masters.urls();
    urls[2] = proxy.url();
    let client = builder(&urls).build().unwrap();
    wait_for_votes(&client, 2);
    (client, proxy)
}

/// With admission the lock stays with its holder. Without it the same steps give it to a second one, so it is the
/// admission that is tested here.
#[test]
fn a_master_that_restarts_empty_gives_no_lock_to_a_second_holder() {
    for admission in [true, false] {
        let mut masters = Masters::fresh(3);
        let (a, _proxy) = holds_on_two(&masters);
        let other = builder(&masters.urls());
        let b = if admission { other } else { other.admit_fresh_nodes() }.build().unwrap();
        wait_for_votes(&b, 3);
        let guard = a.lock("l").unwrap();
        assert_eq!(masters.holding("l"), 2);
        masters.0[1].restart();
        if !admission {
            wait_until("the lock is given twice", || match b.try_lock("l") {
                Ok(second) => second.is_some_and(|second| second.is_held() && guard.is_held()),
                Err(_) => false,
            });
            continue;
        }
        let start = Instant::now();
        let mut quarantined = false;
        while start.elapsed() < LONGEST * 2 {
            if let Ok(Some(second)) = b.try_lock("l") {
                assert!(!guard.is_held() || !second.is_held(), "two holders after {:?}", start.elapsed());
            }
            quarantined |= matches!(b.nodes()[1].state(), NodeState::Quarantined { remaining: Some(_) });
        }
        assert!(quarantined, "it was seen to be");
        // Renewed on one master and confirmed by no other, it was lost when its lease ended, or put again in time.
        masters.wait_until_all_vote();
        drop(guard);
        assert!(b.lock("l").unwrap().is_held());
    }
}

#[test]
fn a_flushed_master_has_no_vote_and_the_hold_is_put_there_again() {
    let masters = Masters::fresh(3);
    let (a, b) = (builder(&masters.urls()).build().unwrap(), builder(&masters.urls()).build().unwrap());
    wait_for_votes(&a, 3);
    let guard = a.lock("l").unwrap();
    wait_until("all have it", || masters.holding("l") == 3);
    masters.0[0].cmd::<()>(&["FLUSHALL"]);
    assert!(b.try_lock("l").unwrap().is_none());
    let other = b.lock("other").unwrap();
    wait_until("somebody notices", || b.nodes()[0].state() != NodeState::Voting);
    assert!(masters.0[0].hash("l").is_empty() && masters.0[0].hash("other").is_empty());
    wait_for_votes(&b, 3);
    wait_until("all have both again", || masters.holding("l") == 3 && masters.holding("other") == 3);
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
    masters.0.iter().for_each(|server| server.cmd::<()>(&["FLUSHALL"]));
    let error = client.try_lock_for("other", ms(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    assert!(error.to_string().contains("no vote yet"), "{error}");
    assert!(guard.wait_lost(CAP));
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    wait_for_votes(&client, 3);
    assert!(start.elapsed() >= LONGEST);
    assert!(client.lock("l").unwrap().fencing_token().unwrap() > before);
}

/// A first installation: a lock call says what is missing, and the option skips the wait.
#[test]
fn a_first_installation_waits_once_or_says_that_it_is_one() {
    let masters = Masters::start(3);
    let client = builder(&masters.urls()).build().unwrap();
    let error = client.try_lock("l").unwrap_err();
    assert!(error.kind() == ErrorKind::NoQuorum && error.to_string().contains("admit_fresh_nodes"), "{error}");
    assert!(client.nodes().iter().all(|node| matches!(node.state(), NodeState::Quarantined { remaining: Some(_) })));
    wait_for_votes(&client, 3);
    assert!(client.lock("l").unwrap().is_held());
    // Whoever comes later finds them admitted.
    let later = builder(&masters.urls()).build().unwrap();
    assert!(later.try_lock("l").unwrap().is_some());
}

/// Emptied twice: the second time begins anew, for a client that saw only the first as well.
#[test]
fn a_master_that_is_emptied_twice_waits_twice() {
    let mut masters = Masters::fresh(3);
    let client = builder(&masters.urls()).build().unwrap();
    wait_for_votes(&client, 3);
    masters.0[0].restart();
    drop(client.lock("l").unwrap());
    wait_until("it is noticed", || matches!(client.nodes()[0].state(), NodeState::Quarantined { remaining: Some(_) }));
    wait_until("most of the time has passed", || match client.nodes()[0].state() {
        NodeState::Quarantined { remaining: Some(remaining) } => remaining < LONGEST / 3,
        _ => false,
    });
    let start = Instant::now();
    masters.0[0].cmd::<()>(&["FLUSHALL"]);
    masters.wait_until_all_vote();
    assert!(start.elapsed() >= LONGEST, "admitted {:?} after it was emptied again", start.elapsed());
}

#[test]
fn durable_masters_vote_at_once_when_they_come_back_with_their_data() {
    let persistent = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut masters = Masters((0..3).map(|_| crate::rig::Server::start_with(&persistent)).collect());
    let open = || builder(&masters.urls()).lease(ms(60_000)).longest_lease(ms(60_000));
    let first = open().admit_fresh_nodes().build().unwrap();
    wait_for_votes(&first, 3);
    let client = open().durable_nodes().build().unwrap();
    let guard = client.lock("l").unwrap();
    wait_until("all have it", || masters.holding("l") == 3);
    masters.0[0].restart();
    masters.0[1].restart();
    wait_until("they answer", || client.nodes().iter().all(|node| node.state() != NodeState::Down));
    // Noticed by whoever asks next.
    drop(client.lock("other"));
    masters.wait_until_all_vote();
    assert!(guard.is_held() && masters.holding("l") == 3);
    // Without its data one has forgotten.
    masters.0[0].cmd::<()>(&["FLUSHALL"]);
    drop(client.lock("other").unwrap());
    wait_until("no vote", || matches!(client.nodes()[0].state(), NodeState::Quarantined { .. }));
}

/// Whatever the clocks: those of the masters and of the clients count for nothing once a higher token was given.
#[test]
fn tokens_grow_over_clocks_that_are_behind_and_masters_that_forget() {
    let mut masters = Masters::fresh(3);
    let short = ms(1000);
    let urls = masters.urls();
    let open = || builder(&urls).lease(short).longest_lease(short).io_timeout(ms(900)).build().unwrap();
    let (a, b) = (open(), open());
    wait_for_votes(&a, 3);
    wait_for_votes(&b, 3);
    // As after a client whose clock is an hour ahead: to it all others are an hour behind.
    let hour: u64 = 3_600_000_000;
    let now = a.lock("l").unwrap().fencing_token().unwrap().get();
    let ahead = (now + hour).to_string();
    for server in &masters.0[..2] {
        server.cmd::<()>(&["SET", "redisson_lock_token:{l}", &ahead]);
        server.cmd::<u32>(&["HSET", "leasehold:node", "max", &ahead]);
    }
    let mut last = now + hour;
    for round in 0..6 {
        let victim = round % 3;
        match round {
            0..2 => masters.0[victim].restart(),
            // And what comes back from an old disk is older than what was given since.
            2..4 => {
                masters.0[victim].cmd::<()>(&["FLUSHALL"]);
                masters.0[victim].cmd::<()>(&["SET", "redisson_lock_token:{l}", "5"]);
            }
            // Each in its turn, so that a majority remembers.
            _ => masters.0[victim].kill(),
        }
        // One that has just come knows of no token.
        for client in [&open(), &a, &b] {
            let guard = client.try_lock_for("l", CAP).unwrap().expect("two are enough");
            let token = guard.fencing_token().unwrap().get();
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
            guard.unlock().unwrap();
        }
        if round >= 4 {
            masters.0[victim].start_again();
        }
        masters.wait_until_all_vote();
        wait_for_votes(&a, 3);
        wait_for_votes(&b, 3);
    }
    assert!(a.token_rounds() > 0, "some took a second round");
}

/// A token that only one master knew of is known to a majority before anybody gets it.
#[test]
fn a_token_is_written_back_before_it_is_used() {
    let mut masters = Masters::fresh(3);
    let other = builder(&masters.urls()).build().unwrap();
    wait_for_votes(&other, 3);
    let first = other.lock("l").unwrap().fencing_token().unwrap().get();
    let ahead = first + 3_600_000_000;
    masters.0[0].cmd::<()>(&["SET", "redisson_lock_token:{l}", &ahead.to_string()]);
    // Its majority is this master and one that knows nothing of it.
    let (client, _proxy) = holds_on_two(&masters);
    let last = client.lock("l").unwrap().fencing_token().unwrap().get();
    assert_eq!((last, client.token_rounds()), (ahead + 1, 1));
    masters.0[0].kill();
    assert!(other.lock("l").unwrap().fencing_token().unwrap().get() > last);
}

/// Two masters lose their memory one after the other, with counters from an old disk, and the third dies: nobody is left
/// who was there when the last token was given.
#[test]
fn a_master_that_is_admitted_gives_no_older_token() {
    let mut masters = Masters::fresh(3);
    let urls = masters.urls();
    let open = || builder(&urls).lease(ms(1500)).longest_lease(ms(1500)).build().unwrap();
    let client = open();
    wait_for_votes(&client, 3);
    // Its renewals notice who has no vote.
    let kept = client.lock("kept").unwrap();
    let ahead = (kept.fencing_token().unwrap().get() + 3_600_000_000).to_string();
    for server in &masters.0 {
        server.cmd::<()>(&["SET", "redisson_lock_token:{l}", &ahead]);
    }
    let last = client.lock("l").unwrap().fencing_token().unwrap();
    wait_until("all know it", || {
        let max = |server: &crate::rig::Server| server.cmd::<Option<String>>(&["HGET", "leasehold:node", "max"]);
        masters.0.iter().all(|server| max(server) == Some(last.to_string()))
    });
    for victim in &masters.0[..2] {
        victim.cmd::<()>(&["FLUSHALL"]);
        victim.cmd::<()>(&["SET", "redisson_lock_token:{l}", "5"]);
        masters.wait_until_all_vote();
    }
    masters.0[2].kill();
    let other = open();
    assert!(other.lock("l").unwrap().fencing_token().unwrap() > last);
    drop(kept);
}

/// One round is enough as long as the clocks agree.
#[test]
fn tokens_take_one_round_while_clocks_agree() {
    let masters = Masters::fresh(3);
    let client = masters.client();
    for _ in 0..50 {
        drop(client.lock("l").unwrap());
    }
    assert_eq!(client.token_rounds(), 0);
    assert!(client.lock("l").unwrap().fencing_token().is_some());
    let without = masters.builder().fencing(false).build().unwrap();
    assert!(without.lock("m").unwrap().fencing_token().is_none());
}
