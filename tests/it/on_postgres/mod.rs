//! Locks in a PostgreSQL database.

mod backends;
mod blocked;
mod clock;
mod connecting;
mod contention;
mod faults;
mod fence;
mod full;
mod functions;
mod intervals;
mod load;
mod lost_replies;
mod owners;
mod passed_on;
mod primitives;
mod repeats;
mod replication;
mod search_path;
#[cfg(feature = "tls")]
mod secure;
mod sessions;
mod sweeping;
mod versions;

/// A server for a test.
macro_rules! server {
    () => {
        crate::rig::Postgres::shared()
    };
    ($started:expr) => {
        $started
    };
}
pub(crate) use server;
