//! A bounded backoff with jitter.

use std::time::Duration;

use crate::base::random;

/// The step doubles from `first` to `most`. Each pause is a random part of its step, at least half,
/// so that many clients that failed together do not come back together.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    step: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, step: first }
    }

    pub(crate) fn next(&mut self) -> Duration {
        self.next_with(random::fraction())
    }

    /// `chance` is uniform in 0..1.
    fn next_with(&mut self, chance: f64) -> Duration {
        let step = self.step;
        self.step = (step * 2).min(self.most);
        step.mul_f64(0.5 + chance / 2.0)
    }

    pub(crate) fn reset(&mut self) {
        self.step = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_within_its_bounds() {
        let ms = Duration::from_millis;
        let mut b = Backoff::new(ms(4), ms(20));
        assert_eq!((b.next_with(0.0), b.next_with(1.0), b.next_with(0.0)), (ms(2), ms(8), ms(8)));
        assert_eq!((b.next_with(1.0), b.next_with(1.0)), (ms(20), ms(20)));
        b.reset();
        assert_eq!(b.next_with(1.0), ms(4));
    }
}
