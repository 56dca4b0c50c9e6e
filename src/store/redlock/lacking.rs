//! Holds that a master lacks: it was away, looked slow, refused or had no vote when they were
//! granted or renewed. Such a hold may have no master to spare: the next one that fails would cost
//! it its majority. A renewal takes it on the others, too ([`renew`](super::renew)), so all holds
//! are renewed as soon as such a master can be asked again, and not only when a third of their
//! leases is over.

use std::sync::Arc;
use std::time::Duration;

use super::quorum::NodeSet;
use crate::base::lease::Moment;
use crate::os::Mutex;

/// A master that is slow again and again must not cost a renewal of all holds each time.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Lacking(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those that some hold may lack.
    masters: NodeSet,
    /// When all holds were last renewed for this reason.
    renewed_at: Option<Moment>,
    renew_all: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Lacking {
    pub(super) fn renew_by(&self, renew_all: Box<dyn Fn() + Send + Sync>) {
        self.0.lock().renew_all = Some(renew_all.into());
    }

    /// A hold was granted without these masters.
    pub(super) fn note(&self, masters: NodeSet) {
        if !masters.is_empty() {
            let mut state = self.0.lock();
            state.masters = state.masters | masters;
        }
    }

    /// To be called from time to time. `well`: the masters that can be asked now.
    pub(super) fn renew_what_is_missing(&self, all: NodeSet, well: NodeSet, now: Moment) {
        if let Some(renew_all) = self.look(all, well, now) {
            renew_all();
        }
    }

    /// What renews all holds, if it is time to do so.
    fn look(
        &self,
        all: NodeSet,
        well: NodeSet,
        now: Moment,
    ) -> Option<Arc<dyn Fn() + Send + Sync>> {
        let mut state = self.0.lock();
        let lacking = state.masters | all.without(well);
        let ill = lacking.without(well);
        state.masters = lacking;
        if lacking == ill || state.renewed_at.is_some_and(|at| now.since(at) < PAUSE) {
            return None;
        }
        state.masters = ill;
        state.renewed_at = Some(now);
        state.renew_all.clone()
    }
}

impl std::fmt::Debug for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lacking").field(&self.0.lock().masters).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_renewed_when_a_master_that_lacks_something_is_well() {
        let lacking = Lacking::default();
        lacking.renew_by(Box::new(|| ()));
        let all = NodeSet::all(3);
        let second = NodeSet::one(1);
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let renews = |well, ms| lacking.look(all, well, at(ms)).is_some();
        assert!(!renews(all, 1000));
        lacking.note(second);
        assert!(!renews(all.without(second), 2000), "it is still away");
        assert!(renews(all, 3000));
        assert!(!renews(all, 5000), "once");
        assert!(!renews(all.without(second), 6000));
        assert!(renews(all, 7000), "what was granted meanwhile may have been granted without it");
        lacking.note(second);
        assert!(!renews(all, 7500), "not so soon again");
        assert!(renews(all, 8000), "but later");
    }
}
