//! One server of Redis, and what all kinds of Redis servers share.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::servers::{Servers, Shown, from_url};
use super::settings::NewClient;
use crate::base::credentials::{Credentials, CredentialsProvider};
use crate::base::error::{Result, invalid};
use crate::store::LockStore;
use crate::store::net::Network;
use crate::store::redis::script::WaiterTimeouts;
use crate::store::redis::wire::{AddressMap, Connector, Endpoint, Provider, Target};
use crate::store::redis::{RedisSettings, RedisStore, script};

/// Redisson's default.
const DEFAULT_JAVA_WAITER_TIMEOUT: Duration = Duration::from_secs(300);
/// See [`Builder::connections`](crate::Builder::connections).
const CONNECTIONS: usize = 8;

/// Where the user and the password of Redis servers come from.
macro_rules! log_in_settings {
    ($servers:ident, $($provider:ident).+) => {
        impl $servers {
            /// The source of the user and the password, instead of the URL: for credentials that
            /// change while the client lives. Every closure that returns
            /// [`Credentials`](crate::Credentials) is a provider. It is called [whenever a
            /// connection is made](crate::CredentialsProvider), and once more if the server refuses
            /// the credentials, so a password can be replaced at any time. Open connections stay
            /// logged in; one that the server logs out (`NOAUTH`) is replaced, and its requests are
            /// repeated.
            ///
            /// If the credentials name no user, the URL's user is used; a URL that also has a
            /// password is refused. Replaces [`password_file`](Self::password_file).
            ///
            /// ```no_run
            /// # fn latest_token() -> Result<String, std::io::Error> { Ok(String::new()) }
            /// use leasehold::{Credentials, LockClient, Redis};
            /// let server = Redis::new("redis://cache.example/")
            ///     .credentials(|| Ok(Credentials::new("billing", latest_token()?)));
            /// let client = LockClient::builder().redis(server).build()?;
            /// # Ok::<(), leasehold::Error>(())
            /// ```
            pub fn credentials(mut self, provider: impl crate::base::credentials::CredentialsProvider + 'static) -> Self {
                self.$($provider).+ = Some(std::sync::Arc::new(provider));
                self
            }

            /// Reads the password from this file whenever a connection is made, without the line
            /// end at its end: for a secret that something else mounts and replaces. The URL may
            /// name the user. Otherwise like [`credentials`](Self::credentials), which it replaces.
            /// If the file cannot be read, is empty or is not UTF-8, the connect fails with
            /// [`Denied`](crate::ErrorKind::Denied).
            pub fn password_file(self, path: impl Into<std::path::PathBuf>) -> Self {
                self.credentials(crate::builder::redis::PasswordFile(path.into()))
            }
        }
    };
}

/// The methods for [`RedisOptions`].
macro_rules! redis_settings {
    ($servers:ident) => {
        log_in_settings!($servers, options.credentials);

        impl $servers {
            /// Every grant and every renewal must be acknowledged by this many replicas of the
            /// server (`WAIT`, in the same write; one for all calls that share it) within half the
            /// I/O timeout, an eighth of the lease at most. A grant that is not acknowledged is
            /// undone, and the call fails with [`NotReplicated`](crate::ErrorKind::NotReplicated);
            /// a renewal that is not acknowledged counts as failed, and the lease ends in time. A
            /// call that is already waiting tries again, as in an outage. A waiter of a [fair
            /// lock](crate::FairMutex) whose grant was undone has had its turn, and queues again
            /// behind the others.
            ///
            /// This is a smaller step than [`Redlock`][crate::Redlock]: a failover to one of these
            /// replicas keeps the lock. It has limits: nothing makes the failover choose one of
            /// them; a replica that restarts without its data has forgotten what it acknowledged;
            /// and a release does not wait for replicas, so after a failover a lock may stay taken
            /// for the rest of its lease (a permit for two seconds more), even if a replica
            /// acknowledged its grant. Where something must not happen twice, let the [fencing
            /// token](crate::fencing) decide.
            ///
            /// At least 1. Defaults to none.
            #[cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
            #[doc(alias = "checkLockSyncedSlaves")]
            pub fn replicas(mut self, count: u32) -> Self {
                self.options.replicas = Some(count);
                self
            }

            /// The longest time that Java services wait for the same [fair
            /// locks](crate::FairMutex): the maximum of their `fairLockWaitTimeout`s and of the
            /// times given to a `tryLock`. When a Java waiter gets the lock, it subtracts its own
            /// time from the deadlines of all waiters behind it, so this crate's waiters add it to
            /// theirs. If it is too short, waiters behind several Java waiters can lose their
            /// places while somebody holds the lock for long. If it is too long, a dead waiter of
            /// this crate behind a Java waiter keeps its place for longer, unless another client of
            /// this crate asks for the lock and [corrects that](crate::FairMutex#order). Between 1
            /// ms and a day. Defaults to 5 minutes, like Redisson. Without Java it has no effect.
            #[doc(alias = "fairLockWaitTimeout")]
            pub fn java_waiter_timeout(mut self, timeout: std::time::Duration) -> Self {
                self.options.java_waiter_timeout = timeout;
                self
            }
        }
    };
}

/// The method for servers whose addresses are learned.
macro_rules! address_map {
    ($servers:ident, $who:literal) => {
        impl $servers {
            #[doc = concat!("Where to connect to, for an address that ", $who, " has named.")]
            /// Behind NAT and in containers, servers name addresses that only they can use. `map`
            /// gets host and port as they were named, and returns those to connect to: the same if
            /// they are right. Redisson calls this `natMapper`.
            ///
            /// It is not asked for the addresses in the URLs. It is called for each connect, on the
            /// thread that connects, within no time limit: look the address up in a table and do no
            /// I/O. If it panics, the address is used as it was named. Defaults to using the
            /// addresses as they are.
            ///
            /// ```
            #[doc = concat!("use leasehold::", stringify!($servers), ";")]
            #[doc = concat!("# fn mapped(servers: ", stringify!($servers), ") -> ", stringify!($servers), " {")]
            /// // Each server is published at the gateway, under its own port.
            /// servers.map_addresses(|_host, port| ("gateway.example".to_owned(), port))
            /// # }
            /// ```
            #[doc(alias = "NatMapper")]
            pub fn map_addresses(mut self, map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
                self.options.address_map = Some(std::sync::Arc::new(map));
                self
            }
        }
    };
}

pub(super) use {address_map, log_in_settings, redis_settings};

/// One server of Redis or Valkey, for [`Builder::redis`](crate::Builder::redis).
///
/// ```no_run
/// use leasehold::{LockClient, Redis};
///
/// let server = Redis::new("redis://cache.example/").password_file("/run/secrets/redis");
/// let client = LockClient::builder().redis(server).build()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "it is a setting: give it to Builder::redis"]
pub struct Redis {
    url: String,
    options: RedisOptions,
}

impl Redis {
    /// The server of a URL: `redis://[user:password@]host[:port][/db]`, the same with `rediss://`
    /// for TLS (cargo feature `tls`), or `redis+unix:///path`. All accept `?db=..&user=..&pass=..`.
    /// `valkey` instead of `redis` means the same.
    ///
    /// Anything else in a URL is refused and never ignored: unknown parameters, a `#` (also
    /// `#insecure`), a database that is given twice, a user without a password, and `rediss://`
    /// where the feature is off.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), options: RedisOptions::default() }
    }
}

redis_settings!(Redis);
from_url!(Redis, Redis::new);

impl Servers for Redis {
    fn store(&self, client: &NewClient<'_>) -> Result<Arc<dyn LockStore>> {
        let server = vec![Endpoint::parse(&self.url)?];
        let mut endpoints = client.endpoints(server, self.options.credentials.as_ref())?;
        let target = Target::from(endpoints.remove(0));
        client.redis_store(target, &self.options)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Redis");
        shown.field("server", &Shown(Endpoint::parse(&self.url)));
        self.options.show(&mut shown).finish()
    }
}

/// The settings that one server, the master of sentinels and a cluster share.
#[derive(Clone)]
pub(super) struct RedisOptions {
    pub(super) credentials: Option<Arc<dyn CredentialsProvider>>,
    pub(super) replicas: Option<u32>,
    pub(super) java_waiter_timeout: Duration,
    pub(super) address_map: Option<AddressMap>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            credentials: None,
            replicas: None,
            java_waiter_timeout: DEFAULT_JAVA_WAITER_TIMEOUT,
            address_map: None,
        }
    }
}

impl RedisOptions {
    fn check(&self) -> Result<()> {
        if self.replicas == Some(0) {
            return Err(invalid(
                "replicas(0) is not valid: give at least 1, or leave replicas out",
            ));
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(24 * 3600))
            .contains(&self.java_waiter_timeout)
        {
            return Err(invalid(format!(
                "a java_waiter_timeout of {:?} is not between 1 ms and a day",
                self.java_waiter_timeout
            )));
        }
        Ok(())
    }

    pub(super) fn show<'a, 'f, 's>(
        &self,
        shown: &'a mut fmt::DebugStruct<'f, 's>,
    ) -> &'a mut fmt::DebugStruct<'f, 's> {
        shown
            .field("credentials", &self.credentials.is_some())
            .field("replicas", &self.replicas)
            .field("java_waiter_timeout", &self.java_waiter_timeout)
            .field("map_addresses", &self.address_map.is_some())
    }
}

/// The file is read whenever a connection is made.
pub(super) struct PasswordFile(pub(super) PathBuf);

impl CredentialsProvider for PasswordFile {
    fn credentials(&self) -> std::result::Result<Credentials, Box<dyn Error + Send + Sync>> {
        let path = self.0.display();
        let text = std::fs::read_to_string(&self.0)
            .map_err(|e| format!("the password file {path}: {e}"))?;
        // Editors and `echo` add a line end.
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let password = line.strip_suffix('\r').unwrap_or(line);
        if password.is_empty() {
            return Err(format!("the password file {path} is empty").into());
        }
        Ok(Credentials::password(password))
    }
}

impl NewClient<'_> {
    /// The servers of URLs, with the settings of the client.
    pub(super) fn endpoints(
        &self,
        parsed: Vec<Endpoint>,
        credentials: Option<&Arc<dyn CredentialsProvider>>,
    ) -> Result<Vec<Endpoint>> {
        let provider = credentials.map(Provider::new);
        let log_in = |endpoint: Endpoint| endpoint.with_provider(provider.as_ref());
        let mut endpoints: Vec<Endpoint> = parsed.into_iter().map(log_in).collect::<Result<_>>()?;
        let network = Network::counted_in(&self.traffic);
        for endpoint in &mut endpoints {
            endpoint.join(&network);
        }
        #[cfg(feature = "tls-core")]
        if let Some(tls) = self.tls(endpoints.iter().any(Endpoint::is_secure), "rediss")? {
            for endpoint in &mut endpoints {
                endpoint.secure_with(&tls);
            }
        }
        Ok(endpoints)
    }

    pub(super) fn connector(&self, target: Target) -> Connector {
        Connector {
            endpoint: target,
            client_name: self.settings.client_name.clone(),
            handshake: script::handshake(&self.settings.key_prefix),
            io_timeout: self.io_timeout,
            clock: self.clock.clone(),
            busy_poll: self.settings.busy_poll,
            memory_seen: Arc::default(),
            introduced: Arc::default(),
            cluster: None,
        }
    }

    /// The store in one server, or in the current master.
    pub(super) fn redis_store(
        &self,
        target: Target,
        options: &RedisOptions,
    ) -> Result<Arc<dyn LockStore>> {
        let connector = self.connector(target);
        let background = Connector { io_timeout: self.background_timeout(), ..connector.clone() };
        let store = RedisStore::new(connector, background, self.redis_settings(options)?);
        if !self.settings.lazy {
            store.connect_now()?;
        }
        Ok(Arc::new(store))
    }

    pub(super) fn redis_settings(&self, options: &RedisOptions) -> Result<RedisSettings> {
        options.check()?;
        let waiter_timeouts = WaiterTimeouts {
            own: self.settings.waiter_timeout,
            redisson: options.java_waiter_timeout,
        };
        Ok(RedisSettings {
            connections: self.connections(),
            replicas: options.replicas,
            waiter_timeouts,
            client_id: self.id.as_str().to_owned(),
        })
    }

    pub(super) fn connections(&self) -> usize {
        self.settings.connections.unwrap_or(CONNECTIONS)
    }
}
