//! The stores of servers that a builder's settings describe.

use std::sync::Arc;
use std::time::Duration;

use super::{Builder, DEFAULT_LEASE, NODES, invalid};
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::holder::ClientId;
use crate::base::limits::check_lease;
use crate::store::redis::script::WaiterTimeouts;
use crate::store::redis::sentinel::Sentinels;
use crate::store::redis::wire::{Connector, Endpoint, Target};
use crate::store::redis::{RedisSettings, RedisStore, script};
use crate::store::redlock::{QuarantineSettings, RedlockStore};

impl Builder {
    fn connector(&self, endpoint: Target, io_timeout: Duration, clock: &Arc<dyn Clock>) -> Connector {
        Connector {
            endpoint,
            client_name: self.client_name.clone(),
            handshake: script::handshake(&self.key_prefix),
            io_timeout,
            clock: clock.clone(),
            memory_seen: Arc::default(),
        }
    }

    fn endpoint(&self, url: &str) -> Result<Target> {
        Endpoint::parse(url, self.credentials.as_ref()).map(Into::into)
    }

    /// The one server, or whichever is the master of the sentinels.
    fn target(&self, io_timeout: Duration, clock: &Arc<dyn Clock>) -> Result<Target> {
        if let Some(urls) = self.sentinel_urls()? {
            // The watchdog waits for them as well.
            let timeout = io_timeout.min(self.lease / 4);
            return Ok(Target::Master(Arc::new(Sentinels::new(urls, &self.client_name, timeout, clock.clone()))));
        }
        match &self.urls[..] {
            [url] => self.endpoint(url),
            [] => Err(invalid("a URL is needed: Builder::url")),
            urls => Err(invalid(format!(
                "{} URLs are for Builder::sentinel or Builder::redlock; without them, name one server",
                urls.len()
            ))),
        }
    }

    pub(super) fn redis_store(
        &self,
        io_timeout: Duration,
        id: &ClientId,
        clock: &Arc<dyn Clock>,
    ) -> Result<RedisStore> {
        let connector = self.connector(self.target(io_timeout, clock)?, io_timeout, clock);
        // One slow server must not eat up the lease that a renewal is to save.
        let background = Connector { io_timeout: io_timeout.min(self.lease / 4), ..connector.clone() };
        let settings = RedisSettings {
            connections: self.connections,
            replicas: self.replicas,
            waiter_timeouts: WaiterTimeouts { own: self.waiter_timeout, redisson: self.java_waiter_timeout },
            client_id: id.as_str().to_owned(),
        };
        let store = RedisStore::new(connector, background, settings);
        if !self.lazy {
            store.connect_now()?;
        }
        Ok(store)
    }

    pub(super) fn redlock_store(&self, io_timeout: Duration, clock: &Arc<dyn Clock>) -> Result<RedlockStore> {
        let count = self.urls.len();
        if !NODES.contains(&count) {
            return Err(invalid(format!(
                "Redlock over {count} masters; it takes {NODES:?}, none of which is a replica"
            )));
        }
        let longest_lease = self.longest_lease.unwrap_or(DEFAULT_LEASE.max(self.lease));
        check_lease(longest_lease)?;
        if longest_lease < self.lease {
            return Err(invalid(format!(
                "a longest_lease of {longest_lease:?} is shorter than the lease of {:?}",
                self.lease
            )));
        }
        // A renewal waits for the answers of all masters, so one that hangs must not use up the
        // lease.
        let io_timeout = io_timeout.min(self.lease / 4);
        let connectors: Vec<Connector> = self
            .urls
            .iter()
            .map(|url| Ok(self.connector(self.endpoint(url)?, io_timeout, clock)))
            .collect::<Result<_>>()?;
        let mut addresses: Vec<String> =
            connectors.iter().map(|connector| format!("{:?}", connector.endpoint)).collect();
        addresses.sort();
        if let Some(pair) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid(format!("{} stands twice among the masters of Redlock", pair[0])));
        }
        let admission =
            QuarantineSettings { longest_lease, fresh: self.admit_fresh_nodes, durable: self.durable_nodes };
        let store = RedlockStore::new(connectors, self.connections, admission);
        if !self.lazy {
            store.connect_now()?;
        }
        Ok(store)
    }
}
