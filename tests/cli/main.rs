//! Tests of the command `leasehold`, as a process against real servers.

#![allow(missing_docs, reason = "tests")]

mod crons;
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
mod terminal;
mod top;
mod watch;
