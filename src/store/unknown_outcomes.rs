//! What may have run without a reply: opaque to all code except the store that wrote it.

use std::any::Any;
use std::sync::Arc;

/// The requests of one call that may have run, or may still run, because no reply came. Only the
/// store that wrote this value can read it. Empty: the outcome of every request is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnknownOutcomes {
    requests: Option<Arc<dyn Any + Send + Sync>>,
    spent: Option<Spent>,
}

/// The holder of an acquire must not be asked for again, because a release with no counts left is
/// sent for it. That release may run late, and would then remove what a later request of the same
/// holder was granted: another client could take a lock that this client believes it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// The store has sent the release. If something may be left, it is among the unknown outcomes.
    Released,
    /// The holder may hold something that does not count, and the caller has to release it.
    Unreleased,
}

impl UnknownOutcomes {
    /// A request may have run, and whatever the store knew of it is lost. No store finds anything
    /// of its own in this, so it undoes the hold and keeps the connection.
    pub(crate) fn of_a_panic() -> Self {
        Self { requests: Some(Arc::new(())), spent: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_none()
    }

    pub(crate) fn clear(&mut self) {
        self.requests = None;
    }

    pub(crate) fn set<T: Any + Send + Sync>(&mut self, unknown: T) {
        self.requests = Some(Arc::new(unknown));
    }

    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        self.requests.as_deref()?.downcast_ref()
    }

    /// The unknown outcomes of a store that keeps each request.
    pub(crate) fn list<T: Any>(&self) -> &[T] {
        match self.get::<Vec<T>>() {
            Some(list) => list,
            None => &[],
        }
    }

    /// Adds one to the [list](Self::list).
    pub(crate) fn push<T: Any + Send + Sync + Clone>(&mut self, unknown: T) {
        let mut list = self.list().to_vec();
        list.push(unknown);
        self.set(list);
    }

    /// Called by a store in an acquire. If something was released and something else was not, the
    /// caller releases everything.
    pub(crate) fn spend(&mut self, spent: Spent) {
        if self.spent != Some(Spent::Unreleased) {
            self.spent = Some(spent);
        }
    }

    pub(crate) fn take_spent(&mut self) -> Option<Spent> {
        self.spent.take()
    }
}
