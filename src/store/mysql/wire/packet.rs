//! Packets over one socket, and the answers in them.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use super::fields::{Fields, Malformed, Parsed};
use super::server_error::ServerError;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::net::{Address, Stream, is_timeout, no_answer};
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsFailure;

/// The message of an [`ErrorKind::Unreachable`] when the other end closed the connection.
pub(super) const ENDED: &str = "the connection to the server ended";

/// The size of one read.
const CHUNK: usize = 4096;
/// The length of a packet that says that more of it follows. No request and no answer is as long.
const LONGEST: usize = 0xff_ffff;
/// Another result follows in the answer.
const MORE_RESULTS: u16 = 8;

/// One row of an answer: the text of each column, `None` for null.
pub(crate) type Row = Vec<Option<String>>;

/// What one statement has answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// The rows that an UPDATE has found, whether it changed them or not.
    pub(crate) affected: u64,
    /// What the statement gave to `LAST_INSERT_ID`.
    pub(crate) id: u64,
    pub(crate) rows: Vec<Row>,
}

/// Where a parser is in the answer to one request.
#[derive(Default)]
pub(super) struct AnswerReader {
    sets: Vec<Set>,
    at: Part,
    columns: u64,
}

#[derive(Default, Clone, Copy)]
enum Part {
    #[default]
    Start,
    /// So many definitions of columns follow, and then their end.
    Columns(u64),
    Rows,
}

/// All that a request has answered, or why one of its statements was refused: the ones behind it
/// did not run.
pub(super) type Sets = std::result::Result<Vec<Set>, ServerError>;

impl AnswerReader {
    /// Takes the next packet in. The answer, if it was the last one.
    pub(super) fn take(&mut self, packet: &[u8]) -> Parsed<Option<Sets>> {
        let first = *packet.first().ok_or(Malformed)?;
        if first == 0xff {
            return Ok(Some(Err(ServerError::read(packet)?)));
        }
        let is_end = first == 0xfe && packet.len() < 9;
        match self.at {
            Part::Start if first == 0 => {
                let mut fields = Fields(&packet[1..]);
                let set =
                    Set { affected: fields.packed()?, id: fields.packed()?, rows: Vec::new() };
                self.sets.push(set);
                let status = fields.integer(2)?;
                return Ok(self.end(status));
            }
            Part::Start => {
                let mut fields = Fields(packet);
                self.columns = fields.packed()?;
                if self.columns == 0 || !fields.0.is_empty() {
                    return Err(Malformed);
                }
                self.sets.push(Set::default());
                self.at = Part::Columns(self.columns);
            }
            Part::Columns(0) if is_end => self.at = Part::Rows,
            Part::Columns(left) => {
                self.at = Part::Columns(left.checked_sub(1).ok_or(Malformed)?);
            }
            Part::Rows if is_end => {
                let status = Fields(&packet[1..]).take(4).map(|all| Fields(&all[2..]).integer(2));
                return Ok(self.end(status??));
            }
            Part::Rows => {
                let mut fields = Fields(packet);
                let row: Parsed<Row> = (0..self.columns).map(|_| fields.column()).collect();
                let set = self.sets.last_mut().ok_or(Malformed)?;
                set.rows.push(row?);
                if !fields.0.is_empty() {
                    return Err(Malformed);
                }
            }
        }
        Ok(None)
    }

    /// The end of one statement's part.
    fn end(&mut self, status: u64) -> Option<Sets> {
        self.at = Part::Start;
        let is_last = status & u64::from(MORE_RESULTS) == 0;
        is_last.then(|| Ok(std::mem::take(&mut self.sets)))
    }
}

/// Bytes that have been read but not parsed.
#[derive(Default)]
pub(super) struct PacketReader {
    bytes: Vec<u8>,
    /// How many of them were parsed.
    parsed: usize,
}

impl PacketReader {
    fn is_empty(&self) -> bool {
        self.parsed == self.bytes.len()
    }

    /// The next packet with its number, if it is complete.
    pub(super) fn next(&mut self) -> Parsed<Option<(u8, Vec<u8>)>> {
        let mut fields = Fields(&self.bytes[self.parsed..]);
        let (Ok(length), Ok(number)) = (fields.integer(3), fields.byte()) else { return Ok(None) };
        let length = length as usize;
        if length == LONGEST {
            return Err(Malformed);
        }
        let Ok(packet) = fields.take(length) else { return Ok(None) };
        let packet = packet.to_vec();
        self.parsed += 4 + length;
        if self.is_empty() {
            self.bytes.clear();
            self.parsed = 0;
        }
        Ok(Some((number, packet)))
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

/// A socket with the packets that were read from it. After any error it must not be used again.
pub(super) struct Transport {
    pub(super) stream: Stream,
    pub(super) address: Address,
    reader: PacketReader,
    /// The number of the next packet, whoever sends it.
    number: u8,
    pub(super) io_timeout: Duration,
    /// During the handshake: its deadline.
    pub(super) handshake: Option<Instant>,
}

impl Transport {
    pub(super) fn new(
        stream: Stream,
        address: Address,
        io_timeout: Duration,
        deadline: Instant,
    ) -> Self {
        let handshake = Some(deadline);
        let reader = PacketReader::default();
        Self { stream, address, reader, number: 0, io_timeout, handshake }
    }

    /// The bytes of a packet. `begins`: it is the first of a request.
    pub(super) fn pack(&mut self, begins: bool, parts: &[&[u8]]) -> Result<Vec<u8>> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length >= LONGEST {
            return Err(Error::new(ErrorKind::InvalidInput, "the request is too long"));
        }
        self.number = if begins { 0 } else { self.number };
        let mut packet = Vec::with_capacity(4 + length);
        packet.extend(&(length as u32).to_le_bytes()[..3]);
        packet.push(self.number);
        self.number = self.number.wrapping_add(1);
        for part in parts {
            packet.extend(*part);
        }
        Ok(packet)
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

    /// The next packet of an answer. After the deadline only what has arrived is read: a process
    /// that was stopped meanwhile finds the deadline passed, but still reads the answer.
    pub(super) fn recv(&mut self, deadline: Instant) -> Result<Vec<u8>> {
        loop {
            if let Some((number, packet)) =
                self.reader.next().map_err(|_| malformed(&self.address))?
            {
                // The server numbers what it sends before a log-in, or when it ends a connection,
                // by itself.
                if number != self.number && packet.first() != Some(&0xff) {
                    return Err(malformed(&self.address));
                }
                self.number = number.wrapping_add(1);
                return Ok(packet);
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

    /// Called before each request: an answer that came twice, in full or in part, would be taken
    /// for that of the next request, for example a "granted" for a lock that another client holds.
    ///
    /// # Errors
    /// The connection has ended, or something came that nobody asked for.
    pub(super) fn ensure_quiet(&mut self) -> Result<()> {
        if self.reader.is_empty() && !self.stream.has_input() {
            return Ok(());
        }
        loop {
            match self.reader.next().map_err(|_| malformed(&self.address))? {
                Some((_, packet)) if packet.first() == Some(&0xff) => {
                    return Err(match ServerError::read(&packet) {
                        Ok(last_words) => ended(&last_words),
                        Err(Malformed) => malformed(&self.address),
                    });
                }
                Some(_) => return Err(malformed(&self.address)),
                None => match self.reader.fill(&mut self.stream.now()) {
                    Err(e) if is_timeout(&e) && self.reader.is_empty() => return Ok(()),
                    // Half a packet, whose rest would come before the next answer.
                    Err(e) if is_timeout(&e) => return Err(malformed(&self.address)),
                    filled => filled.map_err(|e| to_error(e, &self.address))?,
                },
            }
        }
    }

    /// The socket begins TLS. Bytes that came unencrypted must not be read as a part of what is.
    #[cfg(feature = "tls-core")]
    pub(super) fn secured(self, secure: impl FnOnce(Stream) -> io::Result<Stream>) -> Result<Self> {
        if !self.reader.is_empty() {
            return Err(malformed(&self.address));
        }
        let stream = secure(self.stream).map_err(|e| to_error(e, &self.address))?;
        Ok(Self { stream, ..self })
    }

    /// From now on every read and write has the I/O timeout.
    pub(super) fn handshake_done(&mut self) -> Result<()> {
        self.handshake = None;
        let timeout = self.io_timeout;
        self.stream.set_timeouts(timeout, timeout).map_err(|e| to_error(e, &self.address))
    }
}

/// The server closes the connection, and has sent the reason.
#[cold]
pub(super) fn ended(error: &ServerError) -> Error {
    Error::new(ErrorKind::Unreachable, ENDED).caused_by(error.to_error())
}

#[cold]
pub(super) fn malformed(address: &Address) -> Error {
    Error::new(ErrorKind::Protocol, format!("{address:?} does not speak MySQL's protocol"))
}

#[cold]
pub(super) fn to_error(e: io::Error, address: &Address) -> Error {
    use io::ErrorKind as Io;
    #[cfg(feature = "tls-core")]
    if let Some(failure) = TlsFailure::in_error(&e) {
        return Error::new(
            failure.kind,
            format!("{address:?} {}", failure.says("one with ssl-mode=disabled")),
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
