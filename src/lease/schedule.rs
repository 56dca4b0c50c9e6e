//! Which holds the watchdog visits, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::base::lease::{Moment, margin};
use crate::lease::records::{NOT_SCHEDULED, StoreHold};
use crate::os::atomic::Ordering;

/// For long leases: the default lease, so that they are visited as often as others.
const LONGEST_BETWEEN_VISITS: Duration = Duration::from_secs(30);
/// For a lock that others share. A reader of another library may arrive at any time, and each of
/// its renewals sets the TTL of the whole lock to its own watchdog time. That cut must be undone
/// before it ends the lock, and such a reader must be known before the server becomes unreachable.
/// This gives three inspections within a watchdog time of 3 s, and two within the shortest that is
/// assumed (`LEAST_WATCHDOG` in `renewal_batch`).
const LONGEST_BETWEEN_SHARED_VISITS: Duration = Duration::from_secs(3);
/// When a shared lock is first inspected: before that, nothing is known of the other holders.
/// Shorter holds cost no inspection.
const FIRST_SHARED_VISIT: Duration = Duration::from_millis(100);

/// Each hold stores when it is due here. The owner of the schedule guards both with one mutex.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    due: BTreeMap<DuePlace, Arc<StoreHold>>,
    /// How many of them have each lease: the shortest decides how often the clock must be read.
    leases: BTreeMap<Duration, usize>,
}

/// When the hold is due; its address keeps equal times apart.
type DuePlace = (Moment, usize);

fn place(hold: &StoreHold, due: Moment) -> DuePlace {
    (due, std::ptr::from_ref(hold).addr())
}

impl Schedule {
    /// Returns when it will be visited: no later than the end of its lease, which must be detected.
    pub(crate) fn enter(&mut self, hold: &Arc<StoreHold>, due: Moment) -> Moment {
        let due = due.min(hold.first_end());
        hold.visits.due.store(due.as_nanos(), Ordering::Relaxed);
        if self.due.insert(place(hold, due), hold.clone()).is_none() {
            *self.leases.entry(hold.asked.lease).or_default() += 1;
        }
        due
    }

    /// Returns when it would have been visited; `None` if it was not in the schedule.
    pub(crate) fn leave(&mut self, hold: &StoreHold) -> Option<Moment> {
        let due = Moment::from_nanos(hold.visits.due.swap(NOT_SCHEDULED, Ordering::Relaxed));
        self.due.remove(&place(hold, due))?;
        self.forget_lease(hold);
        Some(due)
    }

    fn forget_lease(&mut self, hold: &StoreHold) {
        if let Some(holds) = self.leases.get_mut(&hold.asked.lease) {
            *holds -= 1;
            if *holds == 0 {
                self.leases.remove(&hold.asked.lease);
            }
        }
    }

    fn shortest_lease(&self) -> Duration {
        self.leases.first_key_value().map_or(Duration::MAX, |(lease, _)| *lease)
    }

    pub(crate) fn holds(&self) -> impl Iterator<Item = &Arc<StoreHold>> {
        self.due.values()
    }

    /// How often the clock must be read.
    pub(crate) fn tick(&self) -> Duration {
        tick(self.shortest_lease())
    }

    /// When the thread that visits them must wake up: for the first hold that is due, and in
    /// between to read the clock, because a condition variable does not count the time that the
    /// machine sleeps.
    pub(crate) fn wake_at(&self, now: Moment) -> Option<Moment> {
        let ((first, _), _) = self.due.first_key_value()?;
        Some((*first).min(now.plus(self.tick())))
    }

    #[cfg(feature = "testing")]
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.due.first_key_value().is_some_and(|((first, _), _)| *first <= now)
    }

    /// Takes everything that is due, and what will be due soon: one write instead of many.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<Arc<StoreHold>> {
        let mut holds = Vec::new();
        let mut horizon = now;
        while let Some(entry) = self.due.first_entry()
            && entry.key().0 <= horizon
        {
            let hold = entry.remove();
            // At most a twelfth of a lease early.
            horizon =
                horizon.max(now.plus((hold.asked.lease / 12).min(Duration::from_millis(500))));
            hold.visits.due.store(NOT_SCHEDULED, Ordering::Relaxed);
            self.forget_lease(&hold);
            holds.push(hold);
        }
        holds
    }

    pub(crate) fn take_all(&mut self) -> Vec<Arc<StoreHold>> {
        self.leases.clear();
        let holds: Vec<_> = std::mem::take(&mut self.due).into_values().collect();
        for hold in &holds {
            hold.visits.due.store(NOT_SCHEDULED, Ordering::Relaxed);
        }
        holds
    }

    /// Whether a lease can have ended while the machine was paused for this long without its
    /// boot-time clock counting it. What is left counts, and not what was asked for: a lock that a
    /// release has granted ends with its [place](StoreHold::ending_at).
    pub(crate) fn is_endangered_by(&self, jump: Duration, now: Moment) -> bool {
        self.due.values().any(|hold| jump > margin(hold.lease.until().since(now)))
    }
}

/// How often a thread that keeps the deadline of a lease reads the clock: condition variables do
/// not count the time that the machine is suspended.
pub(crate) fn tick(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(1)).max(Duration::from_millis(1))
}

impl StoreHold {
    /// How often it is visited. A long fixed lease is visited as often as others: its user may be
    /// forced out at any time.
    pub(crate) fn period(&self) -> Duration {
        let lease = self.asked.lease;
        let longest = if self.has_others() {
            LONGEST_BETWEEN_SHARED_VISITS
        } else if self.asked.is_renewed {
            lease
        } else {
            LONGEST_BETWEEN_VISITS
        };
        lease.min(longest) / 3
    }

    /// How long after the request for it the hold is first visited.
    pub(crate) fn first_visit(&self) -> Duration {
        if self.has_others() { self.period().min(FIRST_SHARED_VISIT) } else { self.period() }
    }

    /// When it is first visited. Counted from the request: a slow reply has used up some of the
    /// lease. In the middle of the time, if the hold [ends sooner](StoreHold::ending_at).
    pub(super) fn first_due(&self) -> Moment {
        let at = self.asked.at;
        at.plus(self.first_visit().min(self.lease.until().since(at) / 2))
    }

    /// When it must be visited at the latest: the first end of a lease must be noticed, even that
    /// of a tenure that others outlast.
    pub(super) fn first_end(&self) -> Moment {
        let mut end = self.lease.until();
        for tenure in &self.users.lock().tenures {
            end = end.min(tenure.own_end());
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::lock_name::Kind;
    use crate::lease::store_hold::tests::{granted, tenure};
    use crate::signal::clock::{Clock, FakeClock};

    #[test]
    fn a_short_lease_counts_only_while_its_hold_is_here() {
        let clock = Arc::new(FakeClock::default());
        let ms = Duration::from_millis;
        let [long, short] = [("a", ms(30_000)), ("b", ms(20))]
            .map(|(name, span)| tenure(name, &clock, span).store_hold.clone());
        let mut schedule = Schedule::default();
        let due = Moment::from_nanos(0);
        for hold in [&long, &short, &short] {
            schedule.enter(hold, due);
        }
        assert_eq!(schedule.tick(), ms(2));
        assert!(schedule.leave(&short).is_some());
        assert_eq!(schedule.tick(), ms(1000));
        schedule.enter(&short, due);
        assert_eq!((schedule.take_due(due).len(), schedule.leases.len()), (2, 0));
    }

    #[test]
    fn holds_that_are_due_at_the_same_time_are_kept_apart() {
        let clock = Arc::new(FakeClock::default());
        let span = Duration::from_secs(10);
        let [a, b, c] = ["a", "b", "c"].map(|name| tenure(name, &clock, span).store_hold.clone());
        let mut schedule = Schedule::default();
        let due = Moment::from_nanos(0);
        for hold in [&a, &b, &c] {
            assert_eq!(schedule.enter(hold, due), due);
        }
        assert!(schedule.leave(&b).is_some() && schedule.leave(&b).is_none());
        let mut visited = schedule.take_due(due);
        visited.sort_by_key(|hold| hold.asked.name.name.clone());
        assert!(Arc::ptr_eq(&visited[0], &a) && Arc::ptr_eq(&visited[1], &c) && visited.len() == 2);
        assert!(schedule.leave(&a).is_none() && schedule.take_all().is_empty());
    }

    #[test]
    fn a_place_that_a_release_has_granted_is_endangered_sooner_than_a_lease() {
        let clock = Arc::new(FakeClock::default());
        let seconds = Duration::from_secs;
        let now = clock.now();
        let [lease, place] = [600, 5].map(|end| {
            let hold = granted("a", Kind::Fair, &clock, seconds(600));
            let mut schedule = Schedule::default();
            schedule.enter(&Arc::new(hold.ending_at(now.plus(seconds(end)))), now);
            schedule
        });
        assert!(place.is_endangered_by(seconds(3), now));
        assert!(!lease.is_endangered_by(seconds(3), now));
        assert!(lease.is_endangered_by(seconds(7), now));
        assert!(!Schedule::default().is_endangered_by(seconds(7), now));
    }
}
