//! Locks in a PostgreSQL database.

mod fence;
mod primitives;

use crate::rig::Postgres;

/// A server, or nothing to test: then the rig has said so.
macro_rules! server {
    () => {
        server!(Postgres::start())
    };
    ($started:expr) => {
        match $started {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server;
