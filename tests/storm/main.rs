//! A storm: processes with several threads each take locks on few names while faults are injected
//! from outside, and record what they believe; afterwards a checker judges the history.
//!
//! `sh tests/storm.sh` runs it for any length of time. This program also contains the tests of the
//! checker, and one short run for each deployment.

#![allow(missing_docs, reason = "tests")]

mod check;
mod deployment;
mod event;
mod fault;
mod history;
mod plan;
mod run;
mod runs;
mod soak;
#[allow(dead_code, unused_imports, reason = "made for the other programs, which use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod timeline;
mod worker;

use leasehold_rig as rig;
