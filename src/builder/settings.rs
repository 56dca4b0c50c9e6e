//! The settings that clients of all stores have.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Result, invalid};
use crate::base::holder::ClientId;
use crate::base::limits::{check_lease, in_words, zero_max_hold};
use crate::base::lock_name::MAX_NAME_BYTES;
#[cfg(feature = "tls-core")]
use crate::base::tls::Tls;
use crate::report::listener::Listener;
use crate::report::owner::{
    HolderOwner, LONGEST_CLIENT_NAME, is_in_client_name, program_as_client_name,
};
use crate::report::spans::SpanClient;
use crate::report::traffic::Traffic;
use crate::signal::clock::Clock;
use crate::store::LockStore;
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsClient;

pub(super) const DEFAULT_LEASE: Duration = Duration::from_secs(30);
pub(super) const DEFAULT_IO_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_WAITER_TIMEOUT: Duration = Duration::from_secs(5);
const MOST_CONNECTIONS: usize = 1024;

/// The settings that clients of all stores share; the methods of [`Builder`](crate::Builder)
/// document them.
#[derive(Clone)]
pub(super) struct Settings {
    #[cfg(feature = "tls-core")]
    pub(super) tls: Option<Tls>,
    pub(super) lease: Duration,
    pub(super) io_timeout: Option<Duration>,
    pub(super) connections: Option<usize>,
    pub(super) key_prefix: String,
    pub(super) client_name: String,
    pub(super) max_hold: Option<Duration>,
    pub(super) fencing: bool,
    pub(super) outage_timeout: Option<Duration>,
    pub(super) waiter_timeout: Duration,
    pub(super) listener: Option<Arc<dyn Listener>>,
    pub(super) owner: Option<String>,
    pub(super) announce_owner: bool,
    pub(super) busy_poll: bool,
    pub(super) lazy: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            #[cfg(feature = "tls-core")]
            tls: None,
            lease: DEFAULT_LEASE,
            io_timeout: None,
            connections: None,
            key_prefix: String::new(),
            client_name: program_as_client_name(),
            max_hold: None,
            fencing: true,
            outage_timeout: None,
            waiter_timeout: DEFAULT_WAITER_TIMEOUT,
            listener: None,
            owner: None,
            announce_owner: true,
            busy_poll: true,
            lazy: false,
        }
    }
}

impl Settings {
    /// # Errors
    /// `InvalidInput` for an invalid label, even if it is not announced.
    pub(super) fn holder_owner(&self) -> Result<Option<HolderOwner>> {
        let owner = HolderOwner::of_this_process(self.owner.as_deref())?;
        Ok(self.announce_owner.then_some(owner))
    }

    /// What a tracer gets to know of the client: also the owner that is not announced to others.
    #[cfg(feature = "tracing")]
    pub(super) fn span_client(&self, store: &dyn LockStore) -> SpanClient {
        // The label was checked with the other settings.
        let owner =
            HolderOwner::of_this_process(self.owner.as_deref()).map(|owner| owner.to_string());
        let servers: Vec<String> = store.nodes().into_iter().map(|node| node.address).collect();
        SpanClient {
            client_name: self.client_name.clone(),
            owner: owner.unwrap_or_default(),
            store: store.kind(),
            servers: servers.join(" "),
        }
    }

    #[cfg(not(feature = "tracing"))]
    pub(super) fn span_client(&self, _: &dyn LockStore) -> SpanClient {
        SpanClient::default()
    }

    /// Checks the settings that all clients have. Returns the I/O timeout.
    pub(super) fn check(&self, usual_io_timeout: Duration) -> Result<Duration> {
        check_lease(self.lease)?;
        let io_timeout = self.io_timeout.unwrap_or(usual_io_timeout.min(self.lease / 4));
        if io_timeout < Duration::from_millis(1) || io_timeout >= self.lease {
            return Err(invalid(format!(
                "an io_timeout of {} is not between 1 ms and the lease of {}",
                in_words(io_timeout),
                in_words(self.lease)
            )));
        }
        if let Some(connections) = self.connections.filter(|n| !(1..=MOST_CONNECTIONS).contains(n))
        {
            return Err(invalid(format!(
                "{connections} connections are not between 1 and {MOST_CONNECTIONS}"
            )));
        }
        if self.key_prefix.len() >= MAX_NAME_BYTES {
            return Err(invalid(format!(
                "a key prefix of {} bytes leaves no room for names",
                self.key_prefix.len()
            )));
        }
        if self.max_hold.is_some_and(|most| most.is_zero()) {
            return Err(zero_max_hold());
        }
        if !(Duration::from_millis(200)..=Duration::from_secs(300)).contains(&self.waiter_timeout) {
            return Err(invalid(format!(
                "a waiter_timeout of {:?} is not between 200 ms and 5 minutes",
                self.waiter_timeout
            )));
        }
        self.holder_owner()?;
        let length = self.client_name.len();
        if !(1..=LONGEST_CLIENT_NAME).contains(&length)
            || !self.client_name.chars().all(is_in_client_name)
        {
            return Err(invalid(format!(
                "the client_name {:?} does not consist of 1 to 64 letters, digits, '-', '_', '.' and ':'",
                self.client_name
            )));
        }
        Ok(io_timeout)
    }

    pub(super) fn show<'a, 'f, 's>(
        &self,
        shown: &'a mut std::fmt::DebugStruct<'f, 's>,
    ) -> &'a mut std::fmt::DebugStruct<'f, 's> {
        #[cfg(feature = "tls-core")]
        shown.field("tls", &self.tls);
        shown
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
            .field("busy_poll", &self.busy_poll)
            .field("connect_lazily", &self.lazy)
    }
}

/// A client that is being built: its settings, which were checked, and what its store shares with
/// it.
pub(super) struct NewClient<'b> {
    pub(super) settings: &'b Settings,
    pub(super) io_timeout: Duration,
    pub(super) id: ClientId,
    pub(super) clock: Arc<dyn Clock>,
    /// The traffic of all connections of the client.
    pub(super) traffic: Arc<Traffic>,
}

impl NewClient<'_> {
    /// The I/O timeout of the background threads: one slow server must not use up the lease that a
    /// renewal is to save.
    #[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
    pub(super) fn background_timeout(&self) -> Duration {
        self.io_timeout.min(self.settings.lease / 4)
    }

    /// The TLS of the connections, with its files read. All connections of the client share it.
    /// `scheme`: what a URL that asks for TLS begins with.
    #[cfg(all(feature = "tls-core", any(feature = "redis", feature = "zookeeper")))]
    pub(super) fn tls(&self, is_wanted: bool, scheme: &str) -> Result<Option<Arc<TlsClient>>> {
        match (&self.settings.tls, is_wanted) {
            (None, false) => Ok(None),
            (Some(_), false) => Err(invalid(format!(
                "settings of TLS are for {scheme}:// URLs, and there is none: nothing would be encrypted"
            ))),
            (tls, true) => TlsClient::checked(tls.clone().unwrap_or_default()).map(Some),
        }
    }
}

#[cfg(all(test, feature = "tls", feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn clients_of_one_builder_share_no_tls_state() {
        let settings = Settings { tls: Some(Tls::new()), ..Settings::default() };
        let client = || NewClient {
            settings: &settings,
            io_timeout: DEFAULT_IO_TIMEOUT,
            id: ClientId::random(DEFAULT_WAITER_TIMEOUT),
            clock: Arc::new(crate::signal::clock::SystemClock),
            traffic: Arc::default(),
        };
        let [one, other] = [(); 2].map(|()| client().tls(true, "rediss").unwrap().unwrap());
        assert!(!Arc::ptr_eq(&one, &other));
    }
}
