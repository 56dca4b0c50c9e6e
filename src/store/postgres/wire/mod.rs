//! Connections and one round trip: what is sent, over what, and what is known when it fails.
//!
//! Nothing is retried here. A failure says whether the request can have run ([`PostgresFailure`]);
//! the store decides what to do.

mod bare;
mod batch;
mod blocker;
mod connection;
mod connector;
#[cfg(test)]
mod fuzz_tests;
mod install;
mod listener;
mod messages;
mod one_cluster;
mod outcome;
mod owners;
mod password;
mod pool;
mod request;
mod script;
mod server_error;
mod startup;

pub(super) use bare::BareConnection;
pub(super) use connection::Connection;
pub(crate) use connector::Known;
pub(super) use connector::{Connector, OLDEST};
pub(super) use install::{TABLES, is_installed};
pub(super) use listener::{Frame, ListenReader, ListenWriter};
pub(super) use outcome::{Answer, Backend, Outcome, PostgresFailure, UnknownOutcome};
pub(super) use owners::{REMEDY, foreign};
pub(super) use pool::Pool;
pub(super) use request::{Batching, Request, Row, Statement};
pub use script::POSTGRES_SCHEMA;
pub(super) use script::owners_query;
pub(super) use server_error::ServerError;
