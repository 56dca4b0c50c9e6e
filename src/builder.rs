//! The settings of a client, checked against each other once.

use std::sync::Arc;
use std::time::Duration;

use crate::client::LockClient;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::key::MAX_NAME_BYTES;
use crate::limits::check_lease;
use crate::shared::{Config, Shared};
use crate::store::RedisStore;
use crate::wire::{Dialer, Endpoint};

const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const DEFAULT_IO_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_WAITER_TIMEOUT: Duration = Duration::from_secs(5);
const MOST_CONNECTIONS: usize = 1024;

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
    url: Option<String>,
    lease: Duration,
    io_timeout: Option<Duration>,
    connections: usize,
    key_prefix: String,
    client_name: String,
    max_hold: Option<Duration>,
    fencing: bool,
    ride_out: Option<Duration>,
    waiter_timeout: Duration,
    lazy: bool,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            url: None,
            lease: DEFAULT_LEASE,
            io_timeout: None,
            connections: 4,
            key_prefix: String::new(),
            client_name: "leasehold".to_owned(),
            max_hold: None,
            fencing: true,
            ride_out: None,
            waiter_timeout: DEFAULT_WAITER_TIMEOUT,
            lazy: false,
        }
    }

    /// The server: `redis://[user:password@]host[:port][/db]`, or `redis+unix:///path[?db=..&user=..&pass=..]`.
    /// Required.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// How long a lock outlives a holder that dies, and so how long a holder that is cut off still has it. Renewed at
    /// a third of it. Between 20 ms and 365 days. Defaults to 30 s, Redisson's `lockWatchdogTimeout`.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The longest that a connect, a write or a wait for a reply may take, each; a call against a server that hangs can
    /// meet two or three of them. Looking up a host name is not bounded. Must
    /// be shorter than the lease. Defaults to 2 s, or a quarter of the lease if that is less; renewals never wait
    /// longer than a quarter of the lease.
    pub fn io_timeout(mut self, timeout: Duration) -> Self {
        self.io_timeout = Some(timeout);
        self
    }

    /// The most connections that lock calls keep and share, 1 to 1024 (a call that repeats after a fault makes one more
    /// for itself); when all are busy, calls are sent together over the next
    /// one that comes free. The background threads have one each besides. Defaults to 4.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Put in front of every lock name, as Redisson's `NameMapper` does. Defaults to none.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Shown by `CLIENT LIST` and in thread names. Letters, digits, `-`, `_`, `.`, `:`. Defaults to `leasehold`.
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

    /// Whether every hold gets a fencing token. It costs no round trip. Defaults to true.
    pub fn fencing(mut self, on: bool) -> Self {
        self.fencing = on;
        self
    }

    /// How long a call that is *already waiting* puts up with a server that cannot be asked (a restart, a failover)
    /// before it fails. A first attempt never does. Defaults to one lease.
    pub fn ride_out(mut self, longest: Duration) -> Self {
        self.ride_out = Some(longest);
        self
    }

    /// How long a waiter that died can hold up the others: its place in the queue of a [fair
    /// lock](crate::FairMutex), or the sign of a waiting writer that keeps new [readers](crate::RwLock) out. One that
    /// lives renews its sign at a third of it, one command each time. Between 200 ms and 5 minutes. Defaults to 5 s.
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.waiter_timeout = timeout;
        self
    }

    /// [`build`](Self::build) does not connect: a server that is down shows at the first lock call instead.
    pub fn connect_lazily(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Checks the settings, connects once, and checks the server.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for settings that do not fit together; otherwise as
    /// [`LockClient::open`].
    pub fn build(self) -> Result<LockClient> {
        self.build_with(Arc::new(SystemClock))
    }

    pub(crate) fn build_with(self, clock: Arc<dyn Clock>) -> Result<LockClient> {
        let io_timeout = self.check()?;
        let url = self.url.as_deref().ok_or_else(|| invalid("a URL is needed: Builder::url"))?;
        let dialer = |io_timeout| {
            Ok::<_, Error>(Dialer {
                endpoint: Endpoint::parse(url)?,
                client_name: self.client_name.clone(),
                key_prefix: self.key_prefix.clone(),
                io_timeout,
                clock: clock.clone(),
            })
        };
        // One slow server must not eat up the lease that a renewal is to save.
        let background = dialer(io_timeout.min(self.lease / 4))?;
        let store = RedisStore::new(dialer(io_timeout)?, self.connections, background);
        if !self.lazy {
            store.check()?;
        }
        let config = Config {
            lease: self.lease,
            io_timeout,
            key_prefix: self.key_prefix,
            max_hold: self.max_hold,
            fencing: self.fencing,
            ride_out: self.ride_out.unwrap_or(self.lease),
            waiter_timeout: self.waiter_timeout,
        };
        Ok(LockClient::new(Shared::new(config, self.client_name, Arc::new(store), clock)))
    }

    /// All cross-checks in one place. Returns the I/O timeout.
    fn check(&self) -> Result<Duration> {
        check_lease(self.lease)?;
        let io_timeout = self.io_timeout.unwrap_or(DEFAULT_IO_TIMEOUT.min(self.lease / 4));
        if io_timeout < Duration::from_millis(1) || io_timeout >= self.lease {
            return Err(invalid(format!(
                "an io_timeout of {io_timeout:?} is not between 1 ms and the lease of {:?}",
                self.lease
            )));
        }
        if !(1..=MOST_CONNECTIONS).contains(&self.connections) {
            return Err(invalid(format!("{} connections are not 1 to {MOST_CONNECTIONS}", self.connections)));
        }
        if self.key_prefix.len() >= MAX_NAME_BYTES {
            return Err(invalid(format!("a key_prefix of {} bytes leaves no room for names", self.key_prefix.len())));
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
        let named_well = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if self.client_name.is_empty() || self.client_name.len() > 64 || !self.client_name.chars().all(named_well) {
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
    /// Without the URL, which may have a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("lease", &self.lease)
            .field("io_timeout", &self.io_timeout)
            .field("connections", &self.connections)
            .field("key_prefix", &self.key_prefix)
            .field("client_name", &self.client_name)
            .field("max_hold", &self.max_hold)
            .field("fencing", &self.fencing)
            .field("ride_out", &self.ride_out)
            .field("waiter_timeout", &self.waiter_timeout)
            .finish_non_exhaustive()
    }
}
