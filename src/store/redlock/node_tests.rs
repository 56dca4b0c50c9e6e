use std::time::Duration;

use super::masters_tests::*;
use super::node::Node;
use crate::base::error::{Error, ErrorKind};
use crate::base::lock_name::Kind;
use crate::base::node_status::NodeState;
use crate::store::net::KEEPALIVE_PAUSE;
use crate::store::redis::script;
use crate::store::redis::wire::{Connection, RedisFailure, Reply, Request, Shape};
use crate::store::{Acquired, LockStore, Received, Renewed, Subscriber, SubscriptionSender, Topic};

/// A question to one master.
fn ping(_: &Connection, _: &str) -> Vec<Request> {
    vec![Request::plain(&["PING"]).answered_by(Shape::Text)]
}

fn not_sent(failure: Option<RedisFailure>) -> Error {
    match failure {
        Some(RedisFailure::NotSent(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn asked(node: &Node) -> Option<Vec<Reply>> {
    node.ask_alone(ping).ok()
}

#[test]
fn a_script_that_a_master_does_not_know_is_sent_with_its_source() {
    let stage = Stage::new(1);
    stage.masters[0].next("redlock_acquire", [error("NOSCRIPT No matching script.")]);
    granted(stage.lock(&stage.holder()).0);
    assert_eq!(stage.asked("redlock_acquire"), [2]);
    assert_eq!(stage.masters[0].connects(), 1);
}

/// An identity that has expired, or a clock that was set: a new connection is in order.
#[test]
fn what_a_connection_is_refused_for_is_asked_over_a_new_one() {
    for refusal in [
        Does::Says("-NOAUTH Authentication required.\r\n".to_owned()),
        // The script was too late by the server's clock.
        Does::Says(pair(3, 0)),
    ] {
        let stage = Stage::new(1);
        stage.masters[0].next("redlock_acquire", [refusal]);
        granted(stage.lock(&stage.holder()).0);
        assert_eq!(stage.asked("redlock_acquire"), [2]);
        assert_eq!(stage.masters[0].connects(), 2);
        assert_eq!(stage.asked("CLIENT KILL"), [0], "nothing has run");
    }
}

/// Its idle connections have the same identity.
#[test]
fn a_late_refusal_ends_the_other_connections_as_well() {
    let stage = Stage::new(3);
    let (first, second) = (stage.holder(), stage.holder());
    let no_auth = "-NOAUTH Authentication required.\r\n".to_owned();
    stage.masters[2].next("redlock_acquire", [Does::WaitsAndSays(no_auth)]);
    granted(stage.lock(&first).0);
    stage.masters[2].let_run(true);
    let before = stage.masters[2].connects();
    wait_until("it was read", || {
        stage.store.nodes[2].read_unread();
        stage.store.nodes[2].probe_at().is_none()
    });
    stage.lock(&second).0.unwrap();
    stage.store.inspect(&stage.name).unwrap();
    assert_eq!(stage.masters[2].connects(), before + 1);
}

#[test]
fn a_replica_is_not_asked_again_over_the_same_connection() {
    let stage = Stage::new(1);
    let read_only = "READONLY You can't write against a read only replica.";
    stage.masters[0].next("redlock_acquire", [error(read_only)]);
    let error = stage.lock(&stage.holder()).0.unwrap_err();
    assert!(error.message().contains("the server is a replica"), "{error}");
    granted(stage.lock(&stage.holder()).0);
    assert_eq!(stage.masters[0].connects(), 2);
}

#[test]
fn a_connection_is_used_again() {
    let stage = Stage::new(3);
    for _ in 0..5 {
        let holder = stage.holder();
        stage.locked(&holder);
        let (_, unknowns) = stage.unlock(&holder);
        stage.undo(&holder, unknowns);
        wait_until("it is free", || stage.holding(&holder) == 0);
    }
    assert!(stage.masters.iter().all(|master| master.connects() == 1));
}

#[test]
fn a_server_that_cannot_be_told_from_the_one_before_is_refused() {
    let stage = Stage::lazy(1, Client::default());
    stage.masters[0].next("INFO server", [Does::Says(bulk("redis_version:7.2.0"))]);
    let error = stage.store.connect_now().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.message().contains("run_id"), "{error}");
}

/// A call that is given up half-way (a panic) may still run. It is killed first.
#[test]
fn what_may_still_run_is_killed_before_the_next_request() {
    let stage = Stage::new(1);
    let node = &stage.store.nodes[0];
    let holder = stage.holder();
    stage.masters[0].next("PING", [Does::Waits]);
    let call = node.send(Some(&holder), ping).unwrap();
    wait_until("it has come", || stage.asked("PING") == [1]);
    drop(call);
    assert!(node.may_still_run(&holder) && !node.may_still_run(&stage.holder()));
    assert!(asked(node).is_some());
    assert!(!node.may_still_run(&holder));
    assert_eq!(stage.masters[0].log(), ["PING", "CLIENT KILL", "PING"]);
    // Once.
    assert!(asked(node).is_some());
    assert_eq!(stage.asked("CLIENT KILL"), [1]);
}

/// The reply to the kill may be a refusal.
#[test]
fn a_refused_kill_is_repeated() {
    let stage = Stage::new(1);
    let node = &stage.store.nodes[0];
    let holder = stage.holder();
    stage.masters[0].next("PING", [Does::Waits]);
    let call = node.send(Some(&holder), ping).unwrap();
    wait_until("it has come", || stage.asked("PING") == [1]);
    drop(call);
    stage.masters[0].next("CLIENT KILL", [error("BUSY Redis is busy running a script.")]);
    assert!(asked(node).is_some());
    assert!(node.may_still_run(&holder));
    assert!(asked(node).is_some());
    assert!(!node.may_still_run(&holder));
    assert_eq!(stage.asked("CLIENT KILL"), [2]);
}

/// Without the right to kill, a master is not asked until the earlier request refuses to run.
#[test]
fn without_kills_an_earlier_request_is_waited_for() {
    let stage = Stage::lazy(1, Client::default());
    stage.masters[0].refuse_kills();
    stage.store.connect_now().unwrap();
    let holder = stage.holder();
    stage.masters[0].next("redlock_acquire", [Does::RunsAndCuts]);
    let (acquired, unknowns) = stage.lock(&holder);
    let error = acquired.unwrap_err();
    assert!(error.message().contains("CLIENT KILL is not permitted"), "{error}");
    assert!(!unknowns.is_empty());
    let other = stage.lock(&stage.holder()).0.unwrap_err();
    assert!(other.message().contains("can still reach it"), "{other}");
    assert_eq!(stage.asked("redlock_acquire"), [1]);
    stage.clock.advance(IO_TIMEOUT + Duration::from_secs(30));
    stage.undo(&holder, unknowns);
    granted(stage.lock(&stage.holder()).0);
    assert_eq!(stage.asked("CLIENT KILL"), [0]);
}

/// One thread connects; the others do not wait for as long as that may take.
#[test]
fn nobody_waits_long_for_the_connect_of_another() {
    let client = Client { io_timeout: Duration::from_secs(4), ..Client::default() };
    let stage = Stage::lazy(1, client);
    let node = &stage.store.nodes[0];
    stage.masters[0].next("CLIENT SETNAME", [Does::Waits]);
    assert!(node.send_now(None, ping).is_none(), "it would have to connect");
    std::thread::scope(|scope| {
        let connects = scope.spawn(|| node.send(None, ping).map(drop));
        wait_until("it connects", || stage.masters[0].connects() == 1);
        let error = not_sent(node.send(None, ping).err());
        assert!(error.message().contains("has been under way"), "{error}");
        stage.masters[0].let_run(true);
        let _ = connects.join().unwrap();
    });
    assert_eq!(stage.masters[0].connects(), 1);
}

#[test]
fn a_call_that_waits_for_a_connect_uses_it() {
    let stage = Stage::lazy(1, Client::default());
    let node = &stage.store.nodes[0];
    stage.masters[0].next("CLIENT SETNAME", [Does::Waits]);
    let ask = || {
        let call = node.send(None, ping).unwrap();
        call.finish(ping).unwrap().0
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(ask);
        wait_until("it connects", || stage.masters[0].connects() == 1);
        let second = scope.spawn(ask);
        stage.masters[0].let_run(true);
        for asked in [first, second] {
            assert_eq!(asked.join().unwrap(), [Reply::Bytes(b"PONG".to_vec())]);
        }
    });
    assert!(stage.masters[0].connects() <= 2);
}

/// As with one server: at `maxclients`, without a credential or without file descriptors, a client
/// goes on with the connections that it has.
#[test]
fn calls_share_a_connection_if_the_master_refuses_another() {
    let stage = Stage::new(1);
    let (master, node) = (&stage.masters[0], &stage.store.nodes[0]);
    master.next("PING", [Does::Waits]);
    let first = node.send(None, ping).unwrap();
    master.is_full();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| node.send(None, ping).and_then(|call| call.finish(ping)));
        wait_until("it is refused", || node.health().0.last_error.is_some());
        master.let_run(true);
        assert!(first.finish(ping).is_ok());
        assert!(second.join().unwrap().is_ok(), "it has waited for the first one's");
    });
    assert!(node.is_well() && node.probe_at().is_none());
    assert_eq!(stage.store.nodes()[0].state(), NodeState::Voting);
    wait_until("the refused one is gone", || master.connections() == 1);
    // The same beside one that owes an answer.
    let holder = stage.holder();
    master.let_run(false);
    master.next("PING", [Does::Waits]);
    node.send(Some(&holder), ping).unwrap().leave_unread();
    wait_until("it has come", || stage.asked("PING") == [3]);
    let late = stage.while_time_passes(|| not_sent(node.send_anyway(None, ping).err()));
    assert!(late.message().contains("max number of clients"), "{late}");
    assert!(node.health().1.is_none(), "{:?}", node.health());
    master.let_run(true);
    assert!(asked(node).is_some());
    wait_until("the refused ones are gone", || master.connections() == 1);
    // And without any it is down.
    master.cut();
    assert!(asked(node).is_none() && node.health().1.is_some());
}

/// What is refused to the waiters must not cost a hold its renewals.
#[test]
fn a_subscription_that_is_refused_costs_no_connection() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    let token = stage.locked(&holder);
    stage.masters.iter().for_each(Master::is_full);
    assert!(stage.store.subscribe(Duration::from_millis(10)).is_err());
    let renewed = stage.store.renew(&[stage.renewal(&holder, token)]);
    assert!(matches!(renewed[..], [Renewed::Held { .. }]), "{renewed:?}");
    assert!(stage.store.nodes().iter().all(|node| node.state() == NodeState::Voting));
}

#[test]
fn a_master_that_refused_a_subscription_joins_the_others() {
    let stage = Stage::new(3);
    stage.masters[2].is_full();
    let (mut subscriber, mut sender) = stage.store.subscribe(Duration::from_millis(10)).unwrap();
    let topic = Topic { kind: Kind::Mutex, key: "l".into(), turn_of: None };
    sender.watch(&[&topic]).unwrap();
    wait_until("it is watched", || stage.asked("SUBSCRIBE") == [1, 1, 0]);
    let connects = || stage.masters.iter().map(Master::connects).collect::<Vec<_>>();
    let before = connects();
    for pause in [1, 2, 4] {
        stage.clock.advance(Duration::from_secs(pause));
        for _ in 0..5 {
            subscriber.receive().unwrap();
        }
    }
    assert_eq!(connects(), [before[0], before[1], before[2] + 3], "less and less often");
    stage.masters[2].has_room();
    stage.clock.advance(Duration::from_secs(8));
    wait_until("it has joined", || subscriber.receive().unwrap() == watching(&topic));
    assert_eq!(stage.asked("SUBSCRIBE"), [1, 1, 1]);
    // One that was slow and is well again has its subscription still.
    stage.forget();
    let holder = stage.holder();
    stage.masters[1].next("redlock_acquire", [Does::Waits]);
    stage.store.nodes[1]
        .send(Some(&holder), |_, run_id| {
            vec![script::acquire_on_node(&stage.acquire(&holder), WALL, run_id)]
        })
        .unwrap()
        .leave_unread();
    wait_until("it has come", || stage.asked("redlock_acquire") == [0, 1, 0]);
    stage.clock.advance(IO_TIMEOUT + Duration::from_secs(1));
    assert!(stage.store.nodes[1].probe() && stage.store.nodes[1].is_well());
    let before = connects();
    for _ in 0..5 {
        subscriber.receive().unwrap();
    }
    assert_eq!(connects(), before);
    sender.watch(&[&Topic { key: "m".into(), ..topic }]).unwrap();
    wait_until("all are asked", || stage.asked("SUBSCRIBE") == [1, 1, 1]);
}

/// A subscription at three masters, and what it is to.
fn subscribed(stage: &Stage) -> (Box<dyn Subscriber>, Box<dyn SubscriptionSender>, Topic) {
    let (subscriber, mut sender) = stage.store.subscribe(Duration::from_millis(10)).unwrap();
    let topic = Topic { kind: Kind::Mutex, key: "l".into(), turn_of: None };
    sender.watch(&[&topic]).unwrap();
    (subscriber, sender, topic)
}

/// What its end would cost is the messages of the others.
#[test]
fn a_master_that_denies_a_subscription_ends_no_other() {
    let stage = Stage::new(3);
    let denied = "NOPERM User u has no permissions to run the 'subscribe' command";
    stage.masters[2].next("SUBSCRIBE", [error(denied), error(denied)]);
    let (mut subscriber, _sender, topic) = subscribed(&stage);
    let mut confirmed = 0;
    let mut until = |all: usize| {
        wait_until("it is confirmed", || {
            confirmed += usize::from(subscriber.receive().unwrap() == watching(&topic));
            stage.clock.advance(Duration::from_millis(100));
            confirmed == all
        });
    };
    until(2);
    until(3);
    assert_eq!(stage.asked("SUBSCRIBE"), [1, 1, 3]);
    // Waiters rely on one that has confirmed: they have to look when it is gone.
    stage.masters[1].cut();
    wait_until("all is ended", || subscriber.receive().is_err());
}

/// Others that answer say nothing about it.
#[test]
fn a_master_that_falls_silent_ends_the_subscription() {
    let stage = Stage::new(3);
    let (mut subscriber, _sender, topic) = subscribed(&stage);
    let mut until = |what: &Received, all: usize| {
        let mut count = 0;
        wait_until("it is received", || {
            count += usize::from(subscriber.receive().unwrap() == *what);
            count == all
        });
    };
    until(&watching(&topic), 3);
    stage.masters[2].next("PING", [Does::Waits]);
    stage.clock.advance(Duration::from_secs(6));
    until(&Received::Alive, 2);
    stage.clock.advance(IO_TIMEOUT + Duration::from_secs(1));
    wait_until("it is ended", || subscriber.receive().is_err());
}

fn watching(topic: &Topic) -> Received {
    Received::Watching(vec![topic.clone()])
}

/// Others do not even connect to a master that is slow, unless a majority needs it.
#[test]
fn a_slow_master_is_left_alone() {
    let stage = Stage::new(3);
    let (first, second) = (stage.holder(), stage.holder());
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&first).0);
    let node = &stage.store.nodes[2];
    assert!(!node.is_well() && stage.store.nodes[0].is_well());
    let error = not_sent(node.send(Some(&second), ping).err());
    assert!(error.message().contains("it has not answered for"), "{error}");
    let error = not_sent(node.send_now(None, ping).unwrap().err());
    assert!(error.message().contains("it has not answered for"), "{error}");
    assert_eq!(stage.masters[2].connects(), 1);
    // Its own holder follows on the same connection.
    let call = node.send(Some(&first), ping).unwrap();
    stage.masters[2].let_run(true);
    assert_eq!(call.finish(ping).unwrap().0, [Reply::Bytes(b"PONG".to_vec())]);
    assert_eq!(stage.masters[2].log(), ["redlock_acquire", "PING"]);
    assert!(node.is_well());
}

/// A master that owes an answer for longer than the I/O timeout counts as down, whoever asks.
#[test]
fn an_answer_that_is_overdue_is_given_up() {
    let stage = Stage::new(3);
    let first = stage.holder();
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&first).0);
    let node = &stage.store.nodes[2];
    stage.clock.advance(IO_TIMEOUT - Duration::from_secs(30));
    node.read_unread();
    assert!(node.health().1.is_none());
    let due = node.probe_at().unwrap().since(stage.clock_now());
    assert!(due <= Duration::from_secs(30), "{due:?}");
    stage.clock.advance(Duration::from_secs(31));
    node.read_unread();
    let error = node.health().1.unwrap();
    assert!(error.message().contains("io_timeout"), "{error}");
    assert_eq!(node.probe_at().unwrap().since(stage.clock_now()), Duration::ZERO);
    assert!(node.may_still_run(&first) && !node.is_well());
    assert_eq!(stage.store.nodes()[2].state(), NodeState::Down);
    // It is asked again as soon as it can be connected to, and its old connection is killed.
    assert!(node.probe() && !node.probe());
    assert!(node.is_well());
    assert!(asked(node).is_some() && !node.may_still_run(&first));
    assert_eq!(stage.masters[2].asked("CLIENT KILL").len(), 1);
}

#[test]
fn a_master_that_is_down_is_tried_less_and_less_often() {
    let stage = Stage::new(1);
    let node = &stage.store.nodes[0];
    stage.masters[0].goes_down();
    assert!(asked(node).is_none());
    let mut last = Duration::ZERO;
    for _ in 0..8 {
        let pause = node.probe_at().unwrap().since(stage.clock_now());
        assert!(pause <= Duration::from_secs(1), "{pause:?}");
        last = pause;
        if !pause.is_zero() {
            let due = node.probe_at().unwrap();
            if node.probe() {
                // The clock of this test goes on by itself, too.
                assert!(stage.clock_now() >= due, "it is not due");
                continue;
            }
            stage.clock.advance(pause);
        }
        assert!(node.probe());
    }
    assert!(last > Duration::from_millis(250), "{last:?}");
    stage.masters[0].comes_back();
    stage.clock.advance(Duration::from_secs(1));
    assert!(node.probe());
    assert!(node.probe_at().is_none() && node.health().1.is_none());
    assert!(asked(node).is_some());
}

/// One that ended while it was idle says nothing of the master.
#[test]
fn idle_connections_that_have_ended_are_made_again() {
    let stage = Stage::new(3);
    stage.masters.iter().for_each(Master::cut);
    granted(stage.lock(&stage.holder()).0);
    assert!(stage.masters.iter().all(|master| master.connects() == 2));
    assert!(stage.store.nodes().iter().all(|node| node.state() == NodeState::Voting));
    assert_eq!(stage.asked("CLIENT KILL"), [0, 0, 0]);
    // The same for what has no holder.
    stage.settle();
    stage.masters.iter().for_each(Master::cut);
    assert!(stage.store.inspect(&stage.name).unwrap().is_some());
    stage.masters.iter().for_each(Master::cut);
    assert!(stage.store.nodes.iter().all(|node| asked(node).is_some()));
}

/// A firewall that forgets idle connections forgets those to all masters.
#[test]
fn connections_that_were_cut_in_silence_are_made_again() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.clock.advance(KEEPALIVE_PAUSE + Duration::from_secs(1));
    stage.all_do("redlock_acquire", &Does::Stalls(0));
    granted(stage.lock(&holder).0);
    assert_eq!(stage.asked("redlock_acquire"), [2, 2, 2]);
    // What was sent first cannot run any more.
    let log = stage.masters[0].log();
    assert_eq!(log[..3], ["redlock_acquire", "CLIENT KILL", "redlock_acquire"]);
    assert!(stage.store.nodes().iter().all(|node| node.state() == NodeState::Voting));
    stage.settle();
    // One that hangs costs a majority nothing: it is down.
    stage.clock.advance(KEEPALIVE_PAUSE + Duration::from_secs(1));
    stage.forget();
    stage.masters[1].next("redlock_renew", [Does::Stalls(2)]);
    let renewed = stage.store.renew(&[stage.renewal(&holder, 0)]);
    assert!(matches!(renewed[..], [Renewed::Held { .. }]), "{renewed:?}");
    assert_eq!(stage.asked("redlock_renew"), [1, 1, 1]);
    assert_eq!(stage.store.nodes()[1].state(), NodeState::Down);
    assert!(stage.store.nodes[1].probe());
    wait_until("time stands still", || stage.masters[1].connections() == 1);
    // Without a pause before, silence is that of the masters.
    stage.store.renew(&[stage.renewal(&holder, 0)]);
    stage.settle();
    stage.masters[0].next("redlock_renew", [Does::Waits]);
    stage.masters[1].next("redlock_renew", [Does::Waits]);
    stage.masters[2].next("redlock_renew", [Does::Stalls(0)]);
    stage.forget();
    let renewed = stage.store.renew(&[stage.renewal(&holder, 0)]);
    assert!(matches!(renewed[..], [Renewed::Failed(_)]), "{renewed:?}");
    wait_until("all have it", || stage.asked("redlock_renew") == [1, 1, 1]);
}

/// As one that ends while it is idle.
#[test]
fn an_unread_connection_that_ends_says_nothing_about_its_master() {
    let stage = Stage::new(3);
    let (holder, node) = (stage.holder(), &stage.store.nodes[2]);
    // It has been idle.
    assert!(asked(node).is_some());
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&holder).0);
    stage.masters[2].cut();
    node.read_unread();
    assert!(node.health().1.is_none(), "{:?}", node.health());
    assert!(node.may_still_run(&holder));
    assert!(asked(node).is_some() && !node.may_still_run(&holder));
}

/// A question to one master waits for it, because no other one can answer.
#[test]
fn a_question_to_one_master_is_asked_although_it_is_slow() {
    let stage = Stage::new(3);
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&stage.holder()).0);
    assert!(stage.while_time_passes(|| asked(&stage.store.nodes[2])).is_some());
    assert_eq!(stage.masters[2].connects(), 2);
    stage.masters[2].let_run(true);
}

/// Soon it will have a free connection: a new one for each round would soon be too many.
#[test]
fn a_slow_master_is_waited_for_a_moment() {
    let stage = Stage::new(3);
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&stage.holder()).0);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| asked(&stage.store.nodes[2]).is_some());
        std::thread::sleep(Duration::from_millis(5));
        stage.masters[2].let_run(true);
        assert!(waits.join().unwrap());
    });
    assert_eq!(stage.masters[2].connects(), 1);
}

#[test]
fn a_failed_request_of_an_undecided_round_says_what_is_unknown() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    let token = stage.locked(&holder);
    stage.masters[1].next("redlock_renew", [Does::Stalls(2)]);
    let renewed = stage.store.renew(&[stage.renewal(&holder, token)]);
    assert!(matches!(renewed[..], [Renewed::Held { .. }]), "{renewed:?}");
    assert_eq!(stage.store.nodes()[1].state(), NodeState::Down);
    let error = stage.store.nodes()[1].last_error().unwrap().clone();
    assert!(error.message().contains("io_timeout"), "{error}");
    // The others are enough until it is back.
    let busy = stage.lock(&stage.holder()).0.unwrap();
    assert!(matches!(busy, Acquired::Busy { .. }), "{busy:?}");
}

#[test]
fn a_closed_master_keeps_no_connection() {
    let stage = Stage::new(3);
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&stage.holder()).0);
    let call = stage.store.nodes[0].send(None, ping).unwrap();
    stage.store.close();
    assert!(call.finish(ping).is_ok(), "what is under way is read");
    stage.masters[2].let_run(true);
    wait_until("all have ended", || stage.masters.iter().all(|m| m.connections() == 0));
    let error = not_sent(stage.store.nodes[0].send(None, ping).err());
    assert_eq!(error.kind(), ErrorKind::Closed);
}

/// Otherwise every call of an outage would have to be undone there.
#[test]
fn what_was_to_go_over_a_connection_that_had_ended_was_not_sent() {
    let stage = Stage::new(1);
    stage.masters[0].goes_down();
    let error = not_sent(stage.store.nodes[0].send(Some(&stage.holder()), ping).err());
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

/// Nor does it count as one that did not answer where a majority needs it.
#[test]
fn what_a_majority_needs_is_sent_again_over_a_new_connection() {
    let stage = Stage::new(1);
    assert!(asked(&stage.store.nodes[0]).is_some());
    stage.masters[0].cut();
    let call = stage.store.nodes[0].send_anyway(None, ping);
    assert!(call.and_then(|call| call.finish(ping)).is_ok());
}
