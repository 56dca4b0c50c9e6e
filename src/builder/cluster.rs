//! Redis Cluster: its settings, and its store.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{Builder, invalid};
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::holder::ClientId;
use crate::store::redis::RedisStore;
use crate::store::redis::wire::{Connector, Publishing};

impl Builder {
    /// The servers are a Redis Cluster: [`urls`](Self::urls) (or [`url`](Self::url)) names some of
    /// its nodes, primaries or replicas, of which one must be reached to learn of all others. All
    /// nodes have the log-in and the TLS settings of these URLs. `redis+cluster://a:7000,b:7000`
    /// as the only URL says the same.
    ///
    /// Every primitive works as on one server, on the primary that has the slot of its name.
    /// Requests follow slots that move (`MOVED`, `ASK`) and shards that fail over within the
    /// [I/O timeout](Self::io_timeout). [`connections`](Self::connections) counts for each primary.
    /// [`LockClient::nodes`] tells the primaries and their slots. [`replicas`](Self::replicas) works
    /// here, and closes most of the gap that a failover leaves: a replica that is promoted may lack
    /// the newest holds.
    ///
    /// What differs from one server: a [multi-lock](LockClient::multi) over names in several
    /// slots takes them one slot after the other. It is still all or none, it never waits while it
    /// holds some, but for a moment others can find some of the names taken. Give the names a
    /// common tag in braces (`{order}:a`, `{order}:b`) to have them in one slot. A
    /// [latch](LockClient::latch) cannot have braces in its name.
    ///
    /// ```no_run
    /// let client = leasehold::LockClient::builder()
    ///     .urls(["redis://a.example:7000/", "redis://b.example:7000/"])
    ///     .cluster()
    ///     .build()?;
    /// let _guard = client.lock("job")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// Beside the two threads of a client, short-lived ones (`lh-cluster`, `lh-connect`,
    /// `lh-renew-node`) ask several nodes side by side, so that one that hangs costs the others
    /// nothing; each ends with its exchange, within the I/O timeout.
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// For [`cluster`](Self::cluster): whether releases are published to sharded channels
    /// (`SPUBLISH`) or to classic ones. All clients of the cluster must do the same, or they wake
    /// each other only by their timers. Defaults to Redisson's rule
    /// (`shardedSubscriptionMode=AUTO`): sharded if the first node that is reached knows sharded
    /// channels and the user may use them (Redis 7 and later). Say `false` beside clients of
    /// Redisson before 3.22, or with the mode `OFF`.
    pub fn sharded_channels(mut self, on: bool) -> Self {
        self.sharded_channels = Some(on);
        self
    }

    pub(super) fn check_cluster(&self) -> Result<()> {
        if self.cluster && self.redlock {
            return Err(invalid(
                "Redlock over clusters: a master of Redlock must answer for all names by itself, and a cluster \
                 replicates and fails over on its own; use cluster() with replicas(n), or redlock() over single servers",
            ));
        }
        if self.sharded_channels.is_some() && !self.cluster {
            return Err(invalid("sharded_channels is for clusters; call Builder::cluster, or leave it out"));
        }
        Ok(())
    }

    pub(super) fn cluster_store(
        &self,
        io_timeout: Duration,
        id: &ClientId,
        clock: &Arc<dyn Clock>,
    ) -> Result<RedisStore> {
        if self.urls.is_empty() {
            return Err(invalid("the URL of at least one node is needed: Builder::urls"));
        }
        let publishing = OnceLock::new();
        if let Some(sharded) = self.sharded_channels {
            let _ = publishing.set(if sharded { Publishing::Sharded } else { Publishing::Classic });
        }
        let cluster = Some(Arc::new(publishing));
        let memory_seen = Arc::default();
        let seed = |url: &String| {
            let (cluster, memory_seen) = (cluster.clone(), Arc::clone(&memory_seen));
            let connector =
                Connector { cluster, memory_seen, ..self.connector(self.endpoint(url)?, io_timeout, clock) };
            connector.check_seed()?;
            Ok(connector)
        };
        let seeds = self.urls.iter().map(seed).collect::<Result<Vec<Connector>>>()?;
        if seeds.iter().any(|seed| !seed.logs_in_like(&seeds[0])) {
            return Err(invalid("all nodes of a cluster have the same user, password and TLS: say so in each URL"));
        }
        let background = Connector { io_timeout: io_timeout.min(self.lease / 4), ..seeds[0].clone() };
        let store = RedisStore::of_cluster(&seeds, background, self.redis_settings(id));
        if !self.lazy {
            store.connect_now()?;
        }
        Ok(store)
    }
}
