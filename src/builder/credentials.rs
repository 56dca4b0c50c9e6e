//! Where a client's user and password come from.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use super::Builder;
use crate::base::credentials::{Credentials, CredentialsProvider};

impl Builder {
    /// Where the user and the password come from, instead of from the URL: for credentials that
    /// change while the client lives. Every closure that returns
    /// [`Credentials`] is a provider. It is asked [whenever a connection is
    /// made](crate::CredentialsProvider), and once more if the server refuses what it said, so a
    /// password can be replaced at any time. The connections that are open stay logged in; one that
    /// the server logs out (`NOAUTH`) is replaced, and what was sent on it is repeated.
    ///
    /// If the credentials name no user, the URL's user counts; a URL that has a password as well is
    /// refused. Replaces [`password_file`](Self::password_file).
    ///
    /// ```no_run
    /// # fn latest_token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// use leasehold::{Credentials, LockClient};
    /// let client = LockClient::builder()
    ///     .url("redis://cache.example/")
    ///     .credentials(|| Ok(Credentials::new("billing", latest_token()?)))
    ///     .build()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn credentials(mut self, provider: impl CredentialsProvider + 'static) -> Self {
        self.credentials = Some(Arc::new(provider));
        self
    }

    /// The password is what this file has whenever a connection is made, without the line end at
    /// its end: a secret that something else mounts and replaces. The URL may name the user.
    /// Otherwise as [`credentials`](Self::credentials), which it replaces. A file that cannot be
    /// read, is empty or is no UTF-8 fails the connect with [`Denied`](crate::ErrorKind::Denied).
    pub fn password_file(self, path: impl Into<PathBuf>) -> Self {
        self.credentials(PasswordFile(path.into()))
    }
}

/// The file is read whenever a connection is made.
pub(super) struct PasswordFile(pub(super) PathBuf);

impl CredentialsProvider for PasswordFile {
    fn credentials(&self) -> Result<Credentials, Box<dyn Error + Send + Sync>> {
        let path = self.0.display();
        let text = std::fs::read_to_string(&self.0).map_err(|e| format!("the password file {path}: {e}"))?;
        // Editors and `echo` end the line.
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let password = line.strip_suffix('\r').unwrap_or(line);
        if password.is_empty() {
            return Err(format!("the password file {path} is empty").into());
        }
        Ok(Credentials::password(password))
    }
}
