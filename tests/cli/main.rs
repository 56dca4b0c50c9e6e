//! Tests of the command `leasehold`, as a process against real servers.

#![allow(missing_docs, reason = "tests")]

mod bench;
mod conflicts;
mod crons;
mod doctor;
mod json;
mod looking;
mod loss;
mod outages;
mod pages;
mod program;
#[allow(dead_code, unused_imports, reason = "made for the other binary, which uses all of it")]
#[path = "../it/rig/mod.rs"]
mod rig;
mod run;
mod screen;
mod secrets;
mod signals;
mod stores;
mod terminal;
mod top;
mod unlock;
mod watch;
