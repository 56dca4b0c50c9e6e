//! Tests of the command `leasehold`, as a process against real servers.

#![allow(missing_docs, reason = "tests")]

mod conflicts;
mod crons;
mod doctor;
mod exporter;
mod json;
mod killed;
mod lead;
mod looking;
mod loss;
mod once;
mod outages;
mod pages;
mod permits;
mod program;
mod run;
mod screen;
mod secrets;
mod signals;
mod stores;
#[allow(dead_code, unused_imports, reason = "shared; no program uses all of it")]
#[path = "../../../tests/support/mod.rs"]
mod support;
mod terminal;
mod top;
mod unlock;
mod unread;
mod watch;

use leasehold_rig as rig;
