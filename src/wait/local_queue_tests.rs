use super::*;
use crate::base::lock_name::LockName;
use std::time::Instant;

use crate::store::{Acquire, Waiting};
use crate::wait::fairness::MEMORY;
use crate::wait::queue_map::SWEEP_AT;

/// Longer than the first span beside other clients, and shorter than the second.
const LONG_RUN: RunLength = RunLength { turns: 9, lasted: Duration::from_millis(10) };

fn piggyback() -> Option<Piggyback> {
    let holder = crate::base::holder::ClientId::random(Duration::from_secs(5)).fresh_holder();
    let name = lock_name();
    let lease = Duration::from_secs(1);
    let token = TokenRule::Off;
    let waiting = Waiting::No;
    let request = Acquire {
        name: &name,
        holder: &holder,
        permits: 1,
        lease,
        held: 0,
        token,
        tokens: 1,
        waiting,
        goes_on: false,
    };
    Some(Piggyback::new(&request, false))
}

fn queue<'s>(
    local_queues: &'s LocalQueues,
    deadline: Deadline,
    cancel: Option<&CancelToken>,
) -> EnqueueOutcome<'s> {
    local_queues.queue(&lock_name().key, Entry::AtTheEnd, (deadline, cancel), piggyback, || ())
}

fn lock_name() -> Arc<LockName> {
    Arc::new(LockName::new("", "n", crate::base::lock_name::Kind::Mutex).unwrap())
}

/// The next outage is another one, with all its time.
#[test]
fn an_answer_ends_the_outage_of_a_queue() {
    let local_queues = LocalQueues::default();
    let EnqueueOutcome::Leader(leader) = queue(&local_queues, Deadline::Never, None) else {
        panic!()
    };
    assert!(leader.outage().is_none() && !leader.event().is_answered_within(MEMORY));
    let error = Error::new(crate::base::error::ErrorKind::Unreachable, "no answer");
    let since = leader.note_outage(&error);
    assert!(leader.note_outage(&error) == since && leader.outage().is_some());
    leader.end_outage();
    assert!(leader.outage().is_none() && leader.event().is_answered_within(MEMORY));
}

#[test]
fn the_role_passes_in_order_and_the_queue_goes_with_its_last_member() {
    let local_queues = LocalQueues::default();
    let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else {
        panic!()
    };
    assert!(!first.has_waited && local_queues.is_occupied("n"));
    std::thread::scope(|s| {
        let second = s.spawn(|| match queue(&local_queues, Deadline::Never, None) {
            EnqueueOutcome::Leader(leader) => leader.has_waited && leader.piggyback.is_some(),
            _ => false,
        });
        while first.membership.local_queue.state.lock().waiters.is_empty() {
            std::thread::yield_now();
        }
        let short = Deadline::after(Instant::now(), Duration::from_millis(1));
        assert!(matches!(queue(&local_queues, short, None), EnqueueOutcome::TimedOut(_)));
        drop(first);
        assert!(second.join().unwrap());
    });
    assert!(local_queues.map.lock().local_queues.is_empty());
}

#[test]
fn closing_wakes_the_waiters() {
    let local_queues = LocalQueues::default();
    let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else {
        panic!()
    };
    std::thread::scope(|s| {
        let second = s
            .spawn(|| matches!(queue(&local_queues, Deadline::Never, None), EnqueueOutcome::Ended));
        while first.membership.local_queue.state.lock().waiters.is_empty() {
            std::thread::yield_now();
        }
        local_queues.end_waits();
        assert!(second.join().unwrap());
    });
}

#[test]
fn a_cancelled_waiter_leaves_and_the_role_goes_to_the_next() {
    let local_queues = LocalQueues::default();
    let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else {
        panic!()
    };
    let local_queue = first.membership.local_queue.clone();
    let waiting = || local_queue.state.lock().waiters.len();
    let until =
        |count| (0..).take_while(|_| waiting() != count).for_each(|_| std::thread::yield_now());
    let token = CancelToken::new();
    std::thread::scope(|s| {
        let second = s.spawn(|| {
            matches!(queue(&local_queues, Deadline::Never, Some(&token)), EnqueueOutcome::Ended)
        });
        until(1);
        let third = s.spawn(|| {
            matches!(queue(&local_queues, Deadline::Never, None), EnqueueOutcome::Leader(_))
        });
        until(2);
        token.cancel();
        assert!(second.join().unwrap());
        assert_eq!(waiting(), 1);
        assert!(matches!(
            queue(&local_queues, Deadline::Never, Some(&token)),
            EnqueueOutcome::Ended
        ));
        drop(first);
        assert!(third.join().unwrap());
    });
    assert!(local_queues.map.lock().local_queues.is_empty());
}

#[test]
fn a_leader_that_is_ended_leaves_the_yield_to_the_next() {
    let local_queues = LocalQueues::default();
    local_queues.released(&"n".into(), LONG_RUN, 1, Messages { received: 0, own: 0 });
    let EnqueueOutcome::Leader(leader) = queue(&local_queues, Deadline::Never, None) else {
        panic!()
    };
    leader.event().end_wait();
    leader
        .let_others_first(|pause| pause, |awaited, pause| leader.event().wait_for(awaited, pause));
    assert!(leader.must_yield());
}

fn error() -> Error {
    Error::new(crate::base::error::ErrorKind::Unreachable, "the server is away")
}

/// The queue is kept, because other clients listened recently.
#[test]
fn an_outage_is_forgotten_with_the_last_waiter_that_knew_of_it() {
    let local_queues = LocalQueues::default();
    local_queues.released(&"n".into(), RunLength::ONE, 1, Messages { received: 0, own: 0 });
    let leader = |cancel| match queue(&local_queues, Deadline::Never, cancel) {
        EnqueueOutcome::Leader(leader) => leader,
        _ => panic!(),
    };
    let first = leader(None);
    let since = first.note_outage(&error());
    assert_eq!(first.note_outage(&error()), since);
    drop(first);
    let second = leader(None);
    assert!(second.note_outage(&error()) > since, "an earlier call waited in another outage");
    second.forget_outage();
    assert!(second.note_outage(&error()) > since);
}

/// The user's code runs before a waiter has a place, and may take any time.
#[test]
fn a_caller_inside_code_of_the_user_has_no_place_and_no_role() {
    let local_queues = LocalQueues::default();
    let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else {
        panic!()
    };
    let local_queue = first.membership.local_queue.clone();
    let first = std::cell::RefCell::new(Some(first));
    let prepare = || {
        assert!(local_queue.state.lock().waiters.is_empty());
        drop(first.take());
        assert!(!local_queue.state.lock().leader, "it was not made the leader");
        piggyback()
    };
    match local_queues.queue(
        &lock_name().key,
        Entry::AtTheEnd,
        (Deadline::Never, None),
        prepare,
        || (),
    ) {
        EnqueueOutcome::Leader(leader) => assert!(!leader.has_waited && !leader.has_piggyback()),
        _ => panic!("it leads"),
    }
    assert!(local_queues.map.lock().local_queues.is_empty());
}

#[test]
fn a_panic_before_a_caller_has_a_place_leaves_nothing() {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    let local_queues = LocalQueues::default();
    let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else {
        panic!()
    };
    let prepare = || resume_unwind(Box::new("injected"));
    let place = (Deadline::Never, None);
    let queues =
        || drop(local_queues.queue(&lock_name().key, Entry::AtTheEnd, place, prepare, || ()));
    assert!(catch_unwind(AssertUnwindSafe(queues)).is_err());
    drop(first);
    assert!(local_queues.map.lock().local_queues.is_empty());
}

/// It had the role, gave it up to call code of the user, and comes back before those behind it.
#[test]
fn a_leader_that_comes_back_enters_at_the_front() {
    let local_queues = LocalQueues::default();
    let EnqueueOutcome::Leader(first) = queue(&local_queues, Deadline::Never, None) else {
        panic!()
    };
    let local_queue = first.membership.local_queue.clone();
    let until = |count| {
        while local_queue.state.lock().waiters.len() != count {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|s| {
        let second = s.spawn(|| {
            matches!(queue(&local_queues, Deadline::Never, None), EnqueueOutcome::Leader(_))
        });
        until(1);
        let back = s.spawn(|| {
            let place = (Deadline::Never, None);
            match local_queues.queue(&lock_name().key, Entry::AtTheFront, place, piggyback, || ()) {
                EnqueueOutcome::Leader(leader) => {
                    leader.membership.local_queue.state.lock().waiters.len()
                }
                _ => panic!("it leads"),
            }
        });
        until(2);
        drop(first);
        assert_eq!(back.join().unwrap(), 1, "the other one is behind it");
        assert!(second.join().unwrap());
    });
}

#[test]
fn unused_queues_are_swept_also_by_a_client_that_never_waits() {
    let local_queues = LocalQueues::default();
    for n in 0..10_000 {
        local_queues.released(
            &format!("n{n}").into(),
            RunLength::ONE,
            1,
            Messages { received: 0, own: 0 },
        );
        if n == 1_000 {
            let long_ago = Instant::now().checked_sub(2 * MEMORY);
            local_queues
                .map
                .lock()
                .local_queues
                .values()
                .for_each(|local_queue| local_queue.state.lock().fairness.heard = long_ago);
        }
    }
    let map = local_queues.map.lock();
    assert!(
        map.local_queues.len() < 9_900 && map.after_sweep >= SWEEP_AT,
        "{} and {}",
        map.local_queues.len(),
        map.after_sweep
    );
}

#[test]
fn a_client_yields_after_a_run_with_others_waiting() {
    let local_queues = LocalQueues::default();
    let name: Arc<str> = "n".into();
    local_queues.released(&name, LONG_RUN, 1, Messages { received: 0, own: 0 });
    let EnqueueOutcome::Leader(leader) = queue(&local_queues, Deadline::Never, None) else {
        panic!()
    };
    assert!(leader.must_yield());
    leader.let_others_first(|_| Duration::from_millis(1), |_, _| false);
    assert!(!leader.must_yield());
    local_queues.released(&name, LONG_RUN, 1, Messages { received: 0, own: 0 });
    assert!(!leader.must_yield(), "nobody wanted it: the next span is longer");
}
