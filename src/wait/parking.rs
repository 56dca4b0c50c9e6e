//! A parked hold: its user has given it up, and it stays in the store for a thread of the client
//! that waits for it.
//!
//! The thread that leads the local queue is its *keeper*: it is woken, and takes the hold out, even
//! if it gives up at that moment. While it wakes up, a thread that is already running may take the
//! hold before it (barging), so that many short turns fit into one wake-up. The keeper does not
//! wait for ever: once half a millisecond has passed since a keeper had a hold, the next hold that
//! is parked is for the keeper alone (eventual fairness, as in `parking_lot`).

use std::time::{Duration, Instant};

use crate::lease::store_hold::Admission;
use crate::os;

/// For this long, threads that come later may take the hold before the thread that has waited
/// longest.
const BARGING: Duration = Duration::from_micros(500);

/// Guarded by the mutex of the local queue.
#[derive(Debug, Default)]
pub(super) struct Parking {
    hold: Option<Admission>,
    /// The keeper was woken, and has not checked since.
    is_keeper_woken: bool,
    /// When a keeper last took a hold.
    last_kept: Option<Instant>,
    is_for_keeper: bool,
}

impl Parking {
    /// Whether no hold is parked.
    pub(super) fn is_free(&self) -> bool {
        self.hold.is_none()
    }

    /// Parks the hold, if none is parked: replacing one would give it up under the mutex of the
    /// queue. `is_for_keeper`: nobody else may take it. Returns whether the keeper has to be woken.
    pub(super) fn park(&mut self, hold: Admission, is_for_keeper: bool) -> bool {
        let now = os::now();
        let last_kept = *self.last_kept.get_or_insert(now);
        self.is_for_keeper = is_for_keeper || now.saturating_duration_since(last_kept) >= BARGING;
        self.hold = Some(hold);
        !std::mem::replace(&mut self.is_keeper_woken, true)
    }

    /// Takes out the hold, for the keeper.
    pub(super) fn keep(&mut self) -> Option<Admission> {
        self.is_keeper_woken = false;
        let hold = self.hold.take()?;
        self.last_kept = Some(os::now());
        Some(hold)
    }

    /// Takes out the hold, for a thread that did not wait, if it `fits`.
    pub(super) fn barge(&mut self, fits: impl FnOnce(&Admission) -> bool) -> Option<Admission> {
        if self.is_for_keeper {
            return None;
        }
        self.hold.take_if(|hold| fits(hold))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::lease::LeaseState;
    use crate::base::lock_name::Kind;
    use crate::lease::records::StoreHold;
    use crate::lease::store_hold::tests::{SPAN, granted};
    use crate::signal::clock::FakeClock;

    fn admission() -> (Admission, Arc<StoreHold>) {
        let admission =
            granted("a", Kind::Mutex, &Arc::new(FakeClock::default()), SPAN).admit_first();
        let hold = admission.hold.clone();
        (admission, hold)
    }

    /// Repeats what has to be done within [`BARGING`] until a busy machine lets it.
    fn in_time(attempt: impl Fn() -> Option<()>) {
        assert!((0..1000).any(|_| attempt().is_some()), "nobody may come before the keeper");
    }

    #[test]
    fn the_keeper_is_woken_once_and_others_may_come_before_it() {
        in_time(|| {
            let mut parking = Parking::default();
            assert!(parking.park(admission().0, false), "it sleeps");
            for _ in 0..3 {
                let barged = parking.barge(|_| true)?;
                assert!(!parking.park(barged, false), "it is waking up");
            }
            assert!(parking.keep().is_some() && parking.keep().is_none());
            assert!(parking.park(admission().0, false), "it sleeps again");
            Some(())
        });
    }

    #[test]
    fn half_a_millisecond_after_a_keeper_had_one_the_next_is_for_the_keeper() {
        in_time(|| {
            let mut parking = Parking::default();
            parking.park(admission().0, false);
            let barged = parking.barge(|_| true)?;
            std::thread::sleep(BARGING);
            parking.park(barged, false);
            assert!(parking.barge(|_| true).is_none());
            let kept = parking.keep().unwrap();
            parking.park(kept, false);
            // It counts from then on.
            let barged = parking.barge(|_| true)?;
            parking.park(barged, true);
            assert!(parking.barge(|_| true).is_none(), "others are known");
            Some(())
        });
    }

    #[test]
    fn one_that_does_not_fit_stays_for_the_keeper_and_is_never_nobodys() {
        let mut parking = Parking::default();
        let (admission, hold) = admission();
        parking.park(admission, false);
        assert!(parking.barge(|_| false).is_none());
        assert_eq!(hold.state(), LeaseState::Held);
        drop(parking.keep());
        assert_eq!(
            hold.state(),
            LeaseState::Released,
            "a keeper that does not take it gives it up"
        );
    }
}
