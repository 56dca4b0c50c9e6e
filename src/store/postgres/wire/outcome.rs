//! The outcome of a request; if its connection failed before the reply, whether the request can
//! have run, or can still run.

use super::request::Row;
use super::server_error::ServerError;
use crate::base::lease::Moment;
use crate::store::database;

/// An answer, and the instant before the first byte of its request was sent.
#[derive(Debug)]
pub(crate) struct Answer {
    /// With an error, the transaction was rolled back.
    pub(crate) rows: std::result::Result<Vec<Row>, ServerError>,
    pub(crate) sent_at: Moment,
    /// Nothing was done, because another request of its transaction has failed, or its row was
    /// locked. It may succeed separately.
    pub(crate) not_together: bool,
}

impl Answer {
    pub(super) fn new(rows: std::result::Result<Vec<Row>, ServerError>, sent_at: Moment) -> Self {
        Self { rows, sent_at, not_together: false }
    }

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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backend {
    pub(crate) pid: i32,
    /// When it started, in microseconds since 1970. Process ids are reused.
    pub(crate) started: i64,
    pub(super) boot: Boot,
}

pub(crate) type UnknownOutcome = database::UnknownOutcome<Backend>;
pub(crate) type PostgresFailure = database::Failure<Backend>;
