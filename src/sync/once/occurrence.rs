//! Which occurrence of a job is meant: a label, or the last fire time by the clock of the store.

use std::time::Duration;

use crate::base::error::{Result, invalid};
use crate::base::limits::in_words;

/// Which occurrence of a [`ScheduledJob`](crate::ScheduledJob) is meant. Made from a label, or from
/// a schedule.
///
/// # Labels
/// 1 to 128 ASCII letters, digits and characters of `-_.:+,@`. Those of one job have an order, that
/// of their bytes: use one format, such as `2026-11-23T02:00Z`. What has no order, such as the id
/// of a payment, belongs into the name of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Occurrence {
    /// This one.
    Label(String),
    /// The last fire time.
    Every(Every),
}

impl From<&str> for Occurrence {
    fn from(label: &str) -> Self {
        Self::Label(label.to_owned())
    }
}

impl From<String> for Occurrence {
    fn from(label: String) -> Self {
        Self::Label(label)
    }
}

impl From<&String> for Occurrence {
    fn from(label: &String) -> Self {
        Self::Label(label.clone())
    }
}

impl From<Every> for Occurrence {
    fn from(every: Every) -> Self {
        Self::Every(every)
    }
}

/// A job that is due at regular times: its fire times are the multiples of an interval since 1970
/// in UTC, plus an offset. The occurrence is the last one before the present time **of the store**,
/// so it is the same for all machines, whatever their clocks say. Its label is that time, such as
/// `2026-11-23T02:00:00Z`.
///
/// Nothing here wakes anybody: let cron, a timer or a loop call [`run`](crate::ScheduledJob::run)
/// at about that time on each machine. A time at which nobody calls is not made up for.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use leasehold::{Every, LockClient, Once};
/// # let client = LockClient::in_memory();
/// // At two in the morning, UTC.
/// let nightly = Every::new(Duration::from_secs(86_400)).offset(Duration::from_secs(2 * 3600));
/// let once = client.once("report", nightly).run(|job| {
///     println!("the report of {}", job.occurrence());
///     Ok::<_, std::io::Error>(())
/// })?;
/// assert!(matches!(once, Once::Done(())));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every {
    interval: Duration,
    offset: Duration,
    /// `None`: [`EARLY`], as far as the interval allows it.
    early: Option<Duration>,
    grace: Option<Duration>,
}

/// How much sooner than the store a caller may wake up if nothing else is set.
const EARLY: Duration = Duration::from_secs(30);

/// A longer interval than a year is a mistake in units.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

impl Every {
    /// Due every `interval`: whole seconds, 1 s to 366 days. The first call reports another one.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self { interval, offset: Duration::ZERO, early: None, grace: None }
    }

    /// Due so much later than the multiples of the interval: whole seconds, less than the interval.
    /// Zero if not set: an hourly job is due at the full hour, a daily one at midnight in UTC.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = offset;
        self
    }

    /// A caller that comes so much before a fire time, by the clock of the store, means that one
    /// and not the one before: its own clock is ahead. At most a tenth of the interval; if not set,
    /// that or 30 s, whichever is shorter.
    #[must_use]
    pub fn early(mut self, early: Duration) -> Self {
        self.early = Some(early);
        self
    }

    /// A caller that comes later than this after the fire time is too late, and runs nothing:
    /// [`Once::Passed`](crate::Once::Passed). Without it, each time is good until the next one.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    fn early_by(&self) -> Duration {
        self.early.unwrap_or_else(|| EARLY.min(self.interval / 10))
    }

    /// # Errors
    /// `InvalidInput` for a setting out of range.
    pub(super) fn check(&self) -> Result<()> {
        let Self { interval, offset, .. } = *self;
        let early = self.early_by();
        let is_whole = |time: Duration| time.subsec_nanos() == 0;
        let refuse = |why: String| Err(invalid(why));
        if !is_whole(interval) || interval.is_zero() || interval > LONGEST {
            return refuse(format!(
                "an interval of {} is not a number of whole seconds from 1 s to 366 days",
                in_words(interval)
            ));
        }
        if !is_whole(offset) || offset >= interval {
            return refuse(format!(
                "an offset of {} is not a number of whole seconds below the interval of {}",
                in_words(offset),
                in_words(interval)
            ));
        }
        if early > interval / 10 {
            return refuse(format!(
                "{} early is more than a tenth of the interval of {}",
                in_words(early),
                in_words(interval)
            ));
        }
        Ok(())
    }

    /// The last fire time at `now`, since 1970.
    pub(super) fn last_before(&self, now: Duration) -> Duration {
        let interval = self.interval.as_secs();
        let offset = self.offset.as_secs();
        let reached = (now + self.early_by()).as_secs();
        // Before the first one of 1970 there is none.
        let count = reached.saturating_sub(offset) / interval;
        Duration::from_secs(count * interval + offset)
    }

    /// Whether it is too late at `now` for that fire time.
    pub(super) fn is_too_late(&self, due: Duration, now: Duration) -> bool {
        self.grace.is_some_and(|grace| now.saturating_sub(due) > grace)
    }
}

/// A time since 1970 in whole seconds, in UTC: `2026-11-23T02:00:00Z`.
pub(super) fn label_of(time: Duration) -> String {
    let seconds = time.as_secs();
    let days = seconds / 86_400;
    let of_day = seconds % 86_400;
    let (year, month, day) = date_of(days);
    let hour = of_day / 3600;
    let minute = of_day / 60 % 60;
    let second = of_day % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day, the number of days after 1970-01-01.
fn date_of(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // Years of 365 days are at most too many, by one for each leap day.
    let leap_days_before = |year: u64| {
        let past = year - 1;
        past / 4 - past / 100 + past / 400 - 477
    };
    let first_of = |year: u64| (year - 1970) * 365 + leap_days_before(year);
    let mut year = 1970 + days / 365;
    while first_of(year) > days {
        year -= 1;
    }
    let mut day = days - first_of(year);
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
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
}
