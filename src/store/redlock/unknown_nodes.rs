//! The unknown outcomes of a call to several masters.

use super::node_set::NodeSet;
use crate::store::UnknownOutcomes;

/// The masters on which a request of a call may have run, or may still run. Each [`Node`] keeps the
/// requests of one holder in order, so a set is all that has to be remembered here.
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
