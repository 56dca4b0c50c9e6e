//! Redis Cluster: its settings, and its store.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{Builder, invalid};
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::holder::ClientId;
use crate::store::redis::wire::{Connector, Publishing};
use crate::store::redis::{RedisStore, script};

impl Builder {
    /// The servers are a Redis Cluster: [`urls`](Self::urls) (or [`url`](Self::url)) names some of
    /// its nodes, primaries or replicas, of which one must be reached to learn of all others. All
    /// nodes have the log-in and the TLS settings of these URLs. The single URL
    /// `redis+cluster://[user:password@]a:7000,b:7000` says the same.
    ///
    /// Every primitive works as on one server, on the primary that has the slot of its name.
    /// Requests follow slots that move (`MOVED`, `ASK`) within the [I/O timeout](Self::io_timeout).
    /// While a slot is half moved, Redis refuses requests about keys on both sides, or about a key
    /// that does not exist yet: such a call fails with [`NotReady`](crate::ErrorKind::NotReady)
    /// after the I/O timeout, and one that is already waiting goes on. Holds are renewed all the
    /// while. [`connections`](Self::connections) counts for each primary, and
    /// [`nodes`](crate::LockClient::nodes) tells the primaries and their slots.
    ///
    /// A shard that fails over is an outage of its names, and costs the others nothing: a first
    /// attempt fails at once, a call that is already waiting goes on for the [outage
    /// timeout](Self::outage_timeout), holds are renewed at the new primary. Replication in Redis
    /// is asynchronous, so a primary that fails may take the newest holds with it, and one that is
    /// cut off goes on granting until its `cluster-node-timeout` has passed.
    /// [`replicas`](Self::replicas) closes both as far as its own docs say; the [fencing
    /// token](crate::fencing) decides where it must not happen twice.
    ///
    /// What differs from one server: a [multi-lock](crate::LockClient::multi) over names in several
    /// slots takes them one slot after the other. It is still all or none, it never waits while it
    /// holds some, but for a moment others can find some of the names taken. Give the names a
    /// common tag in braces (`{order}:a`, `{order}:b`) to have them in one slot. A
    /// [latch](crate::LockClient::latch) cannot have braces in its name.
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

    pub(super) fn is_cluster(&self) -> bool {
        self.cluster || self.urls.iter().any(|url| names_cluster(url))
    }

    /// A URL for each node.
    pub(super) fn cluster_urls(&self) -> Result<Vec<String>> {
        match &self.urls[..] {
            [] => Err(invalid("the URL of at least one node is needed: Builder::urls")),
            [url] if names_cluster(url) => urls_of_nodes(url).ok_or_else(|| {
                invalid("a URL of a cluster is redis+cluster://[user:password@]host:port[,host:port..]")
            }),
            urls if urls.iter().any(|url| names_cluster(url)) => Err(invalid(
                "a redis+cluster:// URL names all nodes: leave out other URLs, or name each node as redis://host:port",
            )),
            urls => Ok(urls.to_vec()),
        }
    }

    pub(super) fn check_cluster(&self) -> Result<()> {
        if self.is_cluster() && self.redlock {
            return Err(invalid(
                "Redlock over clusters: a master of Redlock must answer for all names by itself, and a cluster \
                 replicates and fails over on its own; use cluster() with replicas(n), or redlock() over single servers",
            ));
        }
        if self.sharded_channels.is_some() && !self.is_cluster() {
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
        let urls = self.cluster_urls()?;
        let publishing = OnceLock::new();
        if let Some(sharded) = self.sharded_channels {
            let _ = publishing.set(if sharded { Publishing::Sharded } else { Publishing::Classic });
        }
        let cluster = Some(Arc::new(publishing));
        let memory_seen = Arc::default();
        let seed = |url: &String| {
            let (cluster, memory_seen) = (cluster.clone(), Arc::clone(&memory_seen));
            let handshake = script::handshake_in_cluster(&self.key_prefix);
            let connector =
                Connector { cluster, memory_seen, handshake, ..self.connector(self.endpoint(url)?, io_timeout, clock) };
            connector.check_seed()?;
            Ok(connector)
        };
        let seeds = urls.iter().map(seed).collect::<Result<Vec<Connector>>>()?;
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

fn names_cluster(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.to_ascii_lowercase().contains("cluster"))
}

/// One URL for each host, so that every part is checked as in any other URL.
fn urls_of_nodes(url: &str) -> Option<Vec<String>> {
    let (scheme, rest) = url.split_once("://")?;
    let base = scheme.to_ascii_lowercase().strip_suffix("+cluster")?.to_owned();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user, hosts) =
        authority.rsplit_once('@').map_or((String::new(), authority), |(user, hosts)| (format!("{user}@"), hosts));
    let url_of = |host: &str| (!host.is_empty()).then(|| format!("{base}://{user}{host}{tail}"));
    hosts.split(',').map(url_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_url_names_all_nodes() {
        let urls = |url| urls_of_nodes(url).map(|urls| urls.join(" "));
        assert_eq!(urls("redis+cluster://a:1,b:2"), Some("redis://a:1 redis://b:2".to_owned()));
        let all = "rediss://u:p%40@a:1/?x rediss://u:p%40@[::1]:2/?x".to_owned();
        assert_eq!(urls("Rediss+Cluster://u:p%40@a:1,[::1]:2/?x"), Some(all));
        assert_eq!(urls("redis+cluster://a:1,,b:2"), None);
        assert_eq!(urls("redis-cluster://a:1"), None);
    }
}
