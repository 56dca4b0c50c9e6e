use super::*;
use crate::base::error::ErrorKind;

fn fail(pace: &mut Pace) -> Duration {
    pace.failed(Error::new(ErrorKind::Unreachable, "down"));
    pace.failed.as_ref().unwrap().pause
}

#[test]
fn pauses_grow_after_failures_and_end_with_a_success() {
    let mut pace = Pace::new(Duration::from_secs(60));
    assert!(pace.pause().is_zero() && pace.trouble().is_none());
    assert!(fail(&mut pace) <= FIRST_PAUSE);
    let last = (0..10).map(|_| fail(&mut pace)).last().unwrap();
    assert!(last >= LONGEST_PAUSE / 2 && last <= LONGEST_PAUSE, "{last:?}");
    assert!(pace.pause() <= last && pace.trouble().is_some());
    pace.succeeded();
    assert!(pace.pause().is_zero() && pace.trouble().is_none());
    assert!(fail(&mut pace) <= FIRST_PAUSE, "the next outage begins anew");
}

/// A call that finds the server back waits for what is left of the pause.
#[test]
fn a_pause_is_a_part_of_the_io_timeout() {
    let mut pace = Pace::new(Duration::from_millis(20));
    for _ in 0..10 {
        assert!(fail(&mut pace) <= Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(6));
    assert!(pace.pause().is_zero(), "it is over");
}

#[test]
fn a_failure_counts_for_those_who_came_before_it() {
    let mut pace = Pace::new(Duration::from_secs(60));
    let before = os::now();
    std::thread::sleep(Duration::from_millis(1));
    fail(&mut pace);
    assert!(pace.trouble_since(before).is_some());
    std::thread::sleep(Duration::from_millis(1));
    assert!(pace.trouble_since(os::now()).is_none());
    assert!(pace.trouble().is_some());
}
