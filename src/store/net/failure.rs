//! A request that has no answer: whether it can have run, and why there is none.

use std::fmt::Debug;
use std::io;

use super::limits::no_answer;
use crate::base::error::{Error, ErrorKind};
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsFailure;

/// Why a request has no answer. `U`: how to make sure that it can no longer run.
#[derive(Debug, Clone)]
pub(crate) enum Failure<U> {
    /// No byte of it has reached the server.
    NotSent(Error),
    /// It may have run, or may still run. `ended`: the other end has closed the connection, or was
    /// silent after so long a pause that it may have been cut before, or is no longer the server to
    /// ask. That says nothing about the server now, which can probably be asked again at once.
    Unknown { error: Error, unknown: U, ended: bool },
}

impl<U> Failure<U> {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NotSent(error) | Self::Unknown { error, .. } => error,
        }
    }
}

/// The message of an [`ErrorKind::Unreachable`] when the other end closed the connection.
pub(crate) const ENDED: &str = "the connection to the server ended";

/// `plain`: the URL of a server without TLS. `ended`: what to say if the other end closed the
/// connection.
#[cold]
pub(crate) fn to_error(e: io::Error, server: &impl Debug, plain: &str, ended: &str) -> Error {
    use io::ErrorKind as Io;
    #[cfg(feature = "tls-core")]
    if let Some(failure) = TlsFailure::in_error(&e) {
        let why = format!("{server:?} {}", failure.says(plain));
        return Error::new(failure.kind, why).caused_by(e);
    }
    let _ = plain;
    if let Some(why) = no_answer(&e) {
        return Error::new(ErrorKind::Unreachable, format!("{server:?} {why}"));
    }
    let message = match e.kind() {
        Io::ConnectionRefused | Io::NotFound => format!("no server listens at {server:?}"),
        kind if ends(kind) => ended.to_owned(),
        _ => format!("{server:?} cannot be reached: {e}"),
    };
    Error::new(ErrorKind::Unreachable, message).caused_by(e)
}

/// Whether the other end closed the connection.
pub(crate) fn ends(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Io;
    matches!(kind, Io::UnexpectedEof | Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe)
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
