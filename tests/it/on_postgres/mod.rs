//! Locks in a PostgreSQL database.

mod connecting;
mod faults;
mod fence;
mod functions;
mod intervals;
mod load;
mod primitives;

/// A server, or nothing to test: then the rig has said so.
macro_rules! server {
    () => {
        server!(crate::rig::Postgres::start())
    };
    ($started:expr) => {
        match $started {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server;
