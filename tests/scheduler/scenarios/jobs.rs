//! Scheduled jobs: one success for each occurrence.

use std::time::Duration;

use leasehold::testing::{Failure, Operation};
use leasehold::{ErrorKind, LockClient, Once, Settled};

use crate::book::pause;
use crate::stage::{Stage, choose, join_all};

/// Starts the occurrence until it is settled. Returns how often that has recorded a success.
fn start(client: &LockClient, label: &str) -> u32 {
    let job = client.once("report", label).attempts(99);
    loop {
        let outcome = job.run(|_| {
            pause();
            Ok::<_, ()>(())
        });
        match outcome {
            Ok(Once::Done(())) => return 1,
            Ok(Once::AlreadyDone { .. } | Once::Passed { .. }) => return 0,
            Ok(Once::Running { .. } | Once::Unrecorded((), _)) => {}
            // Others took the lease again and again, or the request failed.
            Err(e) if matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::NotReady) => {}
            // It was taken away before the attempt began.
            Err(e) if e.kind() == ErrorKind::Lost => {}
            other => panic!("{other:?}"),
        }
        let _ = job.wait_done_for(Duration::from_millis(20));
    }
}

fn start_on_three(stage: &Stage, labels: &'static [&'static str]) -> u32 {
    let threads = [true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            labels.iter().map(|label| start(stage.client(is_one), label)).sum::<u32>()
        })
    });
    join_all(threads).into_iter().sum()
}

fn is_done(stage: &Stage, label: &str) -> bool {
    let settled = stage.one.once("report", label).wait_done_for(Duration::ZERO);
    matches!(settled, Ok(Some(Settled::Done { .. })))
}

/// Three threads start two occurrences, one after the other.
pub(crate) fn once_each() {
    let stage = Stage::new();
    assert_eq!(start_on_three(&stage, &["1", "2"]), 2, "each is done once");
    assert!(is_done(&stage, "1") && is_done(&stage, "2"));
    stage.end();
}

/// The lease is taken away at any time: of two runs of one occurrence, one is recorded.
pub(crate) fn losses() {
    let stage = Stage::new();
    let thief = stage.spawn(|stage| {
        for _ in 0..2 {
            (0..choose(4)).for_each(|_| pause());
            let _ = stage.faults.lose("report");
        }
    });
    assert_eq!(start_on_three(&stage, &["1"]), 1, "it is recorded once");
    assert!(is_done(&stage, "1"));
    join_all([thief]);
    stage.end();
}

/// Two requests, or their replies, are lost. An end whose reply is lost is repeated, so its caller
/// knows that it is recorded.
pub(crate) fn lost_replies() {
    let stage = Stage::new();
    (0..2).for_each(|_| {
        let failure = [Failure::BeforeItRan, Failure::AfterItRan][choose(2)];
        let operations = [Operation::Acquire, Operation::Release, Operation::Inspect];
        stage.faults.fail_next(operations[choose(3)], failure);
    });
    assert_eq!(start_on_three(&stage, &["1"]), 1, "who has done it knows that");
    assert!(is_done(&stage, "1"));
    stage.end();
}
