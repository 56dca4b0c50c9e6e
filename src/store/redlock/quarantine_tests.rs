use std::time::Duration;

use super::masters_tests::*;
use crate::base::error::ErrorKind;
use crate::base::lease::margin;
use crate::base::node_status::NodeState;
use crate::store::LockStore;

fn states(stage: &Stage) -> Vec<NodeState> {
    stage.store.nodes().iter().map(|node| node.state()).collect()
}

fn voting(stage: &Stage) -> usize {
    states(stage).into_iter().filter(|state| *state == NodeState::Voting).count()
}

/// Masters that remember this as their highest token, and have no vote.
fn without_votes(client: Client, highest: [Option<u64>; 3]) -> Stage {
    let stage = Stage::lazy(3, client);
    for (master, highest) in stage.masters.iter().zip(highest) {
        master.set_votes(false);
        master.remembers(highest);
    }
    stage.store.connect_now().unwrap();
    stage
}

/// The time that a new master waits.
fn quarantine() -> Duration {
    LONGEST_LEASE + margin(LONGEST_LEASE)
}

const STRICT: Client = Client { io_timeout: IO_TIMEOUT, rounds: 4, fresh: false, durable: false };

/// The floors with which a master was admitted.
fn floors(master: &Master) -> Vec<u64> {
    master.asked("redlock_admit").iter().map(|asked| asked.words[4].parse().unwrap()).collect()
}

#[test]
fn new_masters_wait_for_the_longest_lease() {
    let stage = without_votes(STRICT, [None; 3]);
    stage.masters[1].set_clock(WALL + 500);
    for state in states(&stage) {
        let NodeState::Quarantined { remaining: Some(remaining) } = state else {
            panic!("{state:?}")
        };
        assert!(remaining > LONGEST_LEASE && remaining <= quarantine(), "{remaining:?}");
    }
    let error = stage.lock(&stage.holder()).0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    stage.clock.advance(quarantine() - Duration::from_secs(50));
    stage.store.maintain();
    assert_eq!((voting(&stage), stage.asked("redlock_admit")), (0, vec![0, 0, 0]));
    stage.clock.advance(Duration::from_secs(50));
    stage.store.maintain();
    assert_eq!(voting(&stage), 3);
    // Every later token is above what any of them may have given before.
    assert!(stage.masters.iter().all(|master| floors(master) == [WALL + 500]));
    granted(stage.lock(&stage.holder()).0);
}

#[test]
fn a_first_installation_votes_at_once() {
    let fresh = Client { fresh: true, ..STRICT };
    let stage = without_votes(fresh, [None; 3]);
    assert_eq!(voting(&stage), 3);
    // Only masters without data are new.
    let fresh = Client { fresh: true, ..STRICT };
    let stage = without_votes(fresh, [None, Some(7), None]);
    assert_eq!(voting(&stage), 2);
}

#[test]
fn a_durable_master_with_data_has_forgotten_nothing() {
    let durable = Client { durable: true, ..STRICT };
    let stage = without_votes(durable, [Some(7), None, Some(9)]);
    assert_eq!(voting(&stage), 2);
    assert!(stage.store.quarantine.are_durable());
    assert_eq!(floors(&stage.masters[0]), [9]);
}

/// The time begins with the mark: a master that was emptied again waits again.
#[test]
fn a_master_that_is_emptied_twice_waits_twice() {
    let stage = without_votes(STRICT, [None; 3]);
    stage.clock.advance(quarantine() - Duration::from_secs(50));
    stage.store.maintain();
    stage.masters[0].restart("run0b");
    stage.clock.advance(Duration::from_secs(50));
    stage.store.maintain();
    assert_eq!((voting(&stage), stage.asked("redlock_admit")), (2, vec![0, 1, 1]));
    stage.clock.advance(quarantine());
    wait_until("it votes", || {
        stage.clock.advance(Duration::from_millis(100));
        stage.store.maintain();
        voting(&stage) == 3
    });
    assert_eq!(stage.asked("redlock_admit"), [1, 1, 1]);
}

/// Emptied between the end of its time and the admission.
#[test]
fn a_master_whose_mark_has_changed_is_not_admitted() {
    let stage = without_votes(STRICT, [None; 3]);
    stage.clock.advance(quarantine());
    let look = |highest: &str, mark: &str| list(&[int(0), bulk(highest), bulk(mark)]);
    let mark = stage.masters[0].mark();
    let other = Does::Says(look("", "run0:another"));
    stage.masters[0].next("redlock_look", [Does::Says(look("", &mark)), other]);
    // And one that answers something else than before when it is admitted.
    stage.masters[1].next("redlock_admit", [Does::Says(int(0))]);
    stage.store.maintain();
    assert_eq!((voting(&stage), stage.asked("redlock_admit")), (1, vec![0, 1, 1]));
    wait_until("it is admitted later", || {
        stage.clock.advance(Duration::from_millis(100));
        stage.store.maintain();
        voting(&stage) >= 2
    });
    assert_eq!(stage.asked("redlock_admit")[1], 2);
}

#[test]
fn a_master_that_another_client_has_admitted_votes() {
    let stage = without_votes(STRICT, [None; 3]);
    stage.masters[1].set_votes(true);
    stage.clock.advance(Duration::from_secs(1));
    stage.store.maintain();
    let states = states(&stage);
    assert_eq!(states[1], NodeState::Voting);
    assert!(matches!(states[0], NodeState::Quarantined { remaining: Some(_) }));
    assert_eq!(stage.asked("redlock_admit"), [0, 0, 0]);
}

/// One that is away may know a higher token than the others.
#[test]
fn nobody_is_admitted_while_a_master_is_away_that_may_know_more() {
    let stage = Stage::lazy(3, STRICT);
    stage.masters[0].set_votes(false);
    stage.masters[0].remembers(Some(3));
    stage.masters[1].remembers(Some(5));
    stage.masters[2].remembers(Some(7));
    stage.masters[2].goes_down();
    stage.store.connect_now().unwrap();
    stage.clock.advance(quarantine());
    stage.store.maintain();
    let waits = NodeState::Quarantined { remaining: None };
    assert_eq!(states(&stage), [waits, NodeState::Voting, NodeState::Down]);
    stage.masters[2].comes_back();
    wait_until("it votes", || {
        stage.clock.advance(Duration::from_millis(200));
        stage.store.maintain();
        voting(&stage) == 3
    });
    assert_eq!(floors(&stage.masters[0]), [7]);
}

#[test]
fn a_restarted_master_has_no_vote() {
    let stage = Stage::lazy(3, STRICT);
    stage.store.connect_now().unwrap();
    assert_eq!(voting(&stage), 3);
    stage.masters[0].restart("run0b");
    let holder = stage.holder();
    granted(stage.lock(&holder).0);
    // Its answer may be read late.
    wait_until("it is in quarantine", || {
        stage.clock.advance(Duration::from_millis(100));
        stage.store.maintain();
        matches!(states(&stage)[0], NodeState::Quarantined { remaining: Some(_) })
    });
    assert_eq!(states(&stage)[1..], [NodeState::Voting, NodeState::Voting]);
    // And with a second one no lock is granted.
    stage.masters[1].restart("run1b");
    assert_eq!(stage.lock(&stage.holder()).0.unwrap_err().kind(), ErrorKind::NoQuorum);
}

/// Its connections may have ended and been made again before anybody looked.
#[test]
fn a_master_that_restarted_between_two_calls_is_looked_at() {
    let stage = Stage::lazy(3, STRICT);
    stage.store.connect_now().unwrap();
    stage.masters[0].restart("run0b");
    // Only the connection is made; no lock is asked for.
    stage.store.inspect(&stage.name).unwrap();
    stage.store.maintain();
    assert!(matches!(states(&stage)[0], NodeState::Quarantined { .. }));
}

/// The answer that it has no vote may come when nobody waits for it.
#[test]
fn a_master_that_says_late_that_it_has_no_vote_is_looked_at() {
    let stage = Stage::lazy(3, STRICT);
    stage.store.connect_now().unwrap();
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    stage.masters[2].set_votes(false);
    granted(stage.lock(&stage.holder()).0);
    stage.masters[2].let_run(true);
    wait_until("it has no vote", || {
        stage.clock.advance(Duration::from_millis(100));
        stage.store.maintain();
        matches!(states(&stage)[2], NodeState::Quarantined { .. })
    });
}

/// The same, if the next request of its holder reads that answer.
#[test]
fn a_late_answer_is_read_by_the_next_request_of_its_holder() {
    let stage = Stage::lazy(3, STRICT);
    stage.store.connect_now().unwrap();
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    stage.masters[2].set_votes(false);
    let holder = stage.holder();
    granted(stage.lock(&holder).0);
    let (_, unknowns) = stage.unlock(&holder);
    stage.masters[2].let_run(true);
    stage.undo(&holder, unknowns);
    stage.store.maintain();
    assert!(matches!(states(&stage)[2], NodeState::Quarantined { .. }));
}

#[test]
fn it_is_said_when_to_look_again() {
    let soon = |stage: &Stage| {
        let next = stage.store.maintain().expect("there is always something to do");
        next.since(stage.clock_now())
    };
    let stage = Stage::new(3);
    let ms = Duration::from_millis;
    let usual = soon(&stage);
    assert!(usual > ms(500) && usual <= ms(1000), "{usual:?}");
    // A master that is away is tried again soon, and then less and less often.
    stage.masters[0].goes_down();
    granted(stage.lock(&stage.holder()).0);
    let first = soon(&stage);
    assert!(first <= ms(50), "{first:?}");
    for _ in 0..10 {
        stage.clock.advance(ms(1000));
        stage.store.maintain();
    }
    let later = soon(&stage);
    assert!(later > ms(250) && later <= ms(1000), "{later:?}");
}

#[test]
fn one_connect_at_a_time_keeps_the_background() {
    let stage = Stage::new(5);
    stage.masters[..2].iter().for_each(Master::goes_down);
    granted(stage.lock(&stage.holder()).0);
    stage.masters[..2].iter().for_each(Master::comes_back);
    let before = [stage.masters[0].connects(), stage.masters[1].connects()];
    stage.clock.advance(Duration::from_secs(2));
    stage.store.maintain();
    let connects = |n: usize| stage.masters[n].connects() - before[n];
    assert_eq!(connects(0) + connects(1), 1);
    stage.store.maintain();
    assert_eq!((connects(0), connects(1)), (1, 1));
    assert_eq!(voting(&stage), 5);
}
