//! How a connection logs in: with the password of its URL, or with the provider's current
//! credentials.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::reply::Reply;
use super::request::Request;
use super::server_error::ServerError;
use crate::base::credentials::{Credentials, CredentialsProvider};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::store::net::{Answer, Question, WhichAnswer};

/// Who logs in.
#[derive(Clone)]
pub(super) struct LogIn {
    pub(super) user: Option<String>,
    pub(super) password: Password,
}

#[derive(Clone)]
pub(super) enum Password {
    /// The URL has only a user.
    Missing,
    Said(String),
    Provided(Arc<Provider>),
}

/// The user's source of credentials. It is the user's code, so it is asked on a thread of its own:
/// one that hangs must not stop the renewals.
pub(crate) struct Provider {
    source: Arc<dyn CredentialsProvider>,
    /// The kept ones are those that a server accepted last.
    answers: Question<Result<Credentials>>,
}

impl Provider {
    /// For one client: a forked child would wait for the parent's threads.
    pub(crate) fn new(source: &Arc<dyn CredentialsProvider>) -> Arc<Self> {
        Arc::new(Self {
            source: source.clone(),
            answers: Question::new("lh-credentials", |_| false),
        })
    }

    /// The credentials, until `until`. Those that were accepted last if the answer is late: the
    /// server decides whether they are still good.
    fn credentials(&self, wanted: WhichAnswer, until: Instant) -> Result<Credentials> {
        let source = self.source.clone();
        match (self.answers.ask(wanted, until, move || provided_by(&*source)), wanted) {
            (Answer { came: Some(answer), .. }, _) => answer,
            (Answer { kept: Some(accepted), .. }, WhichAnswer::Next) => {
                log::debug!(
                    "the credentials provider has not answered yet: logging in with its last credentials"
                );
                accepted
            }
            _ => Err(Error::new(
                ErrorKind::Unreachable,
                "the credentials provider has not answered in time (io_timeout)",
            )),
        }
    }

    /// What a server said about credentials. Refused ones are not kept, because some servers lock
    /// out users after repeated refusals.
    fn judged(&self, credentials: Credentials, accepted: bool) {
        self.answers.revise(|kept| match kept {
            _ if accepted => *kept = Some(Ok(credentials)),
            Some(Ok(last)) if *last == credentials => *kept = None,
            _ => {}
        });
    }
}

impl PartialEq for LogIn {
    fn eq(&self, other: &Self) -> bool {
        let same_password = match (&self.password, &other.password) {
            (Password::Missing, Password::Missing) => true,
            (Password::Said(own), Password::Said(other)) => own == other,
            (Password::Provided(own), Password::Provided(other)) => Arc::ptr_eq(own, other),
            _ => false,
        };
        same_password && self.user == other.user
    }
}

/// The log-in of one connection.
pub(super) struct Attempt<'l> {
    log_in: &'l LogIn,
    credentials: Credentials,
    deadline: Instant,
}

impl LogIn {
    /// Asks the provider, if there is one: before the connect, so that the server does not wait for
    /// it.
    pub(super) fn begin(&self, deadline: Instant) -> Result<Attempt<'_>> {
        Ok(Attempt {
            log_in: self,
            credentials: self.credentials(WhichAnswer::Next, deadline)?,
            deadline,
        })
    }

    fn credentials(&self, wanted: WhichAnswer, deadline: Instant) -> Result<Credentials> {
        let user = self.user.clone();
        match &self.password {
            Password::Missing => Ok(Credentials { user, password: String::new() }),
            Password::Said(password) => Ok(Credentials { user, password: password.clone() }),
            Password::Provided(provider) => {
                let provided = provider.credentials(wanted, deadline)?;
                Ok(Credentials { user: provided.user.or(user), password: provided.password })
            }
        }
    }
}

/// The provider is the user's code: its panic must not end the watchdog, and its message may be the
/// password.
fn provided_by(provider: &dyn CredentialsProvider) -> Result<Credentials> {
    match catch_unwind(AssertUnwindSafe(|| provider.credentials())) {
        Ok(Ok(credentials)) => Ok(credentials),
        Ok(Err(error)) => {
            Err(Error::new(ErrorKind::Denied, "there are no credentials to log in with")
                .caused_by(Reason(error)))
        }
        Err(_) => Err(Error::new(ErrorKind::Denied, "the credentials provider panicked")),
    }
}

/// A boxed error does not implement `Error` itself.
#[derive(Debug)]
struct Reason(Box<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Reason {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl Attempt<'_> {
    /// Logs in over a connection that answers by `ask`. If the server refuses provided credentials,
    /// they may just have been replaced, so the provider is asked once more; the same ones are not
    /// sent twice, because some servers lock out users after repeated refusals.
    pub(super) fn log_in(self, mut ask: impl FnMut(&Request) -> Result<Reply>) -> Result<()> {
        let Self { log_in, credentials, deadline } = self;
        let Some(refused) = log_in.refused(&credentials, &mut ask)? else { return Ok(()) };
        if matches!(log_in.password, Password::Provided(_)) && is_of_credentials(&refused) {
            let fresh = log_in.credentials(WhichAnswer::Anew, deadline)?;
            if fresh != credentials {
                let again = log_in.refused(&fresh, &mut ask)?;
                return again.map_or(Ok(()), |refused| Err(refusal(refused, &fresh)));
            }
        }
        Err(refusal(refused, &credentials))
    }
}

impl LogIn {
    /// Logs in with these credentials; `None` if the server accepts them.
    fn refused(
        &self,
        credentials: &Credentials,
        ask: &mut impl FnMut(&Request) -> Result<Reply>,
    ) -> Result<Option<ServerError>> {
        let refused = if let Reply::Error(refused) = answer(credentials, ask)? {
            Some(refused)
        } else {
            None
        };
        if let Password::Provided(provider) = &self.password
            && refused.as_ref().is_none_or(is_of_credentials)
        {
            // Another URL with the same provider may have another user.
            let user = credentials.user.clone().filter(|user| self.user.as_ref() != Some(user));
            provider.judged(Credentials { user, ..credentials.clone() }, refused.is_none());
        }
        Ok(refused)
    }
}

fn is_of_credentials(refused: &ServerError) -> bool {
    refused.says("WRONGPASS") || refused.says("NOAUTH")
}

/// Sends `AUTH`. The reply is `OK` or an error.
fn answer(
    credentials: &Credentials,
    ask: &mut impl FnMut(&Request) -> Result<Reply>,
) -> Result<Reply> {
    let Credentials { user, password } = credentials;
    match ask(&Request::plain(&["AUTH", user.as_deref().unwrap_or("default"), password]))? {
        // Not quoted: something that echoes its input would reveal the password.
        reply if !matches!(reply, Reply::Error(_)) && reply != Reply::Bytes(b"OK".to_vec()) => {
            Err(Error::new(ErrorKind::Protocol, "the reply to AUTH is neither OK nor an error"))
        }
        reply => Ok(reply),
    }
}

/// A server that does not know `AUTH` quotes the whole command.
fn refusal(mut refused: ServerError, credentials: &Credentials) -> Error {
    if let Some(args) = refused.text.find("with args") {
        refused.text.truncate(args);
    }
    if !credentials.password.is_empty() && refused.text.contains(&credentials.password) {
        refused.text.clone_from(&refused.code);
    }
    refused.into_error()
}

#[cfg(test)]
#[path = "log_in_tests.rs"]
mod tests;
