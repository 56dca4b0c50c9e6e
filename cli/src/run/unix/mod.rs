//! A run on Unix: process groups, signals, job control.

mod ancestors;
mod child;
mod oversee;
mod signals;
mod terminal;

pub(super) use ancestors::{held_above, may_be_nested};
pub(super) use child::Child;
pub(super) use oversee::{Ended, Oversight};
pub(super) use signals::end_by;
pub(crate) use signals::{Signals, is_ignored};
pub(super) use terminal::may_write_in_the_background;
