//! Readers and writers.

use leasehold::LockClient;

use crate::book::{As, pause};
use crate::stage::{Stage, choose, join_all};

fn read(stage: &Stage, client: &LockClient) {
    let guard = client.rw_lock("job").read().expect("it is free some time");
    stage.book.section("job", As::Reader, None, &guard);
    guard.unlock().expect("it is held");
}

fn write(stage: &Stage, client: &LockClient) {
    let guard = client.rw_lock("job").write().expect("it is free some time");
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
    let readers = [true, true, false].map(|is_one| stage.spawn(move |stage| read(&stage, stage.client(is_one))));
    let writer = stage.spawn(|stage| write(&stage, &stage.other));
    join_all(readers);
    join_all([writer]);
    stage.end();
}

/// A writer becomes a reader, beside readers that wait and writers that wait.
pub(crate) fn downgrade() {
    let stage = Stage::new();
    let writer = stage.spawn(|stage| {
        let guard = stage.one.rw_lock("job").write().expect("it is free some time");
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

/// Owned read guards of a shared hold, which end on other threads.
pub(crate) fn owned_readers() {
    let stage = Stage::new();
    let readers = [true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).rw_lock("job").read_owned().expect("it is free some time");
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
