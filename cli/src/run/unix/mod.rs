//! A run on Unix: process groups, signals, job control.

mod child;
mod oversee;
mod signals;
mod terminal;

pub(super) use child::Child;
pub(super) use oversee::{Ended, Oversight};
pub(crate) use signals::Signals;
pub(super) use terminal::may_write_in_the_background;
