//! A ZooKeeper ensemble.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::servers::{Servers, Shown, from_url};
use super::settings::NewClient;
use crate::base::error::{Result, invalid};
use crate::store::LockStore;
use crate::store::net::Network;
use crate::store::zookeeper::url::ZooKeeperUrl;
use crate::store::zookeeper::wire::{Acl, Servers as Addresses};
use crate::store::zookeeper::{ClientSettings, ZooKeeperSettings, ZooKeeperStore};

/// Shorter ticks are not in use, and would query the leader all the time.
const SHORTEST_TICK: Duration = Duration::from_millis(10);

/// A ZooKeeper ensemble, for [`Builder::zookeeper`](crate::Builder::zookeeper).
/// [`guide::zookeeper`](crate::guide::zookeeper) describes what it guarantees.
///
/// ```no_run
/// use leasehold::{LockClient, ZooKeeper};
///
/// let ensemble = ZooKeeper::new("zookeeper://a:2181,b:2181,c:2181/locks").token_base(1 << 40);
/// let client = LockClient::builder().zookeeper(ensemble).build()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "it is a setting: give it to Builder::zookeeper"]
pub struct ZooKeeper {
    url: String,
    tick: Option<Duration>,
    token_base: u64,
    creator_only: bool,
}

impl ZooKeeper {
    /// The ensemble of a URL, with all its servers:
    /// `zookeeper://[user:password@]host[:port][,host[:port]..][/chroot]`, or the same with
    /// `zookeeper+tls://` (cargo feature `tls`). User and password are a digest identity.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), tick: None, token_base: 0, creator_only: false }
    }

    /// The `tickTime` of the ZooKeeper servers, between 10 ms and the lease.
    ///
    /// A server reports to the leader that it has heard from a client. A client that knows the tick
    /// knows how late such a report can be, and trusts its session for a little longer while the
    /// servers are unavailable; without it, the client assumes a quarter of the session.
    ///
    /// Set it if `minSessionTimeout` lets servers grant sessions of less than two ticks. Set twice
    /// the tick for observers behind an observer master. **Too small a value is unsafe**: the
    /// client may trust a session that is over.
    pub fn server_tick(mut self, tick: Duration) -> Self {
        self.tick = Some(tick);
        self
    }

    /// A number that is added to every fencing token. ZooKeeper's tokens are the numbers of its
    /// changes and begin far below those of other stores: a resource that has seen larger ones
    /// would refuse them. Set it to more than the largest token that was ever issued, for all
    /// clients of the resource, and never lower it. Defaults to 0.
    pub fn token_base(mut self, base: u64) -> Self {
        self.token_base = base;
        self
    }

    /// Whether only the digest identity of the URL (`zookeeper://user:password@..`) may use the
    /// nodes in ZooKeeper. All clients that share the locks then need the same identity, also those
    /// of Java. Defaults to false: anybody may do anything with them, which is Curator's default.
    pub fn creator_only(mut self, only: bool) -> Self {
        self.creator_only = only;
        self
    }
}

from_url!(ZooKeeper, ZooKeeper::new);

impl Servers for ZooKeeper {
    fn store(&self, client: &NewClient<'_>) -> Result<Arc<dyn LockStore>> {
        let url = ZooKeeperUrl::parse(&self.url)?;
        let lease = client.settings.lease;
        if self.creator_only && url.digest.is_none() {
            return Err(invalid("creator_only needs an identity: zookeeper://user:password@host"));
        }
        if let Some(tick) = self.tick.filter(|tick| !(SHORTEST_TICK..=lease).contains(tick)) {
            return Err(invalid(format!(
                "a server_tick of {tick:?} is not between 10 ms and the lease of {lease:?}"
            )));
        }
        let servers = Addresses {
            #[cfg(feature = "tls-core")]
            tls: client.tls(url.secure, "zookeeper+tls")?,
            // Not all clients connect to the same server first.
            next: AtomicUsize::new(first_of(url.hosts.len())),
            addresses: url.hosts,
            digest: url.digest,
            clock: client.clock.clone(),
            network: Network::counted_in(&client.traffic),
        };
        let settings = ClientSettings {
            servers,
            chroot: url.chroot,
            lease,
            tick: self.tick,
            io_timeout: client.io_timeout,
            client_name: client.settings.client_name.clone(),
        };
        let acl = if self.creator_only { Acl::CreatorAll } else { Acl::Open };
        let owner = client.settings.holder_owner()?;
        let token_base = self.token_base;
        let store =
            ZooKeeperStore::new(ZooKeeperSettings { client: settings, acl, token_base, owner });
        if !client.settings.lazy {
            store.connect_now()?;
        }
        Ok(Arc::new(store))
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeper")
            .field("ensemble", &Shown(ZooKeeperUrl::parse(&self.url)))
            .field("server_tick", &self.tick)
            .field("token_base", &self.token_base)
            .field("creator_only", &self.creator_only)
            .finish()
    }
}

/// Where to begin among this many servers.
fn first_of(servers: usize) -> usize {
    usize::try_from(crate::base::random::number() % servers.max(1) as u64).unwrap_or(0)
}
