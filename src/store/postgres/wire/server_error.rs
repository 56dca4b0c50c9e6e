//! Error answers of the server, and what each means for a caller.

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorResponseBody, NoticeResponseBody};

use super::owners::FOREIGN_OWNER;
use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind};

/// An error of the server. Unless it is fatal, the transaction was rolled back.
#[derive(Debug, Clone)]
pub(crate) struct ServerError {
    /// The five characters of its SQLSTATE.
    pub(crate) state: String,
    /// Whether the server closes the connection.
    pub(crate) fatal: bool,
    text: String,
    /// The session that has locked what the request has waited for in vain.
    pub(crate) blocker: Option<String>,
}

/// The state that this store's functions raise for a stale fencing token.
const STALE: &str = "LH001";

impl ServerError {
    pub(super) fn read(body: &ErrorResponseBody) -> std::io::Result<Self> {
        let (mut state, mut severity, mut text, mut detail) =
            (String::new(), String::new(), String::new(), None);
        let mut fields = body.fields();
        while let Some(field) = fields.next()? {
            let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => state = value,
                // Unlike the field S, it is not translated.
                b'V' => severity = value,
                b'M' => text = value,
                b'D' => detail = Some(value),
                _ => {}
            }
        }
        if let Some(detail) = detail {
            text = format!("{text} ({detail})");
        }
        Ok(Self { state, fatal: matches!(&*severity, "FATAL" | "PANIC"), text, blocker: None })
    }

    /// No rule of the server (`pg_hba.conf`) permits a connection of this kind.
    pub(super) fn is_by_rule(&self) -> bool {
        self.state == "28000"
    }

    /// The row is locked by another transaction.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.state == "55P03"
    }

    /// The queue of messages is full: a listener of the database is stuck.
    pub(crate) fn is_full_of_messages(&self) -> bool {
        self.state == "54000"
    }

    /// A new connection may succeed, and this one must not be kept: the functions were replaced,
    /// and a prepared statement no longer fits; or they are gone, and a new connection installs
    /// them; or the server takes no more writes, and a new connection finds the one that does; or
    /// it closes the connection.
    pub(crate) fn wants_new_connection(&self) -> bool {
        self.fatal
            || matches!(&*self.state, "0A000" | "26000" | "3F000" | "42883" | "42P01" | "25006")
            || self.state.starts_with("57P0")
    }

    #[cold]
    pub(crate) fn blocked_by(&self, who: String) -> Self {
        Self { blocker: Some(who), ..self.clone() }
    }

    fn kind(&self) -> ErrorKind {
        match &*self.state {
            "28P01" | "28000" | "42501" | FOREIGN_OWNER => ErrorKind::Denied,
            // The second and third: a name that the encoding of the database cannot express.
            "3D000" | "22P05" | "22021" => ErrorKind::InvalidInput,
            "3F000" | "42883" | "42P01" | "0A000" => ErrorKind::Unsupported,
            // Too many connections; starting up; a lock, a statement or a transaction that was
            // given up.
            "53300" | "57P03" | "55P03" | "57014" | "40P01" | "40001" => ErrorKind::NotReady,
            "53100" | "53200" | "53400" | "54000" => ErrorKind::Full,
            "25006" => ErrorKind::ReadOnly,
            STALE => ErrorKind::Stale,
            state if state.starts_with("08") || state.starts_with("57P") || state == "25P03" => {
                ErrorKind::Unreachable
            }
            _ => ErrorKind::Server,
        }
    }

    #[cold]
    pub(crate) fn to_error(&self) -> Error {
        let state = &self.state;
        let text = &self.text;
        if let Some(who) = &self.blocker {
            let why = format!("the server cannot look at the lock: {who}; end that transaction");
            return Error::new(self.kind(), why);
        }
        let error =
            Error::new(self.kind(), format!("the server refused: {text} (SQLSTATE {state})"));
        match &**state {
            "3F000" | "42883" | "42P01" => error
                .reworded(|said| format!("the schema of leasehold is missing or incomplete: {said}"))
                .advise(Advice::InstallSchema),
            "42501" => error.advise(Advice::GrantRoleRights),
            "22P05" | "22021" => error
                .reworded(|said| {
                    format!("the database is not encoded in UTF8, so names are limited to its characters: {said}")
                })
                .advise("use other names, or a database that was created with ENCODING 'UTF8'"),
            "53300" => error.advise("raise max_connections, or let each client have fewer connections"),
            "25006" => error.advise("name the primary, or all hosts"),
            _ => error,
        }
    }
}

/// Whether this notice says that a commit no longer waits for its synchronous standby. Other
/// warnings have the same state, and the text is translated; so the server's function tells.
pub(super) fn is_unreplicated(notice: &NoticeResponseBody) -> bool {
    let mut fields = notice.fields();
    while let Ok(Some(field)) = fields.next() {
        if field.type_() == b'R' {
            return field.value_bytes() == b"SyncRepWaitForLSN";
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(state: &str) -> ServerError {
        ServerError { state: state.to_owned(), fatal: false, text: "why".to_owned(), blocker: None }
    }

    #[test]
    fn each_state_has_its_kind() {
        for (states, kind) in [
            (&["28P01", "28000", "42501", FOREIGN_OWNER][..], ErrorKind::Denied),
            (&["3D000", "22P05", "22021"], ErrorKind::InvalidInput),
            (&["3F000", "42883", "42P01", "0A000"], ErrorKind::Unsupported),
            (&["53300", "57P03", "55P03", "57014", "40P01", "40001"], ErrorKind::NotReady),
            (&["53100", "53200", "53400", "54000"], ErrorKind::Full),
            (&["25006"], ErrorKind::ReadOnly),
            (&["LH001"], ErrorKind::Stale),
            (&["08006", "57P01", "25P03"], ErrorKind::Unreachable),
            (&["XX000", "57000", ""], ErrorKind::Server),
        ] {
            for state in states {
                let error = error(state).to_error();
                assert_eq!(error.kind(), kind, "{state}");
                assert!(error.message().contains(&format!("why (SQLSTATE {state})")), "{error}");
            }
        }
    }

    #[test]
    fn what_can_be_done_is_said() {
        for (state, text) in [
            ("3F000", "the schema of leasehold is missing"),
            ("42P01", "the schema of leasehold is missing"),
            ("22021", "not encoded in UTF8"),
            ("53300", "max_connections"),
            ("25006", "name the primary"),
        ] {
            assert!(error(state).to_error().to_string().contains(text), "{state}");
        }
    }

    #[test]
    fn some_states_end_the_connection() {
        for state in ["0A000", "26000", "3F000", "42883", "42P01", "25006", "57P01", "57P03"] {
            assert!(error(state).wants_new_connection(), "{state}");
        }
        assert!(ServerError { fatal: true, ..error("XX000") }.wants_new_connection());
        assert!(!error("55P03").wants_new_connection() && !error("57014").wants_new_connection());
        let flags = |state| {
            let error = error(state);
            (error.is_by_rule(), error.is_lock_timeout(), error.is_full_of_messages())
        };
        assert_eq!(flags("28000"), (true, false, false));
        assert_eq!(flags("55P03"), (false, true, false));
        assert_eq!(flags("54000"), (false, false, true));
    }
}
