//! Judges whether a series grows: its last quarter beside its second one. The first quarter is left
//! out, in which caches and pools fill.

use std::fmt;

use super::samples::Series;

/// How long a soak has to be, in minutes, and how many samples it needs, before growth means
/// anything.
const SHORTEST: f64 = 20.0;
const FEWEST: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    None,
    Grows,
    /// Too few samples.
    Unknown,
    /// It is meant to grow.
    Meant,
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "ok",
            Self::Grows => "GROWS",
            Self::Unknown => "too short to judge",
            Self::Meant => "",
        })
    }
}

pub(super) struct Verdict {
    pub(super) series: String,
    pub(super) first: f64,
    /// The medians of the second and of the last quarter.
    pub(super) second: f64,
    pub(super) fourth: f64,
    pub(super) max: f64,
    pub(super) verdict: Growth,
}

impl Verdict {
    pub(super) fn grows(&self) -> bool {
        self.verdict == Growth::Grows
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What a series may reach in its last quarter. A leak of one object for each fault or for each
/// hundredth lock is more within an hour.
fn limit(series: &str, second: f64) -> f64 {
    match series {
        // An allocator keeps what it has freed.
        name if name.ends_with("memory MB") => second * 1.15 + 2.0,
        // PostgreSQL reuses the rows that it has deleted only after a vacuum.
        "store MB" => second * 1.5 + 4.0,
        // A pool opens another connection when many threads call at once.
        name if name.starts_with('p') => second * 1.1 + 3.0,
        // Each call that is under way has a key or a watch.
        _ => second * 1.25 + 6.0,
    }
}

fn verdict(series: &str, samples: &[(f64, f64)]) -> Verdict {
    let values = |from: usize, to: usize| {
        samples[from..to].iter().map(|(_, value)| *value).collect::<Vec<_>>()
    };
    let n = samples.len();
    let (second, fourth) = (median(values(n / 4, n / 2 + 1)), median(values(n * 3 / 4, n)));
    let length = samples[n - 1].0 - samples[0].0;
    let verdict = match series {
        "locks taken" => Growth::Meant,
        _ if n < FEWEST || length < SHORTEST => Growth::Unknown,
        _ if fourth > limit(series, second) => Growth::Grows,
        _ => Growth::None,
    };
    let max = samples.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    Verdict { series: series.to_owned(), first: samples[0].1, second, fourth, max, verdict }
}

pub(super) fn verdicts(series: &Series) -> Vec<Verdict> {
    series.iter().map(|(name, samples)| verdict(name, samples)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An hour with a sample each minute.
    fn hour(value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (1..=60).map(|minute| (f64::from(minute), value(f64::from(minute)))).collect()
    }

    fn judged(series: &str, value: impl Fn(f64) -> f64) -> Growth {
        verdict(series, &hour(value)).verdict
    }

    #[test]
    fn what_grows_steadily_is_found() {
        assert_eq!(judged("p0 memory MB", |minute| 12.0 + minute * 0.2), Growth::Grows);
        assert_eq!(judged("p0 threads", |minute| 8.0 + minute / 3.0), Growth::Grows);
        assert_eq!(judged("keys", |minute| minute), Growth::Grows);
        assert_eq!(judged("store MB", |minute| 2.0 + minute * 0.3), Growth::Grows);
    }

    #[test]
    fn what_fills_at_first_or_jumps_for_a_while_is_fine() {
        assert_eq!(judged("p0 memory MB", |minute| 12.0 + minute.min(15.0)), Growth::None);
        assert_eq!(
            judged("p0 sockets", |minute| if minute % 7.0 == 0.0 { 30.0 } else { 5.0 }),
            Growth::None
        );
        assert_eq!(judged("keys", |minute| 10.0 + minute % 5.0), Growth::None);
        assert_eq!(judged("locks taken", |minute| minute * 300.0), Growth::Meant);
    }

    #[test]
    fn a_short_run_is_not_judged() {
        let samples: Vec<_> = hour(|minute| minute * minute).into_iter().take(FEWEST).collect();
        assert_eq!(
            verdict("keys", &samples).verdict,
            Growth::Unknown,
            "it is only some minutes long"
        );
        let few = [(0.0, 1.0), (60.0, 900.0)];
        assert_eq!(verdict("keys", &few).verdict, Growth::Unknown);
        assert_eq!(verdict("keys", &few[..1]).second, 1.0, "one sample is its own median");
    }

    #[test]
    fn medians_are_those_of_the_quarters() {
        let seen = verdict("keys", &hour(|minute| minute));
        assert_eq!((seen.first, seen.max), (1.0, 60.0));
        assert!(
            seen.second > 15.0 && seen.second < 31.0 && seen.fourth > 45.0,
            "{} {}",
            seen.second,
            seen.fourth
        );
    }
}
