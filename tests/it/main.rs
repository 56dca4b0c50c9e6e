//! The integration tests: one binary, real servers.

#![allow(missing_docs, reason = "tests")]

mod bad_input;
mod bad_servers;
mod closing;
mod contract;
mod deaf_and_cut;
mod examples;
mod fair;
mod fencing_sql;
mod golden;
mod java_readers;
mod kinds;
mod latch;
mod loss;
#[cfg(feature = "testing")]
mod memory;
mod model;
mod multi;
mod mutex;
mod outcomes;
mod processes;
mod redlock;
mod redlock_memory;
mod redlock_review;
mod replicas;
mod restarts;
mod review;
mod rig;
mod rwlock;
mod scripts;
mod scripts_twice;
mod semaphore;
mod stray_frames;
mod stress;
mod tidy;
