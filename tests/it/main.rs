//! The integration tests: one binary, real servers.

#![allow(missing_docs, reason = "tests")]

mod bad_input;
mod bad_servers;
mod broken_connection;
mod cancelling;
mod closing;
mod cluster;
#[cfg(all(
    feature = "testing",
    feature = "postgres",
    feature = "mysql",
    feature = "zookeeper",
    feature = "redlock",
    feature = "tracing"
))]
mod conditions;
mod connections;
mod contract;
mod costs;
mod credentials;
mod diagnosis;
mod ended_waits;
mod escaped_names;
mod examples;
mod fair;
mod fencing_sql;
mod golden;
mod kinds;
mod latch;
mod late_releases;
mod listing;
mod loss;
mod loss_reasons;
mod lua;
#[cfg(feature = "testing")]
mod memory;
mod min_hold;
mod mixed_kinds;
mod model;
mod multi;
mod mutex;
#[cfg(feature = "mysql")]
mod on_mysql;
#[cfg(feature = "postgres")]
mod on_postgres;
#[cfg(feature = "zookeeper")]
mod on_zookeeper;
mod once;
mod outcomes;
mod owner;
mod panics;
mod processes;
mod rate_limiter;
mod reading;
mod redisson_readers;
mod redlock;
mod replicas;
mod restarts;
#[cfg(feature = "postgres")]
mod rig_postgres;
mod rig_servers;
#[cfg(feature = "zookeeper")]
mod rig_zookeeper;
mod round_trips;
mod rwlock;
mod scripts;
mod scripts_twice;
mod semaphore;
mod sentinel;
mod server_clock;
mod shared_reads;
#[cfg(feature = "testing")]
mod slow_names;
mod snapshot;
#[cfg(feature = "tracing")]
mod spans;
mod stats;
mod stopping;
mod stray_frames;
mod stress;
#[path = "../support/mod.rs"]
mod support;
mod tidy;
#[cfg(feature = "tls")]
mod tls;
mod turns;
mod unheard;
#[cfg(feature = "testing")]
mod user_code;
mod waiting;
#[cfg(feature = "testing")]
mod without_threads;

use leasehold_rig as rig;
