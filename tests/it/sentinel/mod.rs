//! Clients of sentinels: a master with two replicas, watched by three sentinels.

mod failover;
mod settings;
mod trouble;

use std::time::Duration;

use leasehold::{Builder, LockClient};

use crate::rig::{MASTER_NAME, Sentinels, threads_named, wait_until};

const LEASE: Duration = Duration::from_secs(3);

fn builder(rig: &Sentinels) -> Builder {
    LockClient::builder().urls(rig.urls()).sentinel(MASTER_NAME)
}

fn client(rig: &Sentinels) -> LockClient {
    builder(rig).lease(LEASE).build().unwrap()
}

/// The connections of leasehold at all servers and sentinels that run.
fn connections(rig: &Sentinels) -> usize {
    let of_server = |server: &crate::rig::Server| {
        server.client_lines().iter().filter(|line| line.contains("name=leasehold")).count()
    };
    rig.running().map(of_server).sum()
}

/// Nothing of any client is left, here or at a server.
#[track_caller]
fn assert_left(rig: &Sentinels) {
    wait_until("no connection is left", || connections(rig) == 0);
}
