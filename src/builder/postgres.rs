//! A PostgreSQL database.

use std::fmt;
use std::sync::Arc;

use super::databases::settings;
use super::servers::{Servers, Shown, from_url};
use super::settings::NewClient;
use crate::base::error::Result;
use crate::store::LockStore;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::url::PostgresUrl;

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
        let mut url = PostgresUrl::parse(&self.url)?;
        let name = || client.settings.client_name.clone();
        url.more.application_name.get_or_insert_with(name);
        let settings = settings(url, self.create_schema, client, "sslmode is verify-full")?;
        let store =
            PostgresStore::new(&settings, client.settings.waiter_timeout, client.id.as_str());
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
