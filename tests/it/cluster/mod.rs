//! Redis Cluster: every primitive on the node of its slot, slots that move, shards that fail over.

mod failover;
mod faults;
mod moves;
mod nodes;
mod parts;
mod primitives;
mod users;

use std::time::Duration;

use leasehold::{Builder, LockClient};

use crate::rig::{Cluster, Server};

fn builder(cluster: &Cluster) -> Builder {
    builder_with(cluster, |nodes| nodes)
}

fn builder_with(
    cluster: &Cluster,
    settings: impl FnOnce(leasehold::Cluster) -> leasehold::Cluster,
) -> Builder {
    LockClient::builder().cluster(settings(leasehold::Cluster::new(cluster.urls())))
}

fn client(cluster: &Cluster) -> LockClient {
    builder(cluster).lease(Duration::from_secs(30)).build().unwrap()
}

/// Names in slots of three different nodes; the first shares its slot with no other.
fn names_on_each_node(cluster: &Cluster, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for node in 0..3 {
        let here = (0..)
            .map(|n| format!("job-{n}"))
            .filter(|name| cluster.owner(cluster.slot(name)) == node);
        names.extend(here.take(count));
    }
    names
}

/// The channels of a node, sharded ones included.
pub(crate) fn channels(node: &Server) -> Vec<String> {
    let sharded =
        redis::cmd("PUBSUB").arg("SHARDCHANNELS").query::<Vec<String>>(&mut node.connect());
    node.channels().into_iter().chain(sharded.unwrap_or_default()).collect()
}
