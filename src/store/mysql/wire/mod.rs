//! MySQL's protocol, as far as locks need it: a log-in, and queries whose answers are text.
//!
//! Written here, and not taken from the crate `mysql`, because that bounds each read and not a
//! call (6.0 s were measured with a timeout of 300 ms), gives the next query the answer of one that
//! timed out, cannot limit the connect of a unix socket, and brings 86 crates.
//!
//! Nothing is retried here. A failure says whether the request can have run ([`MysqlFailure`]); the
//! store decides what to do.

mod connection;
mod connector;
mod fields;
#[cfg(test)]
mod fuzz_tests;
mod log_in;
mod packet;
mod schema;
mod server_error;

pub(super) use connection::{Answer, Connection, MysqlFailure, Request, UnknownOutcome};
pub(crate) use connector::Known;
pub(super) use connector::{Connector, Pool, READS_ONLY, is_supported};
pub(super) use packet::{Row, Set};
pub use schema::MYSQL_SCHEMA;
pub(super) use schema::{LOOK, Schema, found};
pub(super) use server_error::ServerError;
