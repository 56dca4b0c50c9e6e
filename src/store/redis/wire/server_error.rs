//! Error replies of a server: what went wrong, and what to do about it.

use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind};

/// Why a node of a cluster does not serve the slot of a request. Nothing ran, except with
/// [`Self::Partly`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot is at this address, `host:port`; a missing host means that of the node that sent
    /// this.
    Moved(String),
    /// Only this request is for this address.
    Ask(String),
    /// The keys of the request are on both sides of a slot that is moving, or nobody serves the
    /// slot.
    Later,
    /// A script has run up to a command on a key that had just moved.
    Partly,
}

impl Redirect {
    pub(super) fn of(error: &ServerError) -> Option<Self> {
        let address = || error.text.split(' ').nth(2).unwrap_or_default().to_owned();
        match &*error.code {
            "MOVED" => Some(Self::Moved(address())),
            "ASK" => Some(Self::Ask(address())),
            "TRYAGAIN" | "CLUSTERDOWN" => Some(Self::Later),
            _ if error.text.contains(NON_LOCAL_KEY) => Some(Self::Partly),
            _ => None,
        }
    }
}

/// Part of the error of a script whose own commands met a key that another node has.
const NON_LOCAL_KEY: &str = "access a non local key";

/// Leasehold's own error code for a write that too few replicas acknowledged.
pub(super) const TOO_FEW_REPLICAS: &str = "TOOFEWREPLICAS";

/// Leasehold's own error code for a script that refused to run after its not-after time. A reply
/// that arrives is never late by itself, because its caller would have given up: the server's clock
/// was stepped forward since the connection learned it, or has run faster than ours for long.
pub(super) const TOO_LATE: &str = "TOOLATE";

/// An error reply: its code word, and its whole text including the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerError {
    pub(crate) code: String,
    pub(crate) text: String,
}

impl From<&str> for ServerError {
    fn from(text: &str) -> Self {
        Self { code: text.split(' ').next().unwrap_or_default().to_owned(), text: text.to_owned() }
    }
}

impl ServerError {
    /// Redis 6.2 wraps the error of a command inside a script (`ERR Error running script (...):
    /// WRONGTYPE ...`), so the text is searched for code words as well.
    pub(super) fn says(&self, code: &str) -> bool {
        self.code == code
            || self.text.split(|c: char| !c.is_ascii_uppercase()).any(|word| word == code)
    }

    /// Whether a Redis server is known to answer leasehold's requests with this error. That of a
    /// proxy does not say whether the request has run.
    pub(super) fn is_known(&self) -> bool {
        let is_strange = || {
            self.is_unknown_command()
                || self.is_of_proxy()
                || self.clone().into_error().kind() == ErrorKind::Server
        };
        self.code == "NOSCRIPT" || !is_strange()
    }

    /// The server accepts the connection only to send this error, and closes it: it has too many
    /// clients, or is in protected mode.
    pub(super) fn refuses_connection(&self) -> bool {
        self.is_too_many_clients() || self.says("DENIED")
    }

    pub(super) fn is_unknown_command(&self) -> bool {
        says_unknown_command(&self.text)
    }

    /// The text without the arguments of the request, which may be a whole script, or a password.
    fn without_args(&self) -> &str {
        self.text.split(", with args beginning with").next().unwrap_or_default()
    }

    /// Envoy cannot reach the server behind it, or has lost the connection to it.
    fn is_of_proxy(&self) -> bool {
        matches!(&*self.text, "no upstream host" | "upstream failure")
    }

    pub(super) fn is_too_many_clients(&self) -> bool {
        self.text.contains("max number of clients")
    }

    pub(crate) fn into_error(self) -> Error {
        let too_few =
            self.text.strip_prefix(TOO_FEW_REPLICAS).and_then(|rest| rest.strip_prefix(' '));
        if let Some(why) = too_few.filter(|why| !why.is_empty()) {
            return Error::new(ErrorKind::NotReplicated, why.to_owned());
        }
        if self.code == TOO_LATE {
            let why = "the request reached the server after the I/O timeout, by the server's clock";
            return Error::new(ErrorKind::Unreachable, why);
        }
        let (kind, what, advice) = self.meaning();
        let error = Error::new(kind, format!("{what} ({})", self.without_args()));
        match advice {
            Some(advice) => error.advise(advice),
            None => error,
        }
    }

    /// The kind of the error, what went wrong, and what to do about it.
    fn meaning(&self) -> (ErrorKind, &'static str, Option<Advice>) {
        let says_one_of = |codes: &[&str]| codes.iter().any(|code| self.says(code));
        let lacks_permission = self.says("NOPERM")
            || self.text.contains("The user executing the script can't")
            // Valkey 9.
            || self.text.contains("ACL failure in script");
        if self.says("WRONGPASS") {
            (
                ErrorKind::Denied,
                "the server refused the user or the password",
                Some(Advice::CheckCredentials),
            )
        } else if self.says("NOAUTH") {
            (ErrorKind::Denied, "the server requires a password", Some(Advice::SetPassword))
        } else if self.is_too_many_clients() {
            let advice = "raise that, or close some connections";
            (ErrorKind::NotReady, "the server has reached its maxclients", Some(advice.into()))
        } else if lacks_permission {
            (
                ErrorKind::Denied,
                "the user lacks a permission in the server's ACL",
                Some(Advice::GrantRights),
            )
        } else if self.says("DENIED") {
            (ErrorKind::Denied, "the server refuses connections from here", None)
        } else if self.says("WRONGTYPE") || self.text.contains("not an integer") {
            (
                ErrorKind::WrongType,
                "a key under this name holds something else",
                Some(Advice::ChooseName),
            )
        } else if self.says("READONLY") {
            (ErrorKind::ReadOnly, "the server is a replica", Some("connect to the primary".into()))
        } else if self.says("UNBLOCKED") || self.text.contains("WAIT cannot be used with replica") {
            (
                ErrorKind::NotReplicated,
                "the server became a replica before enough others had acknowledged the write",
                None,
            )
        } else if says_one_of(&["NOREPLICAS", "MISCONF"]) {
            (
                ErrorKind::ReadOnly,
                "the server takes no writes now, because it cannot save or replicate them",
                None,
            )
        } else if self.says("OOM") {
            let advice = "give it more, with the policy noeviction";
            (ErrorKind::Full, "the server has reached its maxmemory", Some(advice.into()))
        } else if says_one_of(&["LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN"])
            || self.is_of_proxy()
        {
            (ErrorKind::NotReady, "the server cannot serve now", Some("try again later".into()))
        } else if self.text.contains("cluster support disabled") {
            (
                ErrorKind::Unsupported,
                "the server is not a node of a cluster",
                Some(Advice::ConnectToServer),
            )
        } else if self.text.contains(NON_LOCAL_KEY) {
            let what = "the slot of this name is being moved to another node";
            (ErrorKind::NotReady, what, Some("try again later".into()))
        } else if self.is_unknown_command() {
            let what =
                "the server, or a proxy in front of it, does not have a command that locks need";
            (ErrorKind::Unsupported, what, Some(WHERE_IT_IS_NOT_OFF.into()))
        } else if says_one_of(&["MOVED", "ASK", "CROSSSLOT"]) {
            (
                ErrorKind::Unsupported,
                "the server is a node of a cluster",
                Some(Advice::ConnectToCluster),
            )
        } else {
            (ErrorKind::Server, "the server answered with an error", None)
        }
    }
}

/// Advice where a command is missing.
pub(crate) const WHERE_IT_IS_NOT_OFF: &str =
    "connect to a Redis or Valkey where it is not renamed or switched off";

/// Whether a text says that the server does not have a command, which a client or a script has
/// sent. Texts of Redis 7, 6.2 and Valkey, and of Envoy.
pub(crate) fn says_unknown_command(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["unknown command", "unknown redis command", "unsupported command"]
        .iter()
        .any(|words| text.contains(words))
}

#[cfg(test)]
#[path = "server_error_tests.rs"]
mod tests;
