//! A storm: processes of several threads take locks on few names while faults are injected from
//! outside, and write down what they believed; afterwards a checker judges the history.
//!
//! `sh tests/storm.sh` runs it for as long as one likes. Here are the tests of the checker, and one
//! short run for each deployment.

#![allow(missing_docs, reason = "tests")]

mod check;
mod deployment;
mod event;
mod fault;
mod history;
mod plan;
mod run;
mod runs;
#[allow(dead_code, unused_imports, reason = "made for the other programs, which use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod timeline;
mod worker;

use leasehold_rig as rig;
