//! The user and password of a client at its servers, and where they come from.

use std::error::Error as StdError;
use std::fmt;

/// A user and a password for a server's `AUTH`. `Debug` shows neither the password nor how long it
/// is.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Credentials {
    /// A user of the server's ACL with its password, or with its token.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// A password alone: for the URL's user if the URL names one, otherwise for the server's
    /// `default` user.
    #[must_use]
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }
}

impl<U: Into<String>, P: Into<String>> From<(U, P)> for Credentials {
    fn from((user, password): (U, P)) -> Self {
        Self::new(user, password)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Where a client gets its credentials from, for
/// [`Redis::credentials`](crate::Redis::credentials). A closure that returns the result of
/// [`credentials`](Self::credentials) implements it.
pub trait CredentialsProvider: Send + Sync {
    /// The credentials to log in with now.
    ///
    /// Called before every log-in, on a thread of its own (`lh-credentials`); connects that begin
    /// meanwhile share the answer. The [I/O timeout](crate::Builder::io_timeout) of the connect
    /// includes it. If the answer is late, the client logs in with the last credentials that the
    /// server accepted; without any, the connect fails with
    /// [`Unreachable`](crate::ErrorKind::Unreachable). A call that hangs keeps that one thread,
    /// also after the client was closed, and a client does not call again before it returns. So
    /// **answer from memory**: refresh tokens on a thread of your own, and return the latest here.
    ///
    /// # Errors
    /// The connect fails with [`Denied`](crate::ErrorKind::Denied), and what you return is its
    /// [`source`](StdError::source): it can end up in logs, so it must not contain the password.
    /// A panic is caught and counts as an error; its message is ignored.
    fn credentials(&self) -> Result<Credentials, Box<dyn StdError + Send + Sync>>;
}

impl<F> CredentialsProvider for F
where
    F: Fn() -> Result<Credentials, Box<dyn StdError + Send + Sync>> + Send + Sync,
{
    fn credentials(&self) -> Result<Credentials, Box<dyn StdError + Send + Sync>> {
        self()
    }
}
