//! Random numbers, straight from the operating system.
//!
//! Not from `rand`'s generator of the thread: in the destructor of a thread-local it may be gone, and asking for it then
//! aborts the process; and a child made by `fork()` has a copy of it, so that the ids of both would be the same.

use rand::TryRngCore;
use rand::rngs::OsRng;

pub(crate) fn number() -> u64 {
    OsRng.try_next_u64().expect("the operating system has random numbers")
}

/// Uniform in 0..1.
pub(crate) fn fraction() -> f64 {
    // As many bits as a double has digits.
    (number() >> 11) as f64 / (1_u64 << 53) as f64
}

/// 128 bits, for an id that nobody else has.
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
