//! Who may own the tables and functions: whoever owns one can put code into it.

use super::request::Row;
use crate::base::error::{Error, ErrorKind};

/// The state that the script raises.
pub(super) const FOREIGN_OWNER: &str = "LH002";

/// What to do about it.
pub(crate) const REMEDY: &str = "look at what is in it; then drop it, or give it to that role, to the owner of the \
    database or to a superuser (ALTER .. OWNER TO), and install the schema again: as the owner of the database (SET \
    ROLE before you run the script) if several roles share the locks";

/// The answer to [`owners_query`](super::script::owners_query) in words; nothing if all belongs to
/// those who may own it.
pub(crate) fn foreign(rows: &[Row]) -> Option<String> {
    let [Some(thing), Some(owner), Some(role)] = &rows.first()?[..] else { return None };
    Some(format!(
        "{thing} belongs to the role {owner:?}, whose code would run with the rights of {role:?}"
    ))
}

/// Fails if others could have put code into what is there.
pub(super) fn check(rows: &[Row]) -> Result<(), Error> {
    foreign(rows).map_or(Ok(()), |found| Err(Error::new(ErrorKind::Denied, found).advise(REMEDY)))
}
