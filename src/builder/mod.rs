//! The settings of a client, checked against each other once.

mod cluster;
mod credentials;
mod observed;
#[cfg(feature = "postgres")]
mod postgres;
mod redlock;
mod sentinel;
mod stores;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "postgres")]
pub use postgres::POSTGRES_SCHEMA;

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::{Clock, SystemClock};
use crate::base::credentials::CredentialsProvider;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::ClientId;
use crate::base::limits::check_lease;
use crate::base::listener::Listener;
use crate::base::lock_name::MAX_NAME_BYTES;
use crate::base::owner::{LONGEST_CLIENT_NAME, is_in_client_name, program_as_client_name};
use crate::base::traffic::Traffic;
use crate::client::LockClient;
use crate::store::LockStore;
use crate::store::memory::{Memory, MemoryStore};
#[cfg(feature = "tls")]
use crate::store::tls::TlsClient;
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper::ZooKeeperOptions;

const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const DEFAULT_IO_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_WAITER_TIMEOUT: Duration = Duration::from_secs(5);
/// Redisson's default.
const DEFAULT_JAVA_WAITER_TIMEOUT: Duration = Duration::from_secs(300);
const MOST_CONNECTIONS: usize = 1024;
/// See [`Builder::connections`].
const CONNECTIONS: usize = 8;
/// What a master of Redlock has for an answer: far below the lease, because one that hangs must not
/// cost it.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

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
    urls: Vec<String>,
    #[cfg(feature = "tls")]
    tls: Option<Arc<TlsClient>>,
    #[cfg(feature = "tls")]
    sentinel_tls: Option<Arc<TlsClient>>,
    credentials: Option<Arc<dyn CredentialsProvider>>,
    sentinel: Option<String>,
    sentinel_credentials: Option<Arc<dyn CredentialsProvider>>,
    redlock: bool,
    cluster: bool,
    sharded_channels: Option<bool>,
    longest_lease: Option<Duration>,
    admit_fresh_nodes: bool,
    durable_nodes: bool,
    replicas: Option<u32>,
    lease: Duration,
    io_timeout: Option<Duration>,
    connections: Option<usize>,
    key_prefix: String,
    client_name: String,
    max_hold: Option<Duration>,
    fencing: bool,
    outage_timeout: Option<Duration>,
    waiter_timeout: Duration,
    java_waiter_timeout: Duration,
    #[cfg(feature = "postgres")]
    create_schema: bool,
    #[cfg(feature = "zookeeper")]
    zookeeper: ZooKeeperOptions,
    listener: Option<Arc<dyn Listener>>,
    owner: Option<String>,
    announce_owner: bool,
    /// The traffic of all connections of the client to be built.
    traffic: Arc<Traffic>,
    busy_poll: bool,
    lazy: bool,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            urls: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            sentinel_tls: None,
            credentials: None,
            sentinel: None,
            sentinel_credentials: None,
            redlock: false,
            cluster: false,
            sharded_channels: None,
            longest_lease: None,
            admit_fresh_nodes: false,
            durable_nodes: false,
            replicas: None,
            lease: DEFAULT_LEASE,
            io_timeout: None,
            connections: None,
            key_prefix: String::new(),
            client_name: program_as_client_name(),
            max_hold: None,
            fencing: true,
            outage_timeout: None,
            waiter_timeout: DEFAULT_WAITER_TIMEOUT,
            java_waiter_timeout: DEFAULT_JAVA_WAITER_TIMEOUT,
            #[cfg(feature = "postgres")]
            create_schema: true,
            #[cfg(feature = "zookeeper")]
            zookeeper: ZooKeeperOptions::default(),
            listener: None,
            owner: None,
            announce_owner: true,
            traffic: Arc::default(),
            busy_poll: true,
            lazy: false,
        }
    }

    /// The server: `redis://[user:password@]host[:port][/db]`, the same with `rediss://` for TLS
    /// (cargo feature `tls`; `Builder::tls` has its settings), or `redis+unix:///path`. All take
    /// `?db=..&user=..&pass=..`. Or sentinels and the master that they watch:
    /// `redis+sentinel://[user:password@]host[:port][,host[:port]..]/master[/db]`; see
    /// [`sentinel`](Self::sentinel). Required, or [`urls`](Self::urls).
    ///
    /// Whatever else a URL says is refused and never skipped: unknown parameters, a `#` (also
    /// `#insecure`), a database that is named twice, a user without a password, and `rediss://`
    /// where the feature is off. Write `/`, `?`, `#` and `@` in a user or password as `%2F`,
    /// `%3F`, `%23` and `%40`.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.urls = vec![url.into()];
        self
    }

    /// Several servers, each as for [`url`](Self::url): the sentinels of
    /// [`sentinel`](Self::sentinel), or the independent masters of [`redlock`](Self::redlock).
    pub fn urls<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.urls = urls.into_iter().map(Into::into).collect();
        self
    }

    /// Every grant and every renewal must be acknowledged by so many replicas of the server
    /// (`WAIT`, in the same write) within half the I/O timeout. A grant that is not is taken
    /// back, and the call fails with [`NotReplicated`](crate::ErrorKind::NotReplicated); a
    /// renewal that is not counts as failed, and the lease ends in time. A call that is already
    /// waiting tries again, as in an outage. A waiter of a [fair lock](crate::FairMutex) whose
    /// grant was taken back has had its turn, and queues again behind the others.
    ///
    /// The smaller step before [`redlock`](Self::redlock): a failover to one of these replicas
    /// keeps the lock. What it does not give: nothing makes the failover choose one of them;
    /// one that restarts without its data has forgotten what it acknowledged; and a release is
    /// not waited for, so after a failover a lock may stay taken for the rest of its lease (a
    /// permit for two seconds more), also where a replica acknowledged its grant. Let the [fencing
    /// token](crate::fencing) decide where it must not happen twice.
    ///
    /// Not with `redlock`, and 1 at least. Defaults to none.
    pub fn replicas(mut self, count: u32) -> Self {
        self.replicas = Some(count);
        self
    }

    /// How long a lock outlives a holder that dies, and so how long a holder that is cut off still
    /// has it. Renewed at a third of it. Between 20 ms and 365 days. Defaults to 30 s,
    /// Redisson's `lockWatchdogTimeout`.
    ///
    /// Below 200 ms it takes a machine whose threads get a core at once: the [I/O
    /// timeout](Self::io_timeout) is a quarter of the lease at most, and a thread that waits
    /// for a core spends it. Measured with four busy threads on two cores: at 20 ms
    /// 3 of 50 holds were lost within 400 ms, and one call in five failed; at 50 ms none. For a
    /// short time that is *not* renewed there is
    /// [`with_lease`](crate::ReentrantMutex::with_lease).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The limit for each connect (with TLS, its log-in and the checks of the server), each write
    /// and each reply. A call to a hung server can run into two or three of them in a row. The
    /// addresses of a host share the limit of one connect; looking up its name is not bounded.
    /// Must be shorter than the lease. Defaults to 2 s, or a quarter of the lease if that is less;
    /// renewals never wait longer than a quarter of the lease.
    pub fn io_timeout(mut self, timeout: Duration) -> Self {
        self.io_timeout = Some(timeout);
        self
    }

    /// The most connections that lock calls keep and share, 1 to 1024 (a call that repeats after a
    /// fault makes one more for itself); when all are busy, calls are sent together over the
    /// next one that comes free. The background threads have one each besides; where the server
    /// or the system grants no more, renewals go over one of these. Defaults to 8, with PostgreSQL
    /// to 4: there each is a process of the server.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Put in front of every lock name, as Redisson's `NameMapper` does. Defaults to none.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Shown by `CLIENT LIST`, and at the end of the names of the background threads, of which
    /// Linux keeps 15 bytes: with the name `billing`, `lh-renew-billin` and `lh-notify-billi`.
    /// Also the label `client` of the [figures](crate::Stats::to_prometheus). 1 to 64 letters,
    /// digits, `-`, `_`, `.`, `:`. Defaults to the name of the program, with `-` in the place of
    /// every other character.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = name.into();
        self
    }

    /// Renewal of every lock stops once it has been held this long; see
    /// [`ReentrantMutex::max_hold`](crate::ReentrantMutex::max_hold). Defaults to no limit.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.max_hold = Some(most);
        self
    }

    /// Whether every exclusive hold gets a [fencing token](crate::fencing). It costs no round trip,
    /// but memory of the server: each name keeps its counter for a day after its last grant, in
    /// Redis 150 to 190 bytes for it. Turn it off where names are many and short-lived, such as one
    /// for each job, and no resource checks tokens: then a released lock leaves nothing. A million
    /// names a day keep up to 190 MB with it. Defaults to true.
    pub fn fencing(mut self, on: bool) -> Self {
        self.fencing = on;
        self
    }

    /// How long a call that is *already waiting* puts up with a server that cannot be asked (a
    /// restart, a failover) before it fails. A first attempt never does. Defaults to one lease.
    pub fn outage_timeout(mut self, longest: Duration) -> Self {
        self.outage_timeout = Some(longest);
        self
    }

    /// How long a waiter that died can hold up the others: its place in the queue of a [fair
    /// lock](crate::FairMutex), or the sign of a waiting writer that keeps new
    /// [readers](crate::RwLock) out. One that lives renews its sign at a third of it, one
    /// command each time. Clients may differ: for each waiter its own client's counts.
    /// Between 200 ms and 5 minutes. Defaults to 5 s.
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.waiter_timeout = timeout;
        self
    }

    /// How long the Java services on the same [fair locks](crate::FairMutex) wait at most: the
    /// longest of their `fairLockWaitTimeout`s and of the times given to a `tryLock`. A Java
    /// waiter takes so much from the deadlines of all behind it when it gets the lock, so this
    /// crate's waiters add it to theirs. If it is too short, waiters behind several
    /// Java waiters can lose their places while somebody holds the lock for long. If it is too
    /// long, a dead waiter of this crate behind a Java waiter keeps its place for longer,
    /// unless another client of this crate asks for the lock and [corrects
    /// that](crate::FairMutex#order). Between 1 ms and a day. Defaults to 5 minutes, as Redisson's
    /// own. Without Java it has no effect.
    pub fn java_waiter_timeout(mut self, timeout: Duration) -> Self {
        self.java_waiter_timeout = timeout;
        self
    }

    /// Whether a thread that waits for a reply may look for it for up to 50 µs before it falls
    /// asleep (busy polling). On an idle machine, with the server nearby, that more than doubles
    /// the rate of one thread that takes and frees locks, because falling asleep and waking up
    /// takes longer than the server needs. Meanwhile the thread uses its core.
    ///
    /// It looks only while no other call of the client is under way, and only where it was found
    /// to be quicker: both ways are measured, and the slower one is tried again now and then. So it
    /// stops by itself where replies take longer, or other threads want the core. It lengthens no
    /// wait. Turn it off where CPU time counts more than speed: on a battery, under a CPU quota, or
    /// where cores are paid for by use. No effect on [`redlock`](Self::redlock) and with
    /// PostgreSQL, which flushes its log for a grant. Defaults to true.
    pub fn busy_poll(mut self, on: bool) -> Self {
        self.busy_poll = on;
        self
    }

    /// [`build`](Self::build) does not connect: a server that is down shows at the first lock call
    /// instead.
    pub fn connect_lazily(mut self) -> Self {
        self.lazy = true;
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

    pub(crate) fn build_with(mut self, clock: Arc<dyn Clock>) -> Result<LockClient> {
        let io_timeout = self.check()?;
        // A builder may make several clients.
        self.traffic = Arc::default();
        if self.names_postgres() {
            return self.build_postgres(io_timeout, clock);
        }
        if self.names_zookeeper() {
            return self.build_zookeeper(io_timeout, clock);
        }
        #[cfg(feature = "tls")]
        self.prepare_tls()?;
        let (id, redlock) = (ClientId::random(self.waiter_timeout), self.redlock);
        let store: Arc<dyn LockStore> = if redlock {
            Arc::new(self.redlock_store(io_timeout, &clock)?)
        } else if self.is_cluster() {
            Arc::new(self.cluster_store(io_timeout, &id, &clock)?)
        } else {
            Arc::new(self.redis_store(io_timeout, &id, &clock)?)
        };
        let client = self.client_of_servers(id, io_timeout, store, clock);
        if redlock {
            client.state().watchdog.begin()?;
        }
        Ok(client)
    }

    fn names_postgres(&self) -> bool {
        self.has_scheme("postgres")
    }

    fn names_zookeeper(&self) -> bool {
        self.has_scheme("zookeeper")
    }

    fn has_scheme(&self, begin: &str) -> bool {
        let is_one = |url: &String| {
            url.split_once(':').is_some_and(|(scheme, _)| scheme.to_ascii_lowercase().starts_with(begin))
        };
        self.urls.iter().any(is_one)
    }

    #[cfg(feature = "postgres")]
    fn build_postgres(self, io_timeout: Duration, clock: Arc<dyn Clock>) -> Result<LockClient> {
        let id = ClientId::random(self.waiter_timeout);
        let store = Arc::new(self.postgres_store(io_timeout, &id, &clock)?);
        Ok(self.client_of_servers(id, io_timeout, store, clock))
    }

    #[cfg(not(feature = "postgres"))]
    fn build_postgres(self, _io_timeout: Duration, _clock: Arc<dyn Clock>) -> Result<LockClient> {
        Err(invalid("a postgres:// URL needs leasehold's cargo feature \"postgres\", which is off here"))
    }

    #[cfg(not(feature = "zookeeper"))]
    fn build_zookeeper(self, _io_timeout: Duration, _clock: Arc<dyn Clock>) -> Result<LockClient> {
        Err(invalid("a zookeeper:// URL needs leasehold's cargo feature \"zookeeper\", which is off here"))
    }

    /// A client of a store in memory.
    pub(crate) fn build_on(self, memory: &Arc<Memory>) -> Result<LockClient> {
        let io_timeout = self.check()?;
        if self.has_servers() {
            return Err(invalid(
                "a client in memory has no server: leave out the URLs, credentials, sentinel, redlock, cluster and replicas",
            ));
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return Err(invalid("a client in memory has no server: leave out tls"));
        }
        let store = Arc::new(MemoryStore::new(memory, self.waiter_timeout));
        let id = ClientId::random(self.waiter_timeout);
        Ok(self.client(id, io_timeout, store, memory.clock.clone(), None))
    }

    /// All cross-checks in one place. Returns the I/O timeout.
    fn check(&self) -> Result<Duration> {
        check_lease(self.lease)?;
        let usual = if self.redlock { NODE_TIMEOUT } else { DEFAULT_IO_TIMEOUT };
        let io_timeout = self.io_timeout.unwrap_or(usual.min(self.lease / 4));
        if io_timeout < Duration::from_millis(1) || io_timeout >= self.lease {
            return Err(invalid(format!(
                "an io_timeout of {io_timeout:?} is not between 1 ms and the lease of {:?}",
                self.lease
            )));
        }
        if let Some(connections) = self.connections.filter(|n| !(1..=MOST_CONNECTIONS).contains(n)) {
            return Err(invalid(format!("{connections} connections are not 1 to {MOST_CONNECTIONS}")));
        }
        if self.key_prefix.len() >= MAX_NAME_BYTES {
            return Err(invalid(format!("a key_prefix of {} bytes leaves no room for names", self.key_prefix.len())));
        }
        if self.replicas == Some(0) || self.redlock && self.replicas.is_some() {
            return Err(invalid("replicas(n) is for one server, and n at least 1; the masters of Redlock have none"));
        }
        self.check_cluster()?;
        self.check_redlock()?;
        self.check_sentinel()?;
        #[cfg(feature = "zookeeper")]
        if !self.names_zookeeper() {
            self.refuse_zookeeper_options()?;
        }
        if self.max_hold.is_some_and(|most| most.is_zero()) {
            return Err(invalid("a max_hold of zero would never let a lock be renewed; use with_lease"));
        }
        if !(Duration::from_millis(200)..=Duration::from_secs(300)).contains(&self.waiter_timeout) {
            return Err(invalid(format!(
                "a waiter_timeout of {:?} is not between 200 ms and 5 minutes",
                self.waiter_timeout
            )));
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(24 * 3600)).contains(&self.java_waiter_timeout) {
            return Err(invalid(format!(
                "a java_waiter_timeout of {:?} is not between 1 ms and a day",
                self.java_waiter_timeout
            )));
        }
        self.holder_owner()?;
        let length = self.client_name.len();
        if !(1..=LONGEST_CLIENT_NAME).contains(&length) || !self.client_name.chars().all(is_in_client_name) {
            return Err(invalid(format!(
                "the client_name {:?} is not 1 to 64 of letters, digits, '-', '_', '.', ':'",
                self.client_name
            )));
        }
        Ok(io_timeout)
    }
}

#[cold]
fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

impl std::fmt::Debug for Builder {
    /// Shows only the address of each URL: the rest may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Builder");
        shown.field("addresses", &self.addresses());
        #[cfg(feature = "tls")]
        shown.field("tls", &self.tls).field("sentinel_tls", &self.sentinel_tls);
        #[cfg(feature = "zookeeper")]
        shown.field("zookeeper", &self.zookeeper);
        shown
            .field("credentials", &self.credentials.is_some())
            .field("sentinel", &self.sentinel)
            .field("sentinel_credentials", &self.sentinel_credentials.is_some())
            .field("redlock", &self.redlock)
            .field("cluster", &self.cluster)
            .field("sharded_channels", &self.sharded_channels)
            .field("longest_lease", &self.longest_lease)
            .field("admit_fresh_nodes", &self.admit_fresh_nodes)
            .field("durable_nodes", &self.durable_nodes)
            .field("replicas", &self.replicas)
            .field("lease", &self.lease)
            .field("io_timeout", &self.io_timeout)
            .field("connections", &self.connections)
            .field("key_prefix", &self.key_prefix)
            .field("client_name", &self.client_name)
            .field("owner", &self.owner)
            .field("announce_owner", &self.announce_owner)
            .field("max_hold", &self.max_hold)
            .field("fencing", &self.fencing)
            .field("outage_timeout", &self.outage_timeout)
            .field("waiter_timeout", &self.waiter_timeout)
            .field("java_waiter_timeout", &self.java_waiter_timeout)
            .field("busy_poll", &self.busy_poll)
            .field("connect_lazily", &self.lazy)
            .finish()
    }
}
