//! Whose cryptography TLS uses.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

use crate::base::error::{Result, invalid};

/// The provider that the program has installed, otherwise ring.
///
/// # Errors
/// `InvalidInput` if there is none: only without the cargo feature `tls`.
pub(super) fn provider() -> Result<Arc<CryptoProvider>> {
    CryptoProvider::get_default().cloned().or_else(ring).ok_or_else(|| {
        invalid("TLS has no cryptography: install a provider first (rustls::crypto::CryptoProvider::install_default); the \
             cargo feature \"tls\" brings ring",
        )
    })
}

/// Not installed as the default of the process: that is the program's to choose.
fn ring() -> Option<Arc<CryptoProvider>> {
    #[cfg(feature = "tls")]
    return Some(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(not(feature = "tls"))]
    None
}
