//! What has happened at the end of a hold, each thing at most once: several threads may end it.

use crate::os::atomic::{AtomicU8, Ordering};

/// A request took the hold anew where it was missing, beside the release or behind it.
const PUT_BACK: u8 = 1;
/// The release is over, and nobody waits for its outcome.
const GIVEN_UP: u8 = 2;
/// It has left its share.
const LEFT: u8 = 4;
/// Its loss was counted.
const REPORTED: u8 = 8;
/// The listener was told how it ended.
const TOLD: u8 = 16;
/// Its loss was logged.
const LOGGED: u8 = 32;

#[derive(Debug, Default)]
pub(super) struct Ending(AtomicU8);

impl Ending {
    fn note(&self, what: u8) -> u8 {
        self.0.fetch_or(what, Ordering::AcqRel)
    }

    /// Whether the release is over already.
    pub(super) fn put_back(&self) -> bool {
        self.note(PUT_BACK) & GIVEN_UP != 0
    }

    /// Whether it was put back before.
    pub(super) fn give_up(&self) -> bool {
        self.note(GIVEN_UP) & PUT_BACK != 0
    }

    /// Whether it had not left before.
    pub(super) fn leave(&self) -> bool {
        self.note(LEFT) & LEFT == 0
    }

    /// Whether its loss was not reported before. Then nobody is told that it was given up.
    pub(super) fn report(&self) -> bool {
        self.note(REPORTED | TOLD) & REPORTED == 0
    }

    /// Whether its loss was reported, and is not logged yet: then the caller logs it.
    pub(super) fn log(&self) -> bool {
        self.0.load(Ordering::Acquire) & REPORTED != 0 && self.note(LOGGED) & LOGGED == 0
    }

    /// Whether nobody was told of its end before.
    pub(super) fn tell(&self) -> bool {
        self.note(TOLD) & TOLD == 0
    }
}
