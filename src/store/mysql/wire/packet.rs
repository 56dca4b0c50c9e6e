//! MySQL's packets, and the answers in them.

use super::fields::{Fields, Parsed};
use super::server_error::ServerError;
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::store::database::{self, Malformed, Protocol};
use crate::store::net::{Address, ENDED};

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

pub(super) type Transport = database::Transport<PacketReader>;

/// Bytes that have been read but not parsed.
#[derive(Default)]
pub(crate) struct PacketReader {
    bytes: Vec<u8>,
    /// How many of them were parsed.
    parsed: usize,
    /// The number of the next packet, whoever sends it.
    number: u8,
}

impl PacketReader {
    /// The bytes of a packet that is sent. `begins`: it is the first of a request.
    pub(super) fn pack(&mut self, begins: bool, parts: &[&[u8]]) -> Result<Vec<u8>> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length >= LONGEST {
            return Err(invalid("the request is too long"));
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
}

impl Protocol for PacketReader {
    type Message = Vec<u8>;
    const OWNER: &'static str = "MySQL";
    const WITHOUT_TLS: &'static str = "one with ssl-mode=disabled";
    const GOODBYE: &'static [u8] = &[1, 0, 0, 0, 1];

    fn is_empty(&self) -> bool {
        self.parsed == self.bytes.len()
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    fn next(&mut self) -> Parsed<Option<Vec<u8>>> {
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
        // The server numbers what it sends before a log-in, or when it ends a connection, by
        // itself.
        if number != self.number && packet.first() != Some(&0xff) {
            return Err(Malformed);
        }
        self.number = number.wrapping_add(1);
        Ok(Some(packet))
    }

    fn unasked(packet: &Vec<u8>) -> Parsed<Result<()>> {
        match packet.first() {
            Some(0xff) => Ok(Err(ended(&ServerError::read(packet)?))),
            _ => Err(Malformed),
        }
    }
}

/// The server closes the connection, and has sent the reason.
#[cold]
pub(super) fn ended(error: &ServerError) -> Error {
    Error::new(ErrorKind::Unreachable, ENDED).caused_by(error.to_error())
}

#[cold]
pub(super) fn malformed(address: &Address) -> Error {
    PacketReader::malformed(address)
}
