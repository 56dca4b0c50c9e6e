//! Plain locks whose holds are never lost.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::time::Duration;

use leasehold::LockClient;
use leasehold::os::thread::sleep;
use leasehold::testing::{Failure, Operation};

use crate::book::{As, pause};
use crate::stage::{OnPurpose, Stage, choose, join_all};

/// Takes the lock, runs a section, and releases it.
fn section(stage: &Stage, client: &LockClient) {
    let guard = client.lock("job").expect("it becomes free");
    let token = guard.fencing_token().expect("a mutex has tokens").get();
    stage.book.section("job", As::Writer, Some(token), &guard);
    guard.unlock().expect("it is held");
}

/// Three threads of one client.
pub(crate) fn one_name() {
    let stage = Stage::new();
    join_all([(); 3].map(|()| stage.spawn(|stage| section(&stage, &stage.one))));
    assert_eq!(stage.book.sections("job"), 3);
    stage.end();
}

/// Two threads of each of two clients.
pub(crate) fn two_clients() {
    let stage = Stage::new();
    let threads = [true, false, true, false];
    join_all(threads.map(|is_one| stage.spawn(move |stage| section(&stage, stage.client(is_one)))));
    assert_eq!(stage.book.sections("job"), 4);
    stage.end();
}

/// Threads that lock again and again, so that hand-overs meet new callers.
pub(crate) fn rounds() {
    let stage = Stage::new();
    join_all([0, 1, 2].map(|n| {
        stage.spawn(move |stage| (0..3).for_each(|_| section(&stage, stage.client(n != 2))))
    }));
    assert_eq!(stage.book.sections("job"), 9);
    stage.end();
}

/// Calls whose timeout ends about when the lock becomes free: either they take it, or it stays
/// free.
pub(crate) fn deadlines() {
    leasehold::os::deadlines_race();
    let stage = Stage::new();
    let threads = [0, 1, 2].map(|n| {
        stage.spawn(move |stage| {
            let timeout = Duration::from_micros([50, 700, 3000][choose(3)]);
            let client = stage.client(n != 2);
            if let Some(guard) = client.try_lock_for("job", timeout).expect("the store answers") {
                let token = guard.fencing_token().expect("a mutex has tokens").get();
                stage.book.section("job", As::Writer, Some(token), &guard);
                sleep(Duration::from_micros(600));
                guard.unlock().expect("it is held");
            }
        })
    });
    join_all(threads);
    // Nothing keeps the lock from later callers.
    section(&stage, &stage.one);
    section(&stage, &stage.other);
    stage.end();
}

/// The leader of a queue and the waiter behind it give up at about the same time: the role is not
/// lost between them, and the waiter behind both gets the lock.
pub(crate) fn same_deadline() {
    leasehold::os::deadlines_race();
    let stage = Stage::new();
    let guard = stage.other.lock("job").expect("it is free");
    let give_up = [(); 2].map(|()| {
        stage.spawn(|stage| {
            let taken =
                stage.one.try_lock_for("job", Duration::from_millis(1)).expect("the store answers");
            assert!(taken.is_none(), "another client has it");
        })
    });
    let stays = stage.spawn(|stage| section(&stage, &stage.one));
    join_all(give_up);
    drop(guard);
    join_all([stays]);
    stage.end();
}

/// A thread re-enters a lock that it holds, while others wait.
pub(crate) fn re_entry() {
    let stage = Stage::new();
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let client = stage.client(is_one);
            let outer = client.lock("job").expect("it becomes free");
            let token = outer.fencing_token().expect("a mutex has tokens").get();
            stage.book.enter("job", As::Writer, Some(token));
            let inner =
                client.try_lock("job").expect("the store answers").expect("its own thread has it");
            assert_eq!(inner.hold_count(), 2);
            pause();
            // In either order, as Rust drops them.
            if choose(2) == 0 {
                drop(inner);
                assert!(outer.is_held());
                stage.book.leave("job", As::Writer);
                drop(outer);
            } else {
                drop(outer);
                assert!(inner.is_held());
                stage.book.leave("job", As::Writer);
                drop(inner);
            }
        })
    }));
    stage.end();
}

/// Guards that are dropped on another thread than the one that took them.
pub(crate) fn owned() {
    let stage = Stage::new();
    let threads = [true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).mutex("job").lock_owned().expect("it becomes free");
            let token = guard.fencing_token().expect("a mutex has tokens").get();
            stage.book.section("job", As::Writer, Some(token), &guard);
            stage.spawn(move |_| drop(guard))
        })
    });
    join_all(join_all(threads));
    stage.end();
}

/// A section that panics releases its hold, while others wait for it.
pub(crate) fn panics_in_a_section() {
    let stage = Stage::new();
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let guard = stage.client(is_one).lock("job").expect("it becomes free");
                let token = guard.fencing_token().expect("a mutex has tokens").get();
                stage.book.section("job", As::Writer, Some(token), &guard);
                if choose(2) == 0 {
                    panic_any(OnPurpose);
                }
            }));
        })
    }));
    assert_eq!(stage.book.sections("job"), 3);
    stage.end();
}

/// A lock that stays taken for a while after its guard is dropped. Nobody gets it earlier.
pub(crate) fn min_hold() {
    let stage = Stage::new();
    let least = Duration::from_millis(20);
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let began = leasehold::os::now();
            let guard =
                stage.client(is_one).mutex("job").min_hold(least).lock().expect("it becomes free");
            let token = guard.fencing_token().expect("a mutex has tokens").get();
            stage.book.section("job", As::Writer, Some(token), &guard);
            guard.unlock().expect("it is held");
            leasehold::os::since(began)
        })
    }));
    // It is kept a third time, and becomes free by itself.
    let began = leasehold::os::now();
    section(&stage, &stage.other);
    assert!(leasehold::os::since(began) >= least / 2, "it was kept for the last of them");
    stage.end();
}

/// While three threads of one client never leave the lock free, the thread of another gets it.
pub(crate) fn shares() {
    let stage = Stage::new();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_done =
        |done: &std::sync::atomic::AtomicBool| done.load(std::sync::atomic::Ordering::SeqCst);
    let busy = [(); 3].map(|()| {
        let done = done.clone();
        stage.spawn(move |stage| {
            while !is_done(&done) {
                let guard = stage.one.lock("job").expect("it becomes free");
                // Time passes only when no thread can run, so the scheduler cannot keep the other
                // client from the lock.
                sleep(Duration::from_millis(1));
                guard.unlock().expect("it is held");
            }
        })
    });
    sleep(Duration::from_millis(5));
    let guard =
        stage.other.try_lock_for("job", Duration::from_millis(500)).expect("the store answers");
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    drop(guard.expect("a client beside another gets its share"));
    join_all(busy);
    stage.end();
}

/// The same for a client that receives no messages, three times in a row.
pub(crate) fn shares_with_the_deaf() {
    let stage = Stage::new();
    for _ in 0..500 {
        stage.faults.fail_next(Operation::Subscribe, Failure::BeforeItRan);
    }
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let busy = [(); 3].map(|()| {
        let done = done.clone();
        stage.spawn(move |stage| {
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                let guard = stage.one.lock("job").expect("it becomes free");
                sleep(Duration::from_millis(1));
                guard.unlock().expect("it is held");
            }
        })
    });
    sleep(Duration::from_millis(5));
    let taken = [(); 3].map(|()| {
        stage
            .other
            .try_lock_for("job", Duration::from_secs(2))
            .expect("the store answers")
            .is_some()
    });
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(taken, [true; 3], "a client without messages gets its share");
    join_all(busy);
    stage.end();
}
