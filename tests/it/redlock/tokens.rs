//! Fencing tokens over several masters increase, whatever the masters forget and whatever their
//! clocks show.

use super::{builder, builder_with, holds_on_two};
use crate::rig::{CAP, ms, wait_until};
use crate::support::{Masters, ShortLease, wait_for_votes};

/// The clocks of masters and clients do not matter once a higher token was issued.
#[test]
fn tokens_grow_over_clocks_that_are_behind_and_masters_that_forget() {
    let mut masters = Masters::fresh(3);
    let short = ms(1000);
    let urls = masters.urls();
    let open = || {
        builder_with(&urls, |masters| masters.longest_lease(short))
            .lease(short)
            .io_timeout(ms(900))
            .build()
            .unwrap()
    };
    let (a, b) = (open(), open());
    wait_for_votes(&a, 3);
    wait_for_votes(&b, 3);
    // Simulates a client whose clock is an hour ahead: all others seem to be an hour behind.
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
            // A counter from an outdated disk is lower than the tokens issued since.
            2..4 => {
                masters.0[victim].cmd::<()>(&["FLUSHALL"]);
                masters.0[victim].cmd::<()>(&["SET", "redisson_lock_token:{l}", "5"]);
            }
            // One after another, so that a majority remembers.
            _ => masters.0[victim].kill(),
        }
        // A new client does not know any token.
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
    assert!(a.token_rounds() > 0, "some tokens took a second round");
}

/// A token that only one master knows is written to a majority before any client gets it.
#[test]
fn a_token_is_written_back_before_it_is_used() {
    let mut masters = Masters::fresh(3);
    let other = builder(&masters.urls()).build().unwrap();
    wait_for_votes(&other, 3);
    let first = other.lock("l").unwrap().fencing_token().unwrap().get();
    let ahead = first + 3_600_000_000;
    masters.0[0].cmd::<()>(&["SET", "redisson_lock_token:{l}", &ahead.to_string()]);
    // The majority of this client consists of this master and one that does not know the token.
    let (client, _proxy) = holds_on_two(&masters);
    let last = client.lock("l").unwrap().fencing_token().unwrap().get();
    assert_eq!((last, client.token_rounds()), (ahead + 1, 1));
    masters.0[0].kill();
    assert!(other.lock("l").unwrap().fencing_token().unwrap().get() > last);
}

/// Two masters lose their data one after another and get counters from an outdated disk, and the
/// third dies: no remaining master took part in issuing the last token.
#[test]
fn a_master_that_is_admitted_gives_no_older_token() {
    let mut masters = Masters::fresh(3);
    let urls = masters.urls();
    let open = || {
        builder_with(&urls, |masters| masters.longest_lease(ms(3000)))
            .short_lease(ms(3000))
            .build()
            .unwrap()
    };
    let client = open();
    wait_for_votes(&client, 3);
    // The renewals of this hold notice which masters do not vote.
    let kept = client.lock("kept").unwrap();
    let ahead = (kept.fencing_token().unwrap().get() + 3_600_000_000).to_string();
    for server in &masters.0 {
        server.cmd::<()>(&["SET", "redisson_lock_token:{l}", &ahead]);
    }
    let last = client.lock("l").unwrap().fencing_token().unwrap();
    wait_until("all know it", || {
        let max = |server: &crate::rig::Server| {
            server.cmd::<Option<String>>(&["HGET", "leasehold:node", "max"])
        };
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
    assert!(client.lock("l").unwrap().fencing_token().is_ok());
    let without = masters.builder().fencing(false).build().unwrap();
    assert!(without.lock("m").unwrap().fencing_token().is_err());
}
