//! The integration tests: one binary, real servers.

#![allow(missing_docs, reason = "tests")]

mod bad_input;
mod bad_servers;
mod examples;
mod fencing_sql;
mod loss;
mod mutex;
mod outcomes;
mod processes;
mod restarts;
mod rig;
mod scripts;
mod smoke;
mod stress;
mod tidy;
