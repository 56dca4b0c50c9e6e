//! ZooKeeper's protocol, as far as locks need it: a dozen requests, their replies, and the
//! connection that carries them.

mod code;
mod connect;
mod frames;
#[cfg(test)]
mod fuzz_tests;
mod jute;
mod reply;
mod request;
mod status;

pub(crate) use code::Code;
pub(crate) use connect::{Greeting, Servers, SessionRequest, is_an_end, to_error};
pub(crate) use frames::FrameReader;
pub(crate) use reply::{Created, EventKind, Permission, Reply, Stat, Transacted};
pub(crate) use request::{Acl, Mode, PING_XID, Request, SessionId, Shape, WATCH_XID};
pub(crate) use status::ServerStatus;
