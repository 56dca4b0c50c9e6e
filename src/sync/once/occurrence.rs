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
#[path = "occurrence_tests.rs"]
mod tests;
