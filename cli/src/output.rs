//! Writes to stdout: text for people, or JSON for programs.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use serde::Serialize;

use crate::failure::{Failure, status};

/// Writes to stdout. Returns [`Reader::Left`] if the reader has closed the pipe, as `head` does.
pub(crate) fn write_out(text: &[u8]) -> Result<Reader, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Reader::Stays),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(Reader::Left),
        Err(e) => Err(Failure::new(status::UNAVAILABLE, format!("cannot write to stdout: {e}"))),
    }
}

/// One JSON value in one line, as `leasehold schema` describes it.
pub(crate) fn write_json(value: &impl Serialize) -> Result<Reader, Failure> {
    let json = serde_json::to_string(value);
    let line =
        json.map_err(|e| Failure::new(status::UNAVAILABLE, format!("cannot write the JSON: {e}")))?;
    write_out((line + "\n").as_bytes())
}

/// Times in JSON are whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whether somebody still reads stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Reader {
    Stays,
    Left,
}
