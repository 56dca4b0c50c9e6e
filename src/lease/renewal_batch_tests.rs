use super::*;
use crate::base::lock_name::Kind;
use crate::lease::store_hold::tests::granted_by;
use crate::lease::watchdog::tests::watchdog;
use crate::signal::clock::{Clock, FakeClock};

/// A connection has to be made first, or the process is stopped in between.
#[test]
fn visits_that_are_sent_late_do_not_lengthen_a_fixed_lease() {
    let clock = Arc::new(FakeClock::default());
    let watchdog = watchdog(&clock);
    let seconds = Duration::from_secs;
    let mut hold = granted_by(&watchdog, "a", Kind::Mutex, seconds(10));
    hold.asked.is_renewed = false;
    let hold = Arc::new(hold);
    let end = hold.lease.until();
    let mut news = News::default();
    for _ in 0..3 {
        clock.advance(seconds(1));
        hold.lease.suspect(clock.now());
        let renewal = hold.renewal(clock.now());
        clock.advance(seconds(1));
        let held = Renewed::Held { sent_at: clock.now(), again: false, beside: None, asked: 0 };
        watchdog.apply(&hold, &renewal, held, Duration::ZERO, &mut news);
        assert_eq!((hold.state(), hold.lease.until()), (LeaseState::Held, end), "it is confirmed");
    }
}
