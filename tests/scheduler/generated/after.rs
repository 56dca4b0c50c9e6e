//! What must be true when all threads of a program have ended and its faults are over.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold::os::thread::sleep;
use leasehold::os::{now, since};
use leasehold::{CancelToken, ErrorKind, LockClient};

use super::bounds::HANGS;
use super::guards::acquire;
use super::play::Play;
use super::program::{Client, Code, End, Family, Mode, Program, Request, Step, Take, Terms, Wait};
use super::text::name_of;
use super::{jobs, rates};
use crate::stage::{Stage, wait_until};

/// How much later than a release a waiter that hears of it has the lock. One that hears nothing
/// asks every half a second.
const HEARD: Duration = Duration::from_millis(60);

pub(crate) fn check(play: Play) {
    let Play { program, stage, ears, promises, .. } = play;
    stage.faults.cut(Duration::ZERO);
    if program.any(|step| matches!(step, Step::Hang(_))) {
        // Requests are still under way.
        sleep(2 * HANGS);
    }
    let third = LockClient::in_memory_shared(&stage.one).expect("it is in memory");
    let lives = |client: &Client| !program.has_ended(*client);
    let living: Vec<&LockClient> = [Client::One, Client::Other]
        .into_iter()
        .filter(lives)
        .map(|client| stage.client(client == Client::One))
        .collect();
    meets_the_failures(&third);
    for client in living.iter().copied().chain([&third]) {
        for thing in 0..program.things.len() {
            match program.things[thing] {
                Family::Job => jobs::is_free(&program, client, thing),
                _ => is_free(&program, client, thing),
            }
        }
    }
    jobs::check(&program);
    for thing in 0..program.things.len() {
        if program.things[thing] == Family::Limiter {
            rates::comes_back(&program, &third, thing);
        }
    }
    let may_be_deaf = |step: &Step| {
        matches!(step, Step::Cut(_) | Step::Hang(_) | Step::Fail(Request::Subscribe, _))
    };
    if program.any(may_be_deaf) {
        for client in living {
            hears(&stage, client, &third);
        }
    }
    third.close(Duration::from_secs(1)).expect("it has nothing to release");
    nothing_is_left(&program, stage);
    for promise in &*promises.lock().unwrap_or_else(PoisonError::into_inner) {
        let reasons = promise.told.reasons();
        let counted = (promise.least..=promise.most).contains(&reasons.len());
        assert!(
            counted,
            "a callback ran {} times, not {} to {}",
            reasons.len(),
            promise.least,
            promise.most
        );
        let wrong = reasons.iter().find(|reason| !promise.reasons.contains(reason));
        assert!(
            wrong.is_none(),
            "a callback was told {wrong:?}, and the program says {:?}",
            promise.reasons
        );
    }
    // Of several locks as one it is told of one grant, and of the end of each. What was
    // waited for, and permits of a limiter, are grants without an end. A close or a loss may end a hold that was not announced
    // yet.
    let is_even = |step: &Step| match step {
        Step::Take(take) => !take.mode.takes_all(),
        Step::Close(_) | Step::Force(_) | Step::Lose(_) | Step::Advance(_) => false,
        Step::WaitFor(_) | Step::AwaitDone(..) | Step::Pace(_) => false,
        _ => true,
    };
    if program.settings.listener == Code::Calm && !program.any(|step| !is_even(step)) {
        for ears in ears.iter() {
            ears.check();
        }
    }
}

/// The requests that were to fail, and that nobody has made, do so now.
fn meets_the_failures(client: &LockClient) {
    for _ in 0..40 {
        let cycle = client.try_lock("failures").and_then(|guard| {
            client.mutex("failures").is_locked()?;
            guard.map_or(Ok(false), |guard| guard.unlock().map(|()| true))
        });
        match cycle {
            Ok(true) => return,
            // What the last one has left is undone in the background.
            Ok(false) => {}
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}"),
        }
        sleep(Duration::from_millis(200));
    }
    panic!("the store does not answer");
}

/// Nothing keeps this client from the thing.
fn is_free(program: &Arc<Program>, client: &LockClient, thing: usize) {
    let mode = match program.things[thing] {
        Family::Mutex | Family::Election | Family::Fair => Mode::Plain,
        Family::ReadWrite => Mode::Write,
        Family::Semaphore | Family::Counting => Mode::OnePermit,
        Family::Latch | Family::Job | Family::Limiter => return,
    };
    let wait =
        Wait::For(super::program::Micros(program.longest_wait_at_all(thing).as_micros() as u64));
    let (terms, inside, end) = (Terms::Usual, Vec::new(), End::Unlock);
    let take = Take { mode, thing, wait, cancellable: false, terms, inside, end };
    // Faults that nobody has met yet.
    for _ in 0..10 {
        match acquire(client, program, &take, wait, &CancelToken::new()) {
            Ok(None) => {
                panic!("something is left of {:?}, which keeps later calls from it", name_of(thing))
            }
            Ok(Some(guard)) => match guard.unlock() {
                Ok(()) => return,
                Err(e) => assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}"),
            },
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}"),
        }
        sleep(Duration::from_millis(100));
    }
    panic!("the store does not answer: {:?}", name_of(thing));
}

/// A client that has heard nothing for a while receives messages again.
fn hears(stage: &Stage, client: &LockClient, other: &LockClient) {
    for _ in 0..4 {
        let guard = other.lock("heard").expect("it becomes free");
        let waiting = client.clone();
        let waits = stage.spawn(move |_| {
            let guard =
                waiting.try_lock_for("heard", Duration::from_secs(20)).expect("the store answers");
            drop(guard.expect("it becomes free"));
            now()
        });
        sleep(Duration::from_millis(420));
        let released = now();
        guard.unlock().expect("it is held");
        let taken = waits.join().expect("it does not panic");
        if taken.saturating_duration_since(released) < HEARD {
            return;
        }
        sleep(Duration::from_millis(700));
    }
    panic!("a client does not hear of releases any more");
}

fn nothing_is_left(program: &Program, stage: Stage) {
    let keeps = |take: &Take| take.end == End::Forget && take.mode.is_owned();
    let is_forgotten = program.takes().any(keeps);
    for client in [Client::One, Client::Other] {
        let snapshot = stage.client(client == Client::One).snapshot();
        assert!(snapshot.waits().is_empty(), "a call that has returned still waits: {snapshot:?}");
        assert!(snapshot.holds().is_empty() || is_forgotten, "a hold is left: {snapshot:?}");
    }
    let began = now();
    for (thing, family) in program.things.iter().enumerate() {
        let all = i64::from(program.settings.permits);
        let is_known =
            !program.has_failures() && !program.any(|step| matches!(step, Step::Close(_)));
        if *family == Family::Semaphore && is_known && !is_forgotten {
            let semaphore = stage.one.semaphore(name_of(thing));
            wait_until("all permits are back", || {
                semaphore.available_permits().expect("the store answers") == all
            });
        }
    }
    assert!(since(began) < Duration::from_secs(10), "a look takes no time");
    let closed = |client| program.has_closed(client) && program.has_failures();
    if closed(Client::One) || closed(Client::Other) {
        // What they could not release ends with its lease.
        stage.faults.advance(program.limit());
        for client in [&stage.one, &stage.other] {
            let _ = client.close(Duration::from_secs(1));
        }
        return stage.leaves_nothing();
    }
    stage.close();
}
