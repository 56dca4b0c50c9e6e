//! A server and a Java process that tests share: starting them takes longer than most of the tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::LockClient;

use crate::java::Jvm;
use crate::jvm::listeners;
use crate::rig::{Server, Shared};
use crate::support::Clients;

/// A waiter woken by a message took less time than this; one that polled, after 5 s at the
/// earliest, took more.
pub(crate) const PROMPT: Duration = Duration::from_secs(4);

pub(crate) struct World {
    /// Dropped before its server.
    pub(crate) jvm: Jvm,
    pub(crate) server: Server,
}

impl World {
    /// A separate server and process, for a test that breaks them or needs other settings.
    pub(crate) fn with(settings: &[&str]) -> Self {
        Self::on(&[], settings)
    }

    /// With these arguments for the server.
    pub(crate) fn on(args: &[&str], settings: &[&str]) -> Self {
        let server = Server::start_tcp(args);
        Self { jvm: Jvm::start(&server, settings), server }
    }

    pub(crate) fn client(&self) -> LockClient {
        self.server.client()
    }
}

/// Where names are: on one server, or on one of several.
pub(crate) trait Home {
    /// The server that currently has the keys of the name.
    fn server_of(&self, name: &str) -> &Server;

    /// The number of subscribers of a channel of the name.
    fn listeners(&self, name: &str, channel: &str) -> u32 {
        listeners(self.server_of(name), channel)
    }

    /// Whether a channel of the name that matches the pattern has a subscriber.
    fn hears(&self, name: &str, pattern: &str) -> bool {
        !self.server_of(name).cmd::<Vec<String>>(&["PUBSUB", "CHANNELS", pattern]).is_empty()
    }
}

impl Home for Server {
    fn server_of(&self, _name: &str) -> &Server {
        self
    }
}

pub(crate) fn world() -> Arc<World> {
    static SHARED: Shared<World> = Shared::new();
    SHARED.get(|| World::with(&[]))
}

/// Releases what the other library waits for, and checks that it was acquired early enough for a
/// message to have caused it.
#[track_caller]
pub(crate) fn prompt<T>(release: impl FnOnce(), won: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    release();
    let won = won();
    let took = start.elapsed();
    assert!(took < PROMPT, "acquired {took:?} after the release: not woken by a message");
    won
}
