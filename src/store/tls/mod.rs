//! TLS for the stores: the configuration made from the settings, and what its errors mean.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use self::lenient::Lenient;
use crate::base::error::{Error, Result, invalid};
use crate::base::log;
use crate::base::tls::{Identity, Pem, Tls, Verify};
use crate::os::Mutex;

#[cfg(feature = "postgres")]
mod binding;
mod der;
mod failure;
mod lenient;
mod provider;

#[cfg(feature = "postgres")]
pub(crate) use binding::end_point_hash;
pub(crate) use der::end_of;
pub(crate) use failure::TlsFailure;

/// Makes the TLS sessions of one client. Its files are read again when they have changed.
pub(crate) struct TlsClient {
    settings: Tls,
    state: Mutex<TlsState>,
}

#[derive(Default)]
struct TlsState {
    config: Option<Arc<ClientConfig>>,
    /// The files as they were when the configuration in use was read.
    stamps: Vec<Stamp>,
    /// The files as they were when they could not be used.
    refused: Vec<Stamp>,
    /// Read once: that takes milliseconds.
    system: Option<Vec<CertificateDer<'static>>>,
}

/// Identifies the version of a file, its inode included; `None` if the file does not exist.
type Stamp = Option<(SystemTime, u64, u64)>;

impl TlsClient {
    /// Reads nothing yet.
    pub(crate) fn new(settings: Tls) -> Self {
        Self { settings, state: Mutex::default() }
    }

    /// For one client: it shares neither sessions nor a mutex with others, which a fork may hold.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub(crate) fn checked(settings: Tls) -> Result<Arc<Self>> {
        let client = Self::new(settings);
        client.check()?;
        Ok(Arc::new(client))
    }

    /// Reads all files and checks them, and the server name.
    ///
    /// # Errors
    /// `InvalidInput`, with the path of the file.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(name) = &self.settings.server_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            return Err(invalid(format!(
                "the server_name {name:?} is neither a host name nor an IP address"
            )));
        }
        self.config()?;
        if self.settings.verify == Verify::Nothing {
            log::warn!(
                "TLS: the certificates of servers are not checked (danger_accept_any_certificate, or an sslmode below \
                 verify-ca)"
            );
        }
        Ok(())
    }

    /// A new session with the server `host`.
    pub(crate) fn session(&self, host: &str) -> std::result::Result<ClientConnection, TlsFailure> {
        let name = self.settings.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|e| {
            TlsFailure::invalid("has no name that a certificate can have; see Tls::server_name", e)
        })?;
        let config = self
            .config()
            .map_err(|e| TlsFailure::invalid("cannot be asked with these TLS settings", e))?;
        ClientConnection::new(config, name).map_err(|e| TlsFailure::of(e, self.has_identity()))
    }

    /// Whether there is a client certificate, which a server may refuse.
    pub(crate) fn has_identity(&self) -> bool {
        self.settings.identity.is_some()
    }

    fn config(&self) -> Result<Arc<ClientConfig>> {
        let (config, trouble) = self.read_if_changed()?;
        if let Some(error) = trouble {
            log::warn!(
                "TLS: {}; the certificates that were read before stay in use",
                error.chain()
            );
        }
        Ok(config)
    }

    /// Also returns why changed files were not used, once for each change. They are read again each
    /// time until they can be used: what was wrong may end without a trace in a stamp (the rights
    /// to a file, the number of open files).
    fn read_if_changed(&self) -> Result<(Arc<ClientConfig>, Option<Error>)> {
        let mut state = self.state.lock();
        // Taken before the files are read: a file that changes meanwhile is read again next time.
        let stamps = self.stamps();
        if let Some(config) = &state.config
            && state.stamps == stamps
        {
            return Ok((config.clone(), None));
        }
        let config = match (self.load(&mut state.system), &state.config) {
            (Ok(config), _) => Arc::new(config),
            (Err(error), Some(config)) => {
                let config = config.clone();
                let is_new = std::mem::replace(&mut state.refused, stamps.clone()) != stamps;
                return Ok((config, is_new.then_some(error)));
            }
            (Err(error), None) => return Err(error),
        };
        state.config = Some(config.clone());
        state.stamps = stamps;
        state.refused.clear();
        Ok((config, None))
    }

    fn stamps(&self) -> Vec<Stamp> {
        let identity = self
            .settings
            .identity
            .iter()
            .flat_map(|identity| [&identity.certificates, &identity.key]);
        let files = self.settings.authorities.iter().chain(identity).filter_map(|pem| match pem {
            Pem::File(path) => Some(path),
            Pem::Bytes(_) => None,
        });
        files.map(|path| stamp(path)).collect()
    }

    fn load(&self, system: &mut Option<Vec<CertificateDer<'static>>>) -> Result<ClientConfig> {
        let provider = provider::provider()?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| invalid("TLS cannot be set up").caused_by(e))?;
        let algorithms = provider.signature_verification_algorithms;
        let accept = |authorities| Arc::new(Lenient { authorities, algorithms });
        let builder = match self.settings.verify {
            Verify::Nothing => builder.dangerous().with_custom_certificate_verifier(accept(None)),
            #[cfg(feature = "postgres")]
            Verify::Authority => {
                let authorities = self.authorities(system)?;
                builder.dangerous().with_custom_certificate_verifier(accept(Some(authorities)))
            }
            #[cfg(feature = "tls-platform-verifier")]
            Verify::AuthorityAndName if self.settings.platform_verifier => builder
                .dangerous()
                .with_custom_certificate_verifier(self.platform_verifier(&provider)?),
            Verify::AuthorityAndName => builder.with_root_certificates(self.authorities(system)?),
        };
        let mut config = match &self.settings.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (certificates, key) = read_identity(identity, &provider)?;
                builder
                    .with_client_auth_cert(certificates, key)
                    .map_err(|e| bad_identity(identity).caused_by(e))?
            }
        };
        // Otherwise the sessions are kept in the configuration, so that certificates that have
        // changed are used in a full handshake.
        if self.settings.only_full_handshakes {
            config.resumption = Resumption::disabled();
        }
        if self.settings.fips && !config.fips() {
            return Err(invalid(
                "FIPS is required of TLS (require_fips), and the provider of cryptography is not validated for it: \
                 install the one of aws-lc-rs before the client is built (cargo feature \"fips\" of rustls)",
            ));
        }
        Ok(config)
    }

    /// The operating system's, which trusts the authorities of the settings too.
    #[cfg(feature = "tls-platform-verifier")]
    fn platform_verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<rustls_platform_verifier::Verifier>> {
        let mut authorities = Vec::new();
        for pem in &self.settings.authorities {
            authorities.extend(certificates(pem)?);
        }
        let verifier =
            rustls_platform_verifier::Verifier::new_with_extra_roots(authorities, provider.clone());
        verifier.map(Arc::new).map_err(|e| {
            invalid("the system's verifier of certificates cannot be used").caused_by(e)
        })
    }

    fn authorities(
        &self,
        system: &mut Option<Vec<CertificateDer<'static>>>,
    ) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for pem in &self.settings.authorities {
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(|e| {
                    invalid(format!(
                        "{} has a certificate that cannot be an authority",
                        origin(pem)
                    ))
                    .caused_by(e)
                })?;
            }
        }
        if self.settings.authorities.is_empty() || self.settings.system_authorities {
            let system =
                system.get_or_insert_with(|| rustls_native_certs::load_native_certs().certs);
            // Some systems have certificates that cannot be parsed.
            roots.add_parsable_certificates(system.iter().cloned());
            if roots.is_empty() {
                return Err(invalid(
                    "this system has no certificates of authorities (ca-certificates); install them, or name the \
                     server's authority with Tls::ca_file",
                ));
            }
        }
        Ok(roots)
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0;
    Some((metadata.modified().ok()?, metadata.len(), inode))
}

fn read_identity(
    identity: &Identity,
    provider: &CryptoProvider,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certificates = certificates(&identity.certificates)?;
    // The cause is left out, because it may quote the text.
    let key = PrivateKeyDer::from_pem_slice(&read(&identity.key)?).map_err(|_| {
        invalid(format!("{} has no private key in PEM without encryption", origin(&identity.key)))
    })?;
    // Checked separately from whether the key fits the certificate.
    provider.key_provider.load_private_key(key.clone_key()).map_err(|_| {
        invalid(format!("{} has a private key of an unsupported kind", origin(&identity.key)))
    })?;
    Ok((certificates, key))
}

fn bad_identity(identity: &Identity) -> Error {
    invalid(format!(
        "the key of {} is not that of {}",
        origin(&identity.key),
        origin(&identity.certificates)
    ))
}

/// All certificates of a text, at least one.
fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>> {
    let read =
        CertificateDer::pem_slice_iter(&read(pem)?).collect::<std::result::Result<Vec<_>, _>>();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(invalid(format!("{} has no certificate in PEM, or a broken one", origin(pem)))),
    }
}

fn read(pem: &Pem) -> Result<Arc<[u8]>> {
    match pem {
        Pem::Bytes(bytes) => Ok(bytes.clone()),
        Pem::File(path) => std::fs::read(path)
            .map(Arc::from)
            .map_err(|e| invalid(cannot_be_read(path, &e)).caused_by(e)),
    }
}

fn cannot_be_read(path: &Path, e: &io::Error) -> String {
    format!("the TLS file {} cannot be read: {e}", path.display())
}

fn origin(pem: &Pem) -> String {
    match pem {
        Pem::File(path) => format!("the TLS file {}", path.display()),
        Pem::Bytes(_) => "the PEM text given for TLS".to_owned(),
    }
}
