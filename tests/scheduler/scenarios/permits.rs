//! Semaphores and latches.

use std::time::Duration;

use leasehold::ErrorKind;

use crate::book::{As, pause};
use crate::stage::{Stage, join_all, wait_until};

/// Two permits with leases for four threads.
pub(crate) fn semaphore() {
    let stage = Stage::new();
    stage.one.semaphore("pool").try_set_permits(2).expect("the store answers");
    join_all([true, true, false, false].map(|is_one| {
        stage.spawn(move |stage| {
            let permit =
                stage.client(is_one).semaphore("pool").acquire().expect("one becomes free");
            stage.book.section("pool", As::Permit(2), None, &permit);
            permit.release().expect("it is held");
        })
    }));
    assert_eq!(stage.one.semaphore("pool").available_permits().expect("the store answers"), 2);
    stage.end();
}

/// Permits without leases: calls that take several permits compete with calls that take few.
pub(crate) fn counting() {
    let stage = Stage::new();
    stage.one.counting_semaphore("pool").try_set_permits(2).expect("the store answers");
    join_all([(true, 2), (true, 1), (false, 2)].map(|(is_one, permits)| {
        stage.spawn(move |stage| {
            let semaphore = stage.client(is_one).counting_semaphore("pool");
            let taken = semaphore.acquire_many(permits).expect("they become free");
            for _ in 0..permits {
                stage.book.enter("pool", As::Permit(2), None);
            }
            pause();
            for _ in 0..permits {
                stage.book.leave("pool", As::Permit(2));
            }
            taken.release().expect("they are taken");
        })
    }));
    let semaphore = stage.one.counting_semaphore("pool");
    assert_eq!(semaphore.available_permits().expect("the store answers"), 2);
    assert!(semaphore.delete().expect("the store answers"));
    stage.end();
}

/// Permits that are added while threads wait for them.
pub(crate) fn added() {
    let stage = Stage::new();
    assert!(
        stage
            .one
            .counting_semaphore("pool")
            .try_set_permits(0)
            .expect("the store answers")
            .is_new()
    );
    let waiting = [true, false].map(|is_one| {
        stage.spawn(move |stage| {
            stage
                .client(is_one)
                .counting_semaphore("pool")
                .acquire()
                .expect("it is added")
                .release()
                .expect("taken");
        })
    });
    pause();
    stage.other.counting_semaphore("pool").add_permits(1).expect("the store answers");
    join_all(waiting);
    assert!(stage.one.counting_semaphore("pool").delete().expect("the store answers"));
    stage.end();
}

/// A client is closed while a thread gives its permits back: one of the two does it. No lease would
/// ever bring them back.
pub(crate) fn closed_as_they_are_given_back() {
    let stage = Stage::new();
    stage.one.counting_semaphore("pool").try_set_permits(2).expect("the store answers");
    let taken = stage.one.counting_semaphore("pool").acquire_many(2).expect("they are free");
    let closes =
        stage.spawn(|stage| stage.one.close(Duration::from_secs(1)).expect("it closes in time"));
    let gives_back = stage.spawn(move |_| match taken.release() {
        Ok(()) => {}
        Err(e) => assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
    });
    join_all([closes, gives_back]);
    let semaphore = stage.other.counting_semaphore("pool");
    assert_eq!(semaphore.available_permits().expect("the store answers"), 2);
    stage.end();
}

/// All waiters continue after the last count.
pub(crate) fn latch() {
    let stage = Stage::new();
    stage.one.latch("start").set_count(2).expect("the store answers");
    let waiting = [true, false].map(|is_one| {
        stage.spawn(move |stage| stage.client(is_one).latch("start").wait().expect("it opens"))
    });
    let counting = [true, false].map(|is_one| {
        stage.spawn(move |stage| {
            stage.client(is_one).latch("start").count_down().expect("the store answers")
        })
    });
    join_all(waiting);
    let mut left = join_all(counting);
    left.sort_unstable();
    assert_eq!(left, [0, 1]);
    wait_until("it is open", || stage.one.latch("start").try_wait().expect("the store answers"));
    stage.end();
}
