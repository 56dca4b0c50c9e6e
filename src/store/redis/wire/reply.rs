//! Replies of a server, and the typed error for an error reply.

use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Bytes(Vec<u8>),
    /// A list of two numbers, the answer to nearly all lock calls: read without an allocation, and
    /// never an `Array`.
    Pair(i64, i64),
    Array(Vec<Self>),
    Error(ServerError),
}

impl Reply {
    /// The elements, if it is a list.
    pub(crate) fn into_list(self) -> Option<Vec<Self>> {
        match self {
            Self::Pair(first, second) => Some(vec![Self::Int(first), Self::Int(second)]),
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The list of these elements.
    #[cfg(test)]
    pub(crate) fn list(elements: Vec<Self>) -> Self {
        match elements[..] {
            [Self::Int(first), Self::Int(second)] => Self::Pair(first, second),
            _ => Self::Array(elements),
        }
    }

    /// The first element of a list that begins with a number.
    pub(crate) fn status(&self) -> Option<i64> {
        match self {
            Self::Pair(status, _) => Some(*status),
            Self::Array(elements) => match elements.first() {
                Some(Self::Int(status)) => Some(*status),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn is_error(&self, code: &str) -> bool {
        matches!(self, Self::Error(e) if e.code == code)
    }

    /// The server, or a proxy before it, does not have the command of the request. Nothing ran.
    pub(crate) fn is_unknown_command(&self) -> bool {
        matches!(self, Self::Error(e) if e.is_unknown_command())
    }

    /// The redirect of a node of a cluster that does not serve the slot of a request.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        let Self::Error(e) = self else { return None };
        Redirect::of(e)
    }

    /// The connection has become less useful: the server is a replica now, or no longer knows its
    /// user, or has another time than the connection was made with. A new connection may reach the
    /// primary, logs in, and asks for the time.
    pub(crate) fn is_demotion(&self) -> bool {
        match self {
            Self::Error(e) => e.says("READONLY") || self.is_refused_here(),
            Self::Array(parts) => parts.iter().any(Self::is_demotion),
            _ => false,
        }
    }

    /// The server no longer knows the user of the connection (an identity that has expired). The
    /// request did not run.
    pub(crate) fn is_logged_out(&self) -> bool {
        self.is_error("NOAUTH")
    }

    /// Nothing ran, and on a connection that is made now it may run: this one is logged out, or was
    /// wrong about the server's clock.
    pub(crate) fn is_refused_here(&self) -> bool {
        self.is_logged_out() || self.is_error(TOO_LATE)
    }

    /// The reply to a request with a not-after time: an error if the script refused it for that.
    pub(super) fn unless_too_late(self) -> Self {
        if self.status() != Some(3) {
            return self;
        }
        Self::Error(ServerError::from(TOO_LATE))
    }
}

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
    fn of(error: &ServerError) -> Option<Self> {
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
const TOO_LATE: &str = "TOOLATE";

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

    /// Whether a Redis server is known to answer leasehold's requests with this error.
    pub(super) fn is_known(&self) -> bool {
        let is_strange =
            || self.is_unknown_command() || self.clone().into_error().kind() == ErrorKind::Server;
        self.code == "NOSCRIPT" || !is_strange()
    }

    /// The server accepts the connection only to send this error, and closes it: it has too many
    /// clients, or is in protected mode.
    pub(super) fn refuses_connection(&self) -> bool {
        self.is_too_many_clients() || self.says("DENIED")
    }

    fn is_unknown_command(&self) -> bool {
        says_unknown_command(&self.text)
    }

    /// The text without the arguments of the request, which may be a whole script, or a password.
    fn without_args(&self) -> &str {
        self.text.split(", with args beginning with").next().unwrap_or_default()
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
        } else if says_one_of(&["LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN"]) {
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

/// Turns an error reply into its typed error.
pub(crate) fn fail_on_error(reply: Reply) -> Result<Reply> {
    match reply {
        Reply::Error(e) => Err(e.into_error()),
        other => Ok(other),
    }
}

/// The reply of `TIME` in microseconds since 1970.
pub(crate) fn server_time(reply: Reply) -> Result<u64> {
    let number = |r: &Reply| match r {
        Reply::Bytes(b) => std::str::from_utf8(b).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    match &reply {
        Reply::Array(parts) if parts.len() == 2 => number(&parts[0]).zip(number(&parts[1])),
        _ => None,
    }
    .and_then(|(seconds, micros)| seconds.checked_mul(1_000_000)?.checked_add(micros))
    // Scripts compute with it as a double.
    .filter(|micros| *micros < 1 << 53)
    .ok_or_else(|| Error::new(ErrorKind::Protocol, format!("TIME answered {reply:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> ErrorKind {
        let code = text.split(' ').next().unwrap().to_owned();
        ServerError { code, text: text.to_owned() }.into_error().kind()
    }

    #[test]
    fn error_answers_of_both_generations_are_understood() {
        assert_eq!(kind("WRONGTYPE Operation against a key"), ErrorKind::WrongType);
        assert_eq!(
            kind("ERR Error running script (call to f_1): @user_script:9: WRONGTYPE Op"),
            ErrorKind::WrongType
        );
        assert_eq!(
            kind("ERR value is not an integer or out of range script: abc, on @user_script:3."),
            ErrorKind::WrongType
        );
        assert_eq!(kind("NOPERM this user has no permissions"), ErrorKind::Denied);
        assert_eq!(
            kind("ERR Error running script: The user executing the script can't run this command"),
            ErrorKind::Denied
        );
        assert_eq!(
            kind("WRONGPASS invalid username-password pair or user is disabled."),
            ErrorKind::Denied
        );
        assert_eq!(kind("NOAUTH Authentication required."), ErrorKind::Denied);
        assert_eq!(kind("ERR max number of clients reached"), ErrorKind::NotReady);
        assert_eq!(
            kind("OOM command not allowed when used memory > 'maxmemory'."),
            ErrorKind::Full
        );
        for demoted in [
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            "ERR WAIT cannot be used with replica instances. Please also note that",
        ] {
            assert_eq!(kind(demoted), ErrorKind::NotReplicated);
        }
        assert_eq!(
            kind("READONLY You can't write against a read only replica."),
            ErrorKind::ReadOnly
        );
        assert_eq!(kind("LOADING Redis is loading the dataset in memory"), ErrorKind::NotReady);
        assert_eq!(kind("BUSY Redis is busy running a script."), ErrorKind::NotReady);
        assert_eq!(kind("MOVED 3999 127.0.0.1:6381"), ErrorKind::Unsupported);
        assert_eq!(kind("ERR nobody knows"), ErrorKind::Server);
    }

    #[test]
    fn what_is_missing_is_named_without_the_arguments() {
        for text in [
            "ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' 's3cr3t' ",
            "ERR unknown command `SCRIPT`, with args beginning with: `LOAD`, `s3cr3t`, ",
            "ERR Unknown Redis command called from script script: s3cr3t, on @user_script:33.",
            "ERR Unknown command called from script",
            "unsupported command 'SCRIPT'",
        ] {
            let error = ServerError::from(text);
            assert!(error.is_unknown_command() && !error.is_known(), "{text}");
            let error = error.into_error();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}");
            assert!(!error.message().contains("LOAD"), "{error}");
        }
    }

    #[test]
    fn a_server_that_sends_what_none_sends_is_no_reason_to_panic() {
        let time = |seconds: &str| {
            server_time(Reply::Array([seconds, "1"].map(|text| Reply::Bytes(text.into())).into()))
        };
        assert_eq!(time("1763700000").unwrap(), 1_763_700_000_000_001);
        for seconds in ["9007199255", "18446744073709", "18446744073709551615", "-1"] {
            assert_eq!(time(seconds).unwrap_err().kind(), ErrorKind::Protocol, "{seconds}");
        }
        for text in ["TOOFEWREPLICAS", "TOOFEWREPLICAS ", ""] {
            assert_eq!(ServerError::from(text).into_error().kind(), ErrorKind::Server, "{text:?}");
        }
    }
}
