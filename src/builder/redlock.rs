//! Redlock: its settings, and its store.

use std::sync::Arc;
use std::time::Duration;

use super::{Builder, CONNECTIONS, DEFAULT_LEASE, invalid};
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::limits::check_lease;
use crate::store::redis::wire::Connector;
use crate::store::redlock::{QuarantineSettings, RedlockStore};

/// Of Redlock: one master of several must be able to fail, and each costs every lock call a
/// request.
const NODES: std::ops::RangeInclusive<usize> = 3..=31;

impl Builder {
    /// Locks on a majority of [`urls`](Self::urls): 3 to 31 masters that do not replicate each
    /// other, better an odd number. The algorithm of the Redis documentation ("Distributed
    /// Locks with Redis"): a lock is held as long as a majority of all *configured* masters
    /// holds it, so that any minority may be dead, cut off, hung or slow. Everything else stays as
    /// it is: the same methods, guards and waits, for [`lock`](crate::LockClient::lock) and
    /// [`mutex`](crate::LockClient::mutex); the other primitives
    /// answer [`Unsupported`](crate::ErrorKind::Unsupported).
    ///
    /// All masters are asked at once by the calling thread, and it waits for the quickest majority.
    /// One that does not answer within the [I/O timeout](Self::io_timeout) (here by default 500
    /// ms, and never more than a quarter of the lease) is not asked any more until it answers a
    /// probe of the background thread, which this kind of client has from the start.
    /// [`connections`](Self::connections) is how many calls are under way beside each other.
    ///
    /// **Admission.** A master that restarted, was flushed, failed over or is new may have
    /// forgotten a hold or a token. It has no vote, for any client, until
    /// [`longest_lease`](Self::longest_lease) has passed; the key `leasehold:node` on
    /// it keeps the account. So a first installation takes that long before the first lock can be
    /// had; see [`admit_fresh_nodes`](Self::admit_fresh_nodes). [`nodes`](crate::LockClient::nodes)
    /// tells who votes. It needs the policy `noeviction`, and no proxy between that keeps
    /// connections while the server behind it changes.
    ///
    /// ```no_run
    /// let client = leasehold::LockClient::builder()
    ///     .urls(["redis://a.example/", "redis://b.example/", "redis://c.example/"])
    ///     .redlock()
    ///     .build()?;
    /// let _guard = client.lock("job")?; // as with one server
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// **What it does not give.** Holds are leases here too: a holder that pauses for longer than
    /// its lease can meet another one, and only the fencing token stops it. One master is
    /// enough for that if its clock is stepped forward: it ends the leases on it early, and its
    /// vote can make a second majority together with a master that the holder has not got. Tokens
    /// grow strictly whatever the clocks, as long as no majority loses its memory at once; then
    /// they go on from the masters' clocks.
    pub fn redlock(mut self) -> Self {
        self.redlock = true;
        self
    }

    /// For [`redlock`](Self::redlock): no client that uses these masters has a longer lease. A
    /// longer one is refused, and a master that may have forgotten something is kept from
    /// voting for this long. All clients must have the same. Defaults to the
    /// [lease](Self::lease), or 30 s if that is more.
    pub fn longest_lease(mut self, longest: Duration) -> Self {
        self.longest_lease = Some(longest);
        self
    }

    /// For [`redlock`](Self::redlock): a master that remembers nothing at all gets its vote at
    /// once. For a first installation, and for tests. **Not to be left on**: a master that
    /// restarts empty then forgets holds that are still valid, and two such can give a lock to a
    /// second holder.
    pub fn admit_fresh_nodes(mut self) -> Self {
        self.admit_fresh_nodes = true;
        self
    }

    /// For [`redlock`](Self::redlock): the masters sync every write before they answer (`appendonly
    /// yes`, `appendfsync always`), so one that comes back *with* its data has forgotten
    /// nothing and votes at once. One that comes back empty waits all the same.
    pub fn durable_nodes(mut self) -> Self {
        self.durable_nodes = true;
        self
    }

    pub(super) fn check_redlock(&self) -> Result<()> {
        let for_redlock = [
            ("longest_lease", self.longest_lease.is_some()),
            ("admit_fresh_nodes", self.admit_fresh_nodes),
            ("durable_nodes", self.durable_nodes),
        ];
        if let Some((setting, _)) = for_redlock.iter().find(|(_, given)| *given && !self.redlock) {
            return Err(invalid(format!(
                "{setting} is for the masters of Redlock; call Builder::redlock, or leave it out"
            )));
        }
        Ok(())
    }

    pub(super) fn redlock_store(&self, io_timeout: Duration, clock: &Arc<dyn Clock>) -> Result<RedlockStore> {
        let count = self.urls.len();
        if !NODES.contains(&count) {
            return Err(invalid(format!(
                "Redlock over {count} masters; it takes {NODES:?}, none of which is a replica"
            )));
        }
        let longest_lease = self.longest_lease.unwrap_or(DEFAULT_LEASE.max(self.lease));
        check_lease(longest_lease)?;
        if longest_lease < self.lease {
            return Err(invalid(format!(
                "a longest_lease of {longest_lease:?} is shorter than the lease of {:?}",
                self.lease
            )));
        }
        // A renewal waits for the answers of all masters, so one that hangs must not use up the
        // lease.
        let io_timeout = io_timeout.min(self.lease / 4);
        let connector = |url: &String| Ok(self.connector(self.endpoint(url)?, io_timeout, clock));
        let connectors: Vec<Connector> = self.urls.iter().map(connector).collect::<Result<_>>()?;
        let mut addresses: Vec<String> =
            connectors.iter().map(|connector| format!("{:?}", connector.endpoint)).collect();
        addresses.sort();
        if let Some(pair) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid(format!("{} is listed twice among the masters of Redlock", pair[0])));
        }
        let admission =
            QuarantineSettings { longest_lease, fresh: self.admit_fresh_nodes, durable: self.durable_nodes };
        let store = RedlockStore::new(connectors, self.connections.unwrap_or(CONNECTIONS), admission);
        if !self.lazy {
            store.connect_now()?;
        }
        Ok(store)
    }
}
