//! The Lua scripts of the crate, and what runs them without it.

mod bench;
mod table;

pub(crate) use bench::{Bench, Content, MILLIS, Picture, kilo};
pub(crate) use table::{script, scripts, sha};
