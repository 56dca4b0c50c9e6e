//! Clients of sentinels: a master with two replicas, monitored by three sentinels.

mod failover;
mod settings;
mod trouble;

use std::time::Duration;

use leasehold::{Builder, LockClient, Sentinel};

use crate::rig::{MASTER_NAME, Sentinels, Server, wait_until};

const LEASE: Duration = Duration::from_secs(3);

fn builder(rig: &Sentinels) -> Builder {
    builder_with(rig, |sentinels| sentinels)
}

fn builder_with(rig: &Sentinels, settings: impl FnOnce(Sentinel) -> Sentinel) -> Builder {
    LockClient::builder().sentinel(settings(Sentinel::new(rig.urls(), MASTER_NAME))).lease(LEASE)
}

fn client(rig: &Sentinels) -> LockClient {
    builder(rig).build().unwrap()
}

/// The address of one of the servers, as shown by clients.
fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.announced_port())
}

/// The connections of leasehold at all running servers and sentinels.
fn connections(rig: &Sentinels) -> usize {
    let all = (0..3).flat_map(|n| [rig.server(n), rig.sentinel(n)]).filter(|server| server.runs());
    let leasehold = |server: &Server| {
        server.client_lines().iter().filter(|line| line.contains("name=it-")).count()
    };
    all.map(leasehold).sum()
}

/// Waits until no connection of any client is left.
#[track_caller]
fn assert_left(rig: &Sentinels) {
    wait_until("no connection is left", || connections(rig) == 0);
}

#[track_caller]
fn works(client: &LockClient, name: &str) {
    client.lock(name).unwrap().unlock().unwrap();
}
