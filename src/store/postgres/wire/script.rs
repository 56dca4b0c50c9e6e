//! The script that makes the tables and functions.

/// The schema that [`LockClient`](crate::LockClient)s on PostgreSQL need, as one SQL script for an
/// administrator: for databases in which the application's role may not create it. See
/// [`guide::postgres`](crate::guide::postgres) for the rights that the role then needs.
///
/// It is one transaction. Running it again does no harm.
pub const POSTGRES_SCHEMA: &str = include_str!("../schema.sql");

/// Asks for the first thing of the two schemas that somebody else owns: what it is, its owner, our
/// role. The owner of a table can give it a trigger (or replace it by a view), and the owner of a
/// function another body, and both run with the rights of the role that takes a lock. So asked
/// before anything in the schemas is used. The script asks the same before it installs, and the
/// query is spelled there.
pub(crate) fn owners_query() -> &'static str {
    let (_, from) =
        POSTGRES_SCHEMA.split_once("its_user IN\n").expect("the script asks for the owners");
    from.split_once("  LOOP\n").expect("it does something for each of them").0
}
