//! The codes that the server answers in place of a result.

use crate::base::error::{Error, ErrorKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const OK: Self = Self(0);
    pub(crate) const NO_NODE: Self = Self(-101);
    pub(crate) const NO_AUTH: Self = Self(-102);
    pub(crate) const BAD_VERSION: Self = Self(-103);
    pub(crate) const NODE_EXISTS: Self = Self(-110);
    pub(crate) const NOT_EMPTY: Self = Self(-111);
    pub(crate) const SESSION_EXPIRED: Self = Self(-112);
    pub(crate) const SESSION_MOVED: Self = Self(-118);

    pub(crate) fn is_ok(self) -> bool {
        self == Self::OK
    }

    /// Whether the server demands an identity. It runs nothing of what was sent on this connection,
    /// also nothing behind the request that it answers, and ends it without further answers.
    pub(crate) fn demands_an_identity(self) -> bool {
        self.0 == -124
    }

    /// Whether nothing that was sent on this connection can run any more.
    pub(crate) fn ends_the_connection(self) -> bool {
        matches!(self, Self::SESSION_EXPIRED | Self::SESSION_MOVED)
    }

    /// Whether it says the same about each part of a request, as the server has looked at none.
    pub(crate) fn is_for_all(self) -> bool {
        self.ends_the_connection() || matches!(self.0, -127 | -119)
    }

    /// The code as an error, where the caller did not expect it. `about`: the path of the request.
    #[cold]
    pub(crate) fn to_error(self, about: &str) -> Error {
        let (kind, why) = match self.0 {
            -4 | -7 | -118 => {
                (ErrorKind::Unreachable, "the connection no longer belongs to the session")
            }
            -112 => (ErrorKind::Unreachable, "the session has expired, and a new one is made"),
            -102 => (
                ErrorKind::Denied,
                "this identity has no rights on the nodes there: set the digest identity in the URL, or fix their ACL",
            ),
            -115 => (
                ErrorKind::Denied,
                "the server does not accept the identity: check the one in the URL",
            ),
            -124 => (
                ErrorKind::Denied,
                "the server demands that clients identify themselves (enforce.auth.schemes, or \
                 sessionRequireClientSASLAuth): give a digest identity in the URL if it takes one; SASL is not supported",
            ),
            -114 => (
                ErrorKind::Denied,
                "the server refuses the ACL: creator_only needs a digest identity in the URL",
            ),
            -108 => (
                ErrorKind::WrongType,
                "the node above it is ephemeral and can have no children: another program uses the name",
            ),
            -111 => {
                (ErrorKind::WrongType, "the node there has children: another program uses the name")
            }
            -6 => (
                ErrorKind::Unsupported,
                "the server does not know this request: ZooKeeper 3.5 or later is needed",
            ),
            -125 => (ErrorKind::Full, "the quota of the path is used up: raise it with setquota"),
            -127 => (ErrorKind::NotReady, "the server is overloaded"),
            -119 => (
                ErrorKind::ReadOnly,
                "the server has no majority and serves only reads: start the other servers, or name them in the URL",
            ),
            -120 => (
                ErrorKind::Unsupported,
                "the session is known to one server alone (localSessionsEnabled), and the servers do not make it one \
                 that can have locks: set localSessionsUpgradingEnabled=true there",
            ),
            -8 => (
                ErrorKind::InvalidInput,
                "the server refuses the path or an argument: a path must not have control characters, emoji or others \
                 above U+FFEF",
            ),
            -5 => (ErrorKind::Protocol, "the server could not read the request"),
            -101 => (ErrorKind::Server, "the node does not exist"),
            -103 => (ErrorKind::Server, "its data was changed by another client at the same time"),
            -110 => (ErrorKind::Server, "the node already exists"),
            _ => (ErrorKind::Server, "the server refuses the request"),
        };
        Error::new(kind, format!("{about}: {why} (ZooKeeper's error {})", self.0))
    }
}

#[cfg(test)]
#[path = "code_tests.rs"]
mod tests;
