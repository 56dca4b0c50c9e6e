//! One question, whose refusal is an error.

use crate::base::error::Result;
use crate::store::postgres::wire::{BareConnection, Row, ServerError};

pub(super) fn rows(connection: &mut BareConnection, sql: &str) -> Result<Vec<Row>> {
    connection.ask(sql)?.map_err(|refused: ServerError| refused.to_error())
}
