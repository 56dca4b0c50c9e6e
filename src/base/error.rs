//! The one error type of the crate.

use std::error::Error as StdError;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::base::advice::Advice;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
///
/// That another holder has the lock is not an error: the `try_` methods return `Ok(None)`. An error
/// means that the input was invalid, that the hold is gone, or that the outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name, lease, URL or setting is invalid, the server does not have the database, or the
    /// sentinels watch no master of this name. Nothing was changed.
    InvalidInput,
    /// The hold is gone: its lease ended, or the server no longer has it. Final for this hold.
    #[doc(alias = "IllegalMonitorStateException")]
    Lost,
    /// The server could not be reached, or did not answer within the I/O timeout
    /// ([`Builder::io_timeout`](crate::Builder::io_timeout)). A request that may have run is undone
    /// in the background as soon as the server answers.
    Unreachable,
    /// With Redlock: too few masters could be reached, or they answered too slowly. The message
    /// lists the answer of each master. Requests that may have run are undone in the background.
    /// Never returned just because another holder has the lock.
    NoQuorum,
    /// Fewer replicas acknowledged the grant in time than
    /// [`Redis::replicas`][crate::Redis::replicas] requires. The grant was undone. PostgreSQL:
    /// somebody cancelled a commit's wait for its synchronous standby; a grant is undone.
    #[cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
    NotReplicated,
    /// The server answers, but cannot serve now. Nothing was changed.
    ///
    /// - It is starting, is loading its data, is busy with a script, or is overloaded.
    /// - It takes no more connections (`maxclients`, `max_connections`, `maxClientCnxns`).
    /// - PostgreSQL: another session has locked what the call needs; the message names it. MySQL:
    ///   the row of a hold is locked, by a transaction that is not one of a client.
    /// - The sentinels do not agree on the master, or the slot of the name is being moved.
    NotReady,
    /// The password is wrong, the credentials provider has none, or the user has no permission for
    /// a command, a key or a channel.
    Denied,
    /// TLS: the server's certificate is refused (expired, signed by an unknown authority, for
    /// another name), the server refuses or requires a client certificate, or the two have no TLS
    /// version in common. The message says whose certificate it is and what to change. A call does
    /// not wait for this to pass, because somebody must act; a held lease is still renewed over
    /// open connections. Nothing was sent. A port that does not speak TLS is
    /// [`Protocol`](Self::Protocol) or [`Unreachable`](Self::Unreachable).
    Tls,
    /// The key under this name holds a value of a type that this kind of lock never has, or its
    /// token key holds no number. In Redis two kinds with the same type of value cannot be
    /// distinguished; PostgreSQL stores the kind, and refuses any other.
    WrongType,
    /// The server is a read-only replica, or refuses writes because it cannot save or replicate
    /// them.
    ReadOnly,
    /// The server accepts no more writes: it has reached its `maxmemory`, its disk is full, or the
    /// path's quota is used up.
    Full,
    /// The server does not speak the Redis protocol (or not TLS, where the URL is `rediss://`), or
    /// sent a reply that no script of this crate can return.
    Protocol,
    /// The server is too old, does not have a command that locks need, or is not of the kind that
    /// the settings name (a node of a cluster, a sentinel, or neither); or the store does not have
    /// this primitive or method, such as Redlock all but the plain lock.
    Unsupported,
    /// The client was closed, or has [stopped waiting](crate::LockClient::stop_waiting); the
    /// message says which. From a guard: closing the client gave up its hold, and another holder
    /// may have taken the lock since.
    Closed,
    /// The [token](crate::CancelToken) of the call was cancelled. Nothing is taken; a request that
    /// may have run is undone in the background.
    Cancelled,
    /// The calling process is a fork of the process that made the client, and owns none of its
    /// locks and connections.
    Forked,
    /// A newer holder has claimed the resource: this fencing token is stale.
    Stale,
    /// Waiting would not help, because of what the caller or the name already has:
    ///
    /// - the write lock, while this thread holds the read lock;
    /// - more permits than the semaphore has in all, or permits of a semaphore whose number of
    ///   permits nobody has set; the same for the rate of a limiter;
    /// - setting a latch while it counts;
    /// - a lock, while this thread holds one of another kind under the name;
    /// - a lock that this thread holds already, if one of the two handles is
    ///   [`non_reentrant`](crate::ReentrantMutex::non_reentrant).
    Conflict,
    /// Any other error reply of the server; the message quotes it.
    Server,
}

impl ErrorKind {
    /// Every kind that this version has, for example for a table of exit statuses, or to announce
    /// the labels of a metric.
    pub const ALL: [Self; 19] = [
        Self::InvalidInput,
        Self::Lost,
        Self::Unreachable,
        Self::NoQuorum,
        Self::NotReplicated,
        Self::NotReady,
        Self::Denied,
        Self::Tls,
        Self::WrongType,
        Self::ReadOnly,
        Self::Full,
        Self::Protocol,
        Self::Unsupported,
        Self::Closed,
        Self::Cancelled,
        Self::Forked,
        Self::Stale,
        Self::Conflict,
        Self::Server,
    ];

    /// The name of the kind as a label of metrics.
    pub(crate) fn label(self) -> String {
        let mut label = String::new();
        for (place, c) in format!("{self:?}").char_indices() {
            if c.is_uppercase() && place > 0 {
                label.push('_');
            }
            label.extend(c.to_lowercase());
        }
        label
    }

    /// Whether the program itself ended the call, which is no failure.
    pub(crate) fn is_stop(self) -> bool {
        matches!(self, Self::Closed | Self::Cancelled)
    }

    /// See [`Error::is_outage`].
    pub(crate) fn is_outage(self) -> bool {
        match self {
            Self::Unreachable
            | Self::NoQuorum
            | Self::NotReplicated
            | Self::NotReady
            | Self::ReadOnly
            | Self::Protocol => true,
            // No wildcard, so that whoever adds a kind has to decide.
            Self::InvalidInput
            | Self::Lost
            | Self::Denied
            | Self::Tls
            | Self::WrongType
            | Self::Full
            | Self::Unsupported
            | Self::Closed
            | Self::Cancelled
            | Self::Forked
            | Self::Stale
            | Self::Conflict
            | Self::Server => false,
        }
    }
}

/// What went wrong, for which lock, and what to do about it.
///
/// `{error}` is one line without the cause, which [`source`](StdError::source) returns, if there is
/// one; `{error:#}` is one line with all causes. `{error:?}` puts the kind before that line: a
/// program whose `main` returns the error prints this. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<ErrorParts>);

#[derive(Clone)]
struct ErrorParts {
    kind: ErrorKind,
    name: Option<String>,
    message: String,
    advice: Option<Advice>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    is_of_a_part: bool,
}

/// A value of the caller that cannot be used.
#[cold]
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Arc::new(ErrorParts {
            kind,
            name: None,
            message,
            advice: None,
            source: None,
            is_of_a_part: false,
        }))
    }

    #[cold]
    pub(crate) fn named(kind: ErrorKind, name: &str, message: impl Into<String>) -> Self {
        Self::new(kind, message).for_name(name)
    }

    /// The same error, naming the lock (or key) `name`.
    #[cold]
    pub(crate) fn for_name(self, name: &str) -> Self {
        self.with(|parts| parts.name = Some(name.to_owned()))
    }

    /// The same error, with `more` added to the message.
    #[cold]
    pub(crate) fn and_also(self, more: impl fmt::Display) -> Self {
        self.with(|parts| parts.message = format!("{} ({more})", parts.message))
    }

    /// The same error with another message, which is made from the present one.
    #[cold]
    pub(crate) fn reworded(self, change: impl FnOnce(&str) -> String) -> Self {
        self.with(|parts| parts.message = change(&parts.message))
    }

    /// The same error, with what to do about it.
    #[cold]
    pub(crate) fn advise(self, advice: impl Into<Advice>) -> Self {
        self.with(|parts| parts.advice = Some(advice.into()))
    }

    #[cold]
    pub(crate) fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.with(|parts| parts.source = Some(Arc::new(source)))
    }

    /// The same error, of a call that needs several servers and lacks one of them.
    #[cold]
    pub(crate) fn of_a_part(self) -> Self {
        self.with(|parts| parts.is_of_a_part = true)
    }

    /// Whether only one of the servers that the call needs cannot be asked: others that wait for a
    /// name at another of them must not wait for this one.
    pub(crate) fn is_of_a_part(&self) -> bool {
        self.0.is_of_a_part
    }

    fn with(self, change: impl FnOnce(&mut ErrorParts)) -> Self {
        let mut parts = ErrorParts::clone(&self.0);
        change(&mut parts);
        Self(Arc::new(parts))
    }

    /// The kind of failure, to match on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The lock name or key of the failed call, as the caller gave it; for several locks, the first
    /// three and how many more. `None` if the call had no name, or one that is too long to quote.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Whether the store could not be asked, or could not serve. A call that is already waiting
    /// when this begins keeps waiting, up to its
    /// [`outage_timeout`](crate::Builder::outage_timeout), and held leases are still renewed.
    ///
    /// | kind | [`is_transient`](Self::is_transient) | `is_outage` |
    /// |---|---|---|
    /// | [`Unreachable`](ErrorKind::Unreachable), [`NoQuorum`](ErrorKind::NoQuorum), [`NotReplicated`](ErrorKind::NotReplicated), [`NotReady`](ErrorKind::NotReady), [`ReadOnly`](ErrorKind::ReadOnly), [`Protocol`](ErrorKind::Protocol) | yes | yes |
    /// | [`Full`](ErrorKind::Full) | yes | no: it answers, and what is held stays held |
    /// | [`Lost`](ErrorKind::Lost), [`Stale`](ErrorKind::Stale) | no: take the lock again, and begin the work anew | no |
    /// | [`Conflict`](ErrorKind::Conflict) | no: this thread has something in its own way | no |
    /// | [`Closed`](ErrorKind::Closed), [`Forked`](ErrorKind::Forked) | no: another client is needed | no |
    /// | [`Cancelled`](ErrorKind::Cancelled) | no: somebody wanted it to end | no |
    /// | [`InvalidInput`](ErrorKind::InvalidInput), [`WrongType`](ErrorKind::WrongType), [`Unsupported`](ErrorKind::Unsupported) | no: the program or its data has to change | no |
    /// | [`Denied`](ErrorKind::Denied), [`Tls`](ErrorKind::Tls), [`Server`](ErrorKind::Server) | no: somebody has to act | no |
    ///
    /// Kinds that later versions add state this in their own docs.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.kind().is_outage()
    }

    /// Whether the same call may succeed later although nobody changes the program, its settings
    /// or what it holds: worth a retry after a pause. The table of all kinds is at
    /// [`is_outage`](Self::is_outage).
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.is_outage() || self.kind() == ErrorKind::Full
    }

    /// What went wrong, without the [name](Self::name), the [advice](Self::advice) and the cause.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do about it, if more can be said than the message does. `Display` ends with it.
    #[must_use]
    pub fn advice(&self) -> Option<&Advice> {
        self.0.advice.as_ref()
    }

    /// This error and all its causes, each once, for log lines.
    pub(crate) fn chain(&self) -> impl fmt::Display + '_ {
        Chain(self)
    }

    fn named_message(&self) -> String {
        match self.name() {
            Some(name) => format!("{name:?}: {}", self.message()),
            None => self.message().to_owned(),
        }
    }

    fn write_advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

struct Chain<'e>(&'e Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.0.named_message();
        let mut cause = self.0.source();
        while let Some(e) = cause {
            let text = e.to_string();
            // Some errors already quote their cause.
            if !line.contains(&text) {
                line.push_str(": ");
                line.push_str(&text);
            }
            cause = e.source();
        }
        f.write_str(&line)?;
        self.0.write_advice(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return self.chain().fmt(f);
        }
        f.write_str(&self.named_message())?;
        self.write_advice(f)
    }
}

/// A program whose `main` returns an error prints this, so it reads as a report.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return write!(f, "{:?}: {self:#}", self.kind());
        }
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("name", &self.0.name)
            .field("message", &self.0.message)
            .field("advice", &self.0.advice)
            .field("source", &self.0.source)
            .finish()
    }
}

// Nothing changes it.
impl UnwindSafe for Error {}
impl RefUnwindSafe for Error {}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
