//! Random numbers from the operating system, and a bounded backoff with jitter.

use std::time::Duration;

use crate::base::random;
use crate::os;

pub(crate) fn number() -> u64 {
    os::random_number()
}

/// Uniform in 0..1.
pub(crate) fn fraction() -> f64 {
    // 53 bits: the precision of a double.
    (number() >> 11) as f64 / (1_u64 << 53) as f64
}

/// 128 bits, for a unique id.
pub(crate) fn id() -> u128 {
    u128::from(number()) << 64 | u128::from(number())
}

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
    fn fractions_are_below_one() {
        assert!((0..1000).all(|_| (0.0..1.0).contains(&fraction())));
        assert_ne!(id(), id());
    }

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
