use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::masters_tests::*;
use super::quorum::UnknownNodes;
use crate::base::error::ErrorKind;
use crate::base::holder::Holder;
use crate::base::lock_name::{Kind, LockName};
use crate::base::node_status::NodeState;
use crate::store::{LockStore, Renewal, Renewed};

const DENIED: &str = "NOPERM No permissions to access a key";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

fn only(mut renewed: Vec<Renewed>) -> Renewed {
    assert_eq!(renewed.len(), 1);
    renewed.remove(0)
}

/// What a renewal answers when the hold is at a master as its letter says: held, lost, down, no
/// vote, busy, denied, an error about the lock. And the hold's number of masters
/// after it.
fn renew(holds: &str) -> (Renewed, usize, Stage) {
    let stage = Stage::new(holds.len());
    let holder = stage.holder();
    let token = stage.locked(&holder);
    for (master, hold) in stage.masters.iter().zip(holds.chars()) {
        match hold {
            'h' => {}
            'l' => master.lose("l"),
            'd' => master.goes_down(),
            'q' => master.set_votes(false),
            'e' => master.next("redlock_renew", [error("BUSY Redis is busy running a script.")]),
            'n' => master.next("redlock_renew", [error(DENIED)]),
            'w' => {
                master.next("redlock_renew", [Does::Says(list(&[WRONG_TYPE.to_owned()]))]);
            }
            other => panic!("{other}"),
        }
    }
    let renewed = only(stage.store.renew(&[stage.renewal(&holder, token)]));
    let holding = stage.holding(&holder);
    (renewed, holding, stage)
}

#[test]
fn a_hold_lives_while_a_majority_has_it() {
    for holds in ["hhh", "hdh", "hqh", "heh", "hwh", "h", "hhhdd", "hhhd"] {
        let (renewed, _, stage) = renew(holds);
        let Renewed::Held { sent_at, again, beside, asked } = renewed else {
            panic!("{holds}: {renewed:?}")
        };
        assert!(sent_at <= stage.clock_now() && !again, "{holds}");
        assert!(beside.is_none() && asked == 0, "{holds}");
    }
}

#[test]
fn a_hold_is_gone_when_no_majority_can_have_it() {
    for holds in ["lll", "llh", "dll", "l", "lldh", "hllhl"] {
        let (renewed, ..) = renew(holds);
        assert!(matches!(renewed, Renewed::Gone), "{holds}: {renewed:?}");
    }
}

/// Only time ends a lease that is not certainly gone.
#[test]
fn a_renewal_without_a_majority_has_failed() {
    for (holds, kind, says) in [
        ("ddd", ErrorKind::NoQuorum, "the connection"),
        ("hdd", ErrorKind::NoQuorum, "answered"),
        ("hdl", ErrorKind::NoQuorum, "answered"),
        ("hqq", ErrorKind::NoQuorum, "has no vote"),
        ("hww", ErrorKind::WrongType, "something else"),
        ("hlwd", ErrorKind::NoQuorum, "something else"),
        ("eee", ErrorKind::NoQuorum, "BUSY"),
        ("nnn", ErrorKind::Denied, "NOPERM"),
        ("hnd", ErrorKind::NoQuorum, "NOPERM"),
        ("hhdd", ErrorKind::NoQuorum, "answered"),
    ] {
        let (renewed, ..) = renew(holds);
        let Renewed::Failed(error) = renewed else { panic!("{holds}: {renewed:?}") };
        assert_eq!(error.kind(), kind, "{holds}");
        assert!(error.message().contains(says), "{holds}: {error}");
    }
}

/// Otherwise the next master that fails would cost the hold its majority.
#[test]
fn a_hold_is_taken_again_where_it_was_lost() {
    let (renewed, holding, stage) = renew("hlh");
    assert!(matches!(renewed, Renewed::Held { again: true, .. }), "{renewed:?}");
    assert_eq!(holding, 3);
    assert_eq!(stage.asked("redlock_acquire"), [0, 1, 0]);
    let asked = &stage.masters[1].asked("redlock_acquire")[0].words;
    // Its own lease and its own token; and as a first acquire, because nothing is there.
    let lease = LEASE.as_millis().to_string();
    assert_eq!(asked[5..7], [lease, "0".to_owned()]);
    assert_eq!((&*asked[7] != "-1", asked[8].clone()), (true, WALL.to_string()));
}

#[test]
fn a_hold_without_a_token_is_taken_again_without_one() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.locked(&holder);
    stage.masters[1].lose("l");
    only(stage.store.renew(&[stage.renewal(&holder, 0)]));
    assert_eq!(stage.masters[1].asked("redlock_acquire")[0].words[7], "-1");
}

/// What takes it again is sent for several holds together, and each of them has to wait for it.
#[test]
fn a_hold_is_not_free_while_it_may_still_be_taken_again() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    let token = stage.locked(&holder);
    stage.settle();
    let (master, node) = (&stage.masters[1], &stage.store.nodes[1]);
    master.lose("l");
    master.next("redlock_acquire", [Does::Stalls(0)]);
    only(stage.store.renew(&[stage.renewal(&holder, token)]));
    assert!(node.may_still_run(&holder) && !node.may_still_run(&stage.holder()));
    assert!(node.probe());
    master.next("CLIENT KILL", [error("BUSY Redis is busy running a script.")]);
    let (_, unknowns) = stage.unlock(&holder);
    // Another answer may be late, too.
    assert!(UnknownNodes::of(&unknowns).nodes.contains(1));
    stage.undo(&holder, unknowns);
    assert!(!node.may_still_run(&holder));
    assert_eq!(stage.asked("CLIENT KILL")[1], 2);
}

/// Where it was taken again it has to be freed, too.
#[test]
fn a_hold_that_was_taken_again_is_freed_there() {
    let stage = Stage::new(3);
    stage.masters[2].goes_down();
    let holder = stage.holder();
    let token = granted(stage.lock(&holder).0);
    stage.masters[2].comes_back();
    wait_until("it is back", || {
        stage.store.maintain();
        stage.store.nodes()[2].state() == NodeState::Voting
    });
    only(stage.store.renew(&[stage.renewal(&holder, token)]));
    assert_eq!(stage.holding(&holder), 3);
    let (_, unknowns) = stage.unlock(&holder);
    stage.undo(&holder, unknowns);
    wait_until("it is free", || stage.holding(&holder) == 0);
}

/// A lease of zero only asks, and lengthens nothing.
#[test]
fn a_question_about_a_hold_takes_nothing() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    let token = stage.locked(&holder);
    stage.masters[1].lose("l");
    let question = Renewal { lease: Duration::ZERO, ..stage.renewal(&holder, token) };
    let renewed = only(stage.store.renew(&[question]));
    assert!(matches!(renewed, Renewed::Held { again: false, .. }), "{renewed:?}");
    assert_eq!(stage.asked("redlock_acquire"), [0, 0, 0]);
}

/// More than one script renews, each hold has its own outcome, in order.
#[test]
fn each_of_many_holds_has_its_own_outcome() {
    let stage = Stage::new(3);
    let holders: Vec<Holder> = (0..401).map(|_| stage.holder()).collect();
    let batch: Vec<Renewal> = holders
        .iter()
        .enumerate()
        .map(|(n, holder)| {
            let name = Arc::new(LockName::new("", &format!("l{n}"), Kind::Mutex).unwrap());
            for (index, master) in stage.masters.iter().enumerate() {
                // Every fifth is lost by two masters, every seventh by one.
                if (n % 5 > 0 || index == 0) && (n % 7 > 0 || index > 0) {
                    master.give(&format!("l{n}"), holder.as_str());
                }
            }
            Renewal { name, ..stage.renewal(holder, WALL) }
        })
        .collect();
    let renewed = stage.store.renew(&batch);
    assert_eq!(renewed.len(), 401);
    for (n, renewed) in renewed.iter().enumerate() {
        match renewed {
            Renewed::Gone => assert!(n % 5 == 0, "{n}"),
            Renewed::Held { again, .. } => assert!(n % 5 > 0 && *again == (n % 7 == 0), "{n}"),
            Renewed::Failed(e) => panic!("{n}: {e}"),
        }
    }
    assert_eq!(stage.asked("redlock_renew"), [3, 3, 3]);
    let restored = (0..401).filter(|n| n % 5 > 0 && n % 7 == 0).count();
    assert_eq!(stage.asked("redlock_acquire"), [restored, 0, 0]);
}

/// One name that the user may not use any more refuses the script for all: each is asked for again.
#[test]
fn a_name_that_is_denied_troubles_no_other_hold() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    let token = stage.locked(&holder);
    let denied = Arc::new(LockName::new("", "denied", Kind::Mutex).unwrap());
    let others = Renewal { name: denied, ..stage.renewal(&holder, token) };
    for master in &stage.masters {
        master.next("redlock_renew", [error(DENIED), error(DENIED), Does::Runs]);
    }
    let renewed = stage.store.renew(&[others, stage.renewal(&holder, token)]);
    let [Renewed::Failed(refused), Renewed::Held { again: false, .. }] = &renewed[..] else {
        panic!("{renewed:?}")
    };
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert_eq!(stage.asked("redlock_renew"), [3, 3, 3]);
}

#[test]
fn a_caller_extends_as_far_as_the_longest_lease() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    let token = stage.locked(&holder);
    let extend = |lease| {
        let renewal = Renewal { lease, ..stage.renewal(&holder, token) };
        stage.store.extend(&[renewal])
    };
    let renewed = only(extend(LONGEST_LEASE).unwrap());
    assert!(matches!(renewed, Renewed::Held { .. }), "{renewed:?}");
    let longer = stage.store.check_lease(LONGEST_LEASE + Duration::from_millis(1)).unwrap_err();
    assert_eq!(longer.kind(), ErrorKind::InvalidInput);
    assert_eq!(stage.asked("redlock_renew"), [1, 1, 1]);
}

/// All holds are renewed when a master that lacks some of them can be asked again.
#[test]
fn holds_are_renewed_when_a_master_is_back() {
    let stage = Stage::new(3);
    let renewals = Arc::new(AtomicUsize::new(0));
    let told = renewals.clone();
    stage.store.tell_losses(Box::new(move || _ = told.fetch_add(1, Ordering::SeqCst)));
    stage.store.maintain();
    stage.masters[2].goes_down();
    granted(stage.lock(&stage.holder()).0);
    stage.store.maintain();
    assert_eq!(renewals.load(Ordering::SeqCst), 0, "it is still away");
    stage.masters[2].comes_back();
    wait_until("it is back", || {
        stage.clock.advance(Duration::from_secs(1));
        stage.store.maintain();
        stage.store.nodes()[2].state() == NodeState::Voting
    });
    assert_eq!(renewals.load(Ordering::SeqCst), 1);
    stage.clock.advance(Duration::from_secs(5));
    stage.store.maintain();
    assert_eq!(renewals.load(Ordering::SeqCst), 1, "once");
}

/// One whose answer came after the round lacks the hold, if it is a refusal, or that another has
/// the lock there.
#[test]
fn holds_are_renewed_after_a_late_refusal() {
    for late in [
        "-BUSY Redis is busy running a script.\r\n".to_owned(),
        list(&[int(0), int(5000), bulk(SOMEBODY)]),
    ] {
        let stage = Stage::new(3);
        let renewals = Arc::new(AtomicUsize::new(0));
        let told = renewals.clone();
        stage.store.tell_losses(Box::new(move || _ = told.fetch_add(1, Ordering::SeqCst)));
        stage.masters[2].next("redlock_acquire", [Does::WaitsAndSays(late)]);
        granted(stage.lock(&stage.holder()).0);
        stage.masters[2].let_run(true);
        wait_until("all holds are renewed", || {
            stage.clock.advance(Duration::from_millis(100));
            stage.store.maintain();
            renewals.load(Ordering::SeqCst) > 0
        });
    }
}

/// Each may take the whole timeout, and together they must not take more.
#[test]
fn masters_whose_connections_have_ended_are_asked_again_side_by_side() {
    for restarted in [2, 3] {
        let stage = Stage::new(3);
        let holder = stage.holder();
        let token = stage.locked(&holder);
        for master in &stage.masters[..restarted] {
            master.next("redlock_renew", [Does::RunsAndCuts]);
            master.next("CLIENT SETNAME", [Does::Waits]);
        }
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| only(stage.store.renew(&[stage.renewal(&holder, token)])));
            wait_until("all are connected to at once", || {
                stage.masters[..restarted].iter().all(|master| master.connects() == 2)
            });
            stage.masters.iter().for_each(|master| master.let_run(true));
            assert!(matches!(asks.join().unwrap(), Renewed::Held { .. }));
        });
    }
}

/// The same for those that had ended before.
#[test]
fn masters_without_a_connection_are_connected_to_side_by_side() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    let token = stage.locked(&holder);
    stage.masters[..2].iter().for_each(Master::cut);
    stage.masters[..2].iter().for_each(|master| master.next("CLIENT SETNAME", [Does::Waits]));
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| only(stage.store.renew(&[stage.renewal(&holder, token)])));
        wait_until("both are connected to at once", || {
            stage.masters[..2].iter().all(|master| master.connects() == 2)
        });
        // The third one is asked before that, and works meanwhile.
        wait_until("it is asked", || stage.asked("redlock_renew") == [0, 0, 1]);
        stage.masters.iter().for_each(|master| master.let_run(true));
        assert!(matches!(asks.join().unwrap(), Renewed::Held { .. }));
    });
}
