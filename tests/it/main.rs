//! The integration tests: one binary, real servers.

#![allow(missing_docs, reason = "tests")]

mod fencing_sql;
mod mutex;
mod rig;
