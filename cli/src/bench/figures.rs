//! Measured times, and the figures that are calculated from them.

use std::time::{Duration, Instant};

use leasehold::ErrorKind;

/// How long each operation took.
#[derive(Default)]
pub(super) struct Samples(Vec<Duration>);

/// The figures of a part.
pub(super) struct Figures {
    pub(super) operations: usize,
    pub(super) per_second: f64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

impl Samples {
    pub(super) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// The samples of all threads; otherwise the error of the thread that failed, and not those of
    /// the others, which were cancelled because of it.
    pub(super) fn together(outcomes: Vec<leasehold::Result<Self>>) -> leasehold::Result<Self> {
        let mut all = Self::default();
        let mut reason = None;
        for outcome in outcomes {
            match outcome {
                Ok(samples) => all.append(samples),
                Err(e) if reason.is_none() || e.kind() != ErrorKind::Cancelled => reason = Some(e),
                Err(_) => {}
            }
        }
        reason.map_or(Ok(all), Err)
    }

    /// Repeats an operation for this time, and at least once. An error ends it.
    pub(super) fn fill<E>(
        &mut self,
        time: Duration,
        mut operation: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let begin = Instant::now();
        let mut before = begin;
        loop {
            operation()?;
            let after = Instant::now();
            self.add(after - before);
            if after - begin >= time {
                return Ok(());
            }
            before = after;
        }
    }

    pub(super) fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// `None` without a sample. `within`: the time in which all samples were measured.
    pub(super) fn figures(mut self, within: Duration) -> Option<Figures> {
        self.0.sort_unstable();
        let operations = self.0.len();
        let max = *self.0.last()?;
        let at = |percent: usize| self.0[(operations * percent / 100).min(operations - 1)];
        let per_second = per_second(operations, within);
        Some(Figures { operations, per_second, p50: at(50), p99: at(99), max })
    }
}

pub(super) fn per_second(operations: usize, within: Duration) -> f64 {
    operations as f64 / within.as_secs_f64().max(f64::EPSILON)
}

/// The value in the middle; of two in the middle, the upper one.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_samples() {
        let mut samples = Samples::default();
        for millis in (1..=200).rev() {
            samples.add(Duration::from_millis(millis));
        }
        assert_eq!((samples.len(), samples.total()), (200, Duration::from_millis(20_100)));
        let figures = samples.figures(Duration::from_secs(4)).unwrap();
        assert_eq!(figures.operations, 200);
        assert!((figures.per_second - 50.0).abs() < 1e-9);
        let millis = [figures.p50, figures.p99, figures.max].map(|time| time.as_millis());
        assert_eq!(millis, [101, 199, 200]);
        assert!(Samples::default().figures(Duration::from_secs(1)).is_none());
    }

    #[test]
    fn a_median_is_no_mean() {
        assert_eq!(median(vec![1.0, 100.0, 2.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn an_operation_is_repeated_until_the_time_is_over_or_it_fails() {
        let mut samples = Samples::default();
        samples.fill(Duration::ZERO, || Ok::<_, ()>(())).unwrap();
        assert_eq!(samples.len(), 1);
        assert_eq!(samples.fill(Duration::MAX, || Err("down")), Err("down"));
        assert_eq!(samples.len(), 1);
    }
}
