//! The one error type of the crate.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
///
/// Somebody else having the lock is not an error: the `try_` methods answer `Ok(None)`. An error means that the
/// input was bad, that the hold is gone, or that we do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name, lease, URL or setting that cannot work, or a database that the server does not have. Nothing was changed.
    InvalidInput,
    /// The hold is gone: its lease ended, or the server no longer knows it. Final for this hold.
    Lost,
    /// The server could not be asked, or did not answer within the I/O timeout (`Builder::io_timeout`). A
    /// request that may have run is undone in the background as soon as it answers.
    Unreachable,
    /// With Redlock: too few of the masters could be asked, or they answered too slowly; the message has what each said.
    /// What may have run is undone in the background. Never returned when the lock is simply taken by somebody else.
    NoQuorum,
    /// Fewer replicas than [`Builder::replicas`](crate::Builder::replicas) asks for acknowledged it in time. It was undone.
    NotReplicated,
    /// The server answers, but cannot serve now: it is loading its data, is busy with a script, or has as many clients as its
    /// `maxclients`. Nothing was changed.
    NotReady,
    /// Wrong password, or the user has no permission for a command, a key or a channel.
    Denied,
    /// The key under this name holds a value that this kind of lock does not have there, or the key of its tokens something
    /// that is not a number. Two kinds whose values look alike are not told apart.
    WrongType,
    /// The server is a read-only replica, or refuses writes because it cannot save or replicate them.
    ReadOnly,
    /// The server has reached its `maxmemory` and takes no more writes.
    Full,
    /// What answers does not speak the Redis protocol, or answered what none of our scripts can answer.
    Protocol,
    /// The server is too old, or of a kind (cluster node, Sentinel) that this client does not serve.
    Unsupported,
    /// The client was closed; said by a guard, that this gave up its hold: somebody else may have the lock since.
    Closed,
    /// The calling process is a fork of the one that made the client: it owns none of its locks and connections.
    Forked,
    /// A newer holder has claimed the resource: this fencing token is stale.
    Stale,
    /// It cannot be had as things stand, and waiting would not help: a read hold made a write hold, more permits than a
    /// semaphore has, a latch set while it counts, a lock while this thread holds one of another kind under the name, or
    /// holds it and one of the two handles is [`non_reentrant`](crate::ReentrantMutex::non_reentrant).
    Conflict,
    /// Any other error answer of the server; the message has its words.
    Server,
}

impl ErrorKind {
    /// True when a later attempt may succeed with nothing changed on our side: what a call that is already
    /// waiting rides out.
    pub(crate) fn is_outage(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::NoQuorum | Self::NotReplicated | Self::NotReady | Self::ReadOnly | Self::Protocol
        )
    }
}

/// What went wrong, for which lock, and what to do about it.
///
/// `Display` gives one line without the cause; [`source`](StdError::source) has the cause where there is one.
/// Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    name: Option<String>,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, name: None, message: message.into(), source: None }))
    }

    #[cold]
    pub(crate) fn named(kind: ErrorKind, name: &str, message: impl Into<String>) -> Self {
        Self::new(kind, message).for_name(name)
    }

    /// The same error, said of the lock (or key) `name`.
    #[cold]
    pub(crate) fn for_name(self, name: &str) -> Self {
        Self(Arc::new(Inner {
            kind: self.0.kind,
            name: Some(name.to_owned()),
            message: self.0.message.clone(),
            source: self.0.source.clone(),
        }))
    }

    /// The same error, with something more to say.
    #[cold]
    pub(crate) fn and_also(self, more: impl fmt::Display) -> Self {
        Self(Arc::new(Inner {
            kind: self.0.kind,
            name: self.0.name.clone(),
            message: format!("{} ({more})", self.0.message),
            source: self.0.source.clone(),
        }))
    }

    #[cold]
    pub(crate) fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            kind: self.0.kind,
            name: self.0.name.clone(),
            message: self.0.message.clone(),
            source: Some(Arc::new(source)),
        }))
    }

    /// What kind of failure this is; match on it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The name of the lock or key that the failed call was about, as the caller gave it; of several locks, the first three
    /// and how many more. `None` where the call was about no name, or the name is too long to be quoted.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// For log lines: this error and every cause behind it, each once.
    pub(crate) fn chain(&self) -> impl fmt::Display + '_ {
        Chain(self)
    }
}

struct Chain<'e>(&'e Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(e) = cause {
            let said = e.to_string();
            // Some errors repeat what is behind them.
            if !line.contains(&said) {
                line.push_str(": ");
                line.push_str(&said);
            }
            cause = e.source();
        }
        f.write_str(&line)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.0.name {
            write!(f, "{name:?}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("name", &self.0.name)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_name_and_message_but_not_the_cause() {
        let e = Error::named(ErrorKind::Unreachable, "job", "no answer").caused_by(std::io::Error::other("reset"));
        assert_eq!(e.to_string(), "\"job\": no answer");
        assert_eq!(e.source().unwrap().to_string(), "reset");
        assert_eq!((e.kind(), e.name()), (ErrorKind::Unreachable, Some("job")));
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn a_log_line_has_every_cause_once() {
        let refused =
            Error::new(ErrorKind::Unreachable, "no server listens").caused_by(std::io::Error::other("refused"));
        let e = Error::named(ErrorKind::Unreachable, "job", "handshake: no server listens").caused_by(refused);
        assert_eq!(e.chain().to_string(), "\"job\": handshake: no server listens: refused");
    }
}
