//! A MySQL or MariaDB database.

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
use crate::store::mysql::url::MysqlUrl;
#[cfg(feature = "tls-core")]
use crate::store::mysql::url::{Ssl, SslMode};
use crate::store::mysql::wire::{Known, Server};
use crate::store::mysql::{MysqlSettings, MysqlStore};
use crate::store::net::Network;
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsClient;

/// Each connection is a thread of the server, and commits at the same time share a flush.
const CONNECTIONS: usize = 4;

/// A MySQL or MariaDB database, for [`Builder::mysql`](crate::Builder::mysql).
/// [`guide::mysql`](crate::guide::mysql) describes what it guarantees.
///
/// ```no_run
/// use leasehold::{LockClient, Mysql};
///
/// let database = Mysql::new("mysql://app:secret@db.example/billing").create_schema(false);
/// let client = LockClient::builder().mysql(database).build()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "it is a setting: give it to Builder::mysql"]
pub struct Mysql {
    url: String,
    create_schema: bool,
}

impl Mysql {
    /// The database of a URL:
    /// `mysql://user[:password]@host[:port][,host[:port]..]/database[?parameters]`. Of several
    /// hosts the one that takes writes is used. See [the chapter](crate::guide::mysql) for the
    /// parameters.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), create_schema: true }
    }

    /// Whether the client creates the tables and the procedure that it needs
    /// ([`MYSQL_SCHEMA`](crate::MYSQL_SCHEMA)) when its first connection does not find them. With
    /// `create_schema(false)` it fails with [`Unsupported`](crate::ErrorKind::Unsupported) instead.
    /// Defaults to true.
    pub fn create_schema(mut self, create: bool) -> Self {
        self.create_schema = create;
        self
    }
}

from_url!(Mysql, Mysql::new);

impl Servers for Mysql {
    fn store(&self, client: &NewClient<'_>) -> Result<Arc<dyn LockStore>> {
        #[cfg_attr(
            not(feature = "tls-core"),
            expect(unused_mut, reason = "the settings of TLS change it")
        )]
        let mut url = MysqlUrl::parse(&self.url)?;
        #[cfg(feature = "tls-core")]
        let tls = tls_of(&mut url.ssl, client.settings.tls.as_ref())?;
        let server = Server {
            url,
            clock: client.clock.clone(),
            create_schema: self.create_schema,
            #[cfg(feature = "tls-core")]
            tls,
            known: Known::default(),
            network: Network::counted_in(&client.traffic),
        };
        let store = MysqlStore::new(MysqlSettings {
            server,
            connections: client.settings.connections.unwrap_or(CONNECTIONS),
            io_timeout: client.io_timeout,
            background_timeout: client.background_timeout(),
        });
        if !client.settings.lazy {
            store.connect_now()?;
        }
        Ok(Arc::new(store))
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mysql")
            .field("database", &Shown(MysqlUrl::parse(&self.url)))
            .field("create_schema", &self.create_schema)
            .finish()
    }
}

#[cfg(feature = "tls-core")]
fn tls_of(ssl: &mut Ssl, settings: Option<&Arc<TlsClient>>) -> Result<Option<Arc<TlsClient>>> {
    if let Some(tls) = settings {
        if ssl.root.is_some() || ssl.said && ssl.mode != SslMode::VerifyIdentity {
            return Err(invalid(
                "the URL and the settings both say how TLS is used; leave one out",
            ));
        }
        ssl.mode = SslMode::VerifyIdentity;
        tls.check()?;
        return Ok(Some(tls.clone()));
    }
    let tls = match ssl.mode {
        SslMode::Disabled => return Ok(None),
        SslMode::Preferred | SslMode::Required => Tls::new().danger_accept_any_certificate(),
        SslMode::VerifyIdentity => ssl.root.iter().fold(Tls::new(), |tls, root| tls.ca_file(root)),
    };
    let client = TlsClient::new(tls);
    client.check()?;
    Ok(Some(Arc::new(client)))
}
