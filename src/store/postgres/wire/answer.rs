//! What came back of a request.

use super::request::Row;
use super::server_error::ServerError;
use super::unknown_outcome::Failure;
use crate::base::lease::Moment;

/// An answer, and the instant before the first byte of its request went out.
#[derive(Debug)]
pub(in crate::store::postgres) struct Answer {
    /// An error: the transaction was rolled back.
    pub(in crate::store::postgres) rows: std::result::Result<Vec<Row>, ServerError>,
    pub(in crate::store::postgres) sent_at: Moment,
}

pub(in crate::store::postgres) type Outcome = std::result::Result<Answer, Failure>;
