//! A set of masters, and which of them have requests of unknown outcome.

use std::ops::BitOr;

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
        indexes.into_iter().for_each(|index| set.insert(index));
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
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UnknownNodes {
    pub(super) nodes: NodeSet,
    /// Those of `nodes` that were already sent the release, on the same connection: only its reply
    /// is missing.
    pub(super) unread: NodeSet,
}

impl UnknownNodes {
    pub(super) fn of(unknowns: &UnknownOutcomes) -> Self {
        unknowns.get().copied().unwrap_or_default()
    }

    pub(super) fn store(self, unknowns: &mut UnknownOutcomes) {
        if self.nodes.is_empty() { unknowns.clear() } else { unknowns.set(self) }
    }
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
}
