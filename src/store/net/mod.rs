//! What the stores of servers share: sockets, on which every wait is bounded, with TLS or without;
//! and pools of connections.

mod address;
mod batch;
#[cfg(any(feature = "postgres", feature = "zookeeper"))]
mod percent;
mod poll;
mod pool;
mod pooled;
mod stream;
mod timeout;
#[cfg(feature = "tls")]
mod tls_stream;
mod waker;

pub(crate) use address::Address;
#[cfg(any(feature = "postgres", feature = "zookeeper"))]
pub(crate) use percent::decode;
pub(crate) use poll::readable;
pub(crate) use pool::Pool;
pub(crate) use pooled::{Outcome, PooledConnector};
pub(crate) use stream::Stream;
pub(crate) use timeout::{is_timeout, no_answer};
pub(crate) use waker::Waker;
