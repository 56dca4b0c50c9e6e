//! The stores of servers that a builder's settings describe.

use std::sync::Arc;
use std::time::Duration;

use super::{Builder, invalid};
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::holder::ClientId;
use crate::store::redis::script::WaiterTimeouts;
use crate::store::redis::wire::{Connector, Endpoint};
use crate::store::redis::{RedisSettings, RedisStore, script};

impl Builder {
    pub(super) fn connector(&self, url: &str, io_timeout: Duration, clock: &Arc<dyn Clock>) -> Result<Connector> {
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "it takes the settings of TLS"))]
        let mut endpoint = Endpoint::parse(url, self.credentials.as_ref())?;
        #[cfg(feature = "tls")]
        self.secure(&mut endpoint);
        Ok(Connector {
            endpoint,
            client_name: self.client_name.clone(),
            handshake: script::handshake(&self.key_prefix),
            io_timeout,
            clock: clock.clone(),
            memory_seen: Arc::default(),
            cluster: None,
        })
    }

    pub(super) fn redis_store(
        &self,
        io_timeout: Duration,
        id: &ClientId,
        clock: &Arc<dyn Clock>,
    ) -> Result<RedisStore> {
        let [url] = &self.urls[..] else {
            return Err(match self.urls.len() {
                0 => invalid("a URL is needed: Builder::url"),
                n => invalid(format!(
                    "{n} URLs are for Builder::redlock or Builder::cluster; without them, name one server"
                )),
            });
        };
        // One slow server must not eat up the lease that a renewal is to save.
        let connector = self.connector(url, io_timeout, clock)?;
        let background = Connector { io_timeout: io_timeout.min(self.lease / 4), ..connector.clone() };
        let store = RedisStore::new(connector, background, self.redis_settings(id));
        if !self.lazy {
            store.connect_now()?;
        }
        Ok(store)
    }

    pub(super) fn redis_settings(&self, id: &ClientId) -> RedisSettings {
        RedisSettings {
            connections: self.connections,
            replicas: self.replicas,
            waiter_timeouts: WaiterTimeouts { own: self.waiter_timeout, redisson: self.java_waiter_timeout },
            client_id: id.as_str().to_owned(),
        }
    }
}
