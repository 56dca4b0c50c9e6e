//! Readers and writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use leasehold::{CancelToken, ErrorKind, LockClient};

use crate::book::{As, pause};
use crate::stage::{Stage, choose, join_all, wait_until};

fn read(stage: &Stage, client: &LockClient) {
    let guard = client.rw_lock("job").read().expect("it becomes free");
    stage.book.section("job", As::Reader, None, &guard);
    guard.unlock().expect("it is held");
}

fn write(stage: &Stage, client: &LockClient) {
    let guard = client.rw_lock("job").write().expect("it becomes free");
    stage.book.section("job", As::Writer, None, &guard);
    guard.unlock().expect("it is held");
}

/// Readers of one client share a hold; the writer gets in.
pub(crate) fn readers_of_one() {
    let stage = Stage::new();
    let readers = [(); 3].map(|()| stage.spawn(|stage| read(&stage, &stage.one)));
    let writer = stage.spawn(|stage| write(&stage, &stage.one));
    join_all(readers);
    join_all([writer]);
    stage.end();
}

pub(crate) fn readers_of_two() {
    let stage = Stage::new();
    let readers = [true, true, false]
        .map(|is_one| stage.spawn(move |stage| read(&stage, stage.client(is_one))));
    let writer = stage.spawn(|stage| write(&stage, &stage.other));
    join_all(readers);
    join_all([writer]);
    stage.end();
}

/// A writer waits between two readers of its client: the second reader must not join the hold of
/// the first one past the writer.
pub(crate) fn nobody_passes_a_writer() {
    let stage = Stage::new();
    let earlier = stage.other.rw_lock("job").write().expect("it is free");
    let has_written = Arc::new(AtomicBool::new(false));
    let queue_up = |place: usize, run: fn(&Stage, &AtomicBool)| {
        let has_written = has_written.clone();
        let thread = stage.spawn(move |stage| run(&stage, &has_written));
        wait_until("it waits", || stage.one.snapshot().waits().len() == place);
        thread
    };
    let waiters = [
        queue_up(1, |stage, _| read(stage, &stage.one)),
        queue_up(2, |stage, has_written| {
            let guard = stage.one.rw_lock("job").write().expect("it becomes free");
            has_written.store(true, Ordering::Release);
            stage.book.section("job", As::Writer, None, &guard);
            guard.unlock().expect("it is held");
        }),
        queue_up(3, |stage, has_written| {
            let guard = stage.one.rw_lock("job").read().expect("it becomes free");
            assert!(
                has_written.load(Ordering::Acquire),
                "a reader has passed the writer queued before it"
            );
            guard.unlock().expect("it is held");
        }),
    ];
    // In most schedules each waiter has left its acquire in the queue after this.
    pause();
    earlier.unlock().expect("it is held");
    join_all(waiters);
    stage.end();
}

/// A writer becomes a reader while other readers and writers wait.
pub(crate) fn downgrade() {
    let stage = Stage::new();
    let writer = stage.spawn(|stage| {
        let guard = stage.one.rw_lock("job").write().expect("it becomes free");
        stage.book.section("job", As::Writer, None, &guard);
        let guard = guard.downgrade().expect("it is held");
        stage.book.section("job", As::Reader, None, &guard);
        guard.unlock().expect("it is held");
    });
    let reader = stage.spawn(|stage| read(&stage, stage.client(choose(2) == 0)));
    let other = stage.spawn(|stage| write(&stage, stage.client(choose(2) == 0)));
    join_all([writer, reader, other]);
    stage.end();
}

/// Owned read guards of a shared hold, which are dropped on other threads.
pub(crate) fn owned_readers() {
    let stage = Stage::new();
    let readers = [true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).rw_lock("job").read_owned().expect("it becomes free");
            stage.book.section("job", As::Reader, None, &guard);
            stage.spawn(move |_| {
                pause();
                drop(guard);
            })
        })
    });
    let writer = stage.spawn(|stage| write(&stage, &stage.one));
    join_all(join_all(readers));
    join_all([writer]);
    stage.end();
}

/// A reader that leaves sends the acquire of the writer behind it, and the reply is "busy" because
/// a reader of the other client holds the lock. When that one leaves, its message goes to the
/// waiters of a queue that no longer exists: the writer has not subscribed yet.
pub(crate) fn answered_before_it_listens() {
    let stage = Stage::new();
    let earlier = stage.other.rw_lock("job").write().expect("it is free");
    let waits = stage.spawn(|stage| write(&stage, &stage.one));
    wait_until("it waits", || stage.one.snapshot().waits().len() == 1);
    earlier.unlock().expect("it is held");
    join_all([waits]);
    let other = stage.other.rw_lock("job").read().expect("it is free");
    let reader = stage.spawn(|stage| read(&stage, &stage.one));
    let writer = stage.spawn(|stage| write(&stage, &stage.one));
    pause();
    other.unlock().expect("it is held");
    join_all([reader, writer]);
    stage.end();
}

/// A reader is cancelled at the moment when the leader of its queue lets it join: it must not take
/// itself for a leader. With two leaders on one event, one of them clears the latch of the other:
/// the two readers at the end never meet inside the lock.
pub(crate) fn cancelled_as_it_joins() {
    let stage = Stage::new();
    let earlier = stage.other.rw_lock("job").write().expect("it is free");
    let token = CancelToken::new();
    let inside = Arc::new(AtomicU32::new(0));
    let queue_up = |place: usize, run: Box<dyn FnOnce(Stage) + Send>| {
        let thread = stage.spawn(run);
        wait_until("it waits", || stage.one.snapshot().waits().len() == place);
        thread
    };
    let meets = || {
        let inside = inside.clone();
        Box::new(move |stage: Stage| {
            let guard = stage.one.rw_lock("job").read().expect("it becomes free");
            inside.fetch_add(1, Ordering::SeqCst);
            // Readers may be in the lock at the same time.
            wait_until("the other reader gets in", || inside.load(Ordering::SeqCst) == 2);
            guard.unlock().expect("it is held");
        })
    };
    let cancelled = token.clone();
    let waiters = [
        queue_up(1, Box::new(|stage| read(&stage, &stage.one))),
        queue_up(
            2,
            Box::new(move |stage| match stage.one.rw_lock("job").with_cancel(&cancelled).read() {
                Ok(guard) => guard.unlock().expect("it is held"),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Cancelled),
            }),
        ),
        queue_up(3, Box::new(|stage| write(&stage, &stage.one))),
        queue_up(4, meets()),
        queue_up(5, meets()),
    ];
    pause();
    let cancels = stage.spawn(move |_| token.cancel());
    earlier.unlock().expect("it is held");
    join_all(waiters);
    join_all([cancels]);
    stage.end();
}
