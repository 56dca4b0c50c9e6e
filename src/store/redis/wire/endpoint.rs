//! A server's address and how to log in there.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::log_in::{Attempt, LogIn, Password, Provider};
use crate::base::error::Result;
use crate::base::log;
#[cfg(feature = "tls-core")]
use crate::base::tls::Tls;
use crate::store::net::{Address, Network, Stream};
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsClient;

/// Where to connect to, for an address that the cluster or the sentinels name.
pub(crate) type AddressMap = Arc<dyn Fn(&str, u16) -> (String, u16) + Send + Sync>;

/// A server's address, parsed and checked; nothing is connected.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(super) address: Address,
    pub(super) log_in: Option<LogIn>,
    pub(super) db: u32,
    /// Who told the address, if the settings do not have it.
    named_by: Option<&'static str>,
    /// Where such an address leads from here.
    map: Option<AddressMap>,
    /// What it shares with all connections of the client.
    network: Arc<Network>,
    /// The TLS client for the connections, for `rediss://`.
    #[cfg(feature = "tls-core")]
    pub(super) tls: Option<Arc<TlsClient>>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Only the address: the other fields contain the password.
        self.address.fmt(f)
    }
}

impl Endpoint {
    /// Connects, with TLS if it is set, until `deadline`. `timeout`: see [`Stream::connect`].
    pub(super) fn dial(&self, timeout: Duration, deadline: Instant) -> io::Result<Stream> {
        let address = self.mapped();
        let stream = Stream::connect(&address, timeout, deadline, &self.network)?;
        #[cfg(feature = "tls-core")]
        if let (Some(tls), Address::Tcp { host, .. }) = (&self.tls, &*address) {
            return stream.secure(tls, host, deadline);
        }
        Ok(stream)
    }

    /// For an address that is not in the settings: errors of its connects say who named it.
    pub(crate) fn named_by(self, who: &'static str) -> Self {
        Self { named_by: Some(who), ..self }
    }

    /// Where to connect to. Runs code of the user, so it is called for each connect and with no
    /// mutex locked, and not where the address is learned.
    fn mapped(&self) -> Cow<'_, Address> {
        match (&self.address, &self.map) {
            (Address::Tcp { host, port }, Some(map)) if self.named_by.is_some() => {
                let named = || (host.clone(), *port);
                // Caught: the thread that connects may be one that renews.
                let (host, port) = log::without_panics(|| map(host, *port)).unwrap_or_else(named);
                Cow::Owned(Address::Tcp { host, port })
            }
            (address, _) => Cow::Borrowed(address),
        }
    }

    /// Uses this map for addresses that are not in the settings.
    pub(crate) fn map_by(&mut self, map: Option<&AddressMap>) {
        self.map = map.cloned();
    }

    /// The end of the message of an error of a connect.
    pub(super) fn whose_address(&self) -> String {
        match (self.named_by, &self.map) {
            (None, _) => String::new(),
            (Some(who), None) => {
                format!(
                    "; {who} named this address, which may not lead there from here (NAT, containers): map it with \
                     map_addresses"
                )
            }
            (Some(who), Some(_)) => {
                format!(
                    "; {who} named this address, and map_addresses made {:?} of it",
                    self.mapped()
                )
            }
        }
    }

    /// The same endpoint at another address.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        Self { address: Address::Tcp { host: host.to_owned(), port }, ..self.clone() }
    }

    pub(super) fn logs_in_like(&self, other: &Self) -> bool {
        self.log_in == other.log_in && self.is_secure() == other.is_secure()
    }

    pub(super) fn host_and_port(&self) -> Option<(&str, u16)> {
        match &self.address {
            Address::Tcp { host, port } => Some((host, *port)),
            #[cfg(unix)]
            Address::Unix(_) => None,
        }
    }

    /// `secure`: the URL asks for TLS, with the default settings until
    /// [`secure_with`](Self::secure_with) is called.
    pub(super) fn new(address: Address, log_in: Option<LogIn>, db: u32, secure: bool) -> Self {
        #[cfg(not(feature = "tls-core"))]
        debug_assert!(!secure, "such a URL was refused");
        Self {
            address,
            log_in,
            db,
            named_by: None,
            map: None,
            network: Arc::default(),
            #[cfg(feature = "tls-core")]
            tls: secure.then(|| Arc::new(TlsClient::new(Tls::new()))),
        }
    }

    /// Whether its connections are secured by TLS.
    pub(crate) fn is_secure(&self) -> bool {
        #[cfg(feature = "tls-core")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls-core"))]
        false
    }

    /// Uses these settings, if the URL asks for TLS.
    #[cfg(feature = "tls-core")]
    pub(crate) fn secure_with(&mut self, client: &Arc<TlsClient>) {
        if let Some(tls) = &mut self.tls {
            *tls = client.clone();
        }
    }

    /// Uses these settings whatever the URL asks for; `None`: no TLS.
    #[cfg(feature = "tls-core")]
    pub(crate) fn secured_by(self, client: Option<&Arc<TlsClient>>) -> Self {
        Self { tls: client.cloned(), ..self }
    }

    /// Its connections share this with the others of the client.
    pub(crate) fn join(&mut self, network: &Arc<Network>) {
        self.network = network.clone();
    }

    pub(crate) fn is_same_address(&self, other: &Self) -> bool {
        self.address == other.address
    }

    pub(crate) fn db(&self) -> u32 {
        self.db
    }

    pub(crate) fn without_db(self) -> Self {
        Self { db: 0, ..self }
    }

    /// The same endpoint, logged in as the provider says; without a provider, without a log-in.
    pub(crate) fn logged_in_by(self, provider: Option<&Arc<Provider>>) -> Self {
        let log_in = provider
            .map(|provider| LogIn { user: None, password: Password::Provided(provider.clone()) });
        Self { log_in, ..self }
    }

    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.address, Address::Tcp { .. })
    }

    /// The log-in of a new connection, if it needs one. It ends at `deadline`, also if the provider
    /// does not answer.
    pub(super) fn begin_log_in(&self, deadline: Instant) -> Result<Option<Attempt<'_>>> {
        self.log_in.as_ref().map(|log_in| log_in.begin(deadline)).transpose()
    }
}
