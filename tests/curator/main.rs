//! Tests against a live Apache Curator: both libraries use the same nodes on one ZooKeeper, or on
//! three. They need a JDK 17 and Maven, and fail without them.
//!
//! `LEASEHOLD_CURATOR_VERSION` and `LEASEHOLD_ZOOKEEPER_VERSION` select other versions;
//! `LEASEHOLD_LONG=1` makes the stress and fault tests long.

#![allow(missing_docs, reason = "tests")]

mod beliefs;
#[allow(dead_code, reason = "made for the tests with Redisson, which use all of it")]
#[path = "../interop/counter.rs"]
mod counter;
mod cut;
mod driver;
mod faults;
mod ghost;
#[allow(dead_code, reason = "made for the tests with Redisson, which use all of it")]
#[path = "../interop/java.rs"]
mod java;
mod kinds;
mod players;
mod shared;
mod stress;
#[allow(dead_code, unused_imports, reason = "shared; no program uses all of it")]
#[path = "../support/mod.rs"]
mod support;
mod turns;

use leasehold_rig as rig;
