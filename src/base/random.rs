//! Random numbers from the operating system.
//!
//! Not from the thread-local generator of `rand`. In the destructor of another thread-local it may
//! be gone, and its use then aborts the process. A child made by `fork()` has a copy of it, so both
//! processes would make the same ids.

use rand::TryRng;
use rand::rngs::SysRng;

pub(crate) fn number() -> u64 {
    SysRng.try_next_u64().expect("the operating system has random numbers")
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
