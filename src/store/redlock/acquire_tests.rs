use std::time::Duration;

use super::masters_tests::*;
use crate::base::advice::Advice;
use crate::base::error::ErrorKind;
use crate::store::{Acquire, Acquired, LockStore, Spent, TokenRule};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A round in which the masters answer one after the other, each as its letter says: granted; busy
/// with this holder, another, one of Java's, or the same of Java's by its other id; no vote; down;
/// an error.
fn round(votes: &str) -> (Stage, Result<Acquired, ErrorKind>) {
    let stage = Stage::new(votes.len());
    let mut before = 0;
    for (master, vote) in stage.masters.iter().zip(votes.chars()) {
        // Each has another TTL.
        let busy = |holder| busy(1000 * (before as i64 + 1), holder);
        let does = match vote {
            'g' => Does::Runs,
            'b' => busy(SOMEBODY),
            'o' => busy(NOBODY_ELSE),
            'j' => busy(OF_JAVA),
            'k' => busy(OF_JAVA_ELSEWHERE),
            'q' => Does::Says(pair(5, 0)),
            'e' => error(WRONG_TYPE),
            'd' => {
                master.goes_down();
                continue;
            }
            other => panic!("{other}"),
        };
        master.next("redlock_acquire", [does.after(before)]);
        before += 1;
    }
    let holder = stage.holder();
    let (acquired, mut unknowns) = stage.lock(&holder);
    let is_granted = matches!(acquired, Ok(Acquired::Granted(_)));
    let spent = unknowns.take_spent();
    if is_granted {
        assert!(spent.is_none() && unknowns.is_empty(), "{votes}");
    } else {
        // What a minority has granted is given back, and the holder is not used again.
        if votes.contains(['g', 'e']) {
            assert_eq!(spent, Some(Spent::Released), "{votes}");
        }
        stage.undo(&holder, unknowns);
        assert_eq!(stage.holding(&holder), 0, "{votes}");
    }
    (stage, acquired.map_err(|e| e.kind()))
}

#[test]
fn only_a_majority_of_all_masters_grants() {
    for votes in ["ggg", "ggb", "gbg", "bgg", "ggd", "gqg", "gge", "gggbb", "ggggg", "g", "gggb"] {
        let (stage, acquired) = round(votes);
        let Ok(Acquired::Granted(granted)) = acquired else { panic!("{votes}: {acquired:?}") };
        assert_eq!(granted.token, WALL, "{votes}");
        assert_eq!(stage.store.token_rounds(), 0, "{votes}");
    }
}

#[test]
fn a_round_without_a_majority_says_how_long_to_wait() {
    let busy = |millis: u64| Acquired::Busy { ttl: Some(Duration::from_millis(millis)) };
    let unknown = || Acquired::Busy { ttl: None };
    for (votes, expected) in [
        // One holder has a majority: until as many masters are free as are missing.
        ("gbb", busy(2000)),
        ("dbb", busy(2000)),
        ("ggbbb", busy(3000)),
        // Java has another id at each master.
        ("gjk", busy(2000)),
        // With the masters that have not answered it may have one.
        ("gbd", unknown()),
        ("gbq", unknown()),
        ("gbe", unknown()),
        ("gboqq", unknown()),
    ] {
        assert_eq!(round(votes).1, Ok(expected), "{votes}");
    }
}

#[test]
fn masters_that_several_have_taken_are_given_back_by_all() {
    for votes in ["gbo", "gbj", "ggbb", "ggbbo", "gob"] {
        let (_stage, acquired) = round(votes);
        let Ok(Acquired::Split { round }) = acquired else { panic!("{votes}: {acquired:?}") };
        assert!(round < IO_TIMEOUT, "{round:?}");
    }
}

#[test]
fn masters_that_do_not_answer_are_no_reason_to_wait() {
    // One master that refuses is carried by the others as long as they can be a majority.
    for votes in ["gdd", "ddd", "gqq", "dgq", "bdd", "ggqq", "ggqqq", "ged", "edd", "qeg", "ggeed"]
    {
        assert_eq!(round(votes).1, Err(ErrorKind::NoQuorum), "{votes}");
    }
    for votes in ["gee", "eee", "bee", "dee", "ggeee"] {
        assert_eq!(round(votes).1, Err(ErrorKind::WrongType), "{votes}");
    }
}

#[test]
fn an_error_says_what_each_master_answered() {
    let stage = Stage::new(5);
    let holder = stage.holder();
    stage.masters[0].next("redlock_acquire", [busy(1000, SOMEBODY)]);
    stage.masters[1].next("redlock_acquire", [Does::Runs.after(1)]);
    for (before, master) in stage.masters[2..4].iter().enumerate() {
        master.next("redlock_acquire", [Does::Says(pair(5, 0)).after(before + 2)]);
    }
    stage.masters[4].goes_down();
    let error = stage.lock(&holder).0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    assert!(matches!(error.advice(), Some(Advice::AdmitFreshNodes)), "{error:?}");
    let message = error.message();
    assert!(message.contains("no majority (3 of 5)"), "{message}");
    for (master, text) in stage.masters.iter().zip([
        "held by another",
        "granted",
        "has no vote yet",
        "has no vote yet",
        "the connection",
    ]) {
        let said = message.split("; ").find(|part| part.contains(&master.address())).unwrap();
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn an_outage_is_no_reason_to_admit_masters() {
    let stage = Stage::new(3);
    stage.masters[1..].iter().for_each(Master::goes_down);
    let error = stage.lock(&stage.holder()).0.unwrap_err();
    assert!(error.kind() == ErrorKind::NoQuorum && error.advice().is_none(), "{error:?}");
}

#[test]
fn a_lease_counts_from_before_it_was_asked_for() {
    let stage = Stage::new(3);
    let before = stage.store.clock.now();
    let Ok(Acquired::Granted(granted)) = stage.lock(&stage.holder()).0 else { panic!() };
    assert!(before <= granted.sent_at && granted.sent_at <= stage.store.clock.now());
}

#[test]
fn a_lease_that_is_longer_than_the_longest_is_refused() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    let long = |lease| stage.lock_with(&Acquire { lease, ..stage.acquire(&holder) }).0;
    let longer = LONGEST_LEASE + Duration::from_millis(1);
    assert_eq!(long(longer).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(stage.asked("redlock_acquire"), [0, 0, 0]);
    assert_eq!(stage.store.check_min_hold(longer).unwrap_err().kind(), ErrorKind::InvalidInput);
    stage.store.check_min_hold(LONGEST_LEASE).unwrap();
    granted(long(LONGEST_LEASE));
}

#[test]
fn tokens_grow_while_the_clock_stands_still_or_goes_back() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    assert_eq!(stage.locked(&holder), WALL);
    stage.unlock(&holder).0.unwrap();
    stage.clock.set_wall(WALL - 1000);
    let holder = stage.holder();
    assert_eq!(stage.locked(&holder), WALL + 1);
    stage.unlock(&holder).0.unwrap();
    stage.clock.set_wall(WALL + 1000);
    assert_eq!(stage.locked(&stage.holder()), WALL + 1000);
}

/// What a majority knows is known to the next holder: its majority has a master in common.
#[test]
fn a_majority_knows_the_token_before_its_holder() {
    let stage = Stage::new(3);
    stage.masters[0].set_token("l", WALL + 8);
    stage.masters[1].set_token("l", WALL + 5);
    stage.masters[2].next("redlock_acquire", [Does::Runs.after(2)]);
    let holder = stage.holder();
    assert_eq!(granted(stage.lock(&holder).0), WALL + 9);
    assert_eq!(stage.store.token_rounds(), 1);
    wait_until("it is asked", || stage.masters[1].asked("redlock_token").len() == 1);
    let wrote = stage.masters[1].asked("redlock_token");
    assert_eq!(wrote[0].words[4..6], [holder.as_str().to_owned(), (WALL + 9).to_string()]);
    stage.unlock(&holder).0.unwrap();
    stage.settle();
    // And this client proposes higher ones from now on.
    assert_eq!(granted(stage.lock(&stage.holder()).0), WALL + 10);
    assert_eq!(stage.store.token_rounds(), 1);
}

/// One token that is higher and that only one master knows is nobody's: its holder had no majority.
#[test]
fn a_token_of_a_minority_costs_no_second_round() {
    let stage = Stage::new(3);
    stage.masters[0].set_token("l", WALL + 8);
    stage.masters[0].next("redlock_acquire", [Does::Runs.after(2)]);
    assert_eq!(granted(stage.lock(&stage.holder()).0), WALL);
    assert_eq!((stage.store.token_rounds(), stage.asked("redlock_token")), (0, vec![0, 0, 0]));
}

#[test]
fn a_grant_whose_token_no_majority_learns_is_taken_back() {
    for (answers, is_granted) in
        [([1, 1, 1], true), ([1, 1, 0], false), ([0, 1, 1], false), ([0, 0, 0], false)]
    {
        // Three of five grant it, and all of them have to know the token.
        let stage = Stage::new(5);
        stage.masters[3..].iter().for_each(Master::goes_down);
        for (n, (master, knows)) in stage.masters.iter().zip(answers).enumerate() {
            master.set_token("l", WALL + 10 * (n as u64 + 1));
            master.next("redlock_token", [Does::Says(int(knows)).after(n)]);
        }
        let holder = stage.holder();
        let (acquired, mut unknowns) = stage.lock(&holder);
        if is_granted {
            granted(acquired);
            continue;
        }
        let error = acquired.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoQuorum);
        assert!(error.message().contains("does not know the token"), "{error}");
        assert_eq!(unknowns.take_spent(), Some(Spent::Released));
        stage.undo(&holder, unknowns);
        assert_eq!(stage.holding(&holder), 0);
        // Others may have seen that it was held.
        assert!(
            stage
                .masters
                .iter()
                .flat_map(|m| m.asked("mutex_release"))
                .all(|asked| { asked.words[4] == "redisson_lock__channel:{l}" })
        );
    }
}

#[test]
fn a_reentry_and_a_lock_without_tokens_have_none() {
    let stage = Stage::new(3);
    stage.masters.iter().for_each(|master| master.set_token("l", WALL + 5));
    let holder = stage.holder();
    let without = Acquire { token: TokenRule::Off, ..stage.acquire(&holder) };
    assert_eq!(granted(stage.lock_with(&without).0), 0);
    wait_until("all have it", || stage.holding(&holder) == 3);
    let again = Acquire { held: 1, ..stage.acquire(&holder) };
    assert_eq!(granted(stage.lock_with(&again).0), 0);
    assert_eq!((stage.store.token_rounds(), stage.asked("redlock_token")), (0, vec![0, 0, 0]));
}

/// A client whose clock is far ahead must not use up the range of tokens.
#[test]
fn a_proposal_is_at_most_a_day_ahead_of_a_masters_clock() {
    const DAY: u64 = 24 * 60 * 60 * 1_000_000;
    for (ahead, least) in [(DAY / 2, DAY / 2), (10 * DAY, DAY)] {
        let stage = Stage::new(3);
        stage.clock.set_wall(WALL + ahead);
        let token = granted(stage.lock(&stage.holder()).0);
        assert!((WALL + least..WALL + least + 60_000_000).contains(&token), "{token}");
    }
}

#[test]
fn a_reentry_knows_that_the_hold_is_gone_by_a_majority_only() {
    // On how many of how many masters the hold is lost.
    for (lost, all, expected) in [
        (0, 3, "granted"),
        (1, 3, "granted"),
        (2, 3, "gone"),
        (3, 3, "gone"),
        (2, 4, "gone"),
        (1, 4, "granted"),
        (2, 5, "granted"),
        (3, 5, "gone"),
    ] {
        let stage = Stage::new(all);
        let holder = stage.holder();
        stage.locked(&holder);
        for master in &stage.masters[..lost] {
            master.lose("l");
        }
        let again = Acquire { held: 1, ..stage.acquire(&holder) };
        let (acquired, unknowns) = stage.lock_with(&again);
        match acquired {
            Ok(Acquired::Granted(_)) => assert_eq!(expected, "granted", "{lost} of {all}"),
            Ok(Acquired::Gone) => assert_eq!(expected, "gone", "{lost} of {all}"),
            other => panic!("{lost} of {all}: {other:?}"),
        }
        assert!(unknowns.is_empty());
    }
}

/// An undo of a re-entry would release the outer hold.
#[test]
fn nothing_is_taken_back_after_a_reentry() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.locked(&holder);
    stage.masters[0].lose("l");
    stage.masters[1].goes_down();
    let again = Acquire { held: 1, ..stage.acquire(&holder) };
    let (acquired, mut unknowns) = stage.lock_with(&again);
    let error = acquired.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    assert!(error.message().contains("does not know this hold"), "{error}");
    assert!(unknowns.is_empty() && unknowns.take_spent().is_none());
    assert_eq!(stage.asked("mutex_release"), [0, 0, 0]);
    assert_eq!(stage.holding(&holder), 2);
}

/// A minority kept nobody out, so a message about it would only wake waiters in vain.
#[test]
fn a_minority_is_given_back_without_a_message() {
    for (votes, channel) in [("gbb", ""), ("gbo", ""), ("ggbbb", "")] {
        let (stage, _) = round(votes);
        let released = stage.masters[0].asked("mutex_release");
        assert_eq!(released[0].words[3..], ["1".to_owned(), channel.to_owned()], "{votes}");
        assert_eq!(stage.masters[0].asked("PUBLISH").len(), 0, "{votes}");
    }
}

/// Java's waiters wait for one master after the other: they have to hear of each.
#[test]
fn a_minority_is_given_back_with_a_message_to_java() {
    let (stage, _) = round("gjj");
    let published = stage.masters[0].asked("PUBLISH");
    assert_eq!(published.len(), 1);
    assert_eq!(published[0].words[0], "redisson_lock__channel:{l}");
    assert_eq!(stage.asked("PUBLISH"), [1, 0, 0]);
}

/// Whatever a master that is slow does when it answers at last, it was asked first for the lock
/// and then to free it.
#[test]
fn a_late_master_is_neither_waited_for_nor_forgotten() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&holder).0);
    assert_eq!(stage.holding(&holder), 2);
    let (released, unknowns) = stage.unlock(&holder);
    assert!(matches!(released, Ok(crate::store::Released::Freed { .. })), "{released:?}");
    assert!(!unknowns.is_empty(), "it may still run");
    assert_eq!(stage.holding(&holder), 0);
    let connects = stage.masters[2].connects();
    stage.masters[2].let_run(true);
    stage.undo(&holder, unknowns);
    assert_eq!(stage.masters[2].log(), ["redlock_acquire", "mutex_release"]);
    assert_eq!(stage.masters[2].connects(), connects, "over the same connection, in this order");
    assert_eq!(stage.masters[2].holder("l"), None);
}

/// It is not asked by others until it has answered, as long as a majority votes without it.
#[test]
fn a_late_master_is_asked_when_a_majority_needs_it() {
    let stage = Stage::new(3);
    let first = stage.holder();
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&first).0);
    wait_until("the late one has it", || stage.asked("redlock_acquire") == [1, 1, 1]);
    let (second, third) = (stage.holder(), stage.holder());
    let busy = stage.lock(&second);
    assert!(matches!(busy.0, Ok(Acquired::Busy { .. })), "{:?}", busy.0);
    assert_eq!(stage.asked("redlock_acquire"), [2, 2, 1], "it was not asked");
    stage.masters[1].goes_down();
    stage.masters[0].lose("l");
    // Only with it there is a majority: it is asked although it owes an answer.
    granted(stage.while_time_passes(|| stage.lock(&third)).0);
    assert_eq!(stage.masters[2].holder("l").as_deref(), Some(third.as_str()));
    stage.masters[2].let_run(true);
}

#[test]
fn a_master_that_has_not_answered_in_time_may_have_granted() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.masters[0].next("redlock_acquire", [busy(4000, SOMEBODY)]);
    stage.masters[1].next("redlock_acquire", [Does::Runs]);
    // It stops in the middle of its answer.
    stage.masters[2].next("redlock_acquire", [Does::Stalls(2)]);
    let (acquired, unknowns) = stage.lock(&holder);
    assert!(matches!(acquired, Ok(Acquired::Busy { ttl: None })), "{acquired:?}");
    stage.undo(&holder, unknowns);
    assert_eq!(stage.holding(&holder), 0);
    assert_eq!(stage.masters[2].asked("CLIENT KILL").len(), 1, "its connection, before that");
}

/// A connection that had ended says nothing of the master. Asked again, it finds its own hold.
#[test]
fn a_lost_grant_is_asked_for_again() {
    let stage = Stage::new(1);
    let holder = stage.holder();
    stage.masters[0].next("redlock_acquire", [Does::RunsAndCuts]);
    granted(stage.lock(&holder).0);
    let asked = stage.masters[0].log();
    assert_eq!(asked[..3], ["redlock_acquire", "CLIENT KILL", "redlock_acquire"]);
}

/// The others may be about to answer.
#[test]
fn a_round_waits_for_its_majority() {
    for slow in [2, 3] {
        let stage = Stage::new(3);
        let holder = stage.holder();
        for master in &stage.masters[..slow] {
            master.next("redlock_acquire", [Does::Waits]);
        }
        std::thread::scope(|scope| {
            let locks = scope.spawn(|| granted(stage.lock(&holder).0));
            std::thread::sleep(Duration::from_millis(40));
            assert!(!locks.is_finished());
            stage.masters.iter().for_each(|master| master.let_run(true));
            assert_eq!(locks.join().unwrap(), WALL);
        });
    }
}
