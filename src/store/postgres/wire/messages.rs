//! PostgreSQL's messages.

use std::io;

use bytes::BytesMut;
use postgres_protocol::message::backend::{Header, Message};

use super::server_error::ServerError;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::database::{self, Malformed, Protocol};
use crate::store::net::{Address, ENDED};

/// No answer to a request of this crate is longer, and no error message either.
const LONGEST_MESSAGE: usize = 16 << 20;

pub(super) type Transport = database::Transport<MessageReader>;

/// Bytes that have been read but not parsed.
#[derive(Default)]
pub(super) struct MessageReader {
    bytes: BytesMut,
}

impl Protocol for MessageReader {
    type Message = Message;
    const OWNER: &'static str = "PostgreSQL";
    const WITHOUT_TLS: &'static str = "one with sslmode=disable";
    const GOODBYE: &'static [u8] = &[b'X', 0, 0, 0, 4];

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn next(&mut self) -> std::result::Result<Option<Message>, Malformed> {
        // Checked before the parser reserves that much memory.
        match Header::parse(&self.bytes) {
            Ok(None) => return Ok(None),
            Ok(Some(header))
                if usize::try_from(header.len()).is_ok_and(|length| length <= LONGEST_MESSAGE) => {}
            _ => return Err(Malformed),
        }
        Message::parse(&mut self.bytes).map_err(|_| Malformed)
    }

    /// Notices and changed settings may come at any time.
    fn unasked(message: &Message) -> std::result::Result<Result<()>, Malformed> {
        match message {
            Message::NoticeResponse(_) | Message::ParameterStatus(_) => Ok(Ok(())),
            Message::ErrorResponse(body) => {
                let last_words = ServerError::read(body).map_err(|_| Malformed)?;
                Ok(Err(ended(&last_words)))
            }
            _ => Err(Malformed),
        }
    }
}

/// The server closes the connection, and has sent the reason.
#[cold]
pub(super) fn ended(error: &ServerError) -> Error {
    match error.to_error() {
        said if said.kind() == ErrorKind::Unreachable => said,
        said => Error::new(ErrorKind::Unreachable, ENDED).caused_by(said),
    }
}

#[cold]
pub(super) fn malformed(address: &Address) -> Error {
    MessageReader::malformed(address)
}

#[cold]
pub(super) fn to_error(e: io::Error, address: &Address) -> Error {
    MessageReader::to_error(e, address)
}
