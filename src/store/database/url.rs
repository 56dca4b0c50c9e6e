//! What the URL of a database says. Each kind of database has its own names for the parameters.

use std::fmt;
use std::path::PathBuf;

use crate::base::error::{Result, invalid};
#[cfg(not(unix))]
use crate::store::net::NO_UNIX_SOCKETS;
use crate::store::net::{Address, Url};

/// A URL, parsed and checked; nothing is connected. `M`: what only URLs of this kind say.
#[derive(Clone)]
pub(crate) struct DatabaseUrl<M> {
    pub(crate) hosts: Vec<Address>,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    #[cfg_attr(not(feature = "tls-core"), expect(dead_code, reason = "it was only checked"))]
    pub(crate) ssl: Ssl,
    pub(crate) more: M,
}

/// How connections are secured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ssl {
    pub(crate) mode: SslMode,
    /// Whether the URL sets the mode.
    pub(crate) said: bool,
    /// `None`: the authorities of the system.
    pub(crate) root: Option<PathBuf>,
    /// Certificate and key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SslMode {
    Disable,
    /// Without TLS if the server accepts that; otherwise like `Require`.
    #[cfg(feature = "postgres")]
    Allow,
    /// With TLS if the server has it and accepts it; its certificate is not checked.
    Prefer,
    /// With TLS; its certificate is not checked.
    Require,
    /// With TLS, and with any certificate of the authority.
    #[cfg(feature = "postgres")]
    VerifyCa,
    VerifyFull,
}

impl<M> fmt::Debug for DatabaseUrl<M> {
    /// Only the addresses: the other fields contain the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(|host| format!("{host:?}")).collect();
        f.write_str(&hosts.join(","))
    }
}

impl<M> DatabaseUrl<M> {
    /// Whether one of its hosts is not a unix socket. Unix sockets have no TLS.
    #[cfg(feature = "tls-core")]
    pub(crate) fn is_over_network(&self) -> bool {
        self.hosts.iter().any(|host| matches!(host, Address::Tcp { .. }))
    }
}

/// The user and the password of a URL, as they are written.
pub(crate) fn log_in<'u>(url: &Url<'u>) -> (&'u str, Option<&'u str>) {
    let log_in = url.log_in.unwrap_or_default();
    log_in.split_once(':').map_or((log_in, None), |(user, password)| (user, Some(password)))
}

/// The address of a host, or of the socket (`path`) if that is one.
pub(crate) fn address(
    url: &Url<'_>,
    host: &str,
    port: u16,
    path: impl FnOnce() -> PathBuf,
) -> Result<Address> {
    if host.starts_with('/') {
        return socket(url, path());
    }
    Ok(Address::Tcp { host: host.to_owned(), port })
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it fails")]
fn socket(_url: &Url<'_>, path: PathBuf) -> Result<Address> {
    Ok(Address::Unix(path))
}

#[cfg(not(unix))]
fn socket(url: &Url<'_>, _path: PathBuf) -> Result<Address> {
    Err(url.wrong(NO_UNIX_SOCKETS))
}

/// A URL that asks for TLS needs the feature.
pub(crate) fn check_tls(wants: bool) -> Result<()> {
    if wants && !cfg!(feature = "tls-core") {
        return Err(invalid(
            "the URL asks for TLS, which needs leasehold's cargo feature \"tls\", which is off here",
        ));
    }
    Ok(())
}
