//! The hosts of one database, of which one takes writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::url::DatabaseUrl;
use crate::base::error::{Error, ErrorKind, Result};
use crate::signal::clock::Clock;
use crate::store::net::{Address, Network, try_each};
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsClient;

/// The hosts of one client, and what is known of them.
pub(crate) struct Hosts<M, K> {
    pub(crate) url: DatabaseUrl<M>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether what is missing in the database is created.
    pub(crate) create_schema: bool,
    #[cfg(feature = "tls-core")]
    pub(crate) tls: Option<Arc<TlsClient>>,
    pub(crate) network: Arc<Network>,
    /// The host that took writes last.
    pub(crate) last: AtomicUsize,
    /// What is known from the last connections.
    pub(crate) known: K,
}

/// The settings of a client of a database.
pub(crate) struct DatabaseSettings<M, K> {
    pub(crate) hosts: Arc<Hosts<M, K>>,
    pub(crate) connections: usize,
    pub(crate) io_timeout: Duration,
    /// The timeout of renewals: one slow server must not use up the lease that a renewal is meant
    /// to save.
    pub(crate) background_timeout: Duration,
}

/// Connects to the server, and waits for each step no longer than its I/O timeout.
pub(crate) struct Connector<M, K> {
    pub(crate) server: Arc<Hosts<M, K>>,
    pub(crate) io_timeout: Duration,
}

impl<M, K> DatabaseSettings<M, K> {
    pub(crate) fn foreground(&self) -> Connector<M, K> {
        Connector { server: self.hosts.clone(), io_timeout: self.io_timeout }
    }

    pub(crate) fn background(&self) -> Connector<M, K> {
        Connector { server: self.hosts.clone(), io_timeout: self.background_timeout }
    }
}

impl<M, K> Connector<M, K> {
    /// A connection to the host that takes writes. All hosts share the I/O timeout, also
    /// for looking up their names.
    pub(crate) fn connect_by<T>(
        &self,
        attempt: impl Fn(usize, &Address, Duration) -> Result<T>,
    ) -> Result<T> {
        let Hosts { url, last, .. } = &*self.server;
        let attempt = |place: usize, within| attempt(place, &url.hosts[place], within);
        match try_each(url.hosts.len(), last.load(Ordering::Relaxed), self.io_timeout, attempt) {
            Ok((place, connection)) => {
                last.store(place, Ordering::Relaxed);
                Ok(connection)
            }
            Err(failed) => Err(summary(url, failed)),
        }
    }
}

/// One error for all hosts: its kind is that of the most informative one.
#[cold]
fn summary<M>(url: &DatabaseUrl<M>, mut failed: Vec<Error>) -> Error {
    if failed.len() == 1 {
        return failed.swap_remove(0);
    }
    let rank = |error: &Error| match error.kind() {
        ErrorKind::Unreachable => 0,
        ErrorKind::ReadOnly => 1,
        ErrorKind::NotReady => 2,
        _ => 3,
    };
    let texts: Vec<String> = failed.iter().map(|error| error.message().to_owned()).collect();
    let kind =
        failed.iter().max_by_key(|error| rank(error)).map_or(ErrorKind::Unreachable, Error::kind);
    Error::new(kind, format!("none of the hosts {url:?} takes writes: {}", texts.join("; ")))
}
