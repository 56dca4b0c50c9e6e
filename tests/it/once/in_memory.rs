//! Faults that a test asks for: each request of a run is lost, or its reply.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use leasehold::testing::{Failure, Faults, Operation};
use leasehold::{ErrorKind, Every, LockClient, LossReason, Once, Primitive, Settled};

use crate::rig::{ms, wait_until};

const FAILURES: [Failure; 2] = [Failure::BeforeItRan, Failure::AfterItRan];

#[test]
fn a_lost_request_or_reply_records_at_most_one_success() {
    let client = LockClient::in_memory();
    let faults = Faults::of(&client).unwrap();
    let runs = Cell::new(0);
    let run = |label: &str| {
        client.once("report", label).run(|_| {
            runs.set(runs.get() + 1);
            Ok::<_, ()>(())
        })
    };
    for (n, failure) in FAILURES.into_iter().enumerate() {
        // The end is repeated until it is known.
        let label = format!("{n}-0");
        faults.fail_next(Operation::Release, failure);
        assert!(matches!(run(&label).unwrap(), Once::Done(())), "{failure:?}");
        assert!(matches!(run(&label).unwrap(), Once::AlreadyDone { .. }), "{failure:?}");
        assert_eq!(runs.take(), 1);
        // The look, and the lease: nothing has run.
        for (label, operation) in [("1", Operation::Inspect), ("2", Operation::Acquire)] {
            let label = format!("{n}-{label}");
            faults.fail_next(operation, failure);
            assert_eq!(run(&label).unwrap_err().kind(), ErrorKind::Unreachable);
            faults.settle();
            assert_eq!(runs.take(), 0);
            assert!(matches!(run(&label).unwrap(), Once::Done(())), "the lease is free");
            assert_eq!(runs.take(), 1);
        }
    }
    assert!(faults.held().is_empty());
}

#[test]
fn the_time_of_a_test_passes_for_jobs_too() {
    let client = LockClient::in_memory();
    let faults = Faults::of(&client).unwrap();
    let hour = Duration::from_secs(3600);
    let job = client.once("report", Every::new(hour)).keep(hour / 2).pause(ms(60_000));
    let run = || job.run(|run| Ok::<_, ()>(run.occurrence().to_owned())).unwrap();
    let Once::Done(first) = run() else { panic!("nobody has done it") };
    faults.advance(hour);
    let Once::Done(second) = run() else { panic!("the next hour is due") };
    assert!(second > first);
    faults.advance(hour / 2 + ms(1));
    // Its record has expired, and it is over all the same; or the next hour has begun.
    assert!(matches!(
        client.once("report", &*second).wait_done_for(Duration::ZERO).unwrap(),
        Some(Settled::Passed { .. })
    ));
    let other = client.once("other", "1").pause(ms(60_000));
    assert!(matches!(other.run(|_| Err::<(), _>(())).unwrap(), Once::Failed(())));
    assert!(matches!(other.run(|_| Ok::<_, ()>(())).unwrap(), Once::Pausing { .. }));
    faults.advance(ms(60_000));
    assert!(matches!(other.run(|_| Ok::<_, ()>(())).unwrap(), Once::Done(())));
}

#[test]
fn all_occurrences_of_a_job_have_one_row_of_figures() {
    let runner = LockClient::in_memory();
    let waiter = LockClient::in_memory_shared(&runner).unwrap();
    for occurrence in ["1", "2", "3"] {
        thread::scope(|scope| {
            let run = runner.once("report", occurrence).run(|_| {
                scope.spawn(|| waiter.once("report", occurrence).wait_done().unwrap());
                wait_until("it is waited for", || waiter.stats().waiting() == 1);
                Ok::<_, ()>(())
            });
            assert!(matches!(run.unwrap(), Once::Done(())));
        });
    }
    for (client, holds, waits) in [(&runner, 3, 0), (&waiter, 0, 3)] {
        let stats = client.stats();
        assert_eq!(stats.names().len(), 1, "{stats}");
        let figures = stats.name("report", Primitive::Once).unwrap();
        let counted = (figures.calls(), figures.holds().count(), figures.waits().count());
        assert_eq!(counted, (3, holds, waits), "{stats}");
        let page = stats.to_prometheus();
        let mut seen = BTreeSet::new();
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        for (sample, _) in samples.filter_map(|line| line.rsplit_once(' ')) {
            assert!(seen.insert(sample), "{sample} is there twice");
        }
    }
}

#[test]
fn a_test_sees_who_runs_a_job_and_takes_its_lease_away() {
    let builder = LockClient::builder().key_prefix("app:");
    let client = builder.clone().build_in_memory().unwrap();
    let waiter = builder.build_in_memory_shared(&client).unwrap();
    let faults = Faults::of(&client).unwrap();
    for name in ["report", "re{por}t"] {
        let job = client.once(name, "a:1").attempts(1);
        let run = thread::scope(|scope| {
            job.run(|run| {
                assert_eq!(faults.held(), [name]);
                scope.spawn(|| waiter.once(name, "a:1").attempts(1).wait_done().unwrap());
                wait_until("it is waited for", || faults.listeners(name) == 1);
                assert!(faults.lose(name) && !run.is_held());
                assert!(!faults.lose(name) && faults.held().is_empty());
                Ok::<_, ()>(())
            })
        });
        let Once::Unrecorded((), why) = run.unwrap() else { panic!("its lease was lost") };
        assert_eq!(why.kind(), ErrorKind::Lost);
    }
    let stats = client.stats();
    let figures = stats.name("report", Primitive::Once).unwrap();
    assert_eq!(figures.lost_by(LossReason::TakenAway), 1, "{stats}");
}
