//! The settings of a client, checked against each other once.
//!
//! [`Builder`] has the settings that clients of all stores share. Settings of only one kind of
//! servers are in a type of their own, which implements [`Servers`]: a setting that does not fit
//! does not compile.

#[cfg(feature = "redis")]
pub(crate) mod cluster;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod databases;
#[cfg(all(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "mysql",
    feature = "zookeeper"
))]
mod fuzz_tests;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redlock")]
pub(crate) mod redlock;
#[cfg(feature = "redis")]
pub(crate) mod sentinel;
mod servers;
mod settings;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis")]
use self::cluster::Cluster;
#[cfg(feature = "mysql")]
use self::mysql::Mysql;
#[cfg(feature = "postgres")]
use self::postgres::Postgres;
#[cfg(feature = "redis")]
use self::redis::Redis;
#[cfg(feature = "redlock")]
use self::redlock::Redlock;
#[cfg(feature = "redis")]
use self::sentinel::Sentinel;
use self::servers::Servers;
use self::settings::{DEFAULT_IO_TIMEOUT, NewClient, Settings};
#[cfg(feature = "zookeeper")]
use self::zookeeper::ZooKeeper;
use crate::base::error::{Result, invalid};
use crate::base::holder::ClientId;
#[cfg(feature = "tls-core")]
use crate::base::tls::Tls;
use crate::client::LockClient;
use crate::report::listener::Listener;
use crate::report::observer::Observer;
use crate::report::traffic::Traffic;
use crate::signal::clock::{Clock, SystemClock};
use crate::store::LockStore;
use crate::store::memory::{Memory, MemoryStore};
use crate::store::schemes::{Scheme, UrlKind};
use crate::wait::client_state::{ClientState, Config};

impl LockClient {
    /// Connects to a [URL](Builder::url) such as `redis://user:password@host:6379/0` with the
    /// default settings, and checks the server and the user's permissions. Blocks for at most the
    /// I/O timeout of 2 s, however many addresses the host has and however slowly it, or the name
    /// server, answers; for two of them behind sentinels, three in a cluster, several with
    /// ZooKeeper, and 10 s more in a database that has no tables yet.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput): some part of the URL is unknown or
    /// invalid, or the server does not have its database.
    /// [`Unreachable`](crate::ErrorKind::Unreachable), [`NotReady`](crate::ErrorKind::NotReady)
    /// (loading, or has reached its `maxclients`), [`Protocol`](crate::ErrorKind::Protocol).
    /// [`Unsupported`](crate::ErrorKind::Unsupported): older than Redis 6.2, or a node of a cluster
    /// or a sentinel that is named as a single server. [`ReadOnly`](crate::ErrorKind::ReadOnly): a
    /// replica. [`Denied`](crate::ErrorKind::Denied): the user or password is wrong, or may not
    /// run one of the [commands](crate#in-redis) that locks need.
    /// [`Tls`](crate::ErrorKind::Tls): a certificate is refused.
    ///
    /// # Examples
    /// ```no_run
    /// let client = leasehold::LockClient::open("redis://127.0.0.1/")?;
    /// let _guard = client.lock("job")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn open(url: &str) -> Result<Self> {
        Self::builder().url(url).build()
    }

    /// A builder, for other settings than the defaults.
    pub fn builder() -> Builder {
        Builder { servers: None, settings: Settings::default() }
    }
}

/// Settings for a [`LockClient`]; made by [`LockClient::builder`].
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// let client = leasehold::LockClient::builder()
///     .url("redis://127.0.0.1/")
///     .lease(Duration::from_secs(10))
///     .key_prefix("billing:")
///     .build()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    /// The servers that were chosen last, or why they are invalid.
    servers: Option<Result<Arc<dyn Servers>>>,
    settings: Settings,
}

impl Builder {
    /// The servers that keep the locks, of any kind that has a URL:
    ///
    /// | URL | locks live in |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]`, `redis+unix:///path` | one server: [`redis`][Self::redis] |
    /// | `redis+sentinel://[user:password@]host[:port][,host[:port]..]/master[/db]` | the master that sentinels watch: [`sentinel`][Self::sentinel] |
    /// | `redis+cluster://[user:password@]host:port[,host:port..]` | a cluster: [`cluster`][Self::cluster] |
    /// | `postgres://user@host[:port][,host[:port]..]/database` | a PostgreSQL database: [`postgres`][Self::postgres] |
    /// | `mysql://user[:password]@host[:port][,host[:port]..]/database`, `mariadb://..` | a MySQL or MariaDB database: [`mysql`][Self::mysql] |
    /// | `zookeeper://host[:port][,host[:port]..][/chroot]` | a ZooKeeper ensemble: [`zookeeper`][Self::zookeeper] |
    ///
    /// Use this if the URL comes from a configuration. The methods in the right column take the
    /// same URL, and also the settings of their kind of servers. The last call of these methods
    /// counts; one of them, or [`redlock`][Self::redlock], is required.
    ///
    /// `rediss`, `rediss+sentinel`, `rediss+cluster` and `zookeeper+tls` are the same over TLS
    /// (cargo feature `tls`; [`tls`][Self::tls] has the settings). A kind of servers whose cargo
    /// feature is off is refused by [`build`](Self::build).
    ///
    /// Every part of a URL is understood or refused, never ignored: the error names the part, what
    /// is allowed there, and no password. Write `/`, `?`, `#` and `@` in a user or password as
    /// `%2F`, `%3F`, `%23` and `%40`.
    #[cfg_attr(not(feature = "mysql"), doc = include_str!("../links/mysql.md"))]
    #[cfg_attr(not(feature = "postgres"), doc = include_str!("../links/postgres.md"))]
    #[cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
    #[cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
    #[cfg_attr(not(feature = "tls-core"), doc = include_str!("../links/tls-core.md"))]
    #[cfg_attr(not(feature = "zookeeper"), doc = include_str!("../links/zookeeper.md"))]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.servers = Some(by_url(url.into()));
        self
    }

    /// The locks live in one server of Redis or Valkey: a `redis://` URL, or a [`Redis`] with its
    /// settings. Cargo feature `redis`.
    #[cfg(feature = "redis")]
    pub fn redis(self, server: impl Into<Redis>) -> Self {
        self.servers(server.into())
    }

    /// The locks live in the master that sentinels watch: a `redis+sentinel://` URL, or a
    /// [`Sentinel`] with its settings. Cargo feature `redis`.
    #[cfg(feature = "redis")]
    pub fn sentinel(self, servers: impl Into<Sentinel>) -> Self {
        self.servers(servers.into())
    }

    /// The locks live in a Redis Cluster: a `redis+cluster://` URL, or a [`Cluster`] with its
    /// settings. Cargo feature `redis`.
    #[cfg(feature = "redis")]
    pub fn cluster(self, servers: impl Into<Cluster>) -> Self {
        self.servers(servers.into())
    }

    /// Each lock is held on a majority of several independent servers: [`Redlock`]. Cargo feature
    /// `redlock`.
    #[cfg(feature = "redlock")]
    pub fn redlock(self, servers: Redlock) -> Self {
        self.servers(servers)
    }

    /// The locks live in a PostgreSQL database: a `postgres://` URL, or a [`Postgres`] with its
    /// settings. Cargo feature `postgres`.
    #[cfg(feature = "postgres")]
    pub fn postgres(self, database: impl Into<Postgres>) -> Self {
        self.servers(database.into())
    }

    /// The locks live in a MySQL or MariaDB database: a `mysql://` URL, or a [`Mysql`] with its
    /// settings. Cargo feature `mysql`.
    #[cfg(feature = "mysql")]
    pub fn mysql(self, database: impl Into<Mysql>) -> Self {
        self.servers(database.into())
    }

    /// The locks live in a ZooKeeper ensemble: a `zookeeper://` URL, or a [`ZooKeeper`] with its
    /// settings. Cargo feature `zookeeper`.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper(self, ensemble: impl Into<ZooKeeper>) -> Self {
        self.servers(ensemble.into())
    }

    #[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
    fn servers(mut self, servers: impl Servers + 'static) -> Self {
        self.servers = Some(Ok(Arc::new(servers)));
        self
    }

    /// How connections over TLS are secured: authorities, a client certificate, the server's name.
    /// It applies to `rediss://` and `zookeeper+tls://` URLs, which otherwise trust the system's
    /// authorities and present no client certificate, to PostgreSQL, where it means
    /// `sslmode=verify-full`, and to MySQL (`ssl-mode=verify_identity`). Cargo feature `tls`.
    ///
    /// A connect takes two more round trips and about a millisecond more of work; the [I/O
    /// timeout](Self::io_timeout) covers the TLS handshake as well. A call over an open connection
    /// costs some microseconds more.
    ///
    /// [`build`](Self::build) reads the files, and fails with
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if one is missing or broken, or if the
    /// servers' URL asks for no TLS. A certificate that either side refuses is
    /// [`Tls`](crate::ErrorKind::Tls).
    ///
    /// ```no_run
    /// use leasehold::{LockClient, Tls};
    ///
    /// let client = LockClient::builder()
    ///     .url("rediss://app:secret@redis.internal:6380/")
    ///     .tls(Tls::new().ca_file("/etc/redis/ca.pem"))
    ///     .build()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[cfg(feature = "tls-core")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// How long a lock stays held after its holder has died, and so how long a holder that is cut
    /// off still has it. Locks are renewed at a third of the lease. Between 20 ms and 365 days.
    /// Defaults to 30 s, Redisson's `lockWatchdogTimeout`.
    ///
    /// A lease below 200 ms needs a machine whose threads get a core at once: the [I/O
    /// timeout](Self::io_timeout) is at most a quarter of the lease, and a thread that waits for a
    /// core uses it up. Measured with four busy threads on two cores: at 20 ms, 3 of 50 holds were
    /// lost within 400 ms, and one call in five failed; at 50 ms, none. For a short time that is
    /// *not* renewed, use [`with_lease`](crate::ReentrantMutex::with_lease).
    #[doc(alias = "ttl")]
    #[doc(alias = "expire")]
    #[doc(alias = "watchdog")]
    #[doc(alias = "lockWatchdogTimeout")]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// The limit for each connect (including the look-up of the host name, the answer of a
    /// [credentials provider][crate::CredentialsProvider], TLS, the login and the checks of the
    /// server), each write and each reply. A call to a hung server can run into two or three of
    /// them in a row, and [`open`](LockClient::open) says how many a connect to several servers
    /// takes. The addresses of a host share the limit of one connect. Must be shorter than the
    /// lease. Defaults to 2 s, or a quarter of the lease if that is less; renewals never wait
    /// longer than a quarter of the lease.
    #[cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
    #[doc(alias = "timeout")]
    pub fn io_timeout(mut self, timeout: Duration) -> Self {
        self.settings.io_timeout = Some(timeout);
        self
    }

    /// Maximum number of connections that lock calls keep and share, 1 to 1024. With a Redis that
    /// is near, up to four threads that call at the same time have one each, and more of them share
    /// one, on which requests travel behind each other. All are used by 32 threads and more, for a
    /// server further away, for requests that wait for [replicas][crate::Redis::replicas], for
    /// those that nothing may repeat, and by a user without the right to `ECHO`. Then, and always
    /// with a database, calls that find all of them busy are sent together over the next one that
    /// becomes free. Connections are made one after the other, and after a failed connect none
    /// before a growing pause, a quarter of a second at most. Each background thread has a
    /// connection of its own, and there is one more for a moment where something needs a new one (a
    /// long list, a repeated call of a user who may not kill connections): never more than
    /// `connections` and three, beside those of a [diagnosis](LockClient::diagnose). If the server
    /// or the system allows no more than there are, calls and renewals use these. Defaults to 8, or
    /// to 4 with a database, where each connection is a process or a thread of the server.
    #[cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
    pub fn connections(mut self, connections: usize) -> Self {
        self.settings.connections = Some(connections);
        self
    }

    /// The prefix of every lock name in the store, like Redisson's `NameMapper`. Defaults to none.
    #[doc(alias = "NameMapper")]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.key_prefix = prefix.into();
        self
    }

    /// The name that `CLIENT LIST` shows. It also ends the names of the background threads, of
    /// which Linux keeps 15 bytes (with the name `billing`, `lh-renew-billin` and
    /// `lh-notify-billi`), and is the label `client` of the
    /// [figures](crate::observe::Stats::to_prometheus). 1 to 64 letters, digits, `-`, `_`, `.`,
    /// `:`. Defaults to the name of the program, with `-` instead of every other character.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.settings.client_name = name.into();
        self
    }

    /// Renewal of every lock stops once it has been held this long; see
    /// [`ReentrantMutex::max_hold`](crate::ReentrantMutex::max_hold). Defaults to no limit.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.settings.max_hold = Some(most);
        self
    }

    /// Whether every exclusive hold gets a [fencing token](crate::fencing). It costs no round trip,
    /// but memory of the server: each name keeps its counter for a day after its last grant, which
    /// takes 150 to 190 bytes in Redis; a million names a day take up to 190 MB. Turn it off if
    /// names are many and short-lived, such as one for each job, and no resource checks tokens: a
    /// released lock then leaves nothing behind. Defaults to true.
    pub fn fencing(mut self, on: bool) -> Self {
        self.settings.fencing = on;
        self
    }

    /// How long a call that is *already waiting* tolerates an unavailable server (a restart, a
    /// failover) before it fails. A first attempt fails at once. Defaults to one lease.
    pub fn outage_timeout(mut self, longest: Duration) -> Self {
        self.settings.outage_timeout = Some(longest);
        self
    }

    /// How long a dead waiter can delay the others: by its place in the queue of a [fair
    /// lock](crate::FairMutex), or by the wait marker of a writer, which keeps new
    /// [readers](crate::RwLock) out. A living waiter renews its marker at a third of this time,
    /// with one command each. Clients may have different values: each waiter has that of its own
    /// client. Between 200 ms and 5 minutes. Defaults to 5 s.
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.settings.waiter_timeout = timeout;
        self
    }

    /// Whether a thread that waits for a reply may poll for it for up to 50 µs before it falls
    /// asleep (busy polling). On an idle machine, with the server nearby, that more than doubles
    /// the rate of one thread that takes and releases locks, because falling asleep and waking up
    /// takes longer than the server needs. While it polls, the thread uses its core.
    ///
    /// A thread polls only while no other call of the client to that server is in progress, and
    /// only where polling is faster: both ways are measured, and the slower one is tried again now
    /// and then. So it stops by itself where replies take longer, or other threads want the core.
    /// It lengthens no wait. Turn it off where CPU time counts more than speed: on a battery, under
    /// a CPU quota, or where cores are paid for by use. No effect on [`redlock`][Self::redlock],
    /// with ZooKeeper, and with databases, which flush their log for a grant. Defaults to true.
    #[cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
    pub fn busy_poll(mut self, on: bool) -> Self {
        self.settings.busy_poll = on;
        self
    }

    /// Notifies `listener` of what happens to the locks of this client, as it happens. See
    /// [`Listener`]. Defaults to none, which costs no call anything.
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.settings.listener = Some(listener);
        self
    }

    /// The name of this client for people who ask [who holds a lock](crate::observe::LockHolder): 1
    /// to 100 characters without control characters, such as `billing-7`. Defaults to the name of
    /// the program. The process id and the host name are announced in any case.
    ///
    /// While the client holds a lock, its background thread keeps this where other clients can read
    /// it, with the lease as its TTL: in Redis under a key of its own, in a database in a row, in
    /// ZooKeeper in the nodes of its holds. Everybody who may read there can see it. No call waits
    /// for it. It costs one command for each third of a lease, whatever the number of holds.
    ///
    /// With a label, it is announced as soon as the client holds a lock, or waits in the queue of a
    /// fair lock. Without one, a hold that lasts less than a second (with leases below 10 s, less
    /// than a tenth of the lease) costs nothing and is not announced.
    pub fn owner(mut self, label: impl Into<String>) -> Self {
        self.settings.owner = Some(label.into());
        self
    }

    /// Whether the client announces [its owner](Self::owner), and queries the owners of others. If
    /// not, nothing is written or read for that: its holds appear as holder ids, like those of
    /// Java, and only a [search](crate::LockClient::locks) finds them. Defaults to true.
    pub fn announce_owner(mut self, on: bool) -> Self {
        self.settings.announce_owner = on;
        self
    }

    /// [`build`](Self::build) does not connect: the first lock call reports a server that is down.
    pub fn connect_lazily(mut self) -> Self {
        self.settings.lazy = true;
        self
    }

    /// Checks the settings, connects once, and checks the server.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for settings that do not fit together;
    /// otherwise as [`LockClient::open`].
    pub fn build(self) -> Result<LockClient> {
        self.build_with(Arc::new(SystemClock))
    }

    pub(crate) fn build_with(self, clock: Arc<dyn Clock>) -> Result<LockClient> {
        let servers = match &self.servers {
            Some(servers) => servers.clone()?,
            None => {
                return Err(invalid("the client has no server: name one, for example by its URL"));
            }
        };
        let io_timeout = self.settings.check(servers.usual_io_timeout())?;
        let new = NewClient {
            settings: &self.settings,
            io_timeout,
            id: ClientId::random(self.settings.waiter_timeout),
            clock,
            traffic: Arc::default(),
        };
        let store = servers.store(&new)?;
        let NewClient { id, clock, traffic, .. } = new;
        let client = self.client(id, io_timeout, store, clock, Some(traffic));
        if servers.needs_the_watchdog_at_once() {
            client.state().watchdog.begin()?;
        }
        Ok(client)
    }

    /// A client of a store in memory.
    pub(crate) fn build_on(self, memory: &Arc<Memory>) -> Result<LockClient> {
        let io_timeout = self.settings.check(DEFAULT_IO_TIMEOUT)?;
        if self.servers.is_some() {
            return Err(invalid("a client in memory has no server: leave out the URL"));
        }
        #[cfg(feature = "tls-core")]
        if self.settings.tls.is_some() {
            return Err(invalid("a client in memory has no server: leave out tls"));
        }
        let store = Arc::new(MemoryStore::new(memory, self.settings.waiter_timeout));
        let id = ClientId::random(self.settings.waiter_timeout);
        Ok(self.client(id, io_timeout, store, memory.clock.clone(), None))
    }

    /// `traffic`: the counts of the store's connections.
    fn client(
        self,
        id: ClientId,
        io_timeout: Duration,
        store: Arc<dyn LockStore>,
        clock: Arc<dyn Clock>,
        traffic: Option<Arc<Traffic>>,
    ) -> LockClient {
        let has_label = self.settings.owner.is_some();
        let span_client = self.settings.span_client(&*store);
        // It was checked with the other settings.
        let owner = self.settings.holder_owner().ok().flatten();
        let config = Config {
            lease: self.settings.lease,
            io_timeout,
            key_prefix: self.settings.key_prefix,
            max_hold: self.settings.max_hold,
            fencing: self.settings.fencing,
            outage_timeout: self.settings.outage_timeout.unwrap_or(self.settings.lease),
            owner,
            has_label,
        };
        let observer = Arc::new(Observer::new(self.settings.listener, span_client));
        LockClient::new(ClientState::new(
            config,
            self.settings.client_name,
            id,
            store,
            clock,
            observer,
            traffic,
        ))
    }
}

/// The servers of a URL, by its scheme.
fn by_url(url: String) -> Result<Arc<dyn Servers>> {
    match Scheme::find(&url, &[])?.kind {
        #[cfg(feature = "redis")]
        UrlKind::Redis => Ok(Arc::new(Redis::new(url))),
        #[cfg(feature = "redis")]
        UrlKind::Sentinels => Ok(Arc::new(Sentinel::from(url))),
        #[cfg(feature = "redis")]
        UrlKind::Cluster => Ok(Arc::new(Cluster::from(url))),
        #[cfg(feature = "postgres")]
        UrlKind::Postgres => Ok(Arc::new(Postgres::new(url))),
        #[cfg(feature = "mysql")]
        UrlKind::Mysql => Ok(Arc::new(Mysql::new(url))),
        #[cfg(feature = "zookeeper")]
        UrlKind::ZooKeeper => Ok(Arc::new(ZooKeeper::new(url))),
        // No scheme is found whose cargo feature is off.
        #[cfg(not(all(
            feature = "redis",
            feature = "postgres",
            feature = "mysql",
            feature = "zookeeper"
        )))]
        _ => Err(invalid("the scheme of the URL is not in this build")),
    }
}

impl std::fmt::Debug for Builder {
    /// Shows only the addresses of servers: the rest of their URLs may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Builder");
        shown.field("servers", &self.servers);
        self.settings.show(&mut shown).finish()
    }
}
