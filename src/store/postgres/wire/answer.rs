//! What came back of a request.

use super::request::Row;
use super::server_error::ServerError;
use super::unknown_outcome::PostgresFailure;
use crate::base::lease::Moment;

/// An answer, and the instant before the first byte of its request went out.
#[derive(Debug)]
pub(crate) struct Answer {
    /// An error: the transaction was rolled back.
    pub(crate) rows: std::result::Result<Vec<Row>, ServerError>,
    pub(crate) sent_at: Moment,
}

pub(crate) type Outcome = std::result::Result<Answer, PostgresFailure>;
