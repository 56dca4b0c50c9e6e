//! A run on Windows: a job object, and the events of the console.

mod child;
mod oversee;
mod signals;

pub(super) use child::Child;
pub(super) use oversee::{Ended, Oversight};
pub(crate) use signals::Signals;

/// Nothing stops a program that does.
pub(super) fn may_write_in_the_background() {}
