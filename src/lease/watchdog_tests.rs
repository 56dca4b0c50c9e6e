use std::time::Duration;

use super::*;
use crate::base::error::ErrorKind;
use crate::base::lease::LeaseState;
use crate::lease::store_hold::tests::hold_of;
use crate::report::observer::Observer;
use crate::signal::clock::FakeClock;
use crate::store::Renewed;
use crate::store::memory::{Memory, MemoryStore};

const SPAN: Duration = Duration::from_secs(600);

/// A watchdog over an empty store: every hold that it visits is lost.
pub(in crate::lease) fn watchdog(clock: &Arc<FakeClock>) -> Arc<Watchdog> {
    let store = Arc::new(MemoryStore::new(&Arc::new(Memory::new()), SPAN));
    let losses = Arc::new(LossCallbacks::new(Arc::new(Observer::default())));
    let holds = Arc::new(HoldTable::new(SPAN));
    Watchdog::new("c".to_owned(), None, store, clock.clone(), losses, Box::new(|_| ()), holds)
}

fn is_lost_soon(hold: &StoreHold, mut meanwhile: impl FnMut()) -> bool {
    let give_up = Instant::now() + Duration::from_secs(10);
    while hold.state() != LeaseState::Lost && Instant::now() < give_up {
        meanwhile();
        std::thread::sleep(Duration::from_millis(1));
    }
    hold.state() == LeaseState::Lost
}

/// Thread A has the hold in hand and is about to enter it here; thread B learns that the lock
/// was forced open, and finds nothing here. Time does not pass: no renewal is due.
#[test]
fn a_hold_that_enters_after_a_forced_unlock_is_asked_for_at_once() {
    let clock = Arc::new(FakeClock::default());
    let watchdog = watchdog(&clock);
    let hold = |name| hold_of(&watchdog, name, SPAN);
    let here = hold("a");
    let late = hold("a");
    let other = hold("b");
    watchdog.watch(&here).unwrap();
    watchdog.watch(&other).unwrap();
    for hold in [&here, &other] {
        watchdog.holds.insert(hold);
    }
    watchdog.mistrust_under(&late.asked.name.key);
    assert!(is_lost_soon(&here, || ()));
    watchdog.watch(&late).unwrap();
    assert!(is_lost_soon(&late, || ()));
    assert_eq!(other.state(), LeaseState::Held, "it has another name");
    let later = hold("a");
    watchdog.watch(&later).unwrap();
    assert_eq!(later.state(), LeaseState::Held, "it was asked for afterwards");
    assert!(watchdog.stop(Instant::now() + Duration::from_secs(10)));
}

/// With one part of a cluster down, most batches have none of its holds.
#[test]
fn an_outage_is_over_when_no_hold_fails_any_more() {
    let clock = Arc::new(FakeClock::default());
    let watchdog = watchdog(&clock);
    let fails = hold_of(&watchdog, "a", SPAN);
    let mut round = watchdog.first_round();
    let error = Error::new(ErrorKind::Unreachable, "why");
    fails.renewal_failed(&error, clock.now());
    let outcome = [Renewed::Failed(error)];
    round.trouble.record(&[(fails.clone(), clock.now())], &outcome, clock.now());
    assert!(!watchdog.is_in_an_outage(&round), "it has ended and left the table");
    watchdog.table.lock().due.enter(&fails, clock.now());
    assert!(watchdog.is_in_an_outage(&round));
    fails.confirmed(clock.now(), SPAN);
    assert!(!watchdog.is_in_an_outage(&round));
    assert!(round.trouble.end(clock.now()).unwrap().contains("renewed again"));
    assert!(round.trouble.end(clock.now()).is_none(), "once");
}

/// The same when the machine was paused while the reply was on its way: also that for the first
/// hold, with which the thread begins.
#[test]
fn a_hold_that_enters_after_a_jump_of_the_clock_is_asked_for_at_once() {
    let clock = Arc::new(FakeClock::default());
    let watchdog = watchdog(&clock);
    let here = hold_of(&watchdog, "a", SPAN);
    let late = hold_of(&watchdog, "b", SPAN);
    clock.jump_wall(SPAN);
    watchdog.watch(&here).unwrap();
    watchdog.holds.insert(&here);
    assert!(is_lost_soon(&here, || ()));
    watchdog.watch(&late).unwrap();
    assert!(is_lost_soon(&late, || ()));
    assert!(watchdog.stop(Instant::now() + Duration::from_secs(10)));
}

/// The jump is longer than the margin of the lease whose reply is on its way. Nothing is in the
/// table, or only a lease that is much longer.
#[test]
fn a_jump_that_endangers_no_hold_here_counts_for_what_is_on_its_way() {
    for others in [&[][..], &["long"]] {
        let clock = Arc::new(FakeClock::default());
        let watchdog = watchdog(&clock);
        let late = hold_of(&watchdog, "late", Duration::from_secs(10));
        watchdog.begin().unwrap();
        for name in others {
            watchdog.watch(&hold_of(&watchdog, name, SPAN)).unwrap();
        }
        clock.jump_wall(Duration::from_secs(3));
        watchdog.visit_all();
        while watchdog.table.lock().visit_all {
            std::thread::sleep(Duration::from_millis(1));
        }
        watchdog.watch(&late).unwrap();
        assert!(is_lost_soon(&late, || ()), "beside {others:?}");
        assert!(watchdog.stop(Instant::now() + Duration::from_secs(10)));
    }
}
