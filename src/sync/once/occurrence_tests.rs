use super::*;
use crate::base::error::ErrorKind;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The times are those that GNU date prints.
#[test]
fn a_time_is_written_in_utc() {
    for (seconds, label) in [
        (0, "1970-01-01T00:00:00Z"),
        (86_399, "1970-01-01T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_078_012_800, "2004-02-29T00:00:00Z"),
        (1_709_251_199, "2024-02-29T23:59:59Z"),
        (1_735_689_599, "2024-12-31T23:59:59Z"),
        (1_795_406_400, "2026-11-23T04:00:00Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (4_107_456_000, "2100-02-28T00:00:00Z"),
    ] {
        assert_eq!(label_of(Duration::from_secs(seconds)), label);
    }
}

#[test]
fn dates_follow_each_other() {
    let mut before = date_of(0);
    for days in 1..200_000 {
        let date = date_of(days);
        let is_next = date.2 == before.2 + 1 && date.1 == before.1
            || date.2 == 1 && (date.1 == before.1 + 1 || date.1 == 1 && before.1 == 12);
        assert!(is_next && date > before, "{before:?} {date:?}");
        before = date;
    }
}

#[test]
fn clocks_that_differ_mean_the_same_time() {
    let hourly = Every::new(HOUR).offset(60 * SECOND);
    let due = Duration::from_secs(1_795_406_460);
    for off in [Duration::ZERO, SECOND, Duration::from_secs(3569)] {
        assert_eq!(hourly.last_before(due + off), due);
    }
    let early = Duration::from_secs(30);
    assert_eq!(hourly.last_before(due - early), due, "a clock that is ahead");
    assert_eq!(hourly.last_before(due - early - SECOND / 10), due - HOUR);
    assert_eq!(hourly.early(Duration::ZERO).last_before(due - SECOND), due - HOUR);
    // A short interval has a short time for clocks that are ahead.
    let often = Every::new(10 * SECOND);
    assert_eq!(often.last_before(Duration::from_millis(19_000)), 20 * SECOND);
    assert_eq!(often.last_before(Duration::from_millis(18_999)), 10 * SECOND);
}

#[test]
fn a_grace_ends() {
    let every = Every::new(HOUR).grace(60 * SECOND);
    let due = HOUR * 1000;
    assert!(!every.is_too_late(due, due + 60 * SECOND));
    assert!(every.is_too_late(due, due + 61 * SECOND));
    assert!(!every.is_too_late(due, due - SECOND), "an early caller");
    assert!(!Every::new(HOUR).is_too_late(due, due * 2));
}

#[test]
fn settings_have_ranges() {
    let half = Duration::from_millis(500);
    for good in [Every::new(SECOND), Every::new(HOUR).offset(HOUR - SECOND).early(HOUR / 10)] {
        good.check().unwrap();
    }
    for bad in [
        Every::new(Duration::ZERO),
        Every::new(half),
        Every::new(Duration::MAX),
        Every::new(HOUR).offset(HOUR),
        Every::new(HOUR).offset(half),
        Every::new(HOUR).early(HOUR / 9),
    ] {
        assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
    }
}
