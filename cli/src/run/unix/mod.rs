//! A run on Unix: process groups, signals, job control.

mod ancestors;
mod child;
mod help;
mod oversee;
mod signals;
mod terminal;

pub(super) use ancestors::Ancestors;
pub(super) use child::Child;
pub(super) use help::DETAILS;
pub(super) use oversee::{Ended, Oversight};
pub(crate) use signals::{Signals, is_ignored};
pub(super) use terminal::may_write_in_the_background;
