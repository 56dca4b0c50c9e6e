//! The client of a builder's settings, and who is told of what it does.

use std::sync::Arc;
use std::time::Duration;

use super::Builder;
use crate::background::observer::Observer;
use crate::base::clock::Clock;
use crate::base::holder::ClientId;
use crate::base::listener::Listener;
use crate::base::traffic::Traffic;
use crate::client::LockClient;
use crate::session::{Config, Shared};
use crate::store::LockStore;

impl Builder {
    /// Tells `listener` of what happens to the locks of this client, as it happens. See
    /// [`Listener`]. Defaults to nobody; then nothing is done for it on any call.
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// The client of a store whose connections count their traffic.
    pub(super) fn client_of_servers(
        self,
        id: ClientId,
        io_timeout: Duration,
        store: Arc<dyn LockStore>,
        clock: Arc<dyn Clock>,
    ) -> LockClient {
        let traffic = Some(self.traffic.clone());
        self.client(id, io_timeout, store, clock, traffic)
    }

    pub(super) fn client(
        self,
        id: ClientId,
        io_timeout: Duration,
        store: Arc<dyn LockStore>,
        clock: Arc<dyn Clock>,
        traffic: Option<Arc<Traffic>>,
    ) -> LockClient {
        let config = Config {
            lease: self.lease,
            io_timeout,
            key_prefix: self.key_prefix,
            max_hold: self.max_hold,
            fencing: self.fencing,
            outage_timeout: self.outage_timeout.unwrap_or(self.lease),
        };
        let observer = Arc::new(Observer::new(self.listener));
        LockClient::new(Shared::new(config, self.client_name, id, store, clock, observer, traffic))
    }
}
