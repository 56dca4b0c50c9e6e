//! The master that Redis sentinels watch.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::redis::{PasswordFile, RedisOptions, address_map, log_in_settings, redis_settings};
use super::servers::{Servers, from_url};
use super::settings::NewClient;
use crate::base::credentials::CredentialsProvider;
use crate::base::error::Result;
#[cfg(feature = "tls-core")]
use crate::base::tls::Tls;
use crate::store::LockStore;
use crate::store::net::Network;
use crate::store::redis::sentinel::{Providers, SentinelUrls, Sentinels};
use crate::store::redis::wire::{Provider, Target};
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsClient;

/// The master that Redis sentinels watch, for [`Builder::sentinel`](crate::Builder::sentinel).
///
/// ```no_run
/// use leasehold::{LockClient, Sentinel};
///
/// let sentinels = ["redis://s1:26379/", "redis://s2:26379/", "redis://s3:26379/"];
/// let client = LockClient::builder().sentinel(Sentinel::new(sentinels, "mymaster")).build()?;
/// // The same in one URL; the port may be left out.
/// let client = LockClient::open("redis+sentinel://s1,s2,s3/mymaster")?;
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// **Whose password.** With [`new`](Self::new), user and password in the URLs are those of the
/// sentinels, and the server's come from [`credentials`](Self::credentials) or
/// [`password_file`](Self::password_file); a database in the URLs is the server's. In a
/// `redis+sentinel://` URL, user and password are the server's, and the sentinels' come from
/// [`sentinel_credentials`](Self::sentinel_credentials).
///
/// **Every connect** queries all sentinels at once, and accepts a master as soon as more than half
/// of all sentinels name it. Otherwise it waits for the others for one [I/O
/// timeout](crate::Builder::io_timeout), and more than half of those that answered must agree. The
/// server itself must confirm that it is a master. A sentinel that hangs or is down costs nothing
/// while most of them answer. If none answers, no new connection is made; open connections stay in
/// use.
///
/// **A failover** ends all connections to the old master as soon as the client learns of it: from
/// the sentinels' message, when a connection is lost, when a server reports that it is read-only,
/// and at the latest a second after the sentinels agree. Until a new master is named, it is an
/// outage like that of one server: a first attempt fails at once
/// ([`Unreachable`](crate::ErrorKind::Unreachable), [`NotReady`](crate::ErrorKind::NotReady) or
/// [`ReadOnly`](crate::ErrorKind::ReadOnly)), and a call that is already waiting goes on for the
/// [outage timeout](crate::Builder::outage_timeout). Requests in progress are repeated at the new
/// master where possible. Holds are renewed there at once, or are
/// [lost](crate::guide::losing_a_lock) if it does not have them. Tokens go on growing, even if its
/// counter is behind, unless its clock is behind the old one's by more than the time that the
/// failover took.
///
/// **Remaining risks.** Replication in Redis is asynchronous, so a failover can forget a lock that
/// was just granted. And an old master that is cut off together with this client, and with every
/// sentinel that the client can reach, goes on granting locks to it while the other side has a new
/// master. (Once the client has seen the new master, a minority of the sentinels cannot lead it
/// back.) [`replicas`](Self::replicas) prevents both, within the limits that its docs state,
/// because such a master has no replica left to acknowledge; where something must not happen twice,
/// let the [fencing token](crate::fencing) decide. With `min-replicas-to-write 1` at the servers,
/// an old master refuses by itself after a while.
///
/// The client has one more thread, `lh-sentinel-*`, with a subscription and a connection to each
/// sentinel. The sentinels' user needs `SENTINEL GET-MASTER-ADDR-BY-NAME`, `MASTER`, `MASTERS`,
/// `SENTINELS`, `MYID` and `SUBSCRIBE` to `+switch-master`.
#[derive(Clone)]
#[must_use = "it is a setting: give it to Builder::sentinel"]
pub struct Sentinel {
    named: Named,
    options: RedisOptions,
    sentinel_credentials: Option<Arc<dyn CredentialsProvider>>,
    #[cfg(feature = "tls-core")]
    sentinel_tls: Option<Tls>,
}

#[derive(Clone)]
enum Named {
    Each { urls: Vec<String>, master: String },
    InOne(String),
}

impl Sentinel {
    /// The sentinels of these `redis://` URLs, and the name under which they watch the master
    /// (often `mymaster`). Some of the sentinels are enough: the others are learned from them.
    pub fn new<U: Into<String>>(
        sentinels: impl IntoIterator<Item = U>,
        master: impl Into<String>,
    ) -> Self {
        let urls = sentinels.into_iter().map(Into::into).collect();
        Self::named(Named::Each { urls, master: master.into() })
    }

    fn named(named: Named) -> Self {
        Self {
            named,
            options: RedisOptions::default(),
            sentinel_credentials: None,
            #[cfg(feature = "tls-core")]
            sentinel_tls: None,
        }
    }

    /// The source of the user and the password for the *sentinels*, like
    /// [`credentials`](Self::credentials) for the servers.
    pub fn sentinel_credentials(mut self, provider: impl CredentialsProvider + 'static) -> Self {
        self.sentinel_credentials = Some(Arc::new(provider));
        self
    }

    /// Reads the password for the *sentinels* from this file, like
    /// [`password_file`](Self::password_file) for the servers.
    pub fn sentinel_password_file(self, path: impl Into<PathBuf>) -> Self {
        self.sentinel_credentials(PasswordFile(path.into()))
    }

    /// How the connections to the *sentinels* are secured, if not like those to the servers. The
    /// URLs must be `rediss://`. Without it, `rediss://` means TLS for both, with the settings of
    /// [`tls`](crate::Builder::tls); with it, the servers have TLS only if there is a `tls` too.
    /// With `redis://` and a `tls`, only the servers have it. Cargo feature `tls`.
    ///
    /// Sentinels usually name servers by their IP addresses: the certificates must contain those,
    /// or [`Tls::server_name`](crate::Tls::server_name) must give the name that they contain.
    #[cfg(feature = "tls-core")]
    pub fn sentinel_tls(mut self, tls: Tls) -> Self {
        self.sentinel_tls = Some(tls);
        self
    }

    fn urls(&self) -> Result<SentinelUrls> {
        let of_servers = self.options.credentials.as_ref().map(Provider::new);
        let of_sentinels = self.sentinel_credentials.as_ref().map(Provider::new);
        let providers =
            Providers { of_servers: of_servers.as_ref(), of_sentinels: of_sentinels.as_ref() };
        match &self.named {
            Named::Each { urls, master } => SentinelUrls::of_each(urls, master, providers),
            Named::InOne(url) => SentinelUrls::of_one(url, providers),
        }
    }

    /// Secures the connections with TLS where it is wanted, and reads the files of its settings.
    #[cfg(feature = "tls-core")]
    fn secure(&self, urls: &mut SentinelUrls, of_server: Option<&Tls>) -> Result<()> {
        let is_secure = urls.server.is_secure();
        if self.sentinel_tls.is_some() && !is_secure {
            return Err(crate::base::error::invalid(
                "sentinel_tls is for sentinels with rediss:// URLs; with redis:// nothing is encrypted",
            ));
        }
        let is_for_both = is_secure && self.sentinel_tls.is_none();
        let of_server = of_server.cloned().or_else(|| is_for_both.then(Tls::new));
        let of_server = of_server.map(TlsClient::checked).transpose()?;
        let of_sentinels = self.sentinel_tls.clone().map(TlsClient::checked).transpose()?;
        urls.server = urls.server.clone().secured_by(of_server.as_ref());
        if let Some(tls) = of_sentinels.as_ref().or(of_server.as_ref()).filter(|_| is_secure) {
            for sentinel in &mut urls.sentinels {
                sentinel.secure_with(tls);
            }
        }
        Ok(())
    }
}

redis_settings!(Sentinel);
address_map!(Sentinel, "a sentinel");
from_url!(Sentinel, |url| Sentinel::named(Named::InOne(url)));

impl Servers for Sentinel {
    fn store(&self, client: &NewClient<'_>) -> Result<Arc<dyn LockStore>> {
        let mut urls = self.urls()?;
        urls.server.join(&Network::counted_in(&client.traffic));
        // Requests to sentinels do not count as traffic of locks.
        let of_sentinels = Arc::default();
        for sentinel in &mut urls.sentinels {
            sentinel.join(&of_sentinels);
        }
        let map = self.options.address_map.as_ref();
        for endpoint in urls.sentinels.iter_mut().chain([&mut urls.server]) {
            endpoint.map_by(map);
        }
        #[cfg(feature = "tls-core")]
        self.secure(&mut urls, client.settings.tls.as_ref())?;
        // The watchdog waits for the sentinels as well.
        let timeout = client.background_timeout();
        let sentinels =
            Sentinels::new(urls, &client.settings.client_name, timeout, client.clock.clone());
        client.redis_store(Target::Master(Arc::new(sentinels)), &self.options)
    }
}

impl fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Sentinel");
        match self.urls() {
            Ok(urls) => shown.field("sentinels", &urls.sentinels).field("master", &urls.name),
            Err(_) => shown.field("sentinels", &"URLs that are not understood"),
        };
        #[cfg(feature = "tls-core")]
        shown.field("sentinel_tls", &self.sentinel_tls);
        shown.field("sentinel_credentials", &self.sentinel_credentials.is_some());
        self.options.show(&mut shown).finish()
    }
}
