//! A run on Windows: a job object, and the events of the console.

mod child;
mod help;
mod oversee;
mod signals;

use leasehold::observe::HolderOwner;

pub(super) use child::Child;
pub(super) use help::DETAILS;
pub(super) use oversee::{Ended, Oversight};
pub(crate) use signals::Signals;

/// The processes that this one was started under. No safe interface lists them, so a run under
/// another is recognized only by the token in its environment.
pub(super) struct Ancestors;

impl Ancestors {
    pub(super) fn of_this_process() -> Self {
        Self
    }

    pub(super) fn include(&self, _: &HolderOwner) -> bool {
        false
    }
}

/// Nothing stops a program that does.
pub(super) fn may_write_in_the_background() {}
