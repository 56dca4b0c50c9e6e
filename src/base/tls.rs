//! The settings of TLS. Files are named here and read by the store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// How connections to `rediss://` and `zookeeper+tls://` servers are secured; given to
/// [`Builder::tls`](crate::Builder::tls). Cargo feature `tls`, or `tls-core`.
///
/// The cryptography is that of the provider which the program has installed for rustls
/// (`CryptoProvider::install_default`), such as aws-lc-rs, and otherwise, with the feature `tls`,
/// ring. With `tls-core` alone nothing needs ring, and no client can be built before a provider is
/// installed.
///
/// `Tls::new()` is what such a URL alone means: TLS 1.2 or 1.3, and the server's certificate
/// must be signed by an authority that this machine trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name
/// others), for the host that the URL names, and valid now.
///
/// Files and bytes are PEM. Files are read when the client is built, and again for a new connection
/// if they have changed (by their time of change, length or inode), so that a renewed certificate
/// needs no restart. A file that is broken or missing then is logged once as a WARN, and what was
/// read before stays in use. Write the new file beside the old one and rename it.
///
/// # Examples
/// ```no_run
/// use leasehold::{LockClient, Tls};
///
/// let client = LockClient::builder()
///     .url("rediss://redis.internal:6380/")
///     .tls(Tls::new().ca_file("ca.pem").identity_files("client.pem", "client.key"))
///     .build()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "settings do nothing until they are given to Builder::tls"]
pub struct Tls {
    pub(crate) authorities: Vec<Pem>,
    pub(crate) system_authorities: bool,
    pub(crate) identity: Option<Identity>,
    pub(crate) server_name: Option<String>,
    pub(crate) verify: Verify,
    #[cfg(feature = "tls-platform-verifier")]
    pub(crate) platform_verifier: bool,
    pub(crate) only_full_handshakes: bool,
    pub(crate) fips: bool,
}

/// What is checked of a server's certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Verify {
    #[default]
    AuthorityAndName,
    /// Any certificate of the authorities is accepted, whatever name it has.
    #[cfg(feature = "postgres")]
    Authority,
    Nothing,
}

/// Where PEM text comes from.
#[derive(Clone)]
pub(crate) enum Pem {
    File(PathBuf),
    Bytes(Arc<[u8]>),
}

/// A certificate with its chain to the authority, and its key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificates: Pem,
    pub(crate) key: Pem,
}

impl Tls {
    /// The system's authorities, no client certificate, the host of the URL as the server's name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in this file *instead of* the system's; see
    /// [`also_system_authorities`](Self::also_system_authorities). May be called several times, and
    /// a file may have several certificates.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authorities.push(Pem::File(path.into()));
        self
    }

    /// [`ca_file`](Self::ca_file) with the text itself.
    pub fn ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.authorities.push(Pem::Bytes(pem.as_ref().into()));
        self
    }

    /// Trusts the system's authorities beside those of [`ca_file`](Self::ca_file) and
    /// [`ca_pem`](Self::ca_pem). Without those it has no effect: then they are trusted anyway.
    pub fn also_system_authorities(mut self) -> Self {
        self.system_authorities = true;
        self
    }

    /// The client certificate, for servers that ask for one (mTLS, `tls-auth-clients yes`,
    /// `ssl.clientAuth=need`), and its key. Certificates between it and the authority follow it in
    /// the same file. The key is PKCS#8, PKCS#1 or SEC1, and not encrypted.
    pub fn identity_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.identity = Some(Identity {
            certificates: Pem::File(certificate.into()),
            key: Pem::File(key.into()),
        });
        self
    }

    /// [`identity_files`](Self::identity_files) with the texts themselves.
    pub fn identity_pem(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let bytes = |pem: &[u8]| Pem::Bytes(pem.into());
        self.identity =
            Some(Identity { certificates: bytes(certificate.as_ref()), key: bytes(key.as_ref()) });
        self
    }

    /// The name or IP address that the server's certificate must be for, and that is sent as SNI
    /// (names only), whatever host the URL has. For servers that are reached by an address that
    /// their certificate does not have: through a tunnel, or by an IP address.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Lets the operating system check the server's certificate, instead of rustls with the list of
    /// the system's authorities. On Windows and macOS that counts what an administrator has set,
    /// and revocation; on Linux and BSD it is the same as without. Authorities of
    /// [`ca_file`](Self::ca_file) and [`ca_pem`](Self::ca_pem) are trusted beside the system's. No
    /// effect where a PostgreSQL URL asks for less than a check of the name
    /// (`sslmode=verify-ca` or below). Cargo feature `tls-platform-verifier`.
    ///
    /// It may block a connect for longer: some systems ask the authority whether a certificate was
    /// revoked.
    #[cfg(feature = "tls-platform-verifier")]
    pub fn platform_verifier(mut self) -> Self {
        self.platform_verifier = true;
        self
    }

    /// Whether a new connection may resume the session of an earlier one to the same server, which
    /// saves about a third of the time of a connect. Defaults to true.
    ///
    /// The server must still show that it has the keys of that session, but its certificate is not
    /// checked again, neither its end nor its authority: for as long as the server lets sessions be
    /// resumed, at most a week. Sessions are kept in memory, by each client for itself; a file of
    /// these settings that has changed ends them. Set it to false if each connection must check the
    /// certificate.
    pub fn resume_sessions(mut self, resume: bool) -> Self {
        self.only_full_handshakes = !resume;
        self
    }

    /// Refuses to build a client, with [`InvalidInput`](crate::ErrorKind::InvalidInput), unless its
    /// TLS is done by cryptography that is validated according to FIPS 140-3. The program installs
    /// it, from the crate `rustls` with its cargo feature `fips`, before it builds the client:
    ///
    /// ```text
    /// rustls::crypto::default_fips_provider().install_default().expect("none is installed yet");
    /// ```
    ///
    /// The hashes of passwords and scripts are not made by that provider.
    pub fn require_fips(mut self) -> Self {
        self.fips = true;
        self
    }

    /// **Dangerous**: accepts every certificate, expired, self-signed, or somebody else's. The
    /// connection is encrypted, but whoever is between this client and the server can read and
    /// change everything, the password included. For a test against a server whose certificate
    /// cannot be had; everywhere else name its authority ([`ca_file`](Self::ca_file)) or its
    /// [`server_name`](Self::server_name). Logged as a WARN. Authorities have no effect beside it.
    pub fn danger_accept_any_certificate(mut self) -> Self {
        self.verify = Verify::Nothing;
        self
    }

    /// Accepts any certificate of the authorities, whatever name it has.
    #[cfg(feature = "postgres")]
    pub(crate) fn any_server_name(mut self) -> Self {
        self.verify = Verify::Authority;
        self
    }
}

impl fmt::Debug for Tls {
    /// Paths, and no bytes: they may be a key's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities)
            .field("also_system_authorities", &self.system_authorities)
            .field(
                "identity",
                &self.identity.as_ref().map(|identity| [&identity.certificates, &identity.key]),
            )
            .field("server_name", &self.server_name)
            .field("verify", &self.verify)
            .field("resume_sessions", &!self.only_full_handshakes)
            .field("require_fips", &self.fips)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Bytes(_) => f.write_str("bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_paths_and_no_bytes() {
        let tls = Tls::new()
            .ca_file("/ca.pem")
            .ca_pem("AUTHORITY")
            .identity_pem("CERTIFICATE", "SECRET KEY");
        let shown = format!("{:?}", tls.server_name("redis.internal"));
        assert!(shown.contains("/ca.pem") && shown.contains("redis.internal"), "{shown}");
        assert!(
            ["AUTHORITY", "CERTIFICATE", "SECRET", "83"].iter().all(|bytes| !shown.contains(bytes)),
            "{shown}"
        );
    }
}
