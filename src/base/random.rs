//! Random numbers from the operating system.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_below_one() {
        assert!((0..1000).all(|_| (0.0..1.0).contains(&fraction())));
        assert_ne!(id(), id());
    }
}
