//! Messages over one socket, as a database and its client exchange them.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use crate::base::error::{Error, ErrorKind, Result};
use crate::store::net::{self, Address, ENDED, Stream, is_timeout};

/// The size of one read.
const CHUNK: usize = 4096;

/// The input is not the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// How messages are read from bytes: those that have been read and not parsed.
pub(crate) trait Protocol: Default {
    type Message;
    /// Whose protocol it is, for messages.
    const OWNER: &'static str;
    /// The URL of a server without TLS, for messages.
    const WITHOUT_TLS: &'static str;
    /// The message with which a client ends a connection.
    const GOODBYE: &'static [u8];

    fn is_empty(&self) -> bool;

    fn push(&mut self, bytes: &[u8]);

    /// The next message, if it is complete.
    fn next(&mut self) -> std::result::Result<Option<Self::Message>, Malformed>;

    /// What a message means that came although nothing was asked: nothing, or the end of the
    /// connection.
    fn unasked(message: &Self::Message) -> std::result::Result<Result<()>, Malformed>;

    /// One read. What was read before an error is kept.
    fn fill(&mut self, source: &mut impl Read) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        match source.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                self.push(&chunk[..length]);
                Ok(())
            }
        }
    }

    #[cold]
    fn malformed(address: &Address) -> Error {
        let why = format!("{address:?} does not speak {}'s protocol", Self::OWNER);
        Error::new(ErrorKind::Protocol, why)
    }

    #[cold]
    fn to_error(e: io::Error, address: &Address) -> Error {
        net::to_error(e, address, Self::WITHOUT_TLS, ENDED)
    }
}

/// A socket with the messages that were read from it. After any error it must not be used again.
pub(crate) struct Transport<P> {
    pub(crate) stream: Stream,
    pub(crate) address: Address,
    pub(crate) reader: P,
    pub(crate) io_timeout: Duration,
    /// During the handshake: its deadline.
    pub(crate) handshake: Option<Instant>,
}

impl<P: Protocol> Transport<P> {
    pub(crate) fn new(
        stream: Stream,
        address: Address,
        io_timeout: Duration,
        handshake: Instant,
    ) -> Self {
        let handshake = Some(handshake);
        Self { stream, address, reader: P::default(), io_timeout, handshake }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let written = match self.handshake {
            Some(deadline) => self.stream.within(deadline).write_all(bytes),
            None => self.stream.write_all(bytes),
        };
        written.map_err(|e| P::to_error(e, &self.address))
    }

    /// The deadline of an answer for which a wait begins now.
    pub(crate) fn deadline(&self) -> Instant {
        self.handshake.unwrap_or_else(|| Instant::now() + self.io_timeout)
    }

    fn next(&mut self) -> Result<Option<P::Message>> {
        self.reader.next().map_err(|_| P::malformed(&self.address))
    }

    /// The next message of an answer. After the deadline only what has arrived is read: a process
    /// that was stopped meanwhile finds the deadline passed, but still reads the answer.
    pub(crate) fn recv(&mut self, deadline: Instant) -> Result<P::Message> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(message);
            }
            let filled = match self.handshake {
                Some(deadline) => self.reader.fill(&mut self.stream.within(deadline)),
                None => self.reader.fill(&mut self.stream.until(deadline)),
            };
            filled.map_err(|e| P::to_error(e, &self.address))?;
        }
    }

    /// A message that has already arrived, without waiting.
    pub(crate) fn recv_now(&mut self) -> Result<Option<P::Message>> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(Some(message));
            }
            match self.reader.fill(&mut self.stream.now()) {
                Err(e) if is_timeout(&e) => return Ok(None),
                filled => filled.map_err(|e| P::to_error(e, &self.address))?,
            }
        }
    }

    /// Reads what has arrived although nothing was asked. Called before each request: an answer
    /// that came twice, in full or in part, would be taken for that of the next request, for
    /// example a "granted" for a lock that another client holds. It has often been read already,
    /// together with the answer, so the socket alone does not show it.
    ///
    /// # Errors
    /// The connection has ended, or something came that nobody asked for.
    pub(crate) fn ensure_quiet(&mut self) -> Result<()> {
        if self.reader.is_empty() && !self.stream.has_input() {
            return Ok(());
        }
        loop {
            match self.recv_now()? {
                None if self.reader.is_empty() => return Ok(()),
                // Half a message, whose rest would come before the next answer.
                None => return Err(P::malformed(&self.address)),
                Some(message) => {
                    P::unasked(&message).map_err(|Malformed| P::malformed(&self.address))??;
                }
            }
        }
    }

    /// From now on every read and write has the I/O timeout.
    pub(crate) fn handshake_done(&mut self) -> Result<()> {
        self.handshake = None;
        let timeout = self.io_timeout;
        self.stream.set_timeouts(timeout, timeout).map_err(|e| P::to_error(e, &self.address))
    }
}
