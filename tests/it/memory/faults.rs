//! Faults that a test injects into a store in memory, and how each kind of guard reacts.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use leasehold::testing::{Failure, Faults, Operation};
use leasehold::{ErrorKind, LockClient, Result};

use crate::contract::primitives::{Guard, Held, PRIMITIVES, Primitive};
use crate::rig::wait_until;

/// The default lease.
const LEASE: Duration = Duration::from_secs(30);
/// Anything that takes longer has waited for a timer.
const AT_ONCE: Duration = Duration::from_secs(3);
const NAME: &str = "job";

/// Two clients on a store of their own.
struct Stage {
    primitive: &'static Primitive,
    one: LockClient,
    other: LockClient,
    faults: Faults,
    began: Instant,
}

impl Stage {
    fn new(primitive: &'static Primitive) -> Self {
        let one = LockClient::in_memory();
        let (other, faults) =
            (LockClient::in_memory_shared(&one).unwrap(), Faults::of(&one).unwrap());
        (primitive.prepare)(&one, NAME);
        Self { primitive, one, other, faults, began: Instant::now() }
    }

    fn lock(&self, client: &LockClient) -> Result<Guard> {
        (self.primitive.open)(client.clone(), NAME, None).lock()
    }

    fn try_lock(&self, client: &LockClient) -> Result<Option<Guard>> {
        (self.primitive.open)(client.clone(), NAME, None).try_lock()
    }
}

/// Runs the test with everything that can be an exclusive lock.
fn for_all(point: impl Fn(&Stage)) {
    for primitive in
        PRIMITIVES.iter().filter(|primitive| primitive.masters == 1 && !primitive.over_tls)
    {
        println!("{}", primitive.label);
        let stage = Stage::new(primitive);
        point(&stage);
        assert!(stage.began.elapsed() < LEASE / 3, "{} has waited for a timer", primitive.label);
        wait_until(&format!("{} leaves nothing", primitive.label), || {
            stage.faults.held().is_empty()
        });
    }
}

fn told(guard: &dyn Held) -> Receiver<()> {
    let (tell, told) = channel();
    guard.on_lost(Box::new(move |_| {
        let _ = tell.send(());
    }));
    told
}

#[track_caller]
fn assert_lost(primitive: &str, guard: Guard, told: &Receiver<()>) {
    assert!(guard.wait_lost(AT_ONCE).is_lost(), "{primitive}: wait_lost");
    assert!(told.recv_timeout(AT_ONCE).is_ok(), "{primitive}: on_lost");
    assert!(!guard.is_held() && guard.remaining().is_zero(), "{primitive}: is_held");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{primitive}: unlock");
}

#[test]
fn time_that_the_clock_is_moved_by_ends_leases() {
    for_all(|stage| {
        let primitive = stage.primitive.label;
        let guard = stage.lock(&stage.one).unwrap();
        let told = told(&*guard);
        stage.faults.advance(LEASE * 2 / 3);
        assert!(guard.remaining() > LEASE / 2, "{primitive}: renewed at once");
        stage.faults.advance(LEASE * 2 / 3);
        assert!(guard.is_held(), "{primitive}: renewed in between");
        stage.faults.advance(LEASE);
        assert!(!guard.is_held(), "{primitive}: known at once");
        assert_lost(primitive, guard, &told);
        stage.lock(&stage.other).unwrap().unlock().unwrap();
    });
}

#[test]
fn a_fixed_lease_ends_when_the_clock_is_moved_past_it() {
    for_all(|stage| {
        let lock = (stage.primitive.open)(stage.one.clone(), NAME, Some(LEASE * 10));
        let guard = lock.lock().unwrap();
        let told = told(&*guard);
        stage.faults.advance(LEASE * 9);
        assert!(guard.is_held(), "{}", stage.primitive.label);
        stage.faults.advance(LEASE);
        assert_lost(stage.primitive.label, guard, &told);
    });
}

#[test]
fn a_lost_lock_is_told_in_every_way_and_goes_to_whoever_waits() {
    for_all(|stage| {
        let primitive = stage.primitive.label;
        let guard = stage.lock(&stage.one).unwrap();
        let told = told(&*guard);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| stage.lock(&stage.other).unwrap().unlock());
            wait_until("the other waits", || stage.faults.listeners(NAME) > 0);
            assert!(stage.faults.lose(NAME), "{primitive}");
            // A multi-lock is lost with the first of its locks; the others are free when the guard
            // is dropped.
            assert_lost(primitive, guard, &told);
            waiter.join().unwrap().unwrap();
        });
        assert!(!stage.faults.lose(NAME), "{primitive}: nobody holds it");
    });
}

/// The holder has died: nobody releases it.
#[test]
fn a_waiter_gets_in_when_the_clock_is_moved_past_the_lease() {
    for_all(|stage| {
        let lock = (stage.primitive.open)(stage.one.clone(), NAME, Some(LEASE * 2));
        let guard = lock.lock().unwrap();
        std::thread::scope(|s| {
            let waiters = [&stage.one, &stage.other]
                .map(|client| s.spawn(|| stage.lock(client).unwrap().unlock()));
            wait_until("the other waits", || stage.faults.listeners(NAME) > 0);
            stage.faults.advance(LEASE * 2);
            for waiter in waiters {
                waiter.join().unwrap().unwrap();
            }
        });
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn a_cut_that_ends_in_time_costs_no_lock() {
    for_all(|stage| {
        let primitive = stage.primitive.label;
        let guard = stage.lock(&stage.one).unwrap();
        stage.faults.cut(LEASE / 2);
        assert_eq!(
            stage.try_lock(&stage.other).map(drop).unwrap_err().kind(),
            ErrorKind::Unreachable,
            "{primitive}"
        );
        assert_eq!(guard.extend(LEASE).unwrap_err().kind(), ErrorKind::Unreachable, "{primitive}");
        assert!(guard.is_held(), "{primitive}");
        stage.faults.advance(LEASE / 2);
        wait_until("it is renewed", || guard.remaining() > LEASE * 3 / 4);
        guard.unlock().unwrap();
    });
}

#[test]
fn a_cut_that_lasts_for_longer_than_the_lease_costs_it() {
    for_all(|stage| {
        let primitive = stage.primitive.label;
        let guard = stage.lock(&stage.one).unwrap();
        let told = told(&*guard);
        stage.faults.cut(LEASE * 2);
        stage.faults.advance(LEASE);
        assert_lost(primitive, guard, &told);
        stage.faults.cut(Duration::ZERO);
        stage.lock(&stage.other).unwrap().unlock().unwrap();
    });
}

#[test]
fn a_waiter_rides_out_a_cut() {
    for_all(|stage| {
        let guard = stage.lock(&stage.one).unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| stage.lock(&stage.other).unwrap().unlock());
            wait_until("the other waits", || stage.faults.listeners(NAME) > 0);
            stage.faults.cut(LEASE / 2);
            stage.faults.advance(LEASE / 2);
            guard.unlock().unwrap();
            waiter.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_failed_acquire_leaves_nothing() {
    for_all(|stage| {
        let primitive = stage.primitive.label;
        for failure in [Failure::BeforeItRan, Failure::AfterItRan] {
            stage.faults.fail_next(Operation::Acquire, failure);
            let error = stage.try_lock(&stage.one).map(drop).unwrap_err();
            assert_eq!(
                (error.kind(), error.name().is_some()),
                (ErrorKind::Unreachable, true),
                "{primitive}: {failure:?}"
            );
            wait_until(&format!("{primitive}: {failure:?} is undone"), || {
                stage.faults.held().is_empty()
            });
            stage.try_lock(&stage.other).unwrap().expect(primitive).unlock().unwrap();
        }
    });
}

#[test]
fn a_failed_release_frees_all_the_same() {
    for_all(|stage| {
        let primitive = stage.primitive.label;
        for failure in [Failure::BeforeItRan, Failure::AfterItRan] {
            let guard = stage.lock(&stage.one).unwrap();
            stage.faults.fail_next(Operation::Release, failure);
            assert_eq!(
                guard.unlock().unwrap_err().kind(),
                ErrorKind::Unreachable,
                "{primitive}: {failure:?}"
            );
            wait_until(&format!("{primitive}: {failure:?} frees it"), || {
                stage.faults.held().is_empty()
            });
        }
    });
}

#[test]
fn a_failed_renewal_is_tried_again() {
    for_all(|stage| {
        let primitive = stage.primitive.label;
        let guard = stage.lock(&stage.one).unwrap();
        for failure in [Failure::BeforeItRan, Failure::AfterItRan] {
            stage.faults.fail_next(Operation::Renew, failure);
            stage.faults.advance(LEASE / 2);
            wait_until(&format!("{primitive}: renewed after {failure:?}"), || {
                guard.remaining() > LEASE * 3 / 4
            });
        }
        guard.unlock().unwrap();
    });
}

#[test]
fn a_waiter_whose_try_fails_gets_in_all_the_same() {
    for failure in [Failure::BeforeItRan, Failure::AfterItRan] {
        for_all(|stage| {
            let guard = stage.lock(&stage.one).unwrap();
            std::thread::scope(|s| {
                let waiter = s.spawn(|| stage.lock(&stage.other).unwrap().unlock());
                wait_until("the other waits", || stage.faults.listeners(NAME) > 0);
                stage.faults.fail_next(Operation::Acquire, failure);
                guard.unlock().unwrap();
                waiter.join().unwrap().unwrap();
            });
        });
    }
}

#[test]
fn readers_are_lost_together() {
    let client = LockClient::in_memory();
    let (other, faults) =
        (LockClient::in_memory_shared(&client).unwrap(), Faults::of(&client).unwrap());
    let (one, two) =
        (client.rw_lock(NAME).read().unwrap(), other.rw_lock(NAME).read_owned().unwrap());
    std::thread::scope(|s| {
        let writer = s.spawn(|| other.rw_lock(NAME).write().unwrap().unlock());
        wait_until("the writer waits", || faults.listeners(NAME) > 0);
        assert!(faults.lose(NAME));
        writer.join().unwrap().unwrap();
    });
    assert!(one.wait_lost(AT_ONCE).is_lost() && two.wait_lost(AT_ONCE).is_lost());
    drop((one, two));
    let guard = client.rw_lock(NAME).write().unwrap().downgrade().unwrap();
    faults.advance(LEASE);
    assert!(guard.wait_lost(AT_ONCE).is_lost());
}

#[test]
fn counts_meet_faults_once() {
    let client = LockClient::in_memory();
    let (latch, faults) = (client.latch("start"), Faults::of(&client).unwrap());
    latch.set_count(2).unwrap();
    faults.fail_next(Operation::Count, Failure::BeforeItRan);
    assert_eq!(latch.count_down().unwrap_err().kind(), ErrorKind::Unreachable);
    faults.fail_next(Operation::Count, Failure::AfterItRan);
    assert_eq!(latch.count_down().unwrap(), 1, "repeated, but counted once");

    let permits = client.counting_semaphore("slots");
    permits.try_set_permits(2).unwrap();
    faults.fail_next(Operation::Acquire, Failure::AfterItRan);
    assert_eq!(permits.try_acquire().unwrap_err().kind(), ErrorKind::Unreachable);
    wait_until("the acquired permits are returned", || permits.available_permits().unwrap() == 2);
    let permit = permits.acquire().unwrap();
    faults.fail_next(Operation::Release, Failure::AfterItRan);
    let _ = permit.release();
    wait_until("returned once", || permits.available_permits().unwrap() == 2);
    faults.advance(Duration::from_secs(3600));
    assert_eq!(permits.available_permits().unwrap(), 2);
}

#[test]
fn who_waits_for_a_latch_rides_out_a_cut() {
    let client = LockClient::in_memory();
    let (other, faults) =
        (LockClient::in_memory_shared(&client).unwrap(), Faults::of(&client).unwrap());
    client.latch("start").set_count(1).unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| other.latch("start").wait());
        wait_until("it is waited for", || faults.listeners("start") > 0);
        faults.cut(LEASE);
        faults.cut(Duration::ZERO);
        assert_eq!(client.latch("start").count_down().unwrap(), 0);
        waiter.join().unwrap().unwrap();
    });
    faults.fail_next(Operation::Inspect, Failure::BeforeItRan);
    assert_eq!(other.latch("start").count().unwrap_err().kind(), ErrorKind::Unreachable);
    faults.fail_next(Operation::ForceUnlock, Failure::BeforeItRan);
    assert_eq!(other.mutex("x").force_unlock().unwrap_err().kind(), ErrorKind::Unreachable);
    faults.fail_next(Operation::Fence, Failure::AfterItRan);
    let token = client.lock("x").unwrap().fencing_token().unwrap();
    assert_eq!(client.fenced_value("v").claim(token).unwrap_err().kind(), ErrorKind::Unreachable);
    client.fenced_value("v").claim(token).unwrap();
}

/// By far more than a waiter's queue entry is kept without another attempt.
#[test]
fn a_fair_lock_keeps_its_order_when_the_clock_is_moved() {
    let client = LockClient::in_memory();
    let faults = Faults::of(&client).unwrap();
    let others = [(); 3].map(|()| LockClient::in_memory_shared(&client).unwrap());
    let guard = client.fair(NAME).lock().unwrap();
    let (tell, order) = channel();
    std::thread::scope(|s| {
        for (n, other) in others.iter().enumerate() {
            let tell = tell.clone();
            s.spawn(move || {
                let guard = other.fair(NAME).lock().unwrap();
                tell.send(n).unwrap();
                guard.unlock().unwrap();
            });
            wait_until("it is in the queue", || client.fair(NAME).queue_len().unwrap() == n + 1);
        }
        faults.advance(LEASE / 2);
        assert!(faults.lose(NAME));
    });
    drop(tell);
    assert_eq!(order.iter().collect::<Vec<_>>(), [0, 1, 2]);
    assert!(guard.wait_lost(AT_ONCE).is_lost());
}
