//! Durations counted in buckets of a fixed scale: recording one is a few relaxed atomic additions,
//! and allocates nothing. Not taken from a crate: the counting is twenty lines, and what users see
//! of it would be written here in any case.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per doubling: a bucket is at most a quarter as wide as its lower end.
const PARTS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 2;
/// Below 2^10 ns, about a microsecond, there is one bucket.
const FIRST_DOUBLING: u32 = 10;
/// From 2^46 ns on, about 19.5 hours, there is also one bucket.
const LAST_DOUBLING: u32 = 46;
const BUCKETS: usize = (LAST_DOUBLING - FIRST_DOUBLING) as usize * PARTS + 2;
/// How many buckets one step of the coarse scale has: half a doubling, so that a quantile that is
/// computed from that scale is at most half as much again as the true one.
const COARSE: usize = PARTS / 2;

/// Durations that threads record.
pub(crate) struct AtomicHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

/// The bucket of a duration in nanoseconds.
fn bucket_of(nanos: u64) -> usize {
    let doubling = 63 - (nanos | 1).leading_zeros();
    if doubling < FIRST_DOUBLING {
        return 0;
    }
    if doubling >= LAST_DOUBLING {
        return BUCKETS - 1;
    }
    let part = (nanos >> (doubling - PART_BITS)) as usize & (PARTS - 1);
    (doubling - FIRST_DOUBLING) as usize * PARTS + part + 1
}

/// The upper end of a bucket; the last one has none.
fn end_of(bucket: usize) -> u64 {
    if bucket + 1 >= BUCKETS {
        return u64::MAX;
    }
    let doubling = bucket / PARTS;
    let part = bucket % PARTS;
    let begin = 1_u64 << (FIRST_DOUBLING as usize + doubling);
    begin + (begin >> PART_BITS) * part as u64
}

impl Default for AtomicHistogram {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Self { buckets, sum: AtomicU64::new(0), max: AtomicU64::new(0) }
    }
}

impl AtomicHistogram {
    pub(crate) fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
        // Usually it is not a new maximum, and nothing is written.
        if self.max.load(Ordering::Relaxed) < nanos {
            self.max.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// The sum of what was recorded, in nanoseconds.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    pub(crate) fn read(&self) -> Histogram {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Histogram { buckets, sum: self.sum(), max: self.max.load(Ordering::Relaxed) }
    }
}

/// How long something took, many times: counted in buckets, four for each doubling from a
/// microsecond to 19 hours.
///
/// A quantile is reported as the upper end of its bucket: at most a quarter too much, and never
/// more than the longest time that was recorded.
///
/// [As JSON](crate::observe#as-json) it is an object with `count`, `sum_us`, `mean_us`, `p50_us`,
/// `p99_us` and `max_us`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Empty if nothing was recorded.
    buckets: Vec<u64>,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// How many durations were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Their mean; zero if there are none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        self.sum.checked_div(self.count()).map_or(Duration::ZERO, Duration::from_nanos)
    }

    /// The longest; zero if there are none. Exact.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The median: half of the durations were no longer.
    #[must_use]
    pub fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// 99 of 100 durations were no longer.
    #[must_use]
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// The time that a fraction `quantile` of the durations, such as 0.95, did not exceed; zero if
    /// there are none. A fraction outside 0 to 1 is clamped.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let count = self.count();
        let rank = (quantile.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bucket, entries) in self.buckets.iter().enumerate() {
            below += entries;
            if below >= rank {
                return Duration::from_nanos(end_of(bucket).min(self.max));
            }
        }
        self.max()
    }

    /// A coarse scale from 2^10 ns, each bound at most half as much again as the one before, with
    /// the number of durations up to each bound.
    pub(crate) fn cumulated(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let ends = (0..BUCKETS - 1).step_by(COARSE);
        let below = |bucket: usize| self.buckets.iter().take(bucket + 1).sum();
        ends.map(move |bucket| (Duration::from_nanos(end_of(bucket)), below(bucket)))
    }

    /// Adds the other histogram to this one.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (own, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += theirs;
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("p50", &self.p50())
            .field("p99", &self.p99())
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "histogram_tests.rs"]
mod tests;
