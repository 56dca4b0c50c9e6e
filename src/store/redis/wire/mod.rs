//! Connections and one round trip: what travels, over what, and what is known when it fails.
//!
//! No retries here. A failure says whether the request can have run ([`Failure`]); what to do about it is decided above.

mod batch;
mod connection;
mod connector;
mod poll;
mod pool;
mod pubsub;
mod reader;
mod reply;
mod request;
mod stream;
mod url;

pub(crate) use connection::{Connection, Failure, InFlight, UnknownOutcome, server_time};
pub(crate) use connector::{Connector, Endpoint};
pub(crate) use pool::Pool;
pub(crate) use pubsub::{Frame, PubSubReader, PubSubWriter, WAKE_REDISSON};
pub(crate) use reply::{Reply, ServerError};
pub(crate) use request::{Replicas, Request, Shape};

use crate::base::error::Result;

/// A connection in two methods, so that Redlock can send to all nodes before it reads from the first, and so that
/// tests can put a fault between any two bytes. Any error of either ends the connection's life.
trait Wire: Send {
    fn send(&mut self, bytes: &[u8]) -> Result<()>;
    fn recv(&mut self) -> Result<Reply>;

    /// A reply that has come already; of one that has come in part the rest is read later. `fresh`: the socket has been
    /// seen to have something; else only what was read ahead is looked at.
    fn recv_now(&mut self, fresh: bool) -> Result<Option<Reply>>;

    /// Whether bytes have come that no reply has been made of yet, or the other end has closed. One system call.
    fn has_input(&self) -> bool;

    /// The handshake is over: from here on each write and each reply has the I/O timeout, where before all of them together
    /// had it.
    fn handshake_done(&mut self) -> Result<()>;

    fn stream(&self) -> &stream::Stream;
}
