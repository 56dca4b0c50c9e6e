//! Plain locks that nothing takes away.

use crate::book::As;
use crate::stage::{Stage, join_all};

/// Takes the lock, is inside, and releases it.
fn section(stage: &Stage, client: &leasehold::LockClient) {
    let guard = client.lock("job").expect("it is free some time");
    let token = guard.fencing_token().expect("a mutex has tokens").get();
    stage.book.section("job", As::Writer, Some(token), &guard);
    guard.unlock().expect("it is held");
}

/// Three threads of a client.
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
    join_all(
        threads.map(|is_one| stage.spawn(move |stage| section(&stage, if is_one { &stage.one } else { &stage.other }))),
    );
    assert_eq!(stage.book.sections("job"), 4);
    stage.end();
}

/// Threads that come back: hand-overs meet new callers.
pub(crate) fn rounds() {
    let stage = Stage::new();
    join_all([0, 1, 2].map(|n| {
        stage.spawn(move |stage| {
            for _ in 0..3 {
                section(&stage, if n == 2 { &stage.other } else { &stage.one });
            }
        })
    }));
    assert_eq!(stage.book.sections("job"), 9);
    stage.end();
}
