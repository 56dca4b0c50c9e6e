//! A PostgreSQL database.

use std::fmt;
use std::sync::Arc;

use super::servers::{Servers, Shown, from_url};
use super::settings::NewClient;
#[cfg(feature = "tls-core")]
use super::settings::invalid;
use crate::base::error::Result;
#[cfg(feature = "tls-core")]
use crate::base::tls::Tls;
use crate::store::LockStore;
use crate::store::net::Network;
use crate::store::postgres::url::PostgresUrl;
#[cfg(feature = "tls-core")]
use crate::store::postgres::url::{Ssl, SslMode};
use crate::store::postgres::wire::{Known, Server};
use crate::store::postgres::{PostgresSettings, PostgresStore};
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsClient;

/// Each connection is a process of the server, and a batch of requests costs one flush of its log.
const CONNECTIONS: usize = 4;

/// A PostgreSQL database, for [`Builder::postgres`](crate::Builder::postgres).
/// [`guide::postgres`](crate::guide::postgres) describes what it guarantees.
///
/// ```no_run
/// use leasehold::{LockClient, Postgres};
///
/// let database = Postgres::new("postgres://app@db.example/billing").create_schema(false);
/// let client = LockClient::builder().postgres(database).build()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "it is a setting: give it to Builder::postgres"]
pub struct Postgres {
    url: String,
    create_schema: bool,
}

impl Postgres {
    /// The database of a URL as libpq accepts it:
    /// `postgres://[user[:password]@]host[:port][,host[:port]..][/database][?parameters]`. All
    /// hosts are in the one URL. See [the chapter](crate::guide::postgres) for the parameters.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), create_schema: true }
    }

    /// Whether the client installs the tables and functions that it needs
    /// ([`POSTGRES_SCHEMA`](crate::POSTGRES_SCHEMA)) when its first connection does not find them.
    /// With `create_schema(false)` it fails with [`Unsupported`](crate::ErrorKind::Unsupported)
    /// instead. Defaults to true. The first connection to a database without them takes up to 10 s
    /// longer while another client is installing them.
    pub fn create_schema(mut self, create: bool) -> Self {
        self.create_schema = create;
        self
    }
}

from_url!(Postgres, Postgres::new);

impl Servers for Postgres {
    fn store(&self, client: &NewClient<'_>) -> Result<Arc<dyn LockStore>> {
        #[cfg_attr(
            not(feature = "tls-core"),
            expect(unused_mut, reason = "the settings of TLS change it")
        )]
        let mut url = PostgresUrl::parse(&self.url)?;
        #[cfg(feature = "tls-core")]
        let tls = tls_of(&mut url, client.settings.tls.as_ref())?;
        let server = Server {
            url,
            client_name: client.settings.client_name.clone(),
            clock: client.clock.clone(),
            create_schema: self.create_schema,
            #[cfg(feature = "tls-core")]
            tls,
            known: Known::default(),
            network: Network::counted_in(&client.traffic),
        };
        let store = PostgresStore::new(PostgresSettings {
            server,
            connections: client.settings.connections.unwrap_or(CONNECTIONS),
            io_timeout: client.io_timeout,
            background_timeout: client.background_timeout(),
            waiter_timeout: client.settings.waiter_timeout,
            client_id: client.id.as_str().to_owned(),
        });
        if !client.settings.lazy {
            store.connect_now()?;
        }
        Ok(Arc::new(store))
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("database", &Shown(PostgresUrl::parse(&self.url)))
            .field("create_schema", &self.create_schema)
            .finish()
    }
}

#[cfg(feature = "tls-core")]
fn tls_of(
    url: &mut PostgresUrl,
    settings: Option<&Arc<TlsClient>>,
) -> Result<Option<Arc<TlsClient>>> {
    let ssl = &mut url.ssl;
    if let Some(tls) = settings {
        if ssl.root.is_some() || ssl.identity.is_some() {
            return Err(invalid(
                "the URL and the settings both say how TLS is used; leave one out",
            ));
        }
        if ssl.said && ssl.mode != SslMode::VerifyFull {
            return Err(invalid(
                "settings of TLS check the server's certificate: with them sslmode is verify-full",
            ));
        }
        ssl.mode = SslMode::VerifyFull;
        tls.check()?;
        return Ok(Some(tls.clone()));
    }
    let Ssl { mode, root, identity, .. } = ssl;
    let tls = match mode {
        SslMode::Disable => return Ok(None),
        SslMode::Allow | SslMode::Prefer | SslMode::Require => {
            Tls::new().danger_accept_any_certificate()
        }
        SslMode::VerifyCa => {
            root.iter().fold(Tls::new().any_server_name(), |tls, root| tls.ca_file(root))
        }
        SslMode::VerifyFull => root.iter().fold(Tls::new(), |tls, root| tls.ca_file(root)),
    };
    let tls =
        identity.iter().fold(tls, |tls, (certificate, key)| tls.identity_files(certificate, key));
    let client = TlsClient::new(tls);
    if url.is_over_network() {
        client.check()?;
    }
    Ok(Some(Arc::new(client)))
}
