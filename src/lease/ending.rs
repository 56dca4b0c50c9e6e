//! The end of a hold and of its tenures. Several threads may end them, and each step is done by one
//! thread only.

use crate::os::atomic::{AtomicU8, Ordering};

/// A release and a renewal of one hold that are under way at the same time.
#[derive(Debug, Default)]
pub(super) struct ReleaseRace(AtomicU8);

/// A request took the hold anew where it was missing, during the release or after it.
const PUT_BACK: u8 = 1;
/// The release is over, and nobody waits for its outcome.
const GIVEN_UP: u8 = 2;

impl ReleaseRace {
    /// The hold was put back. Returns whether the release is already over.
    pub(super) fn put_back(&self) -> bool {
        self.0.fetch_or(PUT_BACK, Ordering::AcqRel) & GIVEN_UP != 0
    }

    /// The release is over. Returns whether the hold was put back before.
    pub(super) fn give_up(&self) -> bool {
        self.0.fetch_or(GIVEN_UP, Ordering::AcqRel) & PUT_BACK != 0
    }
}

/// Who was notified of the end of a tenure.
#[derive(Debug, Default)]
pub(super) struct EndMarks(AtomicU8);

/// Its loss was counted.
const REPORTED: u8 = 1;
/// The listener was notified of how it ended.
const TOLD: u8 = 2;
/// Its loss was logged.
const LOGGED: u8 = 4;
/// Its `max_hold` is over, and it has its last end.
const NOT_RENEWED: u8 = 8;
/// It no longer keeps the hold in the store.
const LEFT: u8 = 16;

impl EndMarks {
    fn note(&self, what: u8) -> u8 {
        self.0.fetch_or(what, Ordering::AcqRel)
    }

    /// Whether its loss was not reported before. Nobody is then notified that it was given up.
    pub(super) fn report(&self) -> bool {
        self.note(REPORTED | TOLD) & REPORTED == 0
    }

    /// Nobody is notified of its end.
    pub(super) fn hush(&self) {
        self.note(REPORTED | TOLD | LOGGED);
    }

    /// Whether its loss was reported.
    pub(super) fn was_reported(&self) -> bool {
        self.0.load(Ordering::Acquire) & REPORTED != 0
    }

    /// Whether its loss was reported but not logged yet: then the caller logs it.
    pub(super) fn log(&self) -> bool {
        self.was_reported() && self.note(LOGGED) & LOGGED == 0
    }

    /// Whether nobody was notified of its end before.
    pub(super) fn tell(&self) -> bool {
        self.note(TOLD) & TOLD == 0
    }

    pub(super) fn has_left(&self) -> bool {
        self.0.load(Ordering::Acquire) & LEFT != 0
    }

    /// Whether it had not left the hold before.
    pub(super) fn leave(&self) -> bool {
        self.note(LEFT) & LEFT == 0
    }

    /// Whether its `max_hold` is over.
    pub(super) fn is_not_renewed(&self) -> bool {
        self.0.load(Ordering::Acquire) & NOT_RENEWED != 0
    }

    /// Whether its `max_hold` was not over before.
    pub(super) fn end_max_hold(&self) -> bool {
        self.note(NOT_RENEWED) & NOT_RENEWED == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_an_end_happens_once() {
        let told = EndMarks::default();
        assert!(!told.was_reported() && !told.log(), "nothing has happened yet");
        assert!(told.report() && !told.report());
        assert!(told.was_reported());
        assert!(told.log() && !told.log());
        let hushed = EndMarks::default();
        hushed.hush();
        assert!(!hushed.report() && !hushed.log());
    }

    #[test]
    fn whoever_is_second_learns_of_the_first() {
        let race = ReleaseRace::default();
        assert!(!race.put_back() && race.give_up());
        let race = ReleaseRace::default();
        assert!(!race.give_up() && race.put_back());
    }
}
