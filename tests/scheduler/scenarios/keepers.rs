//! A hold is passed to a thread of its client that does not take it: it is never left without an
//! owner.

use std::time::Duration;

use leasehold::os::thread::sleep;
use leasehold::{ErrorKind, LockClient};

use crate::book::{As, pause};
use crate::stage::{Stage, join_all};

const SHORT: Duration = Duration::from_millis(1);

fn section(stage: &Stage, client: &LockClient) {
    let guard = client.lock("job").expect("it becomes free");
    let token = guard.fencing_token().expect("a mutex has tokens").get();
    stage.book.section("job", As::Writer, Some(token), &guard);
    guard.unlock().expect("it is held");
}

/// The waiters give up at the moment when the hold is passed to them.
pub(crate) fn times_out() {
    leasehold::os::deadlines_race();
    let stage = Stage::new();
    let guard = stage.one.lock("job").expect("it is free");
    let give_up = [(); 2].map(|()| {
        stage.spawn(|stage| {
            if let Some(guard) = stage.one.try_lock_for("job", SHORT).expect("the store answers") {
                stage.book.section("job", As::Writer, None, &guard);
                guard.unlock().expect("it is held");
            }
        })
    });
    let other = stage.spawn(|stage| section(&stage, &stage.other));
    sleep(SHORT);
    guard.unlock().expect("it is held");
    join_all(give_up);
    join_all([other]);
    stage.end();
}

/// The client is closed during the hand-over.
pub(crate) fn is_closed() {
    let stage = Stage::new();
    let guard = stage.one.lock("job").expect("it is free");
    let waits = stage.spawn(|stage| match stage.one.lock("job") {
        Ok(guard) => drop(guard),
        Err(e) => assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
    });
    let closes =
        stage.spawn(|stage| stage.one.close(Duration::from_secs(1)).expect("it closes in time"));
    let other = stage.spawn(|stage| section(&stage, &stage.other));
    pause();
    if let Err(e) = guard.unlock() {
        assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
    }
    join_all([waits, closes, other]);
    stage.end();
}

/// The client stops its waiting calls, and keeps its holds.
pub(crate) fn waits_no_more() {
    let stage = Stage::new();
    let guard = stage.one.lock("job").expect("it is free");
    let waits = stage.spawn(|stage| match stage.one.lock("job") {
        Ok(guard) => drop(guard),
        Err(e) => assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
    });
    let stops = stage.spawn(|stage| stage.one.stop_waiting());
    let other = stage.spawn(|stage| section(&stage, &stage.other));
    pause();
    guard.unlock().expect("it is held");
    join_all([waits, stops, other]);
    stage.end();
}

/// The lock is freed by force while the hold is unused: the next one to get it is alone.
pub(crate) fn is_forced() {
    let stage = Stage::new();
    let threads = [(); 3].map(|()| {
        stage.spawn(|stage| match stage.one.lock("job").expect("it becomes free").unlock() {
            Ok(()) => {}
            Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{e}"),
        })
    });
    pause();
    if stage.one.mutex("job").force_unlock().expect("the store answers")
        && let Some(guard) = stage.other.try_lock("job").expect("the store answers")
    {
        assert!(
            stage.one.try_lock("job").expect("the store answers").is_none(),
            "another client has it"
        );
        guard.unlock().expect("it is held");
    }
    join_all(threads);
    stage.end();
}
