//! A run on Unix: process groups, signals, job control, and a process that outlives a killed run.

mod backstop;
mod child;
mod group;
mod marked;
mod oversee;
mod signals;
mod terminal;

pub(crate) use backstop::be_backstop;
pub(super) use child::Child;
pub(super) use oversee::{Ended, Oversight};
pub(crate) use signals::Signals;
pub(super) use terminal::may_write_in_the_background;
