//! What a kind of servers implements so that a client for it can be built.

#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
use std::fmt;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::settings::{DEFAULT_IO_TIMEOUT, NewClient};
use crate::base::error::Result;
use crate::store::LockStore;

/// Conversions for servers that one URL describes.
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
macro_rules! from_url {
    ($servers:ident, $new:expr) => {
        impl From<&str> for $servers {
            fn from(url: &str) -> Self {
                Self::from(url.to_owned())
            }
        }

        impl From<String> for $servers {
            fn from(url: String) -> Self {
                $new(url)
            }
        }

        impl From<&String> for $servers {
            fn from(url: &String) -> Self {
                Self::from(url.to_owned())
            }
        }
    };
}
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
pub(super) use from_url;

/// What a URL names, as a `Debug` output shows it: without anything that may be a password.
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
pub(super) struct Shown<T>(pub(super) Result<T>);

#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
impl<T: Debug> Debug for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(parsed) => parsed.fmt(f),
            Err(_) => f.write_str("a URL that is not understood"),
        }
    }
}

/// One kind of servers, with the settings that only this kind has. Its `Debug` shows the addresses
/// and never a password.
pub(super) trait Servers: Debug + Send + Sync {
    /// Checks the settings, makes the store, and connects it unless it is to connect lazily.
    fn store(&self, client: &NewClient<'_>) -> Result<Arc<dyn LockStore>>;

    /// The I/O timeout if the user sets none and the lease is not short.
    fn usual_io_timeout(&self) -> Duration {
        DEFAULT_IO_TIMEOUT
    }

    /// Whether the watchdog has work before the client holds anything.
    fn needs_the_watchdog_at_once(&self) -> bool {
        false
    }
}
