//! What the stores in databases share: messages over a socket, and sessions that are ended before a
//! request is repeated.

mod background;
mod server;
mod session;
mod transport;

pub(crate) use server::{Database, MAY_BE_FREE, Server, end_sessions};
pub(crate) use session::{Failure, Link, Sent, UnknownOutcome};
pub(crate) use transport::{Malformed, Protocol, Transport};
