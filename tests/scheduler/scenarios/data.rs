//! The data of holds.

use std::sync::Arc;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::testing::{Failure, Operation};

use crate::book::pause;
use crate::stage::{Stage, choose, join_all, wait_until};

/// What everybody sees while this thread has the lock.
fn shown(stage: &Stage) -> Option<Vec<u8>> {
    let holder = stage.other.mutex("job").holder().expect("the store answers");
    holder.expect("this thread has it").data().map(<[u8]>::to_vec)
}

/// Threads that hand the lock to each other, some with data and some without.
pub(crate) fn each_has_its_own() {
    let stage = Stage::new();
    join_all([Some(0), Some(1), None, Some(3)].map(|own: Option<u8>| {
        stage.spawn(move |stage| {
            let mutex = stage.client(own != Some(3)).mutex("job");
            let mutex = own.map_or(mutex.clone(), |own| mutex.with_data([own]));
            for turn in 0..2 {
                let guard = mutex.lock().expect("it becomes free");
                assert_eq!(shown(&stage), own.map(|own| vec![own]), "of another, or none");
                pause();
                if let Some(own) = own {
                    guard.set_data([own, turn]).expect("it is held");
                    assert_eq!(shown(&stage), Some(vec![own, turn]));
                }
                guard.unlock().expect("it is held");
            }
        })
    }));
    stage.end();
}

/// Two threads that have one guard replace its data, and requests are lost: what a thread has
/// written is shown until something later is.
pub(crate) fn replaced_by_two() {
    let stage = Stage::new();
    let mutex = stage.one.mutex("job").with_data("begins");
    let guard = Arc::new(mutex.lock_owned().expect("nobody has it"));
    (0..choose(3)).for_each(|_| {
        let failure = [Failure::BeforeItRan, Failure::AfterItRan][choose(2)];
        stage.faults.fail_next(Operation::Data, failure);
    });
    join_all([0, 1].map(|thread: u8| {
        let guard = guard.clone();
        stage.spawn(move |stage| {
            for turn in 0..3 {
                match guard.set_data([thread, turn]) {
                    Ok(()) => {
                        let shown = shown(&stage).expect("it has data");
                        let is_older = shown[0] == thread && shown[1] < turn;
                        assert!(!is_older && shown.len() == 2, "{shown:?} came back");
                    }
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}"),
                }
            }
        })
    }));
    wait_until("nobody else has the guard", || Arc::strong_count(&guard) == 1);
    guard.set_data("ends").expect("the store answers again");
    Arc::into_inner(guard).expect("nobody else has it").unlock().expect("it is held");
    let last = stage.other.mutex("job").last_holder().expect("the store answers");
    assert_eq!(last.expect("it had data").data(), b"ends");
    stage.end();
}

/// Grants and releases are lost, or a grant is taken back late: whoever gets the lock has its data.
pub(crate) fn lost_replies() {
    let stage = Stage::new();
    (0..2).for_each(|_| match choose(3) {
        0 => stage.faults.fail_next(Operation::Acquire, Failure::NotConfirmed),
        1 => stage.faults.fail_next(Operation::Acquire, Failure::AfterItRan),
        _ => stage.faults.fail_next(Operation::Release, Failure::AfterItRan),
    });
    join_all([0, 1, 2].map(|own: u8| {
        stage.spawn(move |stage| {
            let mutex = stage.client(own < 2).mutex("job").with_data([own]);
            for _ in 0..2 {
                match mutex.lock() {
                    Ok(guard) => {
                        assert_eq!(shown(&stage), Some(vec![own]));
                        let _ = guard.unlock();
                    }
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}"),
                }
            }
        })
    }));
    let free = stage.other.try_lock_for("job", Duration::from_secs(10));
    free.expect("the store answers again").expect("nothing is left").unlock().expect("held");
    stage.end();
}
