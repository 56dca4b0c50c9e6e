//! Which grants the watchdog visits, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::background::grant::{Grant, NOT_SCHEDULED, tick};
use crate::base::holder::Holder;
use crate::base::lease::{Moment, margin};
use crate::os::atomic::Ordering;

/// Each grant knows when it is due here. The owner of the schedule guards both with one mutex.
#[derive(Debug)]
pub(crate) struct Schedule {
    due: BTreeMap<Place, Arc<Grant>>,
    /// The shortest lease since it was last empty: it decides how often the clock must be read.
    shortest: Duration,
}

/// When the grant is due; its address keeps equal times apart.
type Place = (Moment, usize);

fn place(grant: &Grant, due: Moment) -> Place {
    (due, std::ptr::from_ref(grant).addr())
}

impl Default for Schedule {
    fn default() -> Self {
        Self { due: BTreeMap::new(), shortest: Duration::MAX }
    }
}

impl Schedule {
    /// Returns when it will be visited: no later than the end of its lease, which must be detected.
    pub(crate) fn enter(&mut self, grant: &Arc<Grant>, due: Moment) -> Moment {
        if self.due.is_empty() {
            self.shortest = Duration::MAX;
        }
        self.shortest = self.shortest.min(grant.span);
        let due = due.min(grant.lease.until());
        grant.due.store(due.as_nanos(), Ordering::Relaxed);
        self.due.insert(place(grant, due), grant.clone());
        due
    }

    /// False: it was not there.
    pub(crate) fn leave(&mut self, grant: &Grant) -> bool {
        self.take(grant).is_some()
    }

    /// Takes it out. Returns when it would have been visited.
    pub(crate) fn take(&mut self, grant: &Grant) -> Option<Moment> {
        let due = Moment::from_nanos(grant.due.swap(NOT_SCHEDULED, Ordering::Relaxed));
        self.due.remove(&place(grant, due)).map(|_| due)
    }

    /// Makes all grants of a holder due now.
    pub(crate) fn hasten(&mut self, holder: &Holder, now: Moment) {
        for grant in self.take_where(|grant| grant.holder == *holder) {
            self.enter(&grant, now);
        }
    }

    /// Takes out all grants under a lock key.
    pub(crate) fn take_under(&mut self, key: &str) -> Vec<Arc<Grant>> {
        self.take_where(|grant| &*grant.name.key == key)
    }

    fn take_where(&mut self, is_meant: impl Fn(&Grant) -> bool) -> Vec<Arc<Grant>> {
        let meant: Vec<_> = self.due.values().filter(|grant| is_meant(grant)).cloned().collect();
        for grant in &meant {
            self.leave(grant);
        }
        meant
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.due.values()
    }

    /// How often the clock must be read.
    pub(crate) fn tick(&self) -> Duration {
        tick(self.shortest)
    }

    /// When the thread that visits them must wake up: for the first that is due, and in between to
    /// read the clock, because a condition variable does not count the time that the machine
    /// sleeps.
    pub(crate) fn wake_at(&self, now: Moment) -> Option<Moment> {
        let ((first, _), _) = self.due.first_key_value()?;
        Some((*first).min(now.plus(self.tick())))
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
            grant.due.store(NOT_SCHEDULED, Ordering::Relaxed);
            grants.push(grant);
        }
        grants
    }

    pub(crate) fn take_all(&mut self) -> Vec<Arc<Grant>> {
        let grants: Vec<_> = std::mem::take(&mut self.due).into_values().collect();
        grants.iter().for_each(|grant| grant.due.store(NOT_SCHEDULED, Ordering::Relaxed));
        grants
    }

    /// Whether a lease can have ended while the machine stood still for this long without its
    /// boot-time clock counting it.
    pub(crate) fn is_endangered_by(&self, jump: Duration) -> bool {
        !self.due.is_empty() && jump > margin(self.shortest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::grant::RenewalPolicy;
    use crate::background::grant::tests::grant;
    use crate::base::clock::FakeClock;

    #[test]
    fn grants_that_are_due_at_the_same_time_are_kept_apart() {
        let (clock, span) = (Arc::new(FakeClock::default()), Duration::from_secs(10));
        let [a, b, c] = ["a", "b", "c"].map(|name| grant(name, &clock, span, RenewalPolicy::Fixed));
        let mut schedule = Schedule::default();
        let due = Moment::from_nanos(0);
        for grant in [&a, &b, &c] {
            assert_eq!(schedule.enter(grant, due), due);
        }
        assert!(schedule.leave(&b) && !schedule.leave(&b));
        let mut visited = schedule.take_due(due);
        visited.sort_by_key(|grant| grant.name.name.clone());
        assert!(Arc::ptr_eq(&visited[0], &a) && Arc::ptr_eq(&visited[1], &c) && visited.len() == 2);
        assert!(!schedule.leave(&a) && schedule.take_all().is_empty());
    }
}
