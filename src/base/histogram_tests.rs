use super::*;

#[test]
fn every_duration_is_in_the_bucket_that_ends_after_it() {
    let mut nanos = vec![0, 1, 1023, 1024, u64::MAX];
    nanos
        .extend((8..60).flat_map(|bits| {
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
        let (exact, said) = (sorted[rank - 1] as f64, read.quantile(quantile).as_nanos() as f64);
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
