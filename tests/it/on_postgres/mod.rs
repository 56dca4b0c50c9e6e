//! Locks in a PostgreSQL database.

mod backends;
mod connecting;
mod contention;
mod earlier_release;
mod faults;
mod fence;
mod full;
mod functions;
mod intervals;
mod load;
mod lost_replies;
mod passed_on;
mod primitives;
mod replication;
mod search_path;
#[cfg(feature = "tls")]
mod secure;
mod sessions;

/// A database of its own on the server that all share, or nothing to test: the tests shall do without.
macro_rules! server {
    () => {
        server!(crate::rig::Postgres::shared())
    };
    ($started:expr) => {
        match $started {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server;
