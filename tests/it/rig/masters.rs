//! Several independent servers.

use std::time::Instant;

use leasehold::{Builder, LockClient, NodeState};

use super::{CAP, Server, ms};

pub(crate) struct Masters(pub(crate) Vec<Server>);

impl Masters {
    pub(crate) fn start(count: usize) -> Self {
        Self((0..count).map(|_| Server::start()).collect())
    }

    /// All vote at once: nothing that they could have forgotten was there before.
    pub(crate) fn fresh(count: usize) -> Self {
        let masters = Self::start(count);
        let client = masters.builder().admit_fresh_nodes().build().unwrap();
        wait_for_votes(&client, count);
        masters
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Server::url).collect()
    }

    pub(crate) fn builder(&self) -> Builder {
        LockClient::builder().urls(self.urls()).redlock()
    }

    pub(crate) fn client(&self) -> LockClient {
        self.builder().build().unwrap()
    }

    /// On how many of them somebody holds the lock.
    pub(crate) fn holding(&self, name: &str) -> usize {
        self.0.iter().filter(|server| !server.hash(name).is_empty()).count()
    }

    pub(crate) fn assert_clean(&self) {
        self.0.iter().for_each(Server::assert_clean);
    }
}

#[track_caller]
pub(crate) fn wait_for_votes(client: &LockClient, count: usize) {
    let voting = || client.nodes().iter().filter(|node| node.state() == NodeState::Voting).count();
    let deadline = Instant::now() + CAP;
    while voting() != count {
        assert!(Instant::now() < deadline, "{count} shall vote: {:#?}", client.nodes());
        std::thread::sleep(ms(2));
    }
}
