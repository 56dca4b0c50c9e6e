//! What must be undone in the store, because a request had no answer or failed.

use crate::base::lease::Moment;
use crate::store::Undo;

/// How many are kept while the store does not answer. Beyond that the oldest is dropped.
const MOST_UNDOS: usize = 10_000;

pub(super) struct Undos {
    /// The oldest first.
    waiting: Vec<Undo>,
    /// Those that the thread is resolving now.
    under_way: Vec<Undo>,
    /// The back-off after a failure.
    not_before: Moment,
    dropped_until: Option<Moment>,
}

impl Default for Undos {
    fn default() -> Self {
        let not_before = Moment::from_nanos(0);
        Self { waiting: Vec::new(), under_way: Vec::new(), not_before, dropped_until: None }
    }
}

impl Undos {
    /// Returns the oldest one, if it was dropped because there were too many.
    pub(super) fn add(&mut self, undo: Undo) -> Option<Undo> {
        let is_full = self.open() >= MOST_UNDOS && !self.waiting.is_empty();
        let oldest = is_full.then(|| self.waiting.remove(0));
        if let Some(undo) = &oldest {
            let has_end = undo.permits_without_lease().is_none();
            let until = if has_end { undo.expires } else { Moment::NEVER };
            self.dropped_until = self.dropped_until.max(Some(until));
        }
        self.waiting.push(undo);
        oldest
    }

    /// Those that wait to be resolved, and those that are being resolved.
    pub(super) fn all(&self) -> Vec<Undo> {
        self.under_way.iter().chain(&self.waiting).cloned().collect()
    }

    /// When the last lease ends of those that were dropped because there were too many; `NEVER` for
    /// permits without leases.
    pub(super) fn dropped_until(&self) -> Option<Moment> {
        self.dropped_until
    }

    /// How many are not done.
    pub(super) fn open(&self) -> usize {
        self.waiting.len() + self.under_way.len()
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

    /// Copies them out to be resolved. They stay here until [`end`](Self::end), so a panic in the
    /// middle loses none: to undo something twice does no harm.
    pub(super) fn begin(&mut self) -> Vec<Undo> {
        self.under_way = std::mem::take(&mut self.waiting);
        self.under_way.clone()
    }

    /// Ends what [`begin`](Self::begin) began. `left`: those that are not done; `None` if nobody
    /// knows, because of a panic.
    pub(super) fn end(&mut self, left: Option<Vec<Undo>>, not_before: Moment) {
        let under_way = std::mem::take(&mut self.under_way);
        let mut undos = left.unwrap_or_else(|| after_a_panic(under_way));
        undos.append(&mut self.waiting);
        self.waiting = undos;
        self.not_before = not_before;
    }
}

/// If one undo panics each time, it comes to the front at some time and then goes to the end: the
/// others are not held up by it for ever.
fn after_a_panic(mut undos: Vec<Undo>) -> Vec<Undo> {
    if !undos.is_empty() {
        undos.rotate_left(1);
    }
    undos
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::holder::ClientId;
    use crate::base::lock_name::{Kind, LockName};
    use crate::store::UnknownOutcomes;

    #[test]
    fn there_are_never_more_than_the_most_and_one() {
        let holder = ClientId::random(Duration::from_secs(1)).fresh_holder();
        let name = Arc::new(LockName::new("", "n", Kind::Mutex).unwrap());
        let now = Moment::from_nanos(1);
        let undo =
            || Undo::of_attempt(name.clone(), holder.clone(), 1, UnknownOutcomes::default(), now);
        let mut undos = Undos::default();
        let dropped = (0..MOST_UNDOS).filter_map(|_| undos.add(undo())).count();
        assert_eq!(dropped, 0);
        undos.begin();
        assert!(undos.add(undo()).is_none(), "those that are under way cannot be dropped");
        assert_eq!(undos.dropped_until(), None);
        assert!(undos.add(undo()).is_some());
        assert_eq!(undos.dropped_until(), Some(now));
        undos.end(None, now);
        assert!(undos.add(undo()).is_some() && undos.open() <= MOST_UNDOS + 1);
    }
}
