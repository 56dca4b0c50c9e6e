//! Sockets for the stores of servers: every wait on them is bounded, with TLS or without.

mod address;
#[cfg(any(feature = "postgres", feature = "zookeeper"))]
mod percent;
mod poll;
mod stream;
mod timeout;
#[cfg(feature = "tls")]
mod tls_stream;
mod waker;

pub(crate) use address::Address;
#[cfg(any(feature = "postgres", feature = "zookeeper"))]
pub(crate) use percent::decode;
pub(crate) use poll::readable;
pub(crate) use stream::Stream;
pub(crate) use timeout::{is_timeout, no_answer};
pub(crate) use waker::Waker;
