//! Settings for a server that sentinels watch.

use std::path::PathBuf;
use std::sync::Arc;

use super::credentials::PasswordFile;
use super::{Builder, invalid};
use crate::base::credentials::CredentialsProvider;
use crate::base::error::Result;
#[cfg(feature = "tls")]
use crate::base::tls::Tls;
use crate::store::redis::sentinel::{Providers, SentinelUrls, names_sentinels};
use crate::store::redis::wire::Endpoint;
#[cfg(feature = "tls")]
use crate::store::tls::TlsClient;

impl Builder {
    /// The [`urls`](Self::urls) are sentinels, and the server is the master that they watch under
    /// this name (often `mymaster`). They may be some of the sentinels: the others are learned from
    /// them.
    ///
    /// ```no_run
    /// let client = leasehold::LockClient::builder()
    ///     .urls(["redis://s1:26379/", "redis://s2:26379/", "redis://s3:26379/"])
    ///     .sentinel("mymaster")
    ///     .build()?;
    /// // The same in one URL; the port may be left out.
    /// let client = leasehold::LockClient::open("redis+sentinel://s1,s2,s3/mymaster")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// **Whose password.** With `sentinel`, user and password in the URLs are those of the
    /// sentinels, and the server's come from [`credentials`](Self::credentials) or
    /// [`password_file`](Self::password_file); a database in them is the server's. In a
    /// `redis+sentinel://` URL user and password are the server's, and the sentinels' come from
    /// [`sentinel_credentials`](Self::sentinel_credentials).
    ///
    /// **Every connect** asks all sentinels at once, and believes as soon as more than half of all
    /// of them name the same master. Otherwise it waits for the others for one [I/O
    /// timeout](Self::io_timeout), and more than half of those that answered must agree. The server
    /// itself must say that it is a master. A sentinel that hangs or is down costs nothing while
    /// most of them answer. If none answers, no new connection is made; those that are open go on.
    ///
    /// **A failover** ends all connections to the old master as soon as the client knows of it: by
    /// the sentinels' message, when a connection is lost, when a server says that it is read-only,
    /// and at the latest a second after they agree. Until a new master is named, it is an outage as
    /// that of one server: a first attempt fails at once
    /// ([`Unreachable`](crate::ErrorKind::Unreachable), [`NotReady`](crate::ErrorKind::NotReady) or
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly)), a call that is already waiting goes on for the
    /// [outage timeout](Self::outage_timeout). What was under way is repeated at the new master
    /// where it can be. Holds are renewed there at once, or are
    /// [lost](crate::guide::losing_a_lock) if it has not got them. Tokens go on growing, also if
    /// its counter is behind, unless its clock is behind the old one's by more than the failover
    /// took.
    ///
    /// **What is left.** Replication in Redis is asynchronous, so a failover can forget a lock just
    /// granted. And an old master that is cut off together with this client, and with every
    /// sentinel that the client can reach, goes on granting to it while the other side has a new
    /// master. (Once the client has seen the new master, a minority of the sentinels cannot lead it
    /// back.) [`replicas`](Self::replicas) closes both, as far as its own docs say, because such a
    /// master has no replica left to acknowledge; the [fencing token](crate::fencing) decides where
    /// it must not happen twice. `min-replicas-to-write 1` at the servers makes an old master
    /// refuse by itself after a while.
    ///
    /// There is one thread more, `lh-sentinel-*`, with a subscription and a connection to each
    /// sentinel. The sentinels' user needs `SENTINEL GET-MASTER-ADDR-BY-NAME`, `MASTER`, `MASTERS`,
    /// `SENTINELS`, `MYID` and `SUBSCRIBE` to `+switch-master`.
    pub fn sentinel(mut self, master: impl Into<String>) -> Self {
        self.sentinel = Some(master.into());
        self
    }

    /// Where the user and the password for the *sentinels* come from, as
    /// [`credentials`](Self::credentials) for the servers.
    pub fn sentinel_credentials(mut self, provider: impl CredentialsProvider + 'static) -> Self {
        self.sentinel_credentials = Some(Arc::new(provider));
        self
    }

    /// The password for the *sentinels* is what this file has, as
    /// [`password_file`](Self::password_file) for the servers.
    pub fn sentinel_password_file(self, path: impl Into<PathBuf>) -> Self {
        self.sentinel_credentials(PasswordFile(path.into()))
    }

    /// How the connections to the *sentinels* are secured, where it is not as to the servers. The
    /// URLs must be `rediss://`. Without it, `rediss://` means TLS for both, with the settings of
    /// [`tls`](Self::tls); with it, the servers have TLS only if there is a `tls` too. With
    /// `redis://` and a `tls`, the servers alone have it. Cargo feature `tls`.
    ///
    /// The sentinels name servers mostly by their IP addresses: the certificates must have those,
    /// or [`Tls::server_name`](crate::Tls::server_name) says which name they have.
    #[cfg(feature = "tls")]
    pub fn sentinel_tls(mut self, tls: Tls) -> Self {
        self.sentinel_tls = Some(Arc::new(TlsClient::new(tls)));
        self
    }

    /// Reads the files of those settings that are wanted.
    #[cfg(feature = "tls")]
    pub(super) fn prepare_tls_of_sentinels(&mut self) -> Result<()> {
        let is_secure = self.sentinel_urls()?.is_some_and(|urls| urls.server.is_secure());
        if self.sentinel_tls.is_some() && !is_secure {
            return Err(invalid(
                "sentinel_tls is for sentinels with rediss:// URLs; with redis:// nothing is encrypted",
            ));
        }
        if is_secure && self.sentinel_tls.is_none() {
            self.tls.get_or_insert_with(|| Arc::new(TlsClient::new(Tls::new())));
        }
        self.tls.iter().chain(&self.sentinel_tls).try_for_each(|tls| tls.check())
    }

    #[cfg(feature = "tls")]
    pub(super) fn secure_sentinels(&self, urls: &mut SentinelUrls) {
        let of_sentinels = self.sentinel_tls.as_ref().or(self.tls.as_ref());
        let is_secure = urls.server.is_secure();
        urls.server = urls.server.clone().secured_by(self.tls.as_ref());
        if let Some(tls) = of_sentinels.filter(|_| is_secure) {
            urls.sentinels.iter_mut().for_each(|sentinel| sentinel.secure_with(tls));
        }
    }

    /// Whether anything is said of servers.
    pub(super) fn has_servers(&self) -> bool {
        !self.urls.is_empty()
            || self.credentials.is_some()
            || self.has_sentinels()
            || self.redlock
            || self.is_cluster()
            || self.replicas.is_some()
    }

    pub(super) fn has_sentinels(&self) -> bool {
        self.sentinel.is_some() || self.urls.iter().any(|url| names_sentinels(url))
    }

    pub(super) fn check_sentinel(&self) -> Result<()> {
        if self.has_sentinels() && self.redlock {
            return Err(invalid(
                "Redlock takes independent masters, and sentinels watch one with its replicas; leave out one of the two",
            ));
        }
        if self.has_sentinels() && self.is_cluster() {
            return Err(invalid("a cluster fails over by itself, without sentinels; leave out one of the two"));
        }
        #[cfg(feature = "tls")]
        if self.sentinel_tls.is_some() && !self.has_sentinels() {
            return Err(invalid("sentinel_tls is for Builder::sentinel; for the server it is tls"));
        }
        if self.sentinel_credentials.is_some() && !self.has_sentinels() {
            return Err(invalid("sentinel_credentials are for Builder::sentinel; for the server it is credentials"));
        }
        Ok(())
    }

    /// What the URLs say, if they are those of sentinels.
    pub(super) fn sentinel_urls(&self) -> Result<Option<SentinelUrls>> {
        if !self.has_sentinels() {
            return Ok(None);
        }
        let (of_servers, of_sentinels) = (self.credentials.as_ref(), self.sentinel_credentials.as_ref());
        SentinelUrls::parse(&self.urls, self.sentinel.as_deref(), Providers { of_servers, of_sentinels }).map(Some)
    }

    /// The addresses in the URLs, without anything that may be a password.
    pub(super) fn addresses(&self) -> Vec<String> {
        if let Ok(Some(SentinelUrls { sentinels, .. })) = self.sentinel_urls() {
            return sentinels.iter().map(|sentinel| format!("{sentinel:?}")).collect();
        }
        #[cfg(feature = "postgres")]
        if self.names_postgres() {
            let address = |url: &String| match crate::store::postgres::url::PostgresUrl::parse(url) {
                Ok(url) => format!("{url:?}"),
                Err(_) => "a URL that is not understood".to_owned(),
            };
            return self.urls.iter().map(address).collect();
        }
        #[cfg(feature = "zookeeper")]
        if self.names_zookeeper() {
            let address = |url: &String| match crate::store::zookeeper::url::ZooKeeperUrl::parse(url) {
                Ok(url) => format!("{url:?}"),
                Err(_) => "a URL that is not understood".to_owned(),
            };
            return self.urls.iter().map(address).collect();
        }
        let address = |url: &String| match Endpoint::parse(url, self.credentials.as_ref()) {
            Ok(endpoint) => format!("{endpoint:?}"),
            Err(_) => "a URL that is not understood".to_owned(),
        };
        match self.cluster_urls() {
            Ok(urls) => urls.iter().map(address).collect(),
            Err(_) => self.urls.iter().map(address).collect(),
        }
    }
}
