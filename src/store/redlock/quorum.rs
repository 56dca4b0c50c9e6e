//! The arithmetic of Redlock: the size of a majority, when a round is decided, how long it may
//! take.
//!
//! The algorithm is that of the Redis documentation, "Distributed Locks with Redis". Its validity
//! time (the lease less the time spent and the drift of the clocks) is
//! [`valid_until`](crate::base::lease::valid_until), as for one server.

use std::time::Duration;

/// Counted from all *configured* masters, not only from those that can be reached: two halves of a
/// partition must not each have a majority.
pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// True when the masters that did not give the `same` answer are too few for a majority.
pub(crate) fn is_final(same: usize, nodes: usize) -> bool {
    same > nodes - majority(nodes)
}

/// The time after which the leases of `missing` masters have ended. `None` if one of them has no
/// known end.
pub(crate) fn until_free(mut ttls: Vec<Option<Duration>>, missing: usize) -> Option<Duration> {
    ttls.sort_by_key(|ttl| ttl.unwrap_or(Duration::MAX));
    ttls.get(missing.checked_sub(1)?).copied().flatten()
}

/// How much longer a decided round waits for the other replies. Most of them come soon, and a reply
/// that is read now does not have to be read later.
pub(crate) fn grace(spent: Duration) -> Duration {
    (spent / 2 + Duration::from_micros(200)).min(Duration::from_millis(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half_of_all() {
        assert_eq!([1, 2, 3, 4, 5].map(majority), [1, 2, 2, 3, 3]);
        assert!(!is_final(1, 3) && is_final(2, 3));
        // Two of four are no majority, and the other two are none either.
        assert!(is_final(2, 4) && !is_final(2, 5) && is_final(3, 5));
    }

    #[test]
    fn the_hint_is_when_enough_have_come_free() {
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(until_free(vec![ms(9), None, ms(5)], 1), ms(5));
        assert_eq!(until_free(vec![ms(9), None, ms(5)], 2), ms(9));
        assert_eq!(until_free(vec![ms(9), None, ms(5)], 3), None);
        assert_eq!(until_free(vec![ms(9)], 2), None);
        assert_eq!(until_free(vec![ms(9)], 0), None);
    }
}
