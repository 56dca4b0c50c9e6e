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
}

impl Default for Undos {
    fn default() -> Self {
        Self { waiting: Vec::new(), under_way: Vec::new(), not_before: Moment::from_nanos(0) }
    }
}

impl Undos {
    /// Returns the oldest one, if it was dropped because there were too many.
    pub(super) fn add(&mut self, undo: Undo) -> Option<Undo> {
        let is_full = self.open() >= MOST_UNDOS && !self.waiting.is_empty();
        let oldest = is_full.then(|| self.waiting.remove(0));
        self.waiting.push(undo);
        oldest
    }

    /// The undos that wait to be resolved.
    pub(super) fn waiting(&self) -> &[Undo] {
        &self.waiting
    }

    /// The latest moment at which an undo that is under way can still hold a lock in the store.
    /// Permits without leases never end there by themselves.
    pub(super) fn standing_until(&self) -> Option<Moment> {
        self.under_way
            .iter()
            .filter(|undo| undo.name.kind.has_lease())
            .map(|undo| undo.expires)
            .max()
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
        assert!(undos.add(undo()).is_some());
        undos.end(None, now);
        assert!(undos.add(undo()).is_some() && undos.open() <= MOST_UNDOS + 1);
    }

    #[test]
    fn permits_without_leases_do_not_lengthen_what_stands() {
        let holder = ClientId::random(Duration::from_secs(1)).fresh_holder();
        let name = |kind| Arc::new(LockName::new("", "n", kind).unwrap());
        let now = Moment::from_nanos(1);
        let ends = Moment::from_nanos(7);
        let mut undos = Undos::default();
        undos.add(Undo::of_permits(
            name(Kind::CountingSemaphore),
            holder.clone(),
            1,
            UnknownOutcomes::default(),
            now,
        ));
        undos.begin();
        assert_eq!(undos.standing_until(), None, "they have no lease that could end");
        undos.end(Some(Vec::new()), now);
        undos.add(Undo::of_attempt(name(Kind::Mutex), holder, 1, UnknownOutcomes::default(), ends));
        undos.begin();
        assert_eq!(undos.standing_until(), Some(ends));
    }
}
