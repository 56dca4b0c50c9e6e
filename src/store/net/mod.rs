//! What the stores of servers share: sockets, on which every wait is bounded, with TLS or without;
//! and pools of connections.

#[cfg(not(any(unix, windows)))]
compile_error!("leasehold connects to servers on Unix and on Windows only: it needs poll");

mod address;
mod aside;
mod background;
mod batch;
mod callers;
mod failure;
mod flights;
mod limits;
mod making;
mod names;
mod pace;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
mod parameters;
mod places;
mod pool;
mod pooled;
mod question;
#[cfg(shuttle)]
mod scheduled;
#[cfg(not(shuttle))]
mod stream;
#[cfg(feature = "tls-core")]
mod tls_stream;
mod url;
mod waiting;
#[cfg(not(shuttle))]
mod waits;
#[cfg(not(shuttle))]
mod waker;

pub(crate) use address::Address;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) use address::NO_UNIX_SOCKETS;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
pub(crate) use address::try_each;
pub(crate) use background::{Background, Next};
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) use callers::Callers;
pub(crate) use failure::{ENDED, Failure, ends, to_error};
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) use limits::KEEPALIVE_PAUSE;
pub(crate) use limits::is_timeout;
pub(crate) use names::Network;
#[cfg(feature = "testing")]
pub(crate) use names::stand_ins;
#[cfg(feature = "redlock")]
pub(crate) use pace::Pace;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) use parameters::Parameters;
pub(crate) use pool::{Pool, Repeats};
pub(crate) use pooled::{Outcome, PooledConnection, PooledConnector, PooledSender};
#[cfg(feature = "redis")]
pub(crate) use question::{Answer, Question, WhichAnswer};
#[cfg(shuttle)]
pub(crate) use scheduled::{Stream, Waker, readable};
#[cfg(not(shuttle))]
pub(crate) use stream::Stream;
pub(crate) use url::Url;
#[cfg(not(shuttle))]
pub(crate) use waits::readable;
#[cfg(not(shuttle))]
pub(crate) use waker::Waker;
