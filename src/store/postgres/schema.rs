//! The tables and functions in the database.

/// The version of the tables that this release knows.
pub(super) const TABLES: u32 = 1;

/// The schema that [`LockClient`](crate::LockClient)s on PostgreSQL need, as one SQL script for an
/// administrator: for databases in which the application's role may not create it. See
/// [`guide::postgres`](crate::guide::postgres) for the rights that the role then needs.
///
/// It is one transaction. To run it again does no harm.
pub const POSTGRES_SCHEMA: &str = include_str!("schema.sql");
