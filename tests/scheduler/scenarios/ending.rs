//! Calls that are ended while they wait, and clients that are closed.

use std::time::Duration;

use leasehold::{CancelToken, ErrorKind, LockClient};

use crate::book::{As, pause};
use crate::stage::{Stage, join_all};

fn section(stage: &Stage, client: &LockClient) {
    let guard = client.lock("job").expect("it becomes free");
    let token = guard.fencing_token().expect("a mutex has tokens").get();
    stage.book.section("job", As::Writer, Some(token), &guard);
    guard.unlock().expect("it is held");
}

/// A cancelled call takes nothing with it: the waiters behind it get the lock.
pub(crate) fn cancel() {
    let stage = Stage::new();
    let token = CancelToken::new();
    let cancelled = [true, false].map(|is_one| {
        let token = token.clone();
        stage.spawn(move |stage| {
            match stage.client(is_one).mutex("job").with_cancel(&token).lock() {
                Ok(guard) => {
                    stage.book.section("job", As::Writer, None, &guard);
                    guard.unlock().expect("it is held");
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::Cancelled),
            }
        })
    });
    let others =
        [true, true].map(|is_one| stage.spawn(move |stage| section(&stage, stage.client(is_one))));
    pause();
    token.cancel();
    join_all(cancelled);
    join_all(others);
    stage.end();
}

/// The same within one client, whose threads hand the lock to each other: a call that is cancelled
/// at that very moment either gets the lock, or the next waiter does.
pub(crate) fn cancel_at_a_hand_over() {
    let stage = Stage::new();
    let token = CancelToken::new();
    let guard = stage.one.lock("job").expect("it is free");
    let cancelled = stage.spawn({
        let token = token.clone();
        move |stage| match stage.one.mutex("job").with_cancel(&token).lock() {
            Ok(guard) => guard.unlock().expect("it is held"),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Cancelled),
        }
    });
    let cancels = stage.spawn(move |_| token.cancel());
    pause();
    guard.unlock().expect("it is held");
    section(&stage, &stage.one);
    join_all([cancelled, cancels]);
    stage.end();
}

/// A client is closed while its threads hold the lock, wait for it and ask for it. The other client
/// continues.
pub(crate) fn close() {
    let stage = Stage::new();
    let closed = [(); 2].map(|()| {
        stage.spawn(|stage| match stage.one.lock("job") {
            Ok(guard) => {
                pause();
                match guard.unlock() {
                    Ok(()) => {}
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Closed),
                }
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::Closed),
        })
    });
    let other = stage.spawn(|stage| section(&stage, &stage.other));
    pause();
    stage.one.close(Duration::from_secs(1)).expect("it closes in time");
    join_all(closed);
    join_all([other]);
    stage.end();
}

/// Two threads close a client at the same time.
pub(crate) fn close_twice() {
    let stage = Stage::new();
    let guard = stage.one.lock("job").expect("it is free");
    let closing = [(); 2].map(|()| stage.spawn(|stage| stage.one.close(Duration::from_secs(1))));
    let waits = stage.spawn(|stage| section(&stage, &stage.other));
    for closed in join_all(closing) {
        closed.expect("it closes in time");
    }
    join_all([waits]);
    assert!(!guard.is_held());
    drop(guard);
    stage.end();
}

/// Waiting calls are ended; holds are kept, and the client continues to work.
pub(crate) fn stop_waiting() {
    let stage = Stage::new();
    let guard = stage.other.lock("job").expect("it is free");
    let waiting = [(); 2].map(|()| {
        stage.spawn(|stage| match stage.one.lock("job") {
            Ok(guard) => {
                stage.book.section("job", As::Writer, None, &guard);
                drop(guard);
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::Closed),
        })
    });
    pause();
    stage.one.stop_waiting();
    assert!(guard.is_held());
    drop(guard);
    join_all(waiting);
    stage.end();
}

/// A thread ends with a guard that it forgot: the next waiter gets the lock.
pub(crate) fn thread_exit() {
    let stage = Stage::new();
    let forgets = [true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).lock("job").expect("it becomes free");
            stage.book.section("job", As::Writer, None, &guard);
            std::mem::forget(guard);
        })
    });
    let after = stage.spawn(|stage| section(&stage, &stage.one));
    join_all(forgets);
    join_all([after]);
    stage.end();
}

/// The last handle of a client is dropped while its thread holds a lock, without a close, and
/// nothing is left behind.
pub(crate) fn last_handle() {
    let stage = Stage::new();
    let gone = LockClient::in_memory_shared(&stage.one).expect("it is in memory");
    let guard = gone.lock("job").expect("it is free");
    let waits = stage.spawn(|stage| section(&stage, &stage.one));
    drop(gone);
    pause();
    assert!(guard.is_held());
    drop(guard);
    join_all([waits]);
    stage.end();
}
