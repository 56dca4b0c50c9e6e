//! Tests against a live Apache Curator: both libraries use the same nodes on one ZooKeeper, or on
//! three. They need a JDK 17 and Maven, and fail without them.
//!
//! `LEASEHOLD_CURATOR_VERSION` and `LEASEHOLD_ZOOKEEPER_VERSION` select other versions;
//! `LEASEHOLD_LONG=1` makes the stress and fault tests long.

#![allow(missing_docs, reason = "tests")]

mod beliefs;
mod cut;
mod driver;
mod elections;
mod faults;
mod ghost;
#[allow(dead_code, unused_imports, reason = "the tests with Redisson use more of it")]
#[path = "../support/java/mod.rs"]
mod java;
mod kinds;
mod shared;
mod stress;
mod turns;

use leasehold_rig as rig;
