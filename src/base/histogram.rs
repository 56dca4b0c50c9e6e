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
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_that_ends_after_it() {
        let mut nanos = vec![0, 1, 1023, 1024, u64::MAX];
        nanos.extend((8..60).flat_map(|bits| {
            (0..37).map(move |n| (1_u64 << bits) + n * (1_u64 << (bits - 5)) + n)
        }));
        for nanos in nanos {
            let bucket = bucket_of(nanos);
            assert!(nanos < end_of(bucket) || bucket == BUCKETS - 1, "{nanos}");
            assert!(bucket == 0 || nanos >= end_of(bucket - 1), "{nanos} is not in {bucket}");
        }
        assert_eq!(bucket_of((1 << 46) - 1), BUCKETS - 2);
        assert_eq!(end_of(BUCKETS - 2), 1 << 46);
    }

    /// Compared with the sorted list of what was recorded.
    #[test]
    fn quantiles_are_at_most_a_quarter_too_long() {
        let recorded = AtomicHistogram::default();
        let mut sorted = Vec::new();
        let mut random = 1_u64;
        for _ in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let nanos = 2_000 + (random >> 40) * (1 << (random >> 61));
            recorded.record(Duration::from_nanos(nanos));
            sorted.push(nanos);
        }
        sorted.sort_unstable();
        let read = recorded.read();
        assert_eq!((read.count(), read.max().as_nanos()), (5000, u128::from(sorted[4999])));
        assert_eq!(read.sum(), Duration::from_nanos(sorted.iter().sum()));
        for quantile in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((quantile * 5000.0_f64).ceil() as usize).max(1);
            let (exact, said) =
                (sorted[rank - 1] as f64, read.quantile(quantile).as_nanos() as f64);
            assert!(said >= exact && said <= exact * 1.25 + 1.0, "{quantile}: {said} for {exact}");
        }
        assert_eq!(read.p50(), read.quantile(0.5));
    }

    #[test]
    fn without_durations_all_is_zero_and_the_extremes_are_kept() {
        let read = AtomicHistogram::default().read();
        assert_eq!((read.p99(), read.mean(), read.max(), read.count()), Default::default());
        assert_eq!(Histogram::default().p50(), Duration::ZERO);
        let extreme = AtomicHistogram::default();
        for duration in [Duration::ZERO, Duration::from_secs(1 << 40)] {
            extreme.record(duration);
        }
        assert_eq!(extreme.read().quantile(1.0), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn the_coarse_scale_counts_what_is_below_its_ends() {
        let recorded = AtomicHistogram::default();
        let nanos = [1, 1_500, 1_600, 5_000_000, 1 << 60];
        for nanos in nanos {
            recorded.record(Duration::from_nanos(nanos));
        }
        let coarse: Vec<_> = recorded.read().cumulated().collect();
        assert_eq!(coarse[0], (Duration::from_nanos(1 << 10), 1));
        assert_eq!(coarse[1], (Duration::from_nanos(3 << 9), 2));
        assert_eq!(coarse[2], (Duration::from_nanos(1 << 11), 3));
        assert_eq!(
            coarse.last().unwrap(),
            &(Duration::from_nanos(1 << 46), 4),
            "the longest is beyond the scale"
        );
        let steps = coarse.windows(2).map(|ends| ends[1].0.as_secs_f64() / ends[0].0.as_secs_f64());
        assert!(steps.fold(0.0, f64::max) <= 1.5, "an alarm on a quantile would be off by more");
        assert_eq!(coarse.len(), 73);
    }

    #[test]
    fn two_histograms_add_up() {
        let recorded = AtomicHistogram::default();
        for nanos in [1_500, 5_000] {
            recorded.record(Duration::from_nanos(nanos));
        }
        let mut sum = Histogram::default();
        sum.add(&recorded.read());
        sum.add(&recorded.read());
        assert_eq!(
            (sum.count(), sum.sum(), sum.max()),
            (4, Duration::from_nanos(13_000), Duration::from_nanos(5_000))
        );
    }
}
