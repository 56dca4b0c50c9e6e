//! Locks in a ZooKeeper ensemble.

mod behind_its_back;
mod connecting;
mod cut_replies;
mod denied;
mod deposed;
mod jobs;
mod late_requests;
mod loss;
mod many_threads;
mod outcomes;
mod primitives;
mod refused;
mod stray_frames;
#[cfg(feature = "tls")]
mod tls;
mod unreadable_replies;

use std::time::Duration;

use leasehold::{Builder, LockClient};

use crate::rig::ms;
use crate::rig::zookeeper::{Raw, ZooKeeper};

/// A server for a test.
macro_rules! server {
    () => {
        crate::rig::zookeeper::ZooKeeper::lend(crate::on_zookeeper::SETTINGS)
    };
    ($started:expr) => {
        $started
    };
}
pub(crate) use server;

/// A short tick allows short sessions, which then expire soon after their end.
pub(crate) const SETTINGS: &str = "tickTime=100\nmaxSessionTimeout=300000";

/// Long enough that no test can pass because a session ended.
const LONG: Duration = Duration::from_secs(120);

/// Short enough to wait for.
const SHORT: Duration = ms(3000);

fn client_of(url: &str, settings: impl FnOnce(Builder) -> Builder) -> LockClient {
    settings(LockClient::builder().url(url).lease(LONG)).build().unwrap()
}

fn client(server: &ZooKeeper) -> LockClient {
    client_of(&server.url(), |builder| builder)
}

/// The current children of a directory; none if it does not exist.
fn children(session: &mut Raw, path: &str) -> Vec<String> {
    session.sync("/").unwrap();
    session.children(path).unwrap_or_default()
}
