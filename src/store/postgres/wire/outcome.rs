//! The outcome of a request; if its connection failed before the reply, whether the request can
//! have run, or can still run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::request::Row;
use super::server_error::ServerError;
use crate::base::error::Error;
use crate::base::lease::Moment;

/// An answer, and the instant before the first byte of its request was sent.
#[derive(Debug)]
pub(crate) struct Answer {
    /// With an error, the transaction was rolled back.
    pub(crate) rows: std::result::Result<Vec<Row>, ServerError>,
    pub(crate) sent_at: Moment,
}

impl Answer {
    /// Whether its connection must not be used again.
    pub(crate) fn is_last(&self) -> bool {
        self.rows.as_ref().is_err_and(ServerError::wants_new_connection)
    }
}

pub(crate) type Outcome = std::result::Result<Answer, PostgresFailure>;

/// A server process. After a restart, the numbers of its backends start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The id of the database cluster: a standby has that of its primary.
    pub(super) system: u64,
    /// When the process started, in microseconds since 1970.
    pub(super) started: i64,
}

/// The backend at the other end of a connection.
#[derive(Debug)]
pub(super) struct BackendFacts {
    pub(super) pid: i32,
    /// When it started, in microseconds since 1970. Process ids are reused.
    pub(super) started: i64,
    pub(super) boot: Boot,
    /// The server has said that the backend is gone: nothing that was sent to it can run any more.
    /// One kill serves all threads that had requests there.
    pub(super) ended: AtomicBool,
}

/// A request was sent on a connection that then failed. It can still run until its backend has
/// ended.
#[derive(Debug, Clone)]
pub(crate) struct UnknownOutcome {
    pub(super) backend: Arc<BackendFacts>,
    /// It is part of a hand-over, which frees the lock without notifying the waiters of other
    /// clients. If only that part has run, somebody still has to.
    pub(crate) untold: bool,
}

impl UnknownOutcome {
    /// Whether both were sent on one connection: then one kill resolves both.
    pub(crate) fn same_backend(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.backend, &other.backend)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.backend.ended.load(Ordering::Acquire)
    }

    pub(crate) fn note_end(&self) {
        self.backend.ended.store(true, Ordering::Release);
    }
}

#[derive(Debug, Clone)]
pub(crate) enum PostgresFailure {
    /// No byte of it has reached the server.
    NotSent(Error),
    /// The transaction that it was part of was rolled back, or its row was locked. It may succeed
    /// separately.
    NotTogether,
    /// It may have run, or may still run. `ended`: the other end has closed the connection, or it
    /// was silent after so long a pause that it may have been cut before. That says nothing about
    /// the server now, which can probably be asked again at once.
    Unknown { error: Error, unknown: UnknownOutcome, ended: bool },
}
