//! Redis Cluster.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::redis::{RedisOptions, address_map, log_in_settings, redis_settings};
use super::servers::{Servers, Shown, from_url};
use super::settings::NewClient;
use crate::base::error::{Result, invalid};
use crate::store::LockStore;
use crate::store::redis::wire::{Connector, Endpoint, Publishing};
use crate::store::redis::{RedisStore, script};

/// A Redis Cluster, for [`Builder::cluster`](crate::Builder::cluster).
///
/// Every primitive works as on one server, on the primary that has the slot of its name. Requests
/// follow slots that move (`MOVED`, `ASK`) within the [I/O timeout](crate::Builder::io_timeout).
/// While a slot is half moved, Redis refuses requests about keys on both sides, or about a key that
/// does not exist yet: such a call fails with [`NotReady`](crate::ErrorKind::NotReady) after the
/// I/O timeout, and a call that is already waiting goes on. Holds are renewed meanwhile.
/// [`connections`](crate::Builder::connections) applies to each primary, and
/// [`nodes`](crate::LockClient::nodes) lists the primaries and their slots.
///
/// A failover of a shard is an outage for its names only: a first attempt fails at once, a call
/// that is already waiting goes on for the [outage timeout](crate::Builder::outage_timeout), and
/// holds are renewed at the new primary. Replication in Redis is asynchronous, so a primary that
/// fails may take the newest holds with it, and one that is cut off goes on granting until its
/// `cluster-node-timeout` has passed. [`replicas`](Self::replicas) prevents both, within the limits
/// that its docs state; where something must not happen twice, let the [fencing
/// token](crate::fencing) decide.
///
/// One thing differs from a single server: a [multi-lock](crate::LockClient::multi) over names in
/// several slots takes them one slot after the other. It is still all or nothing, and never waits
/// while it holds some, but others can briefly find some of the names taken. Give the names a
/// common tag in braces (`{order}:a`, `{order}:b`) to have them in one slot. A
/// [latch](crate::LockClient::latch) cannot have braces in its name.
///
/// ```no_run
/// use leasehold::{Cluster, LockClient};
///
/// let nodes = Cluster::new(["redis://a.example:7000/", "redis://b.example:7000/"]);
/// let client = LockClient::builder().cluster(nodes).build()?;
/// let _guard = client.lock("job")?;
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// In addition to the two threads of a client, short-lived threads (`lh-cluster`, `lh-connect`,
/// `lh-renew-node`) query several nodes in parallel, so that a node that hangs does not delay the
/// others; each ends with its exchange, within the I/O timeout.
#[derive(Clone)]
#[must_use = "it is a setting: give it to Builder::cluster"]
pub struct Cluster {
    urls: Vec<String>,
    sharded_channels: Option<bool>,
    options: RedisOptions,
}

impl Cluster {
    /// Some of the nodes, primaries or replicas, as `redis://` URLs. One of them must be reachable,
    /// and the others are learned from it. All nodes have the login and the TLS settings of these
    /// URLs. The single URL `redis+cluster://[user:password@]a:7000,b:7000` means the same.
    pub fn new<U: Into<String>>(nodes: impl IntoIterator<Item = U>) -> Self {
        let urls = nodes.into_iter().map(Into::into).collect();
        Self { urls, sharded_channels: None, options: RedisOptions::default() }
    }

    /// Whether releases are published to sharded channels (`SPUBLISH`) or to classic ones. All
    /// clients of the cluster must use the same, or only their timers wake waiters of the others.
    /// Defaults to Redisson's rule (`shardedSubscriptionMode=AUTO`): sharded if the first node that
    /// is reached supports sharded channels and the user may use them (Redis 7 and later). Set it
    /// to `false` if there are clients of Redisson before 3.22, or with the mode `OFF`.
    pub fn sharded_channels(mut self, on: bool) -> Self {
        self.sharded_channels = Some(on);
        self
    }

    /// The nodes that the URLs name.
    pub(super) fn nodes(&self) -> Result<Vec<Endpoint>> {
        match &self.urls[..] {
            [] => Err(invalid("a cluster needs the URL of at least one node")),
            [url] => Endpoint::parse_nodes(url),
            urls => urls.iter().map(|url| Endpoint::parse(url)).collect(),
        }
    }
}

redis_settings!(Cluster);
address_map!(Cluster, "a node");
from_url!(Cluster, |url: String| Cluster::new([url]));

impl Servers for Cluster {
    fn store(&self, client: &NewClient<'_>) -> Result<Arc<dyn LockStore>> {
        let endpoints = client.endpoints(self.nodes()?, self.options.credentials.as_ref())?;
        let publishing = OnceLock::new();
        if let Some(sharded) = self.sharded_channels {
            let _ = publishing.set(if sharded { Publishing::Sharded } else { Publishing::Classic });
        }
        let cluster = Some(Arc::new(publishing));
        let memory_seen = Arc::default();
        let seed = |mut endpoint: Endpoint| {
            endpoint.map_by(self.options.address_map.as_ref());
            let cluster = cluster.clone();
            let memory_seen = Arc::clone(&memory_seen);
            let handshake = script::handshake_in_cluster(&client.settings.key_prefix);
            let connector =
                Connector { cluster, memory_seen, handshake, ..client.connector(endpoint.into()) };
            connector.check_seed()?;
            Ok(connector)
        };
        let seeds = endpoints.into_iter().map(seed).collect::<Result<Vec<Connector>>>()?;
        if seeds.iter().any(|seed| !seed.logs_in_like(&seeds[0])) {
            return Err(invalid(
                "all nodes of a cluster need the same user, password and TLS: give them in each URL",
            ));
        }
        let background = Connector { io_timeout: client.background_timeout(), ..seeds[0].clone() };
        let store =
            RedisStore::of_cluster(&seeds, background, client.redis_settings(&self.options)?);
        if !client.settings.lazy {
            store.connect_now()?;
        }
        Ok(Arc::new(store))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Cluster");
        shown.field("nodes", &Shown(self.nodes()));
        shown.field("sharded_channels", &self.sharded_channels);
        self.options.show(&mut shown).finish()
    }
}
