//! Tests against a live Redisson: both libraries use the same names on one server. They need a JDK
//! 17 and Maven, and fail without them.
//!
//! `LEASEHOLD_REDISSON=3.52.0` selects another version than the newest; `LEASEHOLD_LONG=1` makes
//! the stress tests long.

#![allow(missing_docs, reason = "tests")]

mod cluster;
mod elections;
mod fair;
mod faults;
mod fenced;
#[path = "../support/java/mod.rs"]
mod java;
mod jvm;
mod latch;
mod multi;
mod rate;
mod redlock;
mod rw;
mod semaphores;
mod sentinel;
mod staying;
mod stress;
#[allow(dead_code, unused_imports, reason = "shared; no program uses all of it")]
#[path = "../support/mod.rs"]
mod support;
mod turns;
mod wakeups;
mod watchdogs;
mod world;

use leasehold_rig as rig;
