//! Who may own the tables and functions: whoever owns one can put code into it.

use super::request::Row;
use crate::base::error::{Error, ErrorKind};

/// The first thing of the two schemas that somebody else owns: what it is, its owner, our role.
/// The owner of a table can give it a trigger (or replace it by a view), and the owner of a
/// function another body, and both run with the rights of the role that takes a lock. So asked
/// before anything in the schemas is used. `schema.sql` asks the same before it installs.
pub(crate) const FOREIGN: &str = "\
    SELECT o.thing, pg_get_userbyid(o.owner), current_user FROM (\
        SELECT 'the schema ' || nspname AS thing, nspowner AS owner, 0 AS place FROM pg_namespace \
          WHERE nspname IN ('leasehold', 'leasehold_v2') \
        UNION ALL SELECT 'leasehold.' || relname, relowner, 1 FROM pg_class \
          WHERE relnamespace = to_regnamespace('leasehold') \
        UNION ALL SELECT 'the function leasehold_v2.' || proname, proowner, 2 FROM pg_proc \
          WHERE pronamespace = to_regnamespace('leasehold_v2')) o \
      WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = o.owner \
          AND (r.rolsuper OR r.rolname IN (current_user, session_user, 'pg_database_owner'))) \
        AND o.owner <> (SELECT datdba FROM pg_database WHERE datname = current_database()) \
      ORDER BY o.place, o.thing LIMIT 1";

/// The state that `schema.sql` raises for the same.
pub(super) const FOREIGN_OWNER: &str = "LH002";

/// What to do about it.
pub(crate) const REMEDY: &str = "look at what is in it; then drop it, or give it to that role, to the owner of the \
    database or to a superuser (ALTER .. OWNER TO), and install the schema again";

/// The answer to [`FOREIGN`] in words; nothing if all belongs to those who may own it.
pub(crate) fn foreign(rows: &[Row]) -> Option<String> {
    let [Some(thing), Some(owner), Some(role)] = &rows.first()?[..] else { return None };
    Some(format!("{thing} belongs to the role {owner:?}, whose code would run with the rights of {role:?}"))
}

/// Fails if others could have put code into what is there.
pub(super) fn check(rows: &[Row]) -> Result<(), Error> {
    foreign(rows).map_or(Ok(()), |found| Err(Error::new(ErrorKind::Denied, found).advise(REMEDY)))
}
