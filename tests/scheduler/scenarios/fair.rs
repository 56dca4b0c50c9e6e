//! Fair locks: first come, first served.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::os::thread::sleep;
use leasehold::testing::{Failure, Operation};
use leasehold::{ErrorKind, OwnedFairMutexGuard};

use crate::book::As;
use crate::stage::{Stage, choose, join_all, wait_until};

/// Waiters are served in the order of their arrival, whichever client they belong to.
pub(crate) fn order() {
    let stage = Stage::new();
    let guard = stage.other.fair("job").lock().expect("it is free");
    let came = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for n in 0..3_usize {
        let came = came.clone();
        threads.push(stage.spawn(move |stage| {
            let guard = stage.client(n != 1).fair("job").lock().expect("its turn comes");
            let token = guard.fencing_token().expect("a fair lock has tokens").get();
            came.lock().expect("no thread panics").push(n);
            stage.book.section("job", As::Writer, Some(token), &guard);
            guard.unlock().expect("it is held");
        }));
        // It is in the queue before the next one arrives.
        wait_until("it is in the queue", || {
            stage.one.fair("job").queue_len().expect("the store answers") > n
        });
    }
    guard.unlock().expect("it is held");
    join_all(threads);
    assert_eq!(*came.lock().expect("no thread panics"), [0, 1, 2]);
    stage.end();
}

/// Threads of two clients, one of which gives up; the order is not checked.
pub(crate) fn gives_up() {
    leasehold::os::deadlines_race();
    let stage = Stage::new();
    join_all([0, 1, 2].map(|n| {
        stage.spawn(move |stage| {
            let fair = stage.client(n != 2).fair("job");
            let timeout =
                Duration::from_micros(if n == 0 { [30, 500][choose(2)] } else { 500_000 });
            match fair.try_lock_for(timeout) {
                Ok(Some(guard)) => {
                    stage.book.section("job", As::Writer, None, &guard);
                    guard.unlock().expect("it is held");
                }
                Ok(None) => assert_eq!(n, 0, "it had time"),
                Err(e) => panic!("the store answers: {e} ({:?})", ErrorKind::Unreachable),
            }
        })
    }));
    assert_eq!(stage.one.fair("job").queue_len().expect("the store answers"), 0);
    stage.end();
}

/// A process is stopped for longer than a place lasts. If its waiter was given the lock meanwhile,
/// it reads the message too late: the lock may be another's.
pub(crate) fn granted_late() {
    let stage = Stage::new();
    let guard = stage.other.fair("job").lock().expect("it is free");
    let believers: Arc<Mutex<Vec<Arc<OwnedFairMutexGuard>>>> = Arc::default();
    let mut threads = Vec::new();
    for is_one in [true, false] {
        let believers = believers.clone();
        threads.push(stage.spawn(move |stage| {
            let guard = stage.client(is_one).fair("job").lock_owned().expect("its turn comes");
            let guard = Arc::new(guard);
            let others = {
                let mut believers = believers.lock().expect("no thread panics");
                believers.push(guard.clone());
                believers.clone()
            };
            for other in others.iter().filter(|other| !Arc::ptr_eq(other, &guard)) {
                // Asked first: it has had its hold for longer.
                let both = other.is_held() && guard.is_held();
                assert!(!both, "two believe: {other:?} and {guard:?}");
            }
            drop(others);
            sleep(Duration::from_micros(100));
            believers.lock().expect("no thread panics").retain(|known| !Arc::ptr_eq(known, &guard));
        }));
    }
    wait_until("both are in the queue", || {
        stage.one.fair("job").queue_len().expect("the store answers") == 2
    });
    // A place lasts for 5 s, a lease for 30.
    threads.push(stage.spawn(|stage| stage.faults.advance(Duration::from_secs(7))));
    guard.unlock().expect("it is held");
    join_all(threads);
    stage.end();
}

/// A release gives the lock to another thread of its client, and the answer is lost.
pub(crate) fn given_within_its_client() {
    let stage = Stage::new();
    let guard = stage.one.fair("job").lock().expect("it is free");
    let waiter = stage.spawn(|stage| {
        let guard = stage.one.fair("job").lock().expect("its turn comes");
        stage.book.section("job", As::Writer, None, &guard);
        guard.unlock().expect("it is held");
    });
    wait_until("it is in the queue", || {
        stage.other.fair("job").queue_len().expect("the store answers") == 1
    });
    let failure = [Failure::BeforeItRan, Failure::AfterItRan][choose(2)];
    stage.faults.fail_next(Operation::Release, failure);
    guard.unlock().expect_err("the answer is lost");
    join_all([waiter]);
    stage.end();
}
