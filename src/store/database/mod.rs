//! What the stores in databases share: messages over a socket, sessions that are ended before a
//! request is repeated, and the settings.

mod transport;

pub(crate) use transport::{Malformed, Protocol, Transport};
