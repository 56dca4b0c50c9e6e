//! Connections and one round trip: what is sent, over what, and what is known when it fails.
//!
//! Nothing is retried here. A failure says whether the request can have run ([`RedisFailure`]); the
//! store decides what to do.

mod ask;
mod bare;
mod connection;
mod connector;
mod direct;
mod endpoint;
mod fence;
#[cfg(test)]
pub(super) mod fuzz_tests;
mod log_in;
mod pool;
mod pubsub;
mod reply;
mod request;
mod sender;
mod server_error;
mod target;
mod transport;
mod unknown_outcome;
mod url;

pub(crate) use ask::ask_all;
pub(crate) use bare::BareConnection;
pub(crate) use bare::Line;
pub(crate) use connection::{Connection, InFlight};
pub(crate) use connector::{Connector, Handshake, check_server, field};
pub(crate) use endpoint::{AddressMap, Endpoint};
pub(crate) use log_in::Provider;
pub(crate) use pool::{Answer, Outcome, Pool};
pub(crate) use pubsub::{
    Frame, PubSubReader, PubSubWriter, WAKE_REDISSON, listen_at, wait_for_input,
};
pub(crate) use reply::{Reply, Shape, fail_on_error, server_time};
pub(crate) use request::{Replicas, Request, Script, sha_of};
pub(crate) use server_error::{Redirect, WHERE_IT_IS_NOT_OFF, says_unknown_command};
pub(crate) use target::{FindMaster, Master, Target};
pub(crate) use unknown_outcome::{Epoch, Publishing, RedisFailure, UnknownOutcome};
pub(crate) use url::SENTINEL_PORT;
