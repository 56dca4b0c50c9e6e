//! Several independent servers.

use std::time::Instant;

use leasehold::observe::NodeState;
use leasehold::{Builder, LockClient, Redlock};

use crate::rig::{CAP, Server, ms, wait_until};

pub(crate) struct Masters(pub(crate) Vec<Server>);

impl Masters {
    pub(crate) fn start(count: usize) -> Self {
        Self((0..count).map(|_| Server::start()).collect())
    }

    /// Masters that all vote at once, because they are known to be new and to have lost no data.
    pub(crate) fn fresh(count: usize) -> Self {
        Self::admitting((0..count).map(|_| Server::start()).collect())
    }

    /// The same of these servers.
    pub(crate) fn admitting(servers: Vec<Server>) -> Self {
        let masters = Self(servers);
        let client = masters.admitted().build().unwrap();
        wait_for_votes(&client, masters.0.len());
        masters
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Server::url).collect()
    }

    pub(crate) fn builder(&self) -> Builder {
        self.builder_with(|masters| masters)
    }

    /// A builder for clients whose masters vote at once, because they are new.
    pub(crate) fn admitted(&self) -> Builder {
        self.builder_with(|masters| masters.admit_fresh_nodes(true))
    }

    pub(crate) fn builder_with(&self, settings: impl FnOnce(Redlock) -> Redlock) -> Builder {
        LockClient::builder().redlock(settings(Redlock::new(self.urls())))
    }

    pub(crate) fn client(&self) -> LockClient {
        self.builder().build().unwrap()
    }

    /// The number of masters on which the lock is held.
    pub(crate) fn holding(&self, name: &str) -> usize {
        self.0.iter().filter(|server| !server.hash(name).is_empty()).count()
    }

    /// Waits until every master has recorded the end of its own quarantine. The clients may not
    /// know of it yet.
    #[track_caller]
    pub(crate) fn wait_until_all_vote(&self) {
        wait_until("all masters were admitted", || {
            self.0.iter().all(|server| {
                let info: String = server.cmd(&["INFO", "server"]);
                let boot: Option<String> = server.cmd(&["HGET", "leasehold:node", "boot"]);
                boot.is_some_and(|boot| info.contains(&format!("run_id:{boot}")))
            })
        });
    }

    pub(crate) fn assert_clean(&self) {
        for one in &self.0 {
            one.assert_clean();
        }
    }
}

#[track_caller]
pub(crate) fn wait_for_votes(client: &LockClient, count: usize) {
    let voting = || client.nodes().iter().filter(|node| node.state() == NodeState::Voting).count();
    let deadline = Instant::now() + CAP;
    while voting() != count {
        assert!(Instant::now() < deadline, "not all of {count} vote: {:#?}", client.nodes());
        std::thread::sleep(ms(2));
    }
}
