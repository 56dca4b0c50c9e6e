//! The client that a builder makes, and the listener that observes it.

use std::sync::Arc;
use std::time::Duration;

use super::Builder;
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::holder::ClientId;
use crate::base::listener::Listener;
use crate::base::owner::HolderOwner;
use crate::base::traffic::Traffic;
use crate::client::LockClient;
use crate::observe::observer::Observer;
use crate::store::LockStore;
use crate::wait::client_state::{ClientState, Config};

impl Builder {
    /// Tells `listener` of what happens to the locks of this client, as it happens. See
    /// [`Listener`]. Defaults to nobody; then nothing is done for it on any call.
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Says who this client is, for people who ask [who holds a lock](crate::LockHolder): 1 to 100
    /// characters without control characters, such as `billing-7`. Defaults to the name of the
    /// program. The process id and the name of the host are said in any case.
    ///
    /// While the client holds something, its background thread keeps this where other clients can
    /// read it, with the lease as its time to live: in Redis under a key of its own, in PostgreSQL
    /// in a row, over ZooKeeper in the nodes of its holds. Whoever may read there can see it. No
    /// call waits for it. It costs one command for each third of a lease, whatever the number of
    /// holds.
    ///
    /// With a label it is said as soon as the client holds something, or waits in the queue of a
    /// fair lock. Without one, a hold that lasts less than a second (with leases below 10 s, less
    /// than a tenth of the lease) costs
    /// nothing and is not known.
    pub fn owner(mut self, label: impl Into<String>) -> Self {
        self.owner = Some(label.into());
        self
    }

    /// Whether the client says [who it is](Self::owner), and asks who others are. Without it
    /// nothing is written or read for that: its holds are seen as holder ids, as those of Java
    /// are, and only a [search](crate::LockClient::locks) finds them. Defaults to true.
    pub fn announce_owner(mut self, on: bool) -> Self {
        self.announce_owner = on;
        self
    }

    /// # Errors
    /// `InvalidInput` for a label that cannot be one, also if nobody is to know it.
    pub(super) fn holder_owner(&self) -> Result<Option<HolderOwner>> {
        let owner = HolderOwner::of_this_process(self.owner.as_deref())?;
        Ok(self.announce_owner.then_some(owner))
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
        let has_label = self.owner.is_some();
        // It was checked with the other settings.
        let owner = self.holder_owner().ok().flatten();
        let config = Config {
            lease: self.lease,
            io_timeout,
            key_prefix: self.key_prefix,
            max_hold: self.max_hold,
            fencing: self.fencing,
            outage_timeout: self.outage_timeout.unwrap_or(self.lease),
            owner,
            has_label,
        };
        let observer = Arc::new(Observer::new(self.listener));
        LockClient::new(ClientState::new(config, self.client_name, id, store, clock, observer, traffic))
    }
}
