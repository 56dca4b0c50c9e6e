//! The arithmetic of Redlock: what a majority is, when one may come about, how long a round may take.
//!
//! The algorithm is that of the Redis documentation, "Distributed Locks with Redis". The validity it speaks of (the lease
//! without the time spent and the drift of the clocks) is [`valid_until`](crate::base::lease::valid_until), as for one server.

use std::time::Duration;

/// How many of all *configured* masters it takes.
pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// So many say the same that the others cannot make a majority for anything else.
pub(crate) fn is_final(same: usize, nodes: usize) -> bool {
    same > nodes - majority(nodes)
}

/// When `missing` of the masters that are taken come free by themselves; `None`: nobody knows.
pub(crate) fn until_free(mut ttls: Vec<Option<Duration>>, missing: usize) -> Option<Duration> {
    ttls.sort_by_key(|ttl| ttl.unwrap_or(Duration::MAX));
    ttls.get(missing.checked_sub(1)?).copied().flatten()
}

/// How much longer the others are waited for once a majority has answered: they are mostly just behind, and a reply that
/// is read now need not be read later.
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
        // Two of four make no majority, and leave none.
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
