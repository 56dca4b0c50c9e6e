//! Why the other end of a connection was not reached, or did not answer.

use std::fmt::Debug;
use std::io;

use super::limits::no_answer;
use crate::base::error::{Error, ErrorKind};
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsFailure;

/// The message of an [`ErrorKind::Unreachable`] when the other end closed the connection.
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
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
