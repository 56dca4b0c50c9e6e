//! What the stores in databases share: the hosts of a URL, messages over a socket, and sessions
//! that are ended before a request is repeated.

use std::time::Duration;

use crate::base::error::{Error, ErrorKind};
use crate::store::Part;

mod background;
mod hosts;
mod server;
mod session;
mod transport;
mod url;

pub(crate) use hosts::{Connector, DatabaseSettings, Hosts};
pub(crate) use server::{Database, MAY_BE_FREE, Server, end_sessions};
pub(crate) use session::{Failure, Link, Sent, UnknownOutcome};
pub(crate) use transport::{Malformed, Protocol, Transport};
pub(crate) use url::{DatabaseUrl, Ssl, SslMode, address, check_tls, log_in};

/// When to try again if another transaction has locked the row: usually a fenced one.
pub(crate) const LOCKED: Duration = Duration::from_millis(20);

/// The places of the names in byte order.
pub(crate) fn sorted<'n>(names: impl Iterator<Item = &'n str>) -> Vec<usize> {
    let names: Vec<&str> = names.collect();
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|&place| names[place]);
    order
}

/// The part for which a call waits that has waited for a row in vain: the first that it does not
/// hold and whose row others have locked. `None`: they have locked only rows of what it holds, in
/// whose queues it would wait for itself; or it holds all.
pub(crate) fn waits_for(parts: &[Part<'_>], is_locked: impl Fn(&str) -> bool) -> Option<usize> {
    let is_locked = |part: &Part<'_>| is_locked(&part.name.key);
    let is_wanted = |part: &Part<'_>| part.held == 0;
    parts.iter().position(|part| is_wanted(part) && is_locked(part)).or_else(|| {
        let is_own = parts.iter().any(is_locked);
        if is_own { None } else { parts.iter().position(is_wanted) }
    })
}

#[cold]
pub(crate) fn another_kind() -> Error {
    Error::new(ErrorKind::WrongType, "something of another kind has this name; use another name")
}
