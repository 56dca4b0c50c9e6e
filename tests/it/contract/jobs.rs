//! Scheduled jobs: one success for each occurrence, on every store but Redlock.

use std::cell::Cell;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use leasehold::crossbeam_channel::unbounded;
use leasehold::{ErrorKind, Every, LockClient, Once, ScheduledJob, Settled};

use super::case::Case;
use super::network::Network;
use super::{LONG, SOON};
use crate::rig::{CAP, Fault, ms, wait_until};

fn clients<const COUNT: usize>(case: &Case) -> [LockClient; COUNT] {
    std::array::from_fn(|n| {
        case.client(|builder| builder.lease(LONG).owner(format!("machine {n}")))
    })
}

/// Runs it, and fails if that is refused.
#[track_caller]
fn do_it(job: &ScheduledJob) -> u32 {
    match job.run(|run| Ok::<_, Infallible>(run.attempt())).unwrap() {
        Once::Done(attempt) => attempt,
        other => panic!("{other:?}"),
    }
}

/// Runs nothing, because it is refused.
fn refused(job: &ScheduledJob) -> Once<(), Infallible> {
    job.run(|run| panic!("it must not run: {run:?}")).unwrap()
}

#[track_caller]
fn fail(job: &ScheduledJob) {
    let failed = job.run(|_| Err::<(), _>("no disk")).unwrap();
    assert!(matches!(failed, Once::Failed("no disk")), "{failed:?}");
}

/// Who has done it, if it is done.
fn done_by(job: &ScheduledJob) -> Option<String> {
    match job.wait_done_for(Duration::ZERO).unwrap() {
        Some(Settled::Done { by, .. }) => Some(by),
        _ => None,
    }
}

pub(super) fn an_occurrence_is_done_once(case: &mut Case) {
    let [a, b] = clients(case);
    let name = case.name.as_str();
    assert!(done_by(&a.once(name, "1")).is_none());
    assert_eq!(do_it(&a.once(name, "1")), 1);
    for client in [&a, &b] {
        let job = client.once(name, "1");
        let Once::AlreadyDone { by, at, .. } = refused(&job) else { panic!("it was done") };
        assert!(by.starts_with("machine 0 (pid "), "{by}");
        let age = SystemTime::now().duration_since(at).unwrap_or_default();
        assert!(age < Duration::from_secs(60), "{age:?}");
        assert_eq!(done_by(&job), Some(by));
    }
    // It has nothing to do with a lock of the name, nor with another job.
    let lock = b.lock(name).unwrap();
    assert_eq!(do_it(&b.once(name, "2")), 1);
    assert_eq!(do_it(&b.once(format!("{name}-too"), "1")), 1);
    lock.unlock().unwrap();
    let stats = b.stats();
    let figures = stats.primitive(leasehold::Primitive::Once).expect("its runs are counted");
    assert!(figures.granted_at_once() >= 2, "{figures:?}");
}

pub(super) fn occurrences_have_an_order_unless_they_are_forgotten(case: &mut Case) {
    let [a, b] = clients(case);
    let of = |client: &LockClient, label: &str| client.once(&case.name, label);
    do_it(&of(&a, "2026-11-23T03:00Z"));
    let Once::Passed { newest, .. } = refused(&of(&b, "2026-11-23T02:00Z")) else { panic!() };
    assert_eq!(newest.as_deref(), Some("2026-11-23T03:00Z"));
    let passed = of(&b, "2026-11-23T02:00Z").wait_done().unwrap();
    assert!(matches!(passed, Settled::Passed { .. }), "{passed:?}");
    // By their bytes: capital letters come first, and a longer one later.
    assert!(matches!(refused(&of(&b, "2026-11-23T02")), Once::Passed { .. }));
    assert_eq!(do_it(&of(&b, "2026-11-23T03:00Z-a")), 1);
    assert!(matches!(refused(&of(&b, "2026-11-23T03:00Z-B")), Once::Passed { .. }));

    // An old one may run again, and a done one, and then they are done again.
    for label in ["2026-11-23T02:00Z", "2026-11-23T03:00Z", "2026-11-23T03:00Z-a"] {
        let job = of(&b, label);
        assert_eq!(job.forget().unwrap(), label.contains("T03"), "whether it was known");
        assert!(!job.forget().unwrap(), "nothing is known any more");
        assert!(done_by(&job).is_none());
        assert_eq!(do_it(&job), 1);
        assert!(matches!(refused(&job), Once::AlreadyDone { .. }), "{label}");
    }
}

pub(super) fn failures_count_and_have_pauses(case: &mut Case) {
    let [a, b] = clients(case);
    let job = |client: &LockClient| client.once(&case.name, "1").attempts(2);
    fail(&job(&a));
    assert!(job(&b).wait_done_for(ms(10)).unwrap().is_none());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = job(&b).run(|run| -> Result<(), ()> { panic!("attempt {}", run.attempt()) });
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"attempt 2".to_owned()));
    for client in [&a, &b] {
        let gave_up = refused(&job(client));
        assert!(matches!(gave_up, Once::GaveUp { attempts: 2, .. }), "{gave_up:?}");
        let settled = job(client).wait_done().unwrap();
        assert!(matches!(settled, Settled::GaveUp { attempts: 2, .. }), "{settled:?}");
    }
    // Another handle may allow more, and to forget it counts from 1 again.
    assert_eq!(do_it(&job(&a).attempts(3)), 3);
    assert!(job(&a).forget().unwrap());
    assert_eq!(do_it(&job(&b)), 1);
    let forgets = a.once(&case.name, "1a");
    let failed = forgets.run(|_| Err::<(), _>(forgets.forget().unwrap())).unwrap();
    assert!(matches!(failed, Once::Failed(true)), "{failed:?}");
    assert_eq!(do_it(&forgets), 1, "what was forgotten is not counted at its end");

    let patient = |client: &LockClient| client.once(&case.name, "2").pause(SOON * 4);
    fail(&patient(&a));
    let Once::Pausing { left, .. } = refused(&patient(&b)) else { panic!("it pauses") };
    assert!(left > SOON && left <= SOON * 4, "{left:?}");
    fail(&a.once(&case.name, "3").pause(ms(30)));
    let next = b.once(&case.name, "3");
    wait_until("the pause is over", || {
        matches!(next.run(|run| Ok::<_, ()>(run.attempt())).unwrap(), Once::Done(2))
    });
}

pub(super) fn one_runs_at_a_time_and_others_see_it(case: &mut Case) {
    let [a, b] = clients(case);
    let name = case.name.as_str();
    let outcome = a.once(name, "1").run(|run| {
        assert!(run.is_held() && run.remaining() > LONG / 3, "{run:?}");
        assert_eq!((run.name(), run.occurrence(), run.attempt()), (name, "1", 1));
        run.ensure_held().unwrap();
        for (client, label) in [(&b, "1"), (&b, "2"), (&b, "0")] {
            let Once::Running { by, occurrence, .. } = refused(&client.once(name, label)) else {
                panic!("{label} does not run beside it")
            };
            assert!(by.starts_with("machine 0 ("), "{by}");
            assert_eq!(occurrence.as_deref(), Some("1"));
        }
        let nested = a.once(name, "2").run(|_| Ok::<_, ()>(()));
        let why = nested.unwrap_err();
        assert_eq!(why.kind(), ErrorKind::Conflict);
        assert!(why.message().contains("runs an occurrence of this job"), "{why}");
        let elsewhere = std::thread::scope(|s| s.spawn(|| refused(&a.once(name, "1"))).join());
        assert!(matches!(elsewhere.unwrap(), Once::Running { .. }), "another thread");
        let holds = a.snapshot();
        assert_eq!(holds.holds()[0].primitive(), leasehold::Primitive::Once);
        let listed = b.locks("*").unwrap();
        let listed = listed.iter().find(|one| one.name() == name).expect("it is listed");
        assert_eq!(listed.primitive(), leasehold::Primitive::Once);
        let shown = b.inspect(name).unwrap().expect("it is shown");
        assert_eq!(shown.locks()[0].primitive(), leasehold::Primitive::Once);
        assert!(listed.holders()[0].id().starts_with(a.id()) || case.is_over_zookeeper());
        Ok::<_, ()>(run.fencing_token())
    });
    let Once::Done(first) = outcome.unwrap() else { panic!("it is done") };
    let second = b.once(name, "2").run(|run| Ok::<_, ()>(run.fencing_token()));
    let Once::Done(second) = second.unwrap() else { panic!("it is done") };
    assert!(second > first, "{first:?} {second:?}");
}

pub(super) fn whoever_waits_for_an_occurrence_is_woken(case: &mut Case) {
    let [a, b] = clients(case);
    let name = case.name.as_str();
    std::thread::scope(|s| {
        // Two occurrences of one job, in one client.
        let first = s.spawn(|| b.once(name, "1").wait_done().unwrap());
        let second = s.spawn(|| b.once(name, "2").wait_done_for(CAP).unwrap().unwrap());
        wait_until("both wait", || b.snapshot().waits().len() == 2);
        // Behind a thread that allows more attempts.
        let third = s.spawn(|| b.once(name, "1").attempts(1).wait_done_for(CAP).unwrap().unwrap());
        wait_until("all wait", || b.snapshot().waits().len() == 3);
        fail(&a.once(name, "1"));
        let given_up = third.join().unwrap();
        assert!(matches!(given_up, Settled::GaveUp { .. }), "{given_up:?}");
        assert!(!first.is_finished(), "an attempt that failed is not the last");
        let _ = do_it(&a.once(name, "1"));
        let done = first.join().unwrap();
        assert!(matches!(done, Settled::Done { .. }), "{done:?}");
        assert!(!second.is_finished());
        let _ = do_it(&a.once(name, "2"));
        let done = second.join().unwrap();
        assert!(matches!(done, Settled::Done { .. }), "{done:?}");
    });
}

/// The lease ends in the job, another begins the same occurrence, and then the first says "done".
pub(super) fn a_run_that_was_forced_out_records_nothing(case: &mut Case) {
    let [a, b, operator] = clients(case);
    let job = |client: &LockClient| client.once(&case.name, "1");
    assert!(!job(&operator).force_out().unwrap(), "nothing runs");
    let first = job(&a).run(|first| {
        assert!(job(&operator).force_out().unwrap());
        let second = job(&b).run(|second| {
            assert_eq!((first.attempt(), second.attempt()), (1, 2));
            assert!(second.fencing_token() > first.fencing_token());
            Ok::<_, ()>(())
        });
        assert!(matches!(second.unwrap(), Once::Done(())));
        Ok::<_, ()>("late")
    });
    let Once::Unrecorded("late", why) = first.unwrap() else { panic!("it was forced out") };
    assert_eq!(why.kind(), ErrorKind::Lost, "{why}");
    assert!(done_by(&job(&a)).unwrap().starts_with("machine 1 ("));

    // Nobody has begun it anew: it is open, and the attempt counts.
    let again = |client: &LockClient| client.once(&case.name, "2");
    let outcome = again(&a).run(|_| Ok::<_, ()>(again(&operator).force_out().unwrap()));
    assert!(matches!(outcome.unwrap(), Once::Unrecorded(true, _)));
    assert!(done_by(&again(&b)).is_none());
    assert_eq!(do_it(&again(&b)), 2);
}

/// "Done" of an older occurrence, or its failure, while a newer one runs.
pub(super) fn a_late_end_touches_no_other_occurrence(case: &mut Case) {
    let [a, b, operator] = clients(case);
    let name = case.name.as_str();
    for (round, succeeds) in [("1", true), ("2", false)] {
        let (old, new) = (a.once(name, format!("{round}-1")), b.once(name, format!("{round}-2")));
        let (begun, has_begun) = unbounded();
        let (go_on, may_go_on) = unbounded();
        let outcome = std::thread::scope(|s| {
            let older = s.spawn(|| {
                old.run(|_| {
                    begun.send(()).unwrap();
                    may_go_on.recv_timeout(CAP).unwrap();
                    if succeeds { Ok(()) } else { Err(()) }
                })
            });
            has_begun.recv_timeout(CAP).unwrap();
            assert!(operator.once(name, "any").force_out().unwrap());
            let newer = new.run(|run| {
                go_on.send(()).unwrap();
                match older.join().unwrap().unwrap() {
                    Once::Unrecorded((), why) => assert_eq!(why.kind(), ErrorKind::Lost, "{why}"),
                    ended => assert!(matches!(ended, Once::Failed(())) && !succeeds, "{ended:?}"),
                }
                // The lease is that of the newer one, and stays it.
                run.ensure_held().unwrap();
                let beside = refused(&old);
                assert!(matches!(beside, Once::Running { .. }), "{beside:?}");
                if succeeds { Ok(()) } else { Err(()) }
            });
            newer.unwrap()
        });
        match outcome {
            Once::Done(()) => assert!(matches!(refused(&old), Once::Passed { .. })),
            Once::Failed(()) => assert_eq!(do_it(&old), 2, "it has no success, and no pause"),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn records_are_kept_for_their_time(case: &mut Case) {
    let [a, b] = clients(case);
    let job = |client: &LockClient, label| client.once(&case.name, label).keep(ms(3000));
    fail(&job(&a, "1").attempts(1));
    assert!(matches!(refused(&job(&b, "1").attempts(1)), Once::GaveUp { .. }));
    let first = job(&b, "1").attempts(1);
    wait_until("the attempts are forgotten", || {
        first.run(|_| Ok::<_, ()>(())).is_ok_and(|once| matches!(once, Once::Done(())))
    });
    assert!(matches!(refused(&first), Once::AlreadyDone { .. }));
    // A late caller finds the record of "done" gone, and the newest label remembers it.
    wait_until("the record is gone", || matches!(refused(&first), Once::Passed { .. }));
    assert_eq!(do_it(&job(&a, "2")), 1);
    assert!(matches!(refused(&first), Once::Passed { .. }));
}

pub(super) fn a_pause_outlasts_the_time_for_which_records_are_kept(case: &mut Case) {
    let [a, b] = clients(case);
    let job = |client: &LockClient| client.once(&case.name, "1").keep(ms(1000)).pause(LONG);
    fail(&job(&a));
    let other = b.once(format!("{}-too", case.name), "1").keep(ms(1000)).attempts(1);
    fail(&other);
    wait_until("a later record is gone", || {
        other.run(|_| Ok::<_, ()>(())).is_ok_and(|once| matches!(once, Once::Done(())))
    });
    let refused = refused(&job(&b));
    assert!(matches!(refused, Once::Pausing { .. }), "{refused:?}");
}

pub(super) fn the_last_fire_time_is_that_of_the_store(case: &mut Case) {
    let [a, b] = clients(case);
    let hourly = Every::new(Duration::from_secs(3600));
    let label = Cell::new(String::new());
    let first = a.once(&case.name, hourly);
    let outcome = first.run(|run| {
        label.set(run.occurrence().to_owned());
        Ok::<_, ()>(())
    });
    assert!(matches!(outcome.unwrap(), Once::Done(())));
    let label = label.take();
    assert!(label.starts_with("20") && label.ends_with(":00:00Z") && label.len() == 20, "{label}");
    // By its label, if the hour was over in between.
    let again = b.once(&case.name, &*label).run(|_| Ok::<_, ()>(()));
    assert!(matches!(again.unwrap(), Once::AlreadyDone { .. }));
    // The time of the store is at least some nanoseconds after the last multiple of a day.
    let late = Every::new(Duration::from_secs(86_400)).grace(Duration::ZERO).early(Duration::ZERO);
    let passed = refused(&b.once(format!("{}-too", case.name), late));
    assert!(matches!(passed, Once::Passed { newest: None, .. }), "{passed:?}");
}

pub(super) fn what_cannot_be_a_job_is_refused(case: &mut Case) {
    let [client] = clients(case);
    let kind = |job: ScheduledJob| job.run(|_| Ok::<_, ()>(())).unwrap_err().kind();
    let day = Duration::from_secs(86_400);
    let job = |label: &str| client.once(&case.name, label);
    for bad in [
        client.once("", "1"),
        job(""),
        job("a/b"),
        job("1").keep(ms(999)),
        job("1").keep(day * 366),
        job("1").attempts(0),
        job("1").pause(day * 366),
        job("1").with_lease(ms(1)),
        client.once(&case.name, Every::new(ms(1500))),
    ] {
        assert_eq!(kind(bad.clone()), ErrorKind::InvalidInput, "{bad:?}");
        assert_eq!(bad.wait_done_for(ms(1)).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(bad.forget().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    for key in ["leasehold_job:{x}", "leasehold_done:{x}/1", "leasehold_last:{x}"] {
        let refused = client.try_lock(key).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
        assert_eq!(client.once(key, "1").forget().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

const FAULTS: [Fault; 4] =
    [Fault::CutBeforeSend, Fault::CutAfterApplied, Fault::CutReplyAt(3), Fault::BlackHoleReply];

/// The look, the lease, the begin and the end each lose their request or their reply. Whatever the
/// caller is told is true, the lease comes free, and the occurrence is done once in the end.
pub(super) fn a_lost_reply_records_at_most_one_success(case: &mut Case) {
    let network = Network::start(case);
    let [direct] = clients(case);
    for (number, (skip, fault)) in
        (0..5).flat_map(|skip| FAULTS.map(|fault| (skip, fault))).enumerate()
    {
        let what = format!("{fault:?} after {skip} requests");
        let builder = case.builder(&network.urls()).lease(LONG).io_timeout(ms(1000));
        let client = builder.outage_timeout(SOON).build().unwrap();
        let label = format!("{number:03}");
        network.inject_after(&case.name, skip, fault);
        let runs = Cell::new(0);
        let run = || {
            runs.set(runs.get() + 1);
            Ok::<_, ()>(())
        };
        let outcome = client.once(&case.name, &*label).run(|_| run());
        network.proxies.iter().for_each(|proxy| {
            proxy.disarm();
        });
        let is_done = || done_by(&direct.once(&case.name, &*label)).is_some();
        match outcome {
            Ok(Once::Done(())) => assert!(runs.get() == 1 && is_done(), "{what}"),
            Err(e) => assert!(runs.get() == 0 && !is_done() && e.is_outage(), "{what}: {e}"),
            other => panic!("{what}: {other:?}"),
        }
        wait_until(&format!("{what}: the lease is free"), || {
            let again = direct.once(&case.name, &*label).run(|_| run()).unwrap();
            matches!(again, Once::Done(()) | Once::AlreadyDone { .. })
        });
        assert!(runs.get() == 1 && is_done(), "{what}");
    }
}

/// The end of an attempt that failed is repeated when its reply is lost: it gives the lease up, and
/// that is no loss.
pub(super) fn a_lost_reply_to_a_failure_reports_no_loss(case: &mut Case) {
    let network = Network::start(case);
    for skip in 0..5 {
        let builder = case.builder(&network.urls()).lease(LONG).io_timeout(ms(5000));
        let client = builder.outage_timeout(SOON).build().unwrap();
        let label = format!("failed-{skip}");
        network.inject_after(&case.name, skip, Fault::CutAfterApplied);
        let outcome = client.once(&case.name, &*label).run(|_| Err::<(), _>("no"));
        for proxy in &network.proxies {
            proxy.disarm();
        }
        let lost = client.stats().total().lost();
        assert_eq!(lost, 0, "after {skip} requests: {outcome:?}");
    }
}
