//! One call for an occurrence of a scheduled job, as a cron daemon makes it: by the clock of its
//! process, on every machine.

use std::time::Duration;

use leasehold::Once;
use rand::RngExt;
use rand::rngs::StdRng;

use super::turn::Turn;
use crate::event::{Kind, Nanos, What, millis, now};
use crate::rig::ms;

/// The time between two occurrences.
const FIRES: Nanos = millis(500);

/// Longer than a run looks back.
const KEEP: Duration = Duration::from_secs(30);

const ATTEMPTS: u32 = 6;

/// How long a look at a job takes at most in the store.
const AT_MOST: Duration = ms(500);

/// The work takes 2 ms, unless a fault is to meet it; now and then it fails.
pub(super) fn call(mut turn: Turn<'_>, rng: &mut StdRng) {
    turn.section = ms(if rng.random_bool(0.15) { rng.random_range(50..700) } else { 2 });
    let is_to_fail = rng.random_bool(0.15);
    // Some call late.
    let late = if rng.random_bool(0.15) { rng.random_range(1..4) } else { 0 };
    let clock = || now() + u64::try_from(turn.place.clock.as_nanos()).unwrap();
    // Some wake up at a fire time, all at once; others find out whether it was done.
    if late == 0 && rng.random_bool(0.4) {
        turn.place.sleep(Duration::from_nanos(FIRES - clock() % FIRES));
    }
    let occurrence = clock() / FIRES - late;
    turn.asks(Kind::Job, Some(0), None);
    turn.note(now(), What::Fires { occurrence });
    let job = turn.place.client.once(turn.name(), format!("{occurrence:012}"));
    let mut worked = 0;
    let answer = job.keep(KEEP).attempts(ATTEMPTS).run(|run| {
        turn.note(now(), What::Got { tokens: vec![run.fencing_token().get()] });
        turn.note(now(), What::Runs { number: run.attempt() });
        turn.use_it(run);
        worked = now();
        if is_to_fail { Err(()) } else { Ok(()) }
    });
    let gave = |answer| turn.note(worked, What::Gave { answer, until: now() });
    let word = match answer {
        Err(e) => return turn.fails(&e),
        Ok(Once::Done(())) => {
            gave("ok".to_owned());
            "done"
        }
        Ok(Once::Unrecorded((), why)) => {
            gave(format!("{:?}", why.kind()));
            "unrecorded"
        }
        Ok(Once::Failed(())) => "failed",
        Ok(Once::AlreadyDone { .. }) => "already",
        Ok(Once::Passed { .. }) => "passed",
        Ok(Once::Running { .. }) => "running",
        Ok(Once::GaveUp { .. }) => "gave-up",
        // A look that began just before an attempt failed, and saw that, is early by its own time.
        Ok(Once::Pausing { left, .. }) if left < AT_MOST => "pausing",
        Ok(other) => panic!("a job without pauses: {other:?}"),
    };
    if worked == 0 {
        turn.note(now(), What::Vain);
    }
    turn.note(now(), What::Once { word: word.to_owned() });
}
