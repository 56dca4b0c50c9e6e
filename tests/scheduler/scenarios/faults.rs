//! Lost replies, and stores that cannot be reached.

use std::time::Duration;

use leasehold::os::thread::sleep;
use leasehold::testing::{Failure, Operation};
use leasehold::{ErrorKind, LockClient};

use crate::book::{As, pause};
use crate::stage::{Stage, choose, join_all};

/// Takes the lock if the store is reachable, runs a section, and releases it. A release without a
/// reply is repeated in the background.
fn section_if_reached(stage: &Stage, client: &LockClient) {
    let guard = match client.lock("job") {
        Ok(guard) => guard,
        Err(e) => return assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}"),
    };
    let token = guard.fencing_token().expect("a mutex has tokens").get();
    stage.book.section("job", As::Writer, Some(token), &guard);
    if let Err(e) = guard.unlock() {
        assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}");
    }
}

/// Requests of unknown outcome are resolved long before a lease ends.
fn is_free(stage: &Stage) {
    for client in [&stage.one, &stage.other] {
        let guard =
            client.try_lock_for("job", Duration::from_secs(10)).expect("the store answers again");
        guard.expect("nothing is left of it").unlock().expect("it is held");
    }
}

fn any_failure() -> Failure {
    [Failure::BeforeItRan, Failure::AfterItRan][choose(2)]
}

/// Any two requests fail.
pub(crate) fn lost_replies() {
    let stage = Stage::new();
    (0..2).for_each(|_| {
        stage.faults.fail_next([Operation::Acquire, Operation::Release][choose(2)], any_failure());
    });
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            for _ in 0..2 {
                section_if_reached(&stage, stage.client(is_one));
            }
        })
    }));
    is_free(&stage);
    stage.end();
}

/// The same for readers and writers.
pub(crate) fn lost_replies_of_readers() {
    let stage = Stage::new();
    (0..2).for_each(|_| {
        stage.faults.fail_next([Operation::Acquire, Operation::Release][choose(2)], any_failure());
    });
    let unreachable = |e: &leasehold::Error| assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}");
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).rw_lock("job").read().inspect_err(unreachable);
            if let Ok(guard) = guard {
                stage.book.section("job", As::Reader, None, &guard);
                let _ = guard.unlock().inspect_err(unreachable);
            }
            let guard = stage.client(is_one).rw_lock("job").write().inspect_err(unreachable);
            if let Ok(guard) = guard {
                stage.book.section("job", As::Writer, None, &guard);
                let _ = guard.unlock().inspect_err(unreachable);
            }
        })
    }));
    for client in [&stage.one, &stage.other] {
        let guard = client
            .rw_lock("job")
            .try_write_for(Duration::from_secs(10))
            .expect("the store answers again");
        guard.expect("nothing is left of it").unlock().expect("it is held");
    }
    stage.end();
}

/// The same for a fair lock, whose queue entries are left behind.
pub(crate) fn lost_replies_in_a_queue() {
    let stage = Stage::new();
    (0..2).for_each(|_| {
        stage.faults.fail_next([Operation::Acquire, Operation::Release][choose(2)], any_failure());
    });
    let unreachable = |e: &leasehold::Error| assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}");
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let timeout = [Duration::from_millis(1), Duration::from_secs(10)][choose(2)];
            let guard =
                stage.client(is_one).fair("job").try_lock_for(timeout).inspect_err(unreachable);
            if let Ok(Some(guard)) = guard {
                stage.book.section("job", As::Writer, None, &guard);
                let _ = guard.unlock().inspect_err(unreachable);
            }
        })
    }));
    for client in [&stage.one, &stage.other] {
        let guard = client
            .fair("job")
            .try_lock_for(Duration::from_secs(10))
            .expect("the store answers again");
        guard.expect("nothing is left of it").unlock().expect("it is held");
    }
    stage.end();
}

/// Grants that no replica confirmed are undone by releases that run late. The holder must not be
/// used again: a new grant to it would be removed by such a release.
pub(crate) fn unconfirmed() {
    let stage = Stage::new();
    for _ in 0..2 {
        stage.faults.fail_next(Operation::Acquire, Failure::NotConfirmed);
    }
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            for _ in 0..2 {
                let guard = match stage.client(is_one).lock("job") {
                    Ok(guard) => guard,
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}");
                        continue;
                    }
                };
                let token = guard.fencing_token().expect("a mutex has tokens").get();
                stage.book.enter("job", As::Writer, Some(token));
                // Longer than the late releases take.
                sleep(Duration::from_millis(3));
                stage.book.leave("job", As::Writer);
                guard.unlock().expect("nobody took it away");
            }
        })
    }));
    is_free(&stage);
    stage.end();
}

/// The store is unreachable for a while, and all subscriptions end.
pub(crate) fn cut() {
    let stage = Stage::new();
    let threads = [true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            for _ in 0..2 {
                section_if_reached(&stage, stage.client(is_one));
            }
        })
    });
    pause();
    stage.faults.cut(Duration::from_millis([1, 300][choose(2)]));
    join_all(threads);
    sleep(Duration::from_millis(300));
    is_free(&stage);
    stage.end();
}

/// A client that cannot subscribe for a while gets the lock nevertheless.
pub(crate) fn unheard() {
    let stage = Stage::new();
    for _ in 0..3 {
        stage.faults.fail_next(Operation::Subscribe, any_failure());
    }
    let busy = [(); 2].map(|()| {
        stage.spawn(|stage| {
            for _ in 0..200 {
                let guard = stage.one.lock("job").expect("it becomes free");
                sleep(Duration::from_millis(1));
                guard.unlock().expect("it is held");
            }
        })
    });
    sleep(Duration::from_millis(3));
    let guard = stage.other.lock("job").expect("the store answers");
    stage.book.section("job", As::Writer, None, &guard);
    guard.unlock().expect("it is held");
    join_all(busy);
    stage.end();
}

/// Two threads of a client wait when the store goes away. The one that comes later has had a reply
/// from before: it tells the leader that the store answers, and not for ever.
pub(crate) fn cut_from_waiters() {
    let stage = Stage::new();
    stage.one.latch("start").set_count(1).expect("the store answers");
    let waiters = [(); 2].map(|()| {
        stage.spawn(|stage| match stage.one.latch("start").wait() {
            Ok(()) => {}
            // Its first request.
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}"),
        })
    });
    pause();
    stage.faults.cut(Duration::from_secs(1));
    sleep(Duration::from_secs(2));
    stage.other.latch("start").count_down().expect("the store answers again");
    join_all(waiters);
    stage.end();
}
