//! The stores of servers that a builder's settings describe.

use std::sync::Arc;
use std::time::Duration;

use super::{Builder, CONNECTIONS, invalid};
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::holder::ClientId;
use crate::store::redis::script::WaiterTimeouts;
use crate::store::redis::sentinel::Sentinels;
use crate::store::redis::wire::{BusyPoll, Connector, Endpoint, Target};
use crate::store::redis::{RedisSettings, RedisStore, script};

impl Builder {
    pub(super) fn connector(&self, endpoint: Target, io_timeout: Duration, clock: &Arc<dyn Clock>) -> Connector {
        Connector {
            endpoint,
            client_name: self.client_name.clone(),
            handshake: script::handshake(&self.key_prefix),
            io_timeout,
            clock: clock.clone(),
            busy_poll: Arc::new(BusyPoll::new(self.busy_poll)),
            memory_seen: Arc::default(),
            cluster: None,
        }
    }

    pub(super) fn endpoint(&self, url: &str) -> Result<Target> {
        let mut endpoint = Endpoint::parse(url, self.credentials.as_ref())?;
        endpoint.count_in(&self.traffic);
        #[cfg(feature = "tls")]
        self.secure(&mut endpoint);
        Ok(endpoint.into())
    }

    /// The one server, or whichever is the master of the sentinels.
    fn target(&self, io_timeout: Duration, clock: &Arc<dyn Clock>) -> Result<Target> {
        if let Some(mut urls) = self.sentinel_urls()? {
            // What sentinels are asked is no traffic of locks.
            urls.server.count_in(&self.traffic);
            #[cfg(feature = "tls")]
            self.secure_sentinels(&mut urls);
            // The watchdog waits for them as well.
            let timeout = io_timeout.min(self.lease / 4);
            return Ok(Target::Master(Arc::new(Sentinels::new(urls, &self.client_name, timeout, clock.clone()))));
        }
        match &self.urls[..] {
            [url] => self.endpoint(url),
            [] => Err(invalid("a URL is needed: Builder::url")),
            urls => Err(invalid(format!(
                "{} URLs need Builder::sentinel, Builder::cluster or Builder::redlock; without one of these, name one server",
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
        let store = RedisStore::new(connector, background, self.redis_settings(id));
        if !self.lazy {
            store.connect_now()?;
        }
        Ok(store)
    }

    pub(super) fn redis_settings(&self, id: &ClientId) -> RedisSettings {
        RedisSettings {
            connections: self.connections.unwrap_or(CONNECTIONS),
            replicas: self.replicas,
            waiter_timeouts: WaiterTimeouts { own: self.waiter_timeout, redisson: self.java_waiter_timeout },
            client_id: id.as_str().to_owned(),
        }
    }
}
