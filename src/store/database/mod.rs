//! What the stores in databases share: the hosts of a URL, messages over a socket, and sessions
//! that are ended before a request is repeated.

use std::time::Duration;

use crate::base::error::{Error, ErrorKind};

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

#[cold]
pub(crate) fn another_kind() -> Error {
    Error::new(ErrorKind::WrongType, "something of another kind has this name; use another name")
}
