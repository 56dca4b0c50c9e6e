//! Redlock: several independent servers of Redis.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::redis::log_in_settings;
use super::servers::{Servers, Shown};
use super::settings::{DEFAULT_LEASE, NewClient};
use crate::base::credentials::CredentialsProvider;
use crate::base::error::{Result, invalid};
use crate::base::limits::{check_lease, in_words};
use crate::store::LockStore;
use crate::store::redis::script;
use crate::store::redis::wire::{Connector, Endpoint};
use crate::store::redlock::{QuarantineSettings, RedlockStore};

/// One master of several must be able to fail, and each costs every lock call a request.
const MASTERS: std::ops::RangeInclusive<usize> = 3..=31;

/// The default I/O timeout: far below the lease, because a master that hangs must not use up the
/// lease.
const MASTER_TIMEOUT: Duration = Duration::from_millis(500);

/// Locks on a majority of several servers that do not replicate each other, for
/// [`Builder::redlock`](crate::Builder::redlock). The algorithm of the Redis documentation
/// ("Distributed Locks with Redis"): a lock is held as long as a majority of all *configured*
/// masters holds it, so any minority may be dead, cut off, hung or slow. Everything else works as
/// with one server: the same methods, guards and waits, for [`lock`](crate::LockClient::lock) and
/// [`mutex`](crate::LockClient::mutex); the other primitives return
/// [`Unsupported`](crate::ErrorKind::Unsupported).
///
/// The calling thread sends each request to all masters at once, and waits for the fastest
/// majority. A master that does not answer within the [I/O timeout](crate::Builder::io_timeout)
/// (here by default 500 ms, and never more than a quarter of the lease) is skipped until it answers
/// a probe of the background thread, which this kind of client has from the start.
/// [`connections`](crate::Builder::connections) is the number of calls that can be in progress at
/// the same time. One more waits for the end of another, for the I/O timeout at most, and then
/// fails with [`Unreachable`](crate::ErrorKind::Unreachable).
///
/// **Admission.** A master that restarted, was flushed, failed over or is new may have forgotten a
/// hold or a token. It has no vote, for any client, until [`longest_lease`](Self::longest_lease)
/// has passed; the key `leasehold:node` on it records that. So after a first installation it takes
/// that long until the first lock is granted; see [`admit_fresh_nodes`](Self::admit_fresh_nodes).
/// [`nodes`](crate::LockClient::nodes) shows which masters vote. The masters need the policy
/// `noeviction`, and there must be no proxy that keeps connections while the server behind it
/// changes.
///
/// ```no_run
/// use leasehold::{LockClient, Redlock};
///
/// let masters = Redlock::new(["redis://a.example/", "redis://b.example/", "redis://c.example/"]);
/// let client = LockClient::builder().redlock(masters).build()?;
/// let _guard = client.lock("job")?; // as with one server
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// **What it does not guarantee.** Holds are leases here too: while a holder pauses for longer than
/// its lease, another client can become the holder, and only the fencing token stops the first one.
/// A single master is enough for that if its clock is stepped forward: its leases end early, and
/// its vote can form a second majority together with a master that the holder does not have. Tokens
/// grow strictly whatever the clocks do, as long as no majority loses its memory at once; if one
/// does, they continue from the masters' clocks.
#[doc(alias = "RedissonRedLock")]
#[doc(alias = "quorum")]
#[derive(Clone)]
#[must_use = "it is a setting: give it to Builder::redlock"]
pub struct Redlock {
    urls: Vec<String>,
    credentials: Option<Arc<dyn CredentialsProvider>>,
    longest_lease: Option<Duration>,
    admit_fresh_nodes: bool,
    durable_nodes: bool,
}

impl Redlock {
    /// The masters, each as a `redis://` URL: 3 to 31, preferably an odd number. None of them is a
    /// replica of another.
    pub fn new<U: Into<String>>(masters: impl IntoIterator<Item = U>) -> Self {
        let urls = masters.into_iter().map(Into::into).collect();
        Self {
            urls,
            credentials: None,
            longest_lease: None,
            admit_fresh_nodes: false,
            durable_nodes: false,
        }
    }

    /// The longest lease of any client that uses these masters. A longer one is refused, and a
    /// master that may have forgotten something has no vote for this long. All clients must have
    /// the same value. Defaults to the [lease](crate::Builder::lease), or 30 s if that is more.
    pub fn longest_lease(mut self, longest: Duration) -> Self {
        self.longest_lease = Some(longest);
        self
    }

    /// Whether a master without any data gets its vote at once. For a first installation, and for
    /// tests. **Do not leave it on**: a master that restarts empty then forgets holds that are
    /// still valid, and two such masters can give a lock to a second holder.
    pub fn admit_fresh_nodes(mut self, on: bool) -> Self {
        self.admit_fresh_nodes = on;
        self
    }

    /// Whether the masters sync every write before they answer (`appendonly yes`, `appendfsync
    /// always`), so that a master that restarts *with* its data has forgotten nothing and votes at
    /// once. A master that restarts empty has to wait anyway.
    pub fn durable_nodes(mut self, on: bool) -> Self {
        self.durable_nodes = on;
        self
    }

    fn quarantine(&self, lease: Duration) -> Result<QuarantineSettings> {
        let longest_lease = self.longest_lease.unwrap_or(DEFAULT_LEASE.max(lease));
        check_lease(longest_lease)?;
        if longest_lease < lease {
            return Err(invalid(format!(
                "the longest lease, {}, is shorter than the lease of {}",
                in_words(longest_lease),
                in_words(lease)
            )));
        }
        Ok(QuarantineSettings {
            longest_lease,
            fresh: self.admit_fresh_nodes,
            durable: self.durable_nodes,
        })
    }
}

log_in_settings!(Redlock, credentials);

impl Servers for Redlock {
    fn store(&self, client: &NewClient<'_>) -> Result<Arc<dyn LockStore>> {
        let count = self.urls.len();
        if !MASTERS.contains(&count) {
            let least = MASTERS.start();
            let most = MASTERS.end();
            return Err(invalid(format!(
                "Redlock needs {least} to {most} masters, none of which is a replica, and {count} were named"
            )));
        }
        let quarantine = self.quarantine(client.settings.lease)?;
        let masters = self.urls.iter().map(|url| Endpoint::parse(url)).collect::<Result<_>>()?;
        let endpoints = client.endpoints(masters, self.credentials.as_ref())?;
        let mut addresses: Vec<String> =
            endpoints.iter().map(|endpoint| format!("{endpoint:?}")).collect();
        addresses.sort();
        if let Some(pair) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid(format!(
                "{} is listed twice among the masters of Redlock",
                pair[0]
            )));
        }
        // A renewal waits for the answers of all masters, so one that hangs must not use up the
        // lease.
        let io_timeout = client.background_timeout();
        let connector = |endpoint| {
            let handshake = script::handshake_with_master(&client.settings.key_prefix);
            Connector { io_timeout, handshake, ..client.connector(Into::into(endpoint)) }
        };
        let connectors = endpoints.into_iter().map(connector).collect();
        let store = RedlockStore::new(connectors, client.connections(), quarantine);
        if !client.settings.lazy {
            store.connect_now()?;
        }
        Ok(Arc::new(store))
    }

    fn usual_io_timeout(&self) -> Duration {
        MASTER_TIMEOUT
    }

    /// It probes masters that are down or have no vote.
    fn needs_the_watchdog_at_once(&self) -> bool {
        true
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masters: Vec<_> = self.urls.iter().map(|url| Shown(Endpoint::parse(url))).collect();
        f.debug_struct("Redlock")
            .field("masters", &masters)
            .field("credentials", &self.credentials.is_some())
            .field("longest_lease", &self.longest_lease)
            .field("admit_fresh_nodes", &self.admit_fresh_nodes)
            .field("durable_nodes", &self.durable_nodes)
            .finish()
    }
}
