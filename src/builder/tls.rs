//! The setting for TLS.

use std::sync::Arc;

use super::{Builder, invalid};
use crate::base::error::Result;
use crate::base::tls::Tls;
use crate::store::redis::wire::Endpoint;
use crate::store::tls::TlsClient;

impl Builder {
    /// How connections to `rediss://` and `zookeeper+tls://` servers are secured: authorities, a
    /// client certificate, the server's name. Without it such a URL trusts the system's authorities
    /// and shows no client certificate. Cargo feature `tls`.
    ///
    /// Everything else stays as it is: all bounds, [`redlock`](Self::redlock), waits. A connect
    /// takes two round trips and about a millisecond of work more, and its limit,
    /// the [I/O timeout](Self::io_timeout), covers the handshake of TLS as well; a call over a
    /// connection that is open costs some microseconds more.
    ///
    /// [`build`](Self::build) reads the files and refuses those that are missing or broken, and
    /// these settings without such a URL, with
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput). A certificate that is refused, on either
    /// side, is [`Tls`](crate::ErrorKind::Tls).
    ///
    /// ```no_run
    /// use leasehold::{LockClient, Tls};
    ///
    /// let client = LockClient::builder()
    ///     .url("rediss://app:secret@redis.internal:6380/")
    ///     .tls(Tls::new().ca_file("/etc/redis/ca.pem"))
    ///     .build()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(Arc::new(TlsClient::new(tls)));
        self
    }

    /// Reads the files, if TLS is wanted. All connections of the client share what was read.
    pub(super) fn prepare_tls(&mut self) -> Result<()> {
        if self.has_sentinels() {
            return self.prepare_tls_of_sentinels();
        }
        let urls = if self.is_cluster() { self.cluster_urls()? } else { self.urls.clone() };
        let endpoints: Vec<Endpoint> =
            urls.iter().map(|url| Endpoint::parse(url, self.credentials.as_ref())).collect::<Result<_>>()?;
        let is_wanted = endpoints.iter().any(Endpoint::is_secure);
        if !is_wanted && self.tls.is_some() {
            return Err(invalid(
                "Builder::tls is for rediss:// URLs, and there is none; with redis:// nothing is encrypted",
            ));
        }
        if is_wanted {
            self.tls.get_or_insert_with(|| Arc::new(TlsClient::new(Tls::new()))).check()?;
        }
        Ok(())
    }

    pub(super) fn secure(&self, endpoint: &mut Endpoint) {
        if let Some(tls) = &self.tls {
            endpoint.secure_with(tls);
        }
    }
}
