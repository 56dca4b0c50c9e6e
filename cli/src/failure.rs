//! Errors of the command: their exit statuses and messages.

use std::fmt;

use leasehold::{Error, ErrorKind};

use crate::stderr;
use crate::text::visible;
use crate::words::chain;

/// The exit statuses. 64 to 77 come from BSD's `sysexits.h`, the others from shells.
pub(crate) mod status {
    pub(crate) const USAGE: u8 = 64;
    pub(crate) const UNAVAILABLE: u8 = 69;
    pub(crate) const LOST: u8 = 70;
    pub(crate) const NOT_HAD: u8 = 75;
    /// `show` has found nothing under the name.
    pub(crate) const FREE: u8 = 1;
    pub(crate) const PROTOCOL: u8 = 76;
    pub(crate) const DENIED: u8 = 77;
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    pub(crate) const NOT_FOUND: u8 = 127;
    /// The number of the signal is added to it.
    pub(crate) const BY_SIGNAL: u8 = 128;
}

/// A message in one line, and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(status_of(error.kind()), chain(&error))
    }
}

pub(crate) fn status_of(kind: ErrorKind) -> u8 {
    // A kind that is newer than this command says nothing about the lock.
    known_status(kind).unwrap_or(status::PROTOCOL)
}

/// No kind of this version is left to the wildcard that another crate's enum needs: a test goes
/// through all of them.
fn known_status(kind: ErrorKind) -> Option<u8> {
    Some(match kind {
        ErrorKind::InvalidInput => status::USAGE,
        ErrorKind::Denied | ErrorKind::Tls => status::DENIED,
        ErrorKind::Unreachable
        | ErrorKind::NoQuorum
        | ErrorKind::NotReplicated
        | ErrorKind::NotReady
        | ErrorKind::ReadOnly
        | ErrorKind::Full => status::UNAVAILABLE,
        ErrorKind::Protocol
        | ErrorKind::Unsupported
        | ErrorKind::WrongType
        | ErrorKind::Conflict
        | ErrorKind::Server => status::PROTOCOL,
        ErrorKind::Lost
        | ErrorKind::Closed
        | ErrorKind::Cancelled
        | ErrorKind::Forked
        | ErrorKind::Stale => status::LOST,
        _ => return None,
    })
}

/// The status of a program that a signal has ended.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |signal| status::BY_SIGNAL.saturating_add(signal))
}

/// Writes one line to stderr. It does not fail, and does not panic: a panic would release the lock
/// of a run.
pub(crate) fn say(line: impl fmt::Display) {
    // The line may quote text that other programs wrote to the store.
    let line = visible(&line.to_string().replace('\n', " "));
    stderr::write(format!("leasehold: {line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_that_are_documented() {
        for (kind, status) in [
            (ErrorKind::InvalidInput, 64),
            (ErrorKind::Unreachable, 69),
            (ErrorKind::NoQuorum, 69),
            (ErrorKind::Full, 69),
            (ErrorKind::Lost, 70),
            (ErrorKind::Unsupported, 76),
            (ErrorKind::WrongType, 76),
            (ErrorKind::Denied, 77),
        ] {
            assert_eq!(status_of(kind), status, "{kind:?}");
        }
    }

    /// The alert and the guide list those whose cause is at the servers.
    #[test]
    fn an_alert_fires_for_each_kind_that_servers_cause() {
        for (file, before, after) in [
            ("packaging/watching/alerts.yml", "leasehold_errors_total{error=~\"", "\"}"),
            ("src/guide/operations.rs", "[`ErrorKind`](crate::ErrorKind) | ", ": the servers;"),
        ] {
            let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let (list, _) = text.split_once(before).unwrap().1.split_once(after).unwrap();
            // not_ready, NotReady
            let list = list.replace('_', "");
            let listed: Vec<&str> = list.split(['|', ',', '`', ' ']).collect();
            for kind in ErrorKind::ALL {
                let is_of_servers =
                    [status::UNAVAILABLE, status::DENIED].contains(&status_of(kind));
                let name = format!("{kind:?}").to_lowercase();
                assert_eq!(listed.contains(&&*name), is_of_servers, "{file}: {kind:?}");
            }
        }
    }

    #[test]
    fn every_kind_has_a_status() {
        for kind in ErrorKind::ALL {
            assert!(known_status(kind).is_some(), "{kind:?}");
        }
    }
}
