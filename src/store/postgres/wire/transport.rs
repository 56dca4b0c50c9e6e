//! Bytes and messages over one socket.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::message::backend::{Header, Message};

use super::server_error::ServerError;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::net::{Address, Stream, is_timeout, no_answer};
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsFailure;

/// The message of an [`ErrorKind::Unreachable`] when the other end closed the connection.
pub(super) const ENDED: &str = "the connection to the server ended";

/// The message with which a client ends a connection.
pub(super) const TERMINATE: [u8; 5] = [b'X', 0, 0, 0, 4];

/// The size of one read.
const CHUNK: usize = 4096;
/// No answer to a request of this crate is longer, and no error message either.
const LONGEST_MESSAGE: usize = 16 << 20;

/// A socket with the messages that were read from it. After any error it must not be used again.
pub(super) struct Transport {
    pub(super) stream: Stream,
    pub(super) address: Address,
    reader: MessageReader,
    pub(super) io_timeout: Duration,
    /// During the handshake: its deadline.
    pub(super) handshake: Option<Instant>,
}

/// Bytes that have been read but not parsed.
#[derive(Default)]
pub(super) struct MessageReader {
    bytes: BytesMut,
}

/// The input is not PostgreSQL's protocol.
pub(super) struct Malformed;

impl MessageReader {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next message, if it is complete.
    pub(super) fn next(&mut self) -> std::result::Result<Option<Message>, Malformed> {
        // Checked before the parser reserves that much memory.
        match Header::parse(&self.bytes) {
            Ok(None) => return Ok(None),
            Ok(Some(header))
                if usize::try_from(header.len()).is_ok_and(|length| length <= LONGEST_MESSAGE) => {}
            _ => return Err(Malformed),
        }
        Message::parse(&mut self.bytes).map_err(|_| Malformed)
    }

    /// One read. What was read before an error is kept.
    pub(super) fn fill(&mut self, source: &mut impl Read) -> io::Result<()> {
        let length = self.bytes.len();
        self.bytes.resize(length + CHUNK, 0);
        let read = source.read(&mut self.bytes[length..]);
        self.bytes.truncate(length + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other.map(|_| ()),
        }
    }
}

impl Transport {
    pub(super) fn new(
        stream: Stream,
        address: Address,
        io_timeout: Duration,
        handshake: Instant,
    ) -> Self {
        Self {
            stream,
            address,
            reader: MessageReader::default(),
            io_timeout,
            handshake: Some(handshake),
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let written = match self.handshake {
            Some(deadline) => self.stream.within(deadline).write_all(bytes),
            None => self.stream.write_all(bytes),
        };
        written.map_err(|e| to_error(e, &self.address))
    }

    /// The deadline of an answer for which a wait begins now.
    pub(super) fn deadline(&self) -> Instant {
        self.handshake.unwrap_or_else(|| Instant::now() + self.io_timeout)
    }

    /// The next message of an answer. After the deadline only what has arrived is read: a process
    /// that was stopped meanwhile finds the deadline passed, but still reads the answer.
    pub(super) fn recv(&mut self, deadline: Instant) -> Result<Message> {
        loop {
            if let Some(message) = self.reader.next().map_err(|_| malformed(&self.address))? {
                return Ok(message);
            }
            let filled = match self.handshake {
                Some(deadline) => self.reader.fill(&mut self.stream.within(deadline)),
                // A server that keeps sending must not delay the caller for ever.
                None if Instant::now() >= deadline && !self.stream.has_input() => {
                    Err(io::ErrorKind::TimedOut.into())
                }
                None => self.reader.fill(&mut self.stream.until(deadline)),
            };
            filled.map_err(|e| to_error(e, &self.address))?;
        }
    }

    /// A message that has already arrived, without waiting.
    pub(super) fn recv_now(&mut self) -> Result<Option<Message>> {
        loop {
            if let Some(message) = self.reader.next().map_err(|_| malformed(&self.address))? {
                return Ok(Some(message));
            }
            match self.reader.fill(&mut self.stream.now()) {
                Err(e) if is_timeout(&e) => return Ok(None),
                filled => filled.map_err(|e| to_error(e, &self.address))?,
            }
        }
    }

    /// Reads what has arrived although nothing was asked: notices and changed settings may come at
    /// any time. Called before each request: an answer that came twice, in full or in part, would
    /// be taken for that of the next request, for example a "granted" for a lock that another
    /// client holds. It has often been read already, together with the answer, so the socket alone
    /// does not show it.
    ///
    /// # Errors
    /// The connection has ended, or something came that nobody asked for.
    pub(super) fn ensure_quiet(&mut self) -> Result<()> {
        if self.reader.is_empty() && !self.stream.has_input() {
            return Ok(());
        }
        loop {
            match self.recv_now()? {
                None if self.reader.is_empty() => return Ok(()),
                Some(Message::NoticeResponse(_) | Message::ParameterStatus(_)) => {}
                Some(Message::ErrorResponse(body)) => {
                    let last_words =
                        ServerError::read(&body).map_err(|_| malformed(&self.address))?;
                    return Err(ended(&last_words));
                }
                // Also half a message, whose rest would come before the next answer.
                None | Some(_) => return Err(malformed(&self.address)),
            }
        }
    }

    /// From now on every read and write has the I/O timeout.
    pub(super) fn handshake_done(&mut self) -> Result<()> {
        self.handshake = None;
        let timeout = self.io_timeout;
        self.stream.set_timeouts(timeout, timeout).map_err(|e| to_error(e, &self.address))
    }

    /// The socket, and the bytes that were read ahead.
    pub(super) fn into_parts(self) -> (Stream, Address, MessageReader) {
        (self.stream, self.address, self.reader)
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
    Error::new(ErrorKind::Protocol, format!("{address:?} does not speak PostgreSQL's protocol"))
}

#[cold]
pub(super) fn to_error(e: io::Error, address: &Address) -> Error {
    use io::ErrorKind as Io;
    #[cfg(feature = "tls-core")]
    if let Some(failure) = TlsFailure::in_error(&e) {
        return Error::new(
            failure.kind,
            format!("{address:?} {}", failure.says("one with sslmode=disable")),
        )
        .caused_by(e);
    }
    if let Some(why) = no_answer(&e) {
        return Error::new(ErrorKind::Unreachable, format!("{address:?} {why}"));
    }
    let message = match e.kind() {
        Io::ConnectionRefused | Io::NotFound => format!("no server listens at {address:?}"),
        Io::UnexpectedEof | Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe => {
            ENDED.to_owned()
        }
        _ => format!("{address:?} cannot be reached: {e}"),
    };
    Error::new(ErrorKind::Unreachable, message).caused_by(e)
}
