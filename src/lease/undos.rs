//! What must be undone in the store, because a request had no answer or failed.

use crate::base::lease::Moment;
use crate::store::Undo;

/// How many are kept while the store does not answer. Beyond that the oldest is dropped.
const MOST_UNDOS: usize = 10_000;

pub(super) struct Undos {
    /// The oldest first.
    waiting: Vec<Undo>,
    /// How many the thread is resolving, and until when the last of their holds can remain.
    under_way: usize,
    standing_until: Option<Moment>,
    /// The back-off after a failure.
    not_before: Moment,
}

impl Default for Undos {
    fn default() -> Self {
        Self { waiting: Vec::new(), under_way: 0, standing_until: None, not_before: Moment::from_nanos(0) }
    }
}

impl Undos {
    /// Returns the oldest one, if it was dropped because there were too many.
    pub(super) fn add(&mut self, undo: Undo) -> Option<Undo> {
        let oldest = (self.waiting.len() == MOST_UNDOS).then(|| self.waiting.remove(0));
        self.waiting.push(undo);
        oldest
    }

    /// The undos that wait to be resolved.
    pub(super) fn waiting(&self) -> &[Undo] {
        &self.waiting
    }

    /// The latest moment at which an undo that is under way can still hold a lock in the store.
    pub(super) fn standing_until(&self) -> Option<Moment> {
        self.standing_until
    }

    /// How many are not done.
    pub(super) fn open(&self) -> usize {
        self.waiting.len() + self.under_way
    }

    /// When they are due; `None` if there are none.
    pub(super) fn due(&self) -> Option<Moment> {
        (!self.waiting.is_empty()).then_some(self.not_before)
    }

    /// Makes them due now.
    #[cfg(feature = "testing")]
    pub(super) fn hasten(&mut self) {
        self.not_before = Moment::from_nanos(0);
    }

    /// Takes them out to be resolved.
    pub(super) fn take(&mut self) -> Vec<Undo> {
        let undos = std::mem::take(&mut self.waiting);
        self.standing_until = undos.iter().map(|undo| undo.expires).max();
        self.under_way = undos.len();
        undos
    }

    /// Puts back what could not be resolved.
    pub(super) fn put_back(&mut self, mut undos: Vec<Undo>, not_before: Moment) {
        undos.append(&mut self.waiting);
        (self.waiting, self.under_way, self.standing_until) = (undos, 0, None);
        self.not_before = not_before;
    }
}
