//! Sets of masters, and the arithmetic of Redlock: the size of a majority, when a round is decided,
//! how long it may take.
//!
//! The algorithm is that of the Redis documentation, "Distributed Locks with Redis". Its validity
//! time (the lease less the time spent and the drift of the clocks) is
//! [`valid_until`](crate::base::lease::valid_until), as for one server.

use std::ops::BitOr;
use std::time::Duration;

use super::node::Evidence;
use crate::store::UnknownOutcomes;

/// Some of the masters of one Redlock, each by its index in the configuration. `Builder` permits
/// fewer than 64 of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NodeSet(u64);

impl NodeSet {
    pub(super) fn all(nodes: usize) -> Self {
        (0..nodes).collect()
    }

    pub(super) fn one(index: usize) -> Self {
        Self(1 << index)
    }

    pub(super) fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.0 &= !(1 << index);
    }

    pub(super) fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The indexes of the items for which `is_in` is true.
    pub(super) fn of<T>(items: &[T], is_in: impl Fn(&T) -> bool) -> Self {
        items.iter().enumerate().filter(|(_, item)| is_in(item)).map(|(index, _)| index).collect()
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indexes: I) -> Self {
        let mut set = Self::default();
        for index in indexes {
            set.insert(index);
        }
        set
    }
}

impl BitOr for NodeSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The masters on which a request of a call may have run, or may still run. Each [`Node`] keeps the
/// requests of one holder in order, so a set is enough here.
///
/// [`Node`]: super::node::Node
#[derive(Debug, Clone, Default)]
pub(super) struct UnknownNodes {
    pub(super) nodes: NodeSet,
    /// Those of `nodes` that were already sent the release, on the same connection, and have yet to
    /// answer. They are sent it again unless their answer says that it ran.
    pub(super) unread: Vec<(usize, Evidence)>,
}

impl UnknownNodes {
    pub(super) fn of(unknowns: &UnknownOutcomes) -> Self {
        unknowns.get().cloned().unwrap_or_default()
    }

    pub(super) fn store(self, unknowns: &mut UnknownOutcomes) {
        if self.nodes.is_empty() { unknowns.clear() } else { unknowns.set(self) }
    }

    /// The masters that must be sent the release now.
    pub(super) fn unsent(&self) -> NodeSet {
        self.nodes.without(self.unread.iter().map(|(index, _)| *index).collect())
    }
}

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
    fn behaves_as_a_set() {
        let all = NodeSet::all(5);
        assert_eq!(all.len(), 5);
        let mut odd = NodeSet::of(&[0, 1, 2, 3, 4], |n| n % 2 == 1);
        assert!(odd.contains(3) && !odd.contains(4));
        assert_eq!(all.without(odd) | odd, all);
        odd.remove(1);
        assert_eq!(odd, NodeSet::one(3));
        assert!(odd.without(all).is_empty() && NodeSet::default().is_empty());
    }

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

    #[test]
    fn a_round_waits_half_as_long_again_for_the_others() {
        let micros = Duration::from_micros;
        assert_eq!(grace(Duration::ZERO), micros(200));
        assert_eq!(grace(micros(2000)), micros(1200));
        assert_eq!(grace(Duration::from_secs(1)), micros(10_000));
    }
}
