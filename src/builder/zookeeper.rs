//! Locks in a ZooKeeper ensemble.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::{Builder, invalid};
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::holder::ClientId;
#[cfg(feature = "tls")]
use crate::base::tls::Tls;
use crate::client::LockClient;
#[cfg(feature = "tls")]
use crate::store::tls::TlsClient;
use crate::store::zookeeper::url::ZooKeeperUrl;
use crate::store::zookeeper::wire::{Acl, Servers};
use crate::store::zookeeper::{ClientSettings, ZooKeeperOptions, ZooKeeperSettings, ZooKeeperStore};

/// Ticks of less are not heard of, and the leader would be asked all the time.
const SHORTEST_TICK: Duration = Duration::from_millis(10);

impl Builder {
    /// The `tickTime` of the ZooKeeper servers. A client that knows it believes in its session for
    /// a little longer while the servers cannot be asked. Without it a quarter of the session
    /// counts as the time within which a server reports
    /// to the leader that it has heard of the client; servers grant no session of less than two
    /// ticks unless `minSessionTimeout` says so, and only then it has to be set. With observers
    /// behind an observer master, give twice the tick. **Too small a value is unsafe**: the client
    /// may believe in a session that is over. Between 10 ms and the lease. Cargo feature
    /// `zookeeper`.
    pub fn server_tick(mut self, tick: Duration) -> Self {
        self.zookeeper.tick = Some(tick);
        self
    }

    /// Added to every fencing token. ZooKeeper's tokens are the numbers of its changes and begin
    /// far below those of other stores: a resource that has seen larger ones would refuse them. Set
    /// it to more than the largest token that was ever handed out, for all clients of the resource,
    /// and never lower it. Defaults to 0. Cargo feature `zookeeper`.
    pub fn token_base(mut self, base: u64) -> Self {
        self.zookeeper.token_base = base;
        self
    }

    /// Whether the nodes in ZooKeeper are for the digest identity of the URL alone
    /// (`zookeeper://user:password@..`). Everybody who shares the locks then needs the same
    /// identity, Java too. Defaults to false: anybody may do everything with them, which is
    /// Curator's default. Cargo feature `zookeeper`.
    pub fn creator_only(mut self, only: bool) -> Self {
        self.zookeeper.creator_only = only;
        self
    }

    pub(super) fn build_zookeeper(self, io_timeout: Duration, clock: Arc<dyn Clock>) -> Result<LockClient> {
        let id = ClientId::random(self.waiter_timeout);
        let store = Arc::new(self.zookeeper_store(io_timeout, &clock)?);
        Ok(self.client_of_servers(id, io_timeout, store, clock))
    }

    fn zookeeper_store(&self, io_timeout: Duration, clock: &Arc<dyn Clock>) -> Result<ZooKeeperStore> {
        self.check_zookeeper()?;
        let [url] = &self.urls[..] else {
            return Err(invalid("several servers of ZooKeeper stand in one URL: zookeeper://a:2181,b:2181/chroot"));
        };
        let url = ZooKeeperUrl::parse(url)?;
        let ZooKeeperOptions { tick, token_base, creator_only } = self.zookeeper;
        if creator_only && url.digest.is_none() {
            return Err(invalid("creator_only needs an identity: zookeeper://user:password@host"));
        }
        if let Some(tick) = tick.filter(|tick| !(SHORTEST_TICK..=self.lease).contains(tick)) {
            return Err(invalid(format!(
                "a server_tick of {tick:?} is not between 10 ms and the lease of {:?}",
                self.lease
            )));
        }
        let servers = Servers {
            #[cfg(feature = "tls")]
            tls: self.tls_of_zookeeper(&url)?,
            // Not all clients to the same server.
            next: AtomicUsize::new(first_of(url.hosts.len())),
            addresses: url.hosts,
            digest: url.digest,
            clock: clock.clone(),
            traffic: self.traffic.clone(),
        };
        let client = ClientSettings {
            servers,
            chroot: url.chroot,
            lease: self.lease,
            tick,
            io_timeout,
            client_name: self.client_name.clone(),
        };
        let acl = if creator_only { Acl::CreatorAll } else { Acl::Open };
        let store = ZooKeeperStore::new(ZooKeeperSettings { client, acl, token_base, owner: self.holder_owner()? });
        if !self.lazy {
            store.connect_now()?;
        }
        Ok(store)
    }

    /// Refuses what other stores have, each with the reason.
    fn check_zookeeper(&self) -> Result<()> {
        let why = if self.redlock {
            "Redlock is for masters that do not replicate; the servers of ZooKeeper are a majority by themselves: leave \
             redlock out, and name all servers in one URL"
        } else if self.cluster {
            "ZooKeeper has no cluster of this kind: leave cluster out, and name all servers in one URL"
        } else if self.has_sentinels() {
            "ZooKeeper has no sentinels: leave them out, and name all servers in one URL"
        } else if self.replicas.is_some() {
            "a majority of ZooKeeper's servers has every change before it is answered: leave replicas out"
        } else if self.credentials.is_some() {
            "a client of ZooKeeper has its identity from the URL: leave credentials out"
        } else {
            return Ok(());
        };
        Err(invalid(why))
    }

    /// For clients of other stores.
    pub(super) fn refuse_zookeeper_options(&self) -> Result<()> {
        let ZooKeeperOptions { tick, token_base, creator_only } = self.zookeeper;
        if tick.is_none() && token_base == 0 && !creator_only {
            return Ok(());
        }
        Err(invalid("server_tick, token_base and creator_only are for zookeeper:// URLs"))
    }

    #[cfg(feature = "tls")]
    fn tls_of_zookeeper(&self, url: &ZooKeeperUrl) -> Result<Option<Arc<TlsClient>>> {
        match (&self.tls, url.secure) {
            (None, false) => Ok(None),
            (Some(_), false) => {
                Err(invalid("Builder::tls is for zookeeper+tls:// URLs; with zookeeper:// nothing is encrypted"))
            }
            (tls, true) => {
                let tls = tls.clone().unwrap_or_else(|| Arc::new(TlsClient::new(Tls::new())));
                tls.check()?;
                Ok(Some(tls))
            }
        }
    }
}

/// Where to begin among so many servers.
fn first_of(servers: usize) -> usize {
    usize::try_from(crate::base::random::number() % servers.max(1) as u64).unwrap_or(0)
}
