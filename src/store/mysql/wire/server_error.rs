//! Error answers of the server, and what each means for a caller.

use super::fields::Fields;
use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind};
use crate::store::database::Malformed;

/// An error of the server. The statement was rolled back, and a transaction may still be open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerError {
    pub(crate) code: u16,
    text: String,
}

impl ServerError {
    /// Reads a packet that begins with 0xff. Before the log-in it has no SQLSTATE.
    pub(super) fn read(packet: &[u8]) -> std::result::Result<Self, Malformed> {
        let mut fields = Fields(packet);
        fields.take(1)?;
        let code = fields.integer(2)? as u16;
        let text = match fields.0 {
            [b'#', _, _, _, _, _, text @ ..] => text,
            text => text,
        };
        Ok(Self { code, text: String::from_utf8_lossy(text).into_owned() })
    }

    /// What a server says to those who may not write in spite of it.
    #[cold]
    pub(super) fn no_primary() -> Self {
        Self { code: 1290, text: "it is running with read_only, and is no primary any more".into() }
    }

    /// The row, or its fence, is locked by another transaction, or the server broke a deadlock.
    pub(crate) fn is_contended(&self) -> bool {
        matches!(self.code, 1205 | 1213 | 3572)
    }

    /// Somebody has had the lock of the row for a second.
    pub(crate) fn is_timeout(&self) -> bool {
        self.code == 1205
    }

    /// `KILL` of a connection that is gone.
    pub(crate) fn is_no_such_thread(&self) -> bool {
        self.code == 1094
    }

    pub(crate) fn exists_already(&self) -> bool {
        matches!(self.code, 1050 | 1304)
    }

    /// The session has ended or is about to: shut down, killed, idle for too long, interrupted.
    /// What it was doing may have run.
    pub(super) fn ends_the_session(&self) -> bool {
        matches!(self.code, 1053 | 1077 | 1079 | 1152 | 1184 | 1317 | 1927 | 3169 | 4031)
    }

    /// A new connection may succeed, and this one must not be kept: it leads to a server that takes
    /// no more writes, or lets nobody in (`offline_mode`), or whose tables are gone and are made by
    /// the next handshake.
    pub(super) fn wants_new_connection(&self) -> bool {
        matches!(self.code, 1146 | 1290 | 1305 | 1792 | 1836 | 3032 | 3168)
    }

    fn kind(&self) -> ErrorKind {
        match self.code {
            1044 | 1045 | 1130 | 1142 | 1143 | 1227 | 1370 | 1698 | 1820 | 1862 | 3118 | 4151 => {
                ErrorKind::Denied
            }
            1049 => ErrorKind::InvalidInput,
            1146 | 1305 | 1235 | 1665 | 1251 => ErrorKind::Unsupported,
            // The last two roll back: Group Replication changes its primary.
            1040 | 1129 | 1203 | 1205 | 1213 | 1226 | 3032 | 3168 | 3572 | 3100 | 3101 => {
                ErrorKind::NotReady
            }
            1021 | 1041 | 1114 => ErrorKind::Full,
            1036 | 1290 | 1792 | 1836 => ErrorKind::ReadOnly,
            _ if self.ends_the_session() => ErrorKind::Unreachable,
            _ => ErrorKind::Server,
        }
    }

    #[cold]
    pub(crate) fn to_error(&self) -> Error {
        let Self { code, text } = self;
        let error = Error::new(self.kind(), format!("the server refused: {text} (error {code})"));
        match code {
            1040 | 1203 | 1226 => {
                error.advise("raise max_connections, or let each client have fewer connections")
            }
            1142 | 1143 | 1227 | 1370 => error.advise(Advice::GrantDatabaseRights),
            1146 | 1305 => error
                .reworded(|said| {
                    format!("the tables of leasehold are missing or incomplete: {said}")
                })
                .advise(Advice::CreateTables),
            1205 | 1213 => error.advise("end the transaction that has locked the row of the lock"),
            1235 => error.reworded(|said| {
                format!("a cluster of Galera does not have what leasehold needs (GET_LOCK): {said}")
            }),
            1290 | 1792 | 1836 => error.advise("name the primary"),
            1665 => error.advise("set binlog_format to ROW or MIXED"),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16) -> ServerError {
        ServerError { code, text: "why".to_owned() }
    }

    #[test]
    fn each_code_has_its_kind_and_says_what_can_be_done() {
        for (code, kind, says) in [
            (1045, ErrorKind::Denied, "why (error 1045)"),
            (1142, ErrorKind::Denied, "rights"),
            (1049, ErrorKind::InvalidInput, "why"),
            (1146, ErrorKind::Unsupported, "are missing"),
            (1235, ErrorKind::Unsupported, "Galera"),
            (1665, ErrorKind::Unsupported, "binlog_format"),
            (1040, ErrorKind::NotReady, "max_connections"),
            (1205, ErrorKind::NotReady, "end the transaction"),
            (1862, ErrorKind::Denied, "why"),
            (3032, ErrorKind::NotReady, "why"),
            (3168, ErrorKind::NotReady, "why"),
            (3100, ErrorKind::NotReady, "why"),
            (3101, ErrorKind::NotReady, "why"),
            (1114, ErrorKind::Full, "why"),
            (1290, ErrorKind::ReadOnly, "name the primary"),
            (1053, ErrorKind::Unreachable, "why"),
            (1064, ErrorKind::Server, "why"),
        ] {
            let error = error(code).to_error();
            assert_eq!(error.kind(), kind, "{code}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn some_codes_end_the_session_or_the_connection() {
        assert!(error(1317).ends_the_session() && !error(1205).ends_the_session());
        assert!(error(3032).wants_new_connection() && error(3168).wants_new_connection());
        assert!(error(1290).wants_new_connection() && !error(1205).wants_new_connection());
        assert!(error(1213).is_contended() && error(1205).is_contended());
    }

    #[test]
    fn an_error_is_read_with_and_without_a_state() {
        for packet in [&b"\xff\x15\x04#28000why"[..], b"\xff\x15\x04why"] {
            assert_eq!(ServerError::read(packet).unwrap(), error(1045));
        }
        assert_eq!(ServerError::read(b"\xff\x15"), Err(Malformed));
    }
}
