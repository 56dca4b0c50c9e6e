//! What the stores in databases share: the hosts of a URL, messages over a socket, and sessions
//! that are ended before a request is repeated.

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
