//! Which grants the watchdog visits, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::background::grant::{Grant, tick};
use crate::base::holder::Holder;
use crate::base::lease::{Moment, margin};

/// Each grant knows its place here. The owner of the schedule guards both with one mutex.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// By due time; the number keeps equal times apart.
    due: BTreeMap<(Moment, u64), Arc<Grant>>,
    next: u64,
    /// The shortest lease since it was last empty: it decides how often the clock must be read.
    shortest: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { due: BTreeMap::new(), next: 0, shortest: Duration::MAX }
    }
}

impl Schedule {
    /// Returns when it will be visited: no later than the end of its lease, which must be detected.
    pub(crate) fn enter(&mut self, grant: &Arc<Grant>, due: Moment) -> Moment {
        if self.due.is_empty() {
            self.shortest = Duration::MAX;
        }
        self.shortest = self.shortest.min(grant.span);
        let place = (due.min(grant.lease.until()), self.next);
        self.next += 1;
        *grant.place.lock() = Some(place);
        self.due.insert(place, grant.clone());
        place.0
    }

    /// False: it was not there.
    pub(crate) fn leave(&mut self, grant: &Grant) -> bool {
        self.take(grant).is_some()
    }

    /// Takes it out. Returns when it would have been visited.
    pub(crate) fn take(&mut self, grant: &Grant) -> Option<Moment> {
        let place = grant.place.lock().take()?;
        self.due.remove(&place).map(|_| place.0)
    }

    /// Makes all grants of a holder due now.
    pub(crate) fn hasten(&mut self, holder: &Holder, now: Moment) {
        let theirs: Vec<_> = self.due.values().filter(|grant| grant.holder == *holder).cloned().collect();
        for grant in theirs {
            self.leave(&grant);
            self.enter(&grant, now);
        }
    }

    /// When the thread that visits them must wake up: for the first that is due, and in between to
    /// read the clock, because a condition variable does not count the time that the machine
    /// sleeps.
    pub(crate) fn wake_at(&self, now: Moment) -> Option<Moment> {
        let ((first, _), _) = self.due.first_key_value()?;
        Some((*first).min(now.plus(tick(self.shortest))))
    }

    /// Everything that is due, and what will be due soon: one write instead of many.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<Arc<Grant>> {
        let mut grants = Vec::new();
        let mut horizon = now;
        while let Some(entry) = self.due.first_entry()
            && entry.key().0 <= horizon
        {
            let grant = entry.remove();
            // At most a twelfth of a lease early.
            horizon = horizon.max(now.plus((grant.span / 12).min(Duration::from_millis(500))));
            *grant.place.lock() = None;
            grants.push(grant);
        }
        grants
    }

    pub(crate) fn take_all(&mut self) -> Vec<Arc<Grant>> {
        let grants: Vec<_> = std::mem::take(&mut self.due).into_values().collect();
        grants.iter().for_each(|grant| *grant.place.lock() = None);
        grants
    }

    /// Whether a lease can have ended while the machine stood still for this long without its
    /// boot-time clock counting it.
    pub(crate) fn is_endangered_by(&self, jump: Duration) -> bool {
        !self.due.is_empty() && jump > margin(self.shortest)
    }
}
