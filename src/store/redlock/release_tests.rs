use std::time::Duration;

use super::masters_tests::*;
use crate::base::error::ErrorKind;
use crate::store::{Acquire, HoldCounts, LockStore, Release, Released, Undo, UnknownOutcomes};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

fn freed(listeners: u64) -> Released {
    Released::Freed { listeners: Some(listeners), next: None }
}

/// What a release answers when the masters answer it one after the other, each as its letter says:
/// freed, held further, not held, down, an error.
fn release(answers: &str, left: u32) -> (Stage, Result<Released, ErrorKind>, UnknownOutcomes) {
    let stage = Stage::new(answers.len());
    let holder = stage.holder();
    stage.locked(&holder);
    let mut before = 0;
    for (master, answer) in stage.masters.iter().zip(answers.chars()) {
        let says = match answer {
            // One listener more at each.
            'f' => Does::RunsAndSays(pair(2, before as i64)),
            's' => Does::RunsAndSays(pair(1, 0)),
            'n' => Does::RunsAndSays(pair(0, 0)),
            'e' => error(WRONG_TYPE),
            'd' => {
                master.goes_down();
                continue;
            }
            other => panic!("{other}"),
        };
        master.next("mutex_release", [says.after(before)]);
        before += 1;
    }
    let mut unknowns = UnknownOutcomes::default();
    let left = HoldCounts { main: left, reads: 0 };
    let release = Release { left, ..Release::of_all(&stage.name, &holder, 1) };
    let released = stage.store.release(&release, &mut unknowns);
    (stage, released.map_err(|e| e.kind()), unknowns)
}

#[test]
fn a_lock_is_free_when_a_majority_says_so() {
    for (answers, expected) in [
        ("f", Ok(freed(0))),
        ("dff", Ok(freed(1))),
        ("dnf", Ok(freed(1))),
        ("efnf", Ok(freed(3))),
        ("nnf", Ok(Released::NotHeld)),
        ("dnn", Ok(Released::NotHeld)),
        ("dnfnd", Ok(freed(1))),
        ("ddf", Err(ErrorKind::NoQuorum)),
        ("ddd", Err(ErrorKind::NoQuorum)),
        ("dfe", Err(ErrorKind::WrongType)),
        ("eee", Err(ErrorKind::WrongType)),
        ("dffd", Err(ErrorKind::NoQuorum)),
        ("nfdf", Ok(freed(2))),
    ] {
        assert_eq!(release(answers, 0).1, expected, "{answers}");
    }
}

#[test]
fn a_hold_with_counts_left_stays() {
    for (answers, expected) in [
        ("dss", Ok(Released::StillHeld)),
        ("nss", Ok(Released::StillHeld)),
        ("nns", Ok(Released::NotHeld)),
        ("dds", Err(ErrorKind::NoQuorum)),
        ("des", Err(ErrorKind::WrongType)),
    ] {
        let (stage, released, unknowns) = release(answers, 1);
        assert_eq!(released, expected, "{answers}");
        // An inner release is never repeated.
        assert!(unknowns.is_empty(), "{answers}");
        drop(stage);
    }
}

#[test]
fn an_error_of_a_release_says_what_each_master_answered() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.locked(&holder);
    stage.masters[1..].iter().for_each(Master::goes_down);
    let error = stage.unlock(&holder).0.unwrap_err();
    let message = error.message().to_owned();
    assert!(message.contains("answered") && message.contains("the connection"), "{message}");
}

/// What could not be released is released when its master is back.
#[test]
fn what_is_not_known_to_be_free_is_freed_later() {
    let (stage, _, unknowns) = release("dff", 0);
    assert!(!unknowns.is_empty());
    let holder = stage.holder();
    stage.masters[0].give("l", holder.as_str());
    let mut undos = vec![stage.undo_of(&holder, unknowns)];
    stage.store.resolve(&mut undos);
    assert_eq!(undos.len(), 1, "it is still away");
    stage.masters[0].comes_back();
    stage.forget();
    stage.undo(&holder, undos.remove(0).unknowns);
    assert_eq!(stage.asked("mutex_release"), [1, 0, 0], "the others have freed it");
    assert_eq!(stage.holding(&holder), 0);
}

/// An error is no evidence that it ran.
#[test]
fn a_refused_release_is_repeated() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.locked(&holder);
    for master in &stage.masters {
        master.next("mutex_release", [error("BUSY Redis is busy running a script.")]);
    }
    let (released, unknowns) = stage.unlock(&holder);
    assert_eq!(released.unwrap_err().kind(), ErrorKind::NotReady);
    stage.undo(&holder, unknowns);
    assert_eq!((stage.holding(&holder), stage.asked("mutex_release")), (0, vec![2, 2, 2]));
}

/// The first attempt has freed it, and only its answer was lost.
#[test]
fn a_release_whose_answer_was_lost_has_freed() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.locked(&holder);
    stage.masters[1].goes_down();
    stage.masters[2].next("mutex_release", [Does::RunsAndCuts, Does::Runs]);
    let (released, unknowns) = stage.unlock(&holder);
    assert_eq!(released.unwrap(), freed(0));
    assert!(!unknowns.is_empty(), "the one that is down");
    assert_eq!(stage.asked("mutex_release"), [1, 0, 2]);
}

/// With counts left a repeat finds the hold; if not, it is gone.
#[test]
fn an_inner_release_that_finds_nothing_has_freed_nothing() {
    let stage = Stage::new(1);
    let holder = stage.holder();
    stage.locked(&holder);
    let cut = Does::RunsAndCuts;
    stage.masters[0].next("mutex_release", [cut, Does::Says(pair(0, 0))]);
    let left = HoldCounts { main: 1, reads: 0 };
    let release = Release { left, ..Release::of_all(&stage.name, &holder, 1) };
    let released = stage.store.release(&release, &mut UnknownOutcomes::default());
    assert_eq!(released.unwrap(), Released::NotHeld);
}

#[test]
fn only_masters_that_may_have_it_are_asked_to_free_it() {
    let stage = Stage::new(3);
    stage.masters[2].goes_down();
    let holder = stage.holder();
    granted(stage.lock(&holder).0);
    stage.masters[2].comes_back();
    wait_until("it is back", || {
        stage.store.maintain();
        stage.store.nodes()[2].state() == crate::base::node_status::NodeState::Voting
    });
    let (released, unknowns) = stage.unlock(&holder);
    assert_eq!(released.unwrap(), freed(0));
    stage.undo(&holder, unknowns);
    assert_eq!(stage.asked("mutex_release"), [1, 1, 0]);
    // A holder of which nothing is known may be anywhere.
    stage.forget();
    assert_eq!(stage.unlock(&holder).0.unwrap(), Released::NotHeld);
    wait_until("all are asked", || stage.asked("mutex_release") == [1, 1, 1]);
}

/// The caller does not wait for the slowest master, and what it still does is looked after.
#[test]
fn a_release_does_not_wait_for_a_late_master() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.locked(&holder);
    stage.masters[0].next("mutex_release", [Does::Waits]);
    let (released, unknowns) = stage.unlock(&holder);
    assert_eq!(released.unwrap(), freed(0));
    assert!(!unknowns.is_empty());
    let mut undos = vec![stage.undo_of(&holder, unknowns)];
    stage.store.resolve(&mut undos);
    assert_eq!(undos.len(), 1, "it has not answered yet");
    stage.masters[0].let_run(true);
    stage.undo(&holder, undos.remove(0).unknowns);
    assert_eq!(stage.asked("mutex_release"), [1, 1, 1], "its answer was enough");
    assert_eq!(stage.holding(&holder), 0);
}

/// A late answer can be a refusal.
#[test]
fn a_late_refusal_is_no_release() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.locked(&holder);
    let busy = "-BUSY Redis is busy running a script.\r\n".to_owned();
    stage.masters[0].next("mutex_release", [Does::WaitsAndSays(busy)]);
    let (_, unknowns) = stage.unlock(&holder);
    stage.masters[0].let_run(true);
    stage.undo(&holder, unknowns);
    assert_eq!((stage.holding(&holder), stage.asked("mutex_release")), (0, vec![2, 1, 1]));
}

/// A request whose connection could not be killed may run after the release.
#[test]
fn nothing_is_free_while_an_earlier_request_can_still_run() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    stage.masters[2].next("CLIENT KILL", [error("BUSY Redis is busy running a script.")]);
    granted(stage.lock(&holder).0);
    // The connection with the answer that is due ends, and the request is still with the server.
    stage.clock.advance(IO_TIMEOUT + Duration::from_secs(1));
    stage.store.maintain();
    let mut undos = vec![stage.undo_of(&holder, UnknownOutcomes::default())];
    stage.store.resolve(&mut undos);
    assert_eq!(undos.len(), 1, "the kill was refused");
    assert_eq!(stage.holding(&holder), 0);
    stage.undo(&holder, undos.remove(0).unknowns);
    assert_eq!(stage.masters[2].asked("CLIENT KILL").len(), 2);
    stage.masters[2].let_run(true);
    assert_eq!(stage.holding(&holder), 0, "and it never runs");
}

#[test]
fn a_lock_that_is_kept_stays_taken_without_its_holder() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.locked(&holder);
    for master in &stage.masters {
        master.next("lock_keep", [Does::Says(pair(1, 0))]);
    }
    let kept_until = Some(stage.store.clock.now().plus(Duration::from_secs(5)));
    let release = Release { kept_until, ..Release::of_all(&stage.name, &holder, 1) };
    let mut unknowns = UnknownOutcomes::default();
    let released = stage.store.release(&release, &mut unknowns);
    assert_eq!(released.unwrap(), Released::StillHeld);
    assert_eq!(stage.asked("mutex_release"), [0, 0, 0]);
}

/// One that cannot be resolved is given up with its lease, unless a request may still run then.
#[test]
fn an_undo_ends_with_the_lease() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.masters.iter().for_each(Master::goes_down);
    let unknowns = UnknownOutcomes::default();
    let mut undos = vec![stage.undo_of(&holder, unknowns)];
    stage.store.resolve(&mut undos);
    assert_eq!(undos.len(), 1);
    assert!(!undos[0].unknowns.is_empty(), "all of them");
    stage.clock.advance(LONGEST_LEASE + Duration::from_secs(1));
    stage.store.resolve(&mut undos);
    assert!(undos.is_empty(), "{undos:?}");
}

/// A master that was suspended runs the request when it goes on, and the lease begins then.
#[test]
fn an_undo_outlives_its_lease_while_a_request_may_run() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&holder).0);
    let (_, unknowns) = stage.unlock(&holder);
    let expires = stage.clock_now();
    let mut undos = vec![Undo { expires, ..stage.undo_of(&holder, unknowns) }];
    stage.clock.advance(Duration::from_secs(1));
    stage.store.resolve(&mut undos);
    assert_eq!(undos.len(), 1);
    let least = expires.plus(LONGEST_LEASE);
    assert!(undos[0].expires > least && undos[0].expires < least.plus(Duration::from_secs(60)));
    stage.masters[2].let_run(true);
    stage.undo(&holder, undos.remove(0).unknowns);
}

/// A master that hangs must not keep the renewals, which follow on the same thread.
#[test]
fn all_undos_together_have_one_timeout() {
    let stage = Stage::new(3);
    let (first, second) = (stage.holder(), stage.holder());
    let expires = crate::base::lease::Moment::NEVER;
    let undo = |holder| Undo { expires, ..stage.undo_of(holder, UnknownOutcomes::default()) };
    let mut undos = vec![undo(&first), undo(&second)];
    stage.masters[2].next("mutex_release", [Does::Stalls(2)]);
    stage.store.resolve(&mut undos);
    let left: Vec<_> = undos.iter().map(|undo| undo.holder.clone()).collect();
    assert_eq!(left, [first, second]);
    assert_eq!(stage.asked("mutex_release"), [1, 1, 1], "the second one has its turn later");
}

#[test]
fn undos_are_resolved_in_order_and_in_part() {
    let stage = Stage::new(1);
    let holders: Vec<_> = (0..201).map(|_| stage.holder()).collect();
    let undo = |holder| stage.undo_of(holder, UnknownOutcomes::default());
    let mut undos: Vec<Undo> = holders.iter().map(undo).collect();
    stage.store.resolve(&mut undos);
    let left: Vec<_> = undos.iter().map(|undo| undo.holder.clone()).collect();
    assert_eq!(left, holders[200..]);
    assert_eq!(stage.asked("mutex_release"), [200]);
}

#[test]
fn a_lock_of_a_minority_that_grants_after_all_is_found_and_freed() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.masters[0].next("redlock_acquire", [busy(1000, SOMEBODY)]);
    stage.masters[1].next("redlock_acquire", [busy(1000, SOMEBODY)]);
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    let acquire = Acquire { ..stage.acquire(&holder) };
    let (_, unknowns) = stage.lock_with(&acquire);
    assert!(!unknowns.is_empty());
    stage.masters[2].let_run(true);
    stage.undo(&holder, unknowns);
    assert_eq!(stage.masters[2].log(), ["redlock_acquire", "mutex_release"]);
    assert_eq!(stage.holding(&holder), 0);
}

/// Otherwise the client would remember every hold that it ever had.
#[test]
fn where_a_hold_is_is_known_as_long_as_it_may_be_there() {
    let stage = Stage::new(3);
    stage.masters[2].goes_down();
    let known = |holder| [0, 1, 2].map(|n| stage.store.nodes_of(holder).contains(n));
    let (kept, released, undone) = (stage.holder(), stage.holder(), stage.holder());
    granted(stage.lock(&kept).0);
    assert_eq!(known(&kept), [true, true, false]);
    assert_eq!(known(&released), [true; 3], "of this one nothing is known");
    stage.unlock(&kept).0.unwrap();
    assert_eq!(known(&kept), [true; 3], "it is gone, and forgotten");
    granted(stage.lock(&undone).0);
    stage.masters[1].goes_down();
    let mut undos = vec![stage.undo_of(&undone, UnknownOutcomes::default())];
    stage.store.resolve(&mut undos);
    assert_eq!((undos.len(), known(&undone)), (1, [true, true, false]));
    stage.masters[1].comes_back();
    stage.undo(&undone, undos.remove(0).unknowns);
    assert_eq!(known(&undone), [true; 3]);
}

#[test]
fn a_release_waits_for_its_majority() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.locked(&holder);
    stage.all_do("mutex_release", &Does::Waits);
    std::thread::scope(|scope| {
        let unlocks = scope.spawn(|| stage.unlock(&holder).0.unwrap());
        std::thread::sleep(Duration::from_millis(40));
        assert!(!unlocks.is_finished());
        stage.masters.iter().for_each(|master| master.let_run(true));
        assert_eq!(unlocks.join().unwrap(), freed(0));
    });
}
