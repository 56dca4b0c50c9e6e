//! A MySQL or MariaDB database.

use std::fmt;
use std::sync::Arc;

use super::databases::settings;
use super::servers::{Servers, Shown, from_url};
use super::settings::NewClient;
use crate::base::error::Result;
use crate::store::LockStore;
use crate::store::mysql::MysqlStore;
use crate::store::mysql::url::MysqlUrl;

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
        let url = MysqlUrl::parse(&self.url)?;
        let verified = "ssl-mode is verify_identity";
        let settings = settings(url, self.create_schema, client, verified)?;
        let store = MysqlStore::new(&settings, client.settings.waiter_timeout);
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
