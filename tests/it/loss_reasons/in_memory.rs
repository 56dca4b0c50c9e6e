//! With a clock that the test moves: each reason, at its exact time, for each kind of guard.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use leasehold::testing::{Failure, Faults, Operation};
use leasehold::{ErrorKind, Held, LockClient, Loss, LossReason};

use super::{lost, told, troubles};
use crate::rig::{CAP, wait_until};

const LEASE: Duration = Duration::from_secs(30);
/// An allowance for the real time that a test takes.
const A_MOMENT: Duration = Duration::from_secs(8);

fn stage() -> (LockClient, Faults) {
    let client = LockClient::in_memory();
    let faults = Faults::of(&client).unwrap();
    (client, faults)
}

/// One hold of each kind, and the name under which it is stored.
fn guards(client: &LockClient) -> Vec<(Box<dyn Held>, &'static str)> {
    client.semaphore("s").try_set_permits(1).unwrap();
    vec![
        (Box::new(client.lock("m").unwrap()), "m"),
        (Box::new(client.fair("f").lock_owned().unwrap()), "f"),
        (Box::new(client.rw_lock("r").read().unwrap()), "r"),
        (Box::new(client.rw_lock("w").write_owned().unwrap()), "w"),
        (Box::new(client.semaphore("s").acquire().unwrap()), "s"),
        (Box::new(client.multi(["a", "b"]).lock().unwrap()), "b"),
    ]
}

fn all(guards: &[(Box<dyn Held>, &str)]) -> Vec<Receiver<Loss>> {
    guards.iter().map(|(guard, _)| told(&**guard)).collect()
}

fn about(time: Duration, wanted: Duration) -> bool {
    time + Duration::from_secs(1) > wanted && time < wanted + A_MOMENT
}

#[test]
fn a_machine_that_was_suspended() {
    let (client, faults) = stage();
    let guards = guards(&client);
    let before = all(&guards);
    faults.advance(LEASE * 100);
    for ((guard, _), before) in guards.iter().zip(&before) {
        let loss = lost(&**guard, before, LossReason::NotRenewed, None);
        assert!(loss.to_string().contains("suspended or too busy"), "{loss}");
        assert!(
            loss.held_for() > LEASE * 9 / 10 && loss.held_for() <= LEASE,
            "until its lease ended: {loss}"
        );
    }
}

#[test]
fn a_store_that_cannot_be_reached() {
    let (client, faults) = stage();
    let guards = guards(&client);
    let before = all(&guards);
    let trouble: Vec<_> = guards.iter().map(|(guard, _)| troubles(&**guard)).collect();
    faults.cut(LEASE * 10);
    for ((guard, name), trouble) in guards.iter().zip(&trouble) {
        let first = trouble.recv_timeout(CAP).expect("the first renewal fails");
        assert_eq!(first.error().kind(), ErrorKind::Unreachable, "{name}");
        assert!(guard.is_held() && about(LEASE, first.remaining()), "{name}: {first}");
        // A late callback runs at once.
        assert!(troubles(&**guard).recv_timeout(CAP).is_ok(), "{name}");
    }
    faults.advance(LEASE);
    for ((guard, name), before) in guards.iter().zip(&before) {
        let loss = lost(&**guard, before, LossReason::NotRenewed, Some(ErrorKind::Unreachable));
        assert!(about(loss.held_for(), LEASE), "{name}: {loss}");
    }
    assert!(trouble.iter().all(|trouble| trouble.try_recv().is_err()), "reported once");
}

/// The end may come before a renewal, during one, or after it.
#[test]
fn an_end_during_a_renewal_that_fails_is_reported() {
    let (client, faults) = stage();
    for round in 1..=20 {
        let guards: Vec<_> =
            (0..50).map(|n| client.mutex(n.to_string()).lock_owned().unwrap()).collect();
        faults.cut(LEASE * 2);
        for _ in 0..500 {
            faults.advance(LEASE / 500);
        }
        // Nobody asks the guards, and none has a callback: they would find the loss themselves.
        wait_until("all are reported", || client.stats().total().lost() == 50 * round);
        drop(guards);
        faults.advance(LEASE * 2);
        wait_until("unknown outcomes are undone", || client.stats().unknown_outcomes() == 0);
    }
}

#[test]
fn what_the_store_has_given_to_others() {
    let (client, faults) = stage();
    let guards = guards(&client);
    let before = all(&guards);
    faults.advance(LEASE / 2);
    wait_until("they are renewed", || {
        guards.iter().all(|(guard, _)| guard.remaining() > LEASE * 3 / 4)
    });
    for ((guard, name), before) in guards.iter().zip(&before) {
        assert!(faults.lose(name), "{name}");
        let loss = lost(&**guard, before, LossReason::TakenAway, None);
        assert!(about(loss.held_for(), LEASE / 2), "{name}: {loss}");
    }
}

#[test]
fn leases_that_end_as_they_were_asked_to() {
    let (client, faults) = stage();
    let fixed = client.mutex("fixed").with_lease(LEASE * 4).lock().unwrap();
    let read = client.rw_lock("rw").with_lease(LEASE * 4).read().unwrap();
    let most = client.mutex("most").max_hold(LEASE * 2).lock().unwrap();
    let set = client.multi(["a", "b"]).max_hold(LEASE * 2).lock().unwrap();
    let before = [told(&fixed), told(&read), told(&most), told(&set)];
    for _ in 0..2 {
        faults.advance(LEASE * 2 / 3);
        wait_until("they are renewed", || {
            [most.remaining(), set.remaining()].iter().all(|left| *left > LEASE / 2)
        });
    }
    faults.advance(LEASE);
    // Past the max_hold: it is still checked, but no longer renewed.
    faults.advance(LEASE / 2);
    let loss = lost(&most, &before[2], LossReason::MaxHold, None);
    assert!(loss.held_for() >= LEASE * 2, "{loss}");
    lost(&set, &before[3], LossReason::MaxHold, None);
    assert!(fixed.is_held());
    faults.advance(LEASE * 2);
    let loss = lost(&fixed, &before[0], LossReason::FixedLease, None);
    assert!(loss.held_for() > LEASE * 3 && loss.held_for() <= LEASE * 4, "{loss}");
    lost(&read, &before[1], LossReason::FixedLease, None);
}

/// A hold with a `max_hold` that could not be renewed long before that.
#[test]
fn an_outage_before_its_max_hold_is_the_reason() {
    let (client, faults) = stage();
    let most = client.mutex("most").max_hold(LEASE * 20).lock().unwrap();
    let (before, trouble) = (told(&most), troubles(&most));
    faults.cut(LEASE * 10);
    trouble.recv_timeout(CAP).unwrap();
    faults.advance(LEASE);
    lost(&most, &before, LossReason::NotRenewed, Some(ErrorKind::Unreachable));
}

#[test]
fn trouble_is_told_once_for_each_row() {
    let (client, faults) = stage();
    let guard = client.lock("m").unwrap();
    let set = client.multi(["a", "b"]).lock().unwrap();
    let fixed = client.mutex("fixed").with_lease(LEASE * 100).lock().unwrap();
    let [one, all, none] = [troubles(&guard), troubles(&set), troubles(&fixed)];
    let gone = client.lock("m").unwrap();
    let of_gone = troubles(&gone);
    drop(gone);
    for round in 0..3 {
        faults.cut(LEASE * 10);
        assert!(one.recv_timeout(CAP).is_ok() && all.recv_timeout(CAP).is_ok(), "round {round}");
        // More renewals fail.
        for _ in 0..3 {
            faults.cut(LEASE * 10);
        }
        faults.cut(Duration::ZERO);
        faults.advance(LEASE / 3);
        wait_until("they are renewed", || {
            [guard.remaining(), set.remaining()].iter().all(|left| *left > LEASE * 3 / 4)
        });
        assert!([&one, &all, &none].iter().all(|told| told.try_recv().is_err()), "round {round}");
    }
    assert!(of_gone.try_recv().is_err(), "its guard was released");
    // After the outage the lease ends by a pause: the error of the outage is not the cause.
    let before = told(&guard);
    faults.advance(LEASE * 2);
    lost(&guard, &before, LossReason::NotRenewed, None);
}

/// A renewal whose reply is lost, and the next one succeeds: no loss, one renewal trouble.
#[test]
fn a_renewal_that_fails_once_is_forgotten_with_the_next() {
    let (client, faults) = stage();
    let guard = client.lock("m").unwrap();
    let trouble = troubles(&guard);
    faults.fail_next(Operation::Renew, Failure::AfterItRan);
    faults.advance(LEASE / 2);
    assert!(trouble.recv_timeout(CAP).is_ok());
    wait_until("it is renewed", || guard.remaining() > LEASE * 3 / 4);
    assert!(faults.lose("m"));
    assert!(guard.wait_lost(CAP).is_lost());
    assert_eq!(guard.loss().unwrap().cause().map(leasehold::Error::kind), None);
}
