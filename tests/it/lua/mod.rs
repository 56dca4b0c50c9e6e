//! The Lua scripts of the crate, and a bench that runs them without it.

mod bench;
mod table;

pub(crate) use bench::{Bench, Content, MILLIS, Picture, kilo};
pub(crate) use table::{script, scripts, sha};
