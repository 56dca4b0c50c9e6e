//! Rate limiters.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::os::now;
use leasehold::testing::{Failure, Operation};

use crate::book::pause;
use crate::stage::{Stage, choose, join_all, wait_until};

const PER: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(1000);

/// Two permits in an interval for four threads, of which one wants both.
pub(crate) fn paced() {
    let stage = Stage::new();
    stage.one.rate_limiter("api").try_set_rate(2, PER).expect("the store answers");
    let begun = now();
    join_all([(true, 2), (true, 1), (false, 1), (false, 1)].map(|(is_one, permits)| {
        stage.spawn(move |stage| {
            stage.client(is_one).rate_limiter("api").acquire(permits).expect("they come back");
        })
    }));
    // Five permits.
    assert!(now() - begun >= PER * 2, "too fast: {:?}", now() - begun);
    stage.one.rate_limiter("api").delete().expect("the store answers");
    stage.end();
}

/// A thread of a client sets the rate anew, while others of it wait for permits that are far away.
pub(crate) fn set_anew() {
    let stage = Stage::new();
    let limiter = stage.one.rate_limiter("api");
    limiter.try_set_rate(1, LONG).expect("the store answers");
    limiter.acquire(1).expect("nobody has taken it");
    let waiting = [(); 2].map(|()| {
        stage.spawn(|stage| stage.one.rate_limiter("api").acquire(1).expect("it is set anew"))
    });
    pause();
    limiter.set_rate(2, LONG).expect("the store answers");
    join_all(waiting);
    assert_eq!(limiter.available_permits().expect("the store answers"), 0);
    limiter.delete().expect("the store answers");
    stage.end();
}

/// Any two requests fail: what a call took that did not know it is free again.
pub(crate) fn lost_replies() {
    let stage = Stage::new();
    stage.one.rate_limiter("api").try_set_rate(4, LONG).expect("the store answers");
    (0..2).for_each(|_| {
        let failure = [Failure::BeforeItRan, Failure::AfterItRan][choose(2)];
        stage.faults.fail_next([Operation::Acquire, Operation::Release][choose(2)], failure);
    });
    let taken = join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| match stage.client(is_one).rate_limiter("api").acquire(1) {
            Ok(()) => 1,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}");
                0
            }
        })
    }));
    let left = 4 - taken.iter().sum::<i64>();
    let limiter = stage.one.rate_limiter("api");
    wait_until("the others are free again", || {
        limiter.available_permits().expect("the store answers") == left
    });
    limiter.delete().expect("the store answers");
    stage.end();
}
