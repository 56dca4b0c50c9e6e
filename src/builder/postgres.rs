//! Locks in a PostgreSQL database.

use std::sync::Arc;
use std::time::Duration;

use super::{Builder, invalid};
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::base::holder::ClientId;
#[cfg(feature = "tls")]
use crate::base::tls::Tls;
pub use crate::store::postgres::POSTGRES_SCHEMA;
use crate::store::postgres::url::PostgresUrl;
#[cfg(feature = "tls")]
use crate::store::postgres::url::{Ssl, SslMode};
use crate::store::postgres::wire::{Known, Server};
use crate::store::postgres::{PostgresSettings, PostgresStore};
#[cfg(feature = "tls")]
use crate::store::tls::TlsClient;

/// Each is a process of the server, and a batch of requests costs one flush of its log.
const POSTGRES_CONNECTIONS: usize = 4;

impl Builder {
    /// Whether a client of PostgreSQL installs the tables and functions that it needs
    /// ([`POSTGRES_SCHEMA`]) when its first connection does not find them. With
    /// `create_schema(false)` it fails with [`Unsupported`](crate::ErrorKind::Unsupported)
    /// instead. Defaults to true. The first connection to a database without them takes up to 10 s
    /// more, for as long as another client is installing them. Cargo feature `postgres`.
    pub fn create_schema(mut self, create: bool) -> Self {
        self.create_schema = create;
        self
    }

    pub(super) fn postgres_store(
        &self,
        io_timeout: Duration,
        id: &ClientId,
        clock: &Arc<dyn Clock>,
    ) -> Result<PostgresStore> {
        self.check_postgres()?;
        let [url] = &self.urls[..] else {
            return Err(invalid(
                "several hosts of PostgreSQL stand in one URL: postgres://user@a:5432,b:5432/database",
            ));
        };
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "the settings of TLS change it"))]
        let mut url = PostgresUrl::parse(url)?;
        #[cfg(feature = "tls")]
        let tls = self.tls_of_postgres(&mut url)?;
        let server = Server {
            url,
            client_name: self.client_name.clone(),
            clock: clock.clone(),
            create_schema: self.create_schema,
            #[cfg(feature = "tls")]
            tls,
            known: Known::default(),
            traffic: self.traffic.clone(),
        };
        let store = PostgresStore::new(PostgresSettings {
            server,
            connections: self.connections.unwrap_or(POSTGRES_CONNECTIONS),
            io_timeout,
            background_timeout: io_timeout.min(self.lease / 4),
            waiter_timeout: self.waiter_timeout,
            client_id: id.as_str().to_owned(),
        });
        if !self.lazy {
            store.connect_now()?;
        }
        Ok(store)
    }

    /// Refuses what only servers of Redis have, each with the reason.
    fn check_postgres(&self) -> Result<()> {
        let why = if self.redlock {
            "Redlock is for masters that do not replicate; with PostgreSQL a synchronous standby is what keeps locks \
             over a failover: leave redlock out"
        } else if self.cluster {
            "PostgreSQL has no cluster of this kind: leave cluster out, and name all hosts in one URL"
        } else if self.has_sentinels() {
            "PostgreSQL has no sentinels: leave them out, and name all hosts in one URL"
        } else if self.replicas.is_some() {
            "PostgreSQL itself waits for its standbys (synchronous_standby_names, synchronous_commit): leave replicas out"
        } else if self.credentials.is_some() {
            "a client of PostgreSQL has its password from the URL, PGPASSWORD or the password file: leave credentials out"
        } else {
            return Ok(());
        };
        Err(invalid(why))
    }

    /// The settings of TLS: those of the URL, or those of the builder.
    #[cfg(feature = "tls")]
    fn tls_of_postgres(&self, url: &mut PostgresUrl) -> Result<Option<Arc<TlsClient>>> {
        let ssl = &mut url.ssl;
        if let Some(tls) = &self.tls {
            if ssl.root.is_some() || ssl.identity.is_some() {
                return Err(invalid("the URL and Builder::tls both have settings of TLS; leave one out"));
            }
            if ssl.said && ssl.mode != SslMode::VerifyFull {
                return Err(invalid("Builder::tls checks the server's certificate: with it sslmode is verify-full"));
            }
            ssl.mode = SslMode::VerifyFull;
            tls.check()?;
            return Ok(Some(tls.clone()));
        }
        let Ssl { mode, root, identity, .. } = ssl;
        let tls = match mode {
            SslMode::Disable => return Ok(None),
            SslMode::Allow | SslMode::Prefer | SslMode::Require => Tls::new().danger_accept_any_certificate(),
            SslMode::VerifyCa => root.iter().fold(Tls::new().any_server_name(), |tls, root| tls.ca_file(root)),
            SslMode::VerifyFull => root.iter().fold(Tls::new(), |tls, root| tls.ca_file(root)),
        };
        let tls = identity.iter().fold(tls, |tls, (certificate, key)| tls.identity_files(certificate, key));
        let client = TlsClient::new(tls);
        if url.is_over_network() {
            client.check()?;
        }
        Ok(Some(Arc::new(client)))
    }
}
