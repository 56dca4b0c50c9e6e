//! Calls for an occurrence of a scheduled job, as a cron daemon makes them: by the clock of its
//! process, on every machine. Some only wait until it is done, and some let it run again.

use std::time::Duration;

use leasehold::{Once, ScheduledJob, Settled};
use rand::RngExt;
use rand::rngs::StdRng;

use super::turn::Turn;
use crate::event::{Kind, Nanos, Verb, What, millis, now};
use crate::rig::ms;

/// The time between two occurrences.
const FIRES: Nanos = millis(500);

/// Longer than a run looks back.
const KEEP: Duration = Duration::from_secs(30);

pub(crate) const ATTEMPTS: u32 = 6;

/// The job with a pause after each attempt that failed.
pub(crate) const PAUSES: &str = "j1";
pub(crate) const PAUSE: Duration = ms(300);

pub(super) fn call(turn: Turn<'_>, rng: &mut StdRng) {
    match rng.random_range(0..100) {
        0..3 => forget(&turn, rng),
        3..11 => wait(&turn, rng),
        _ => run(turn, rng),
    }
}

/// By the clock of its process, which is wrong.
fn clock(turn: &Turn<'_>) -> Nanos {
    now() + u64::try_from(turn.place.clock.as_nanos()).unwrap()
}

fn asks<'c>(turn: &Turn<'c>, verb: Verb, occurrence: Nanos) -> ScheduledJob {
    turn.asks(Kind::Job, Some(0), None);
    turn.note(now(), What::Calls(verb));
    turn.note(now(), What::Fires { occurrence });
    let job = turn.place.client.once(turn.name(), format!("{occurrence:012}"));
    let job = job.keep(KEEP).attempts(ATTEMPTS);
    if turn.name() == PAUSES { job.pause(PAUSE) } else { job }
}

/// The work takes 2 ms, unless a fault is to meet it; now and then it fails.
fn run(mut turn: Turn<'_>, rng: &mut StdRng) {
    turn.section = ms(if rng.random_bool(0.15) { rng.random_range(50..700) } else { 2 });
    let is_to_fail = rng.random_bool(0.15);
    // Some call late.
    let late = if rng.random_bool(0.15) { rng.random_range(1..4) } else { 0 };
    // Some wake up at a fire time, all at once; others find out whether it was done.
    if late == 0 && rng.random_bool(0.4) {
        turn.place.sleep(Duration::from_nanos(FIRES - clock(&turn) % FIRES));
    }
    let job = asks(&turn, Verb::Takes, clock(&turn) / FIRES - late);
    let mut worked = 0;
    let answer = job.run(|run| {
        turn.note(now(), What::Got { tokens: vec![run.fencing_token().get()] });
        turn.note(now(), What::Runs { number: run.attempt() });
        turn.use_it(run);
        worked = now();
        if is_to_fail { Err(()) } else { Ok(()) }
    });
    let gave = |answer| turn.note(worked, What::Gave { answer, until: now() });
    let words = match answer {
        Err(e) => return turn.fails(&e),
        Ok(Once::Done(())) => {
            gave("ok".to_owned());
            "done".to_owned()
        }
        Ok(Once::Unrecorded((), why)) => {
            gave(format!("{:?}", why.kind()));
            "unrecorded".to_owned()
        }
        Ok(Once::Failed(())) => "failed".to_owned(),
        Ok(Once::AlreadyDone { .. }) => "already".to_owned(),
        Ok(Once::Passed { .. }) => "passed".to_owned(),
        Ok(Once::Running { .. }) => "running".to_owned(),
        Ok(Once::GaveUp { .. }) => "gave-up".to_owned(),
        Ok(Once::Pausing { left, .. }) => {
            assert!(left <= PAUSE, "a pause of {left:?}");
            "pausing".to_owned()
        }
        Ok(other) => panic!("an answer that is not known here: {other:?}"),
    };
    if worked == 0 {
        turn.note(now(), What::Vain);
    }
    turn.note(now(), What::Says { words });
}

/// Waits for the present occurrence, or for the next one, which others run.
fn wait(turn: &Turn<'_>, rng: &mut StdRng) {
    let job = asks(turn, Verb::Waits, clock(turn) / FIRES + rng.random_range(0..2));
    let words = match job.wait_done_for(ms(rng.random_range(100..3000))) {
        Err(e) => return turn.fails(&e),
        Ok(Some(Settled::Done { .. })) => "already",
        Ok(Some(Settled::Passed { .. })) => "passed",
        Ok(Some(Settled::GaveUp { .. })) => "gave-up",
        Ok(None) => "nothing",
        Ok(other) => panic!("an answer that is not known here: {other:?}"),
    };
    turn.answers(words);
}

fn forget(turn: &Turn<'_>, rng: &mut StdRng) {
    let job = asks(turn, Verb::Forgets, clock(turn) / FIRES - rng.random_range(0..3));
    match job.forget() {
        Err(e) => turn.fails(&e),
        Ok(was_known) => turn.answers(&was_known.to_string()),
    }
}
