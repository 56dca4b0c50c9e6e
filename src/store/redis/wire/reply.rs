//! Replies of the Redis protocol (RESP2): read from a socket as they come, and judged by the shape
//! that the answer to their request must have. The `redis` crate's parser would not do, because two
//! questions need an exact answer: whether anything was read beyond the last reply (such a
//! connection must never be used again), and whether a reply is complete. A server sends RESP3 only
//! to clients that ask for it, so its types are an error here.

use std::io::{self, Read};

use super::server_error::{Redirect, ServerError, TOO_LATE};
use crate::base::error::{Error, ErrorKind, Result};

/// The size of one read.
const CHUNK: usize = 4096;
/// A buffer that a long reply has enlarged beyond this is not kept.
const LARGEST_KEPT: usize = 64 << 10;
/// The longest string that Redis sends.
const LONGEST_STRING: usize = 512 << 20;
/// The longest line that is not a string: a status, the text of an error.
const LONGEST_LINE: usize = 64 << 10;
const MOST_DIGITS: usize = 20;
const MOST_ELEMENTS: usize = 1 << 20;
/// No reply to leasehold's requests has lists nested deeper than two.
const DEEPEST: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Bytes(Vec<u8>),
    /// A list of two numbers, the answer to nearly all lock calls: read without an allocation, and
    /// never an `Array`.
    Pair(i64, i64),
    Array(Vec<Self>),
    Error(ServerError),
}

impl Reply {
    /// The elements, if it is a list.
    pub(crate) fn into_list(self) -> Option<Vec<Self>> {
        match self {
            Self::Pair(first, second) => Some(vec![Self::Int(first), Self::Int(second)]),
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The list of these elements.
    #[cfg(test)]
    pub(crate) fn list(elements: Vec<Self>) -> Self {
        match elements[..] {
            [Self::Int(first), Self::Int(second)] => Self::Pair(first, second),
            _ => Self::Array(elements),
        }
    }

    /// The first element of a list that begins with a number.
    pub(crate) fn status(&self) -> Option<i64> {
        match self {
            Self::Pair(status, _) => Some(*status),
            Self::Array(elements) => match elements.first() {
                Some(Self::Int(status)) => Some(*status),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn is_error(&self, code: &str) -> bool {
        matches!(self, Self::Error(e) if e.code == code)
    }

    /// The server, or a proxy before it, does not have the command of the request. Nothing ran.
    pub(crate) fn is_unknown_command(&self) -> bool {
        matches!(self, Self::Error(e) if e.is_unknown_command())
    }

    /// The redirect of a node of a cluster that does not serve the slot of a request.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        let Self::Error(e) = self else { return None };
        Redirect::of(e)
    }

    /// The connection has become less useful: the server is a replica now, or no longer knows its
    /// user, or has another time than the connection was made with. A new connection may reach the
    /// primary, logs in, and asks for the time.
    pub(crate) fn is_demotion(&self) -> bool {
        match self {
            Self::Error(e) => e.says("READONLY") || self.is_refused_here(),
            Self::Array(parts) => parts.iter().any(Self::is_demotion),
            _ => false,
        }
    }

    /// The server no longer knows the user of the connection (an identity that has expired). The
    /// request did not run.
    pub(crate) fn is_logged_out(&self) -> bool {
        self.is_error("NOAUTH")
    }

    /// Nothing ran, and on a connection that is made now it may run: this one is logged out, or was
    /// wrong about the server's clock.
    pub(crate) fn is_refused_here(&self) -> bool {
        self.is_logged_out() || self.is_error(TOO_LATE)
    }

    /// What is returned for a script that refused to run after its not-after time.
    #[cold]
    pub(super) fn too_late() -> Self {
        Self::Error(ServerError::from(TOO_LATE))
    }
}

/// Turns an error reply into its typed error.
pub(crate) fn fail_on_error(reply: Reply) -> Result<Reply> {
    match reply {
        Reply::Error(e) => Err(e.into_error()),
        other => Ok(other),
    }
}

/// The reply of `TIME` in microseconds since 1970.
pub(crate) fn server_time(reply: Reply) -> Result<u64> {
    let number = |r: &Reply| match r {
        Reply::Bytes(b) => std::str::from_utf8(b).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    match &reply {
        Reply::Array(parts) if parts.len() == 2 => number(&parts[0]).zip(number(&parts[1])),
        _ => None,
    }
    .and_then(|(seconds, micros)| seconds.checked_mul(1_000_000)?.checked_add(micros))
    // Scripts compute with it as a double.
    .filter(|micros| *micros < 1 << 53)
    .ok_or_else(|| Error::new(ErrorKind::Protocol, format!("TIME answered {reply:?}")))
}

/// The shape that a reply must have to be the answer to its request. Error replies fit every
/// request. A stray frame (of a proxy, or from a bug of the server) shifts all later replies by
/// one, and then a reply that says "granted" belongs to another lock. So a reply that does not fit
/// ends its connection before another reply is read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Checked by the caller, on a connection that no other thread uses.
    Any,
    Number,
    /// A string, or nil.
    Text,
    /// Two numbers.
    Pair,
    /// A list that is not empty.
    List,
    /// A list of `least` to `most` values, of which the first is a number from 0 to `top` and none
    /// is a list.
    Status {
        top: u8,
        least: u8,
        most: u16,
        /// The holder is fresh, so status 2 (it has lost the lock) can only be the reply to another
        /// request.
        fresh: bool,
    },
    /// A number or an error for each of this many holds.
    Each(u32),
    /// Like `Each`, or an empty list: the master has no vote.
    EachOrNone(u32),
}

impl Shape {
    /// The reply of most scripts: a status, and one value or two.
    pub(crate) const fn status(top: u8) -> Self {
        Self::Status { top, least: 2, most: 3, fresh: false }
    }

    pub(crate) fn fits(self, reply: &Reply) -> bool {
        let is_answer = |reply: &Reply| matches!(reply, Reply::Int(_) | Reply::Error(_));
        match (self, reply) {
            // An error that no server sends in reply to leasehold's requests may be a stray frame.
            (_, Reply::Error(e)) => e.is_known(),
            (Self::Any, _) => true,
            (Self::Number, reply) => matches!(reply, Reply::Int(_)),
            (Self::Text, reply) => matches!(reply, Reply::Bytes(_) | Reply::Nil),
            (Self::Pair, reply) => matches!(reply, Reply::Pair(..)),
            (Self::List, Reply::Pair(..)) => true,
            (Self::List, reply) => matches!(reply, Reply::Array(values) if !values.is_empty()),
            (Self::Status { top, least, most, fresh }, Reply::Pair(status, _)) => {
                least <= 2
                    && 2 <= most
                    && (0..=top.into()).contains(status)
                    && !(fresh && *status == 2)
            }
            (Self::Status { top, least, most, fresh }, Reply::Array(values)) => {
                (usize::from(least)..=usize::from(most)).contains(&values.len())
                    && matches!(values[..], [Reply::Int(status), ..]
                        if (0..=top.into()).contains(&status) && !(fresh && status == 2))
                    && !values.iter().any(|value| {
                        matches!(value, Reply::Pair(..) | Reply::Array(_) | Reply::Error(_))
                    })
            }
            (Self::Each(count) | Self::EachOrNone(count), Reply::Pair(..)) => count == 2,
            (Self::Each(count), Reply::Array(answers)) => {
                answers.len() == count as usize && answers.iter().all(is_answer)
            }
            (Self::EachOrNone(count), Reply::Array(answers)) => {
                (answers.len() == count as usize || answers.is_empty())
                    && answers.iter().all(is_answer)
            }
            _ => false,
        }
    }
}

/// Bytes that have been read but not parsed.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    /// Kept at its size, so that a read neither allocates nor clears memory.
    buffer: Vec<u8>,
    /// Where the next reply begins, and where the bytes that were read end.
    start: usize,
    end: usize,
}

/// The input is not the Redis protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

type Parsed<T> = std::result::Result<T, Malformed>;

impl ReplyReader {
    /// True if nothing was read beyond the last reply.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The bytes that have been read but not parsed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The next reply, if it is complete.
    pub(super) fn next(&mut self) -> Parsed<Option<Reply>> {
        let mut cursor = Cursor { bytes: &self.buffer[..self.end], at: self.start };
        let reply = cursor.reply(DEEPEST)?;
        if reply.is_some() {
            self.start = cursor.at;
            if self.is_empty() {
                self.start = 0;
                self.end = 0;
                if self.buffer.len() > LARGEST_KEPT {
                    self.buffer = Vec::new();
                }
            }
        }
        Ok(reply)
    }

    /// One read. What was read before an error is kept.
    pub(super) fn fill(&mut self, source: &mut impl Read) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        // Reads become larger for a long string, so that it takes few of them.
        let room = self.end + CHUNK.max(self.end);
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        match source.read(&mut self.buffer[self.end..room])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.end += read;
                Ok(())
            }
        }
    }
}

struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    fn reply(&mut self, depth: usize) -> Parsed<Option<Reply>> {
        // The first byte is checked at once, because a line end may never come.
        let Some(kind) = self.bytes.get(self.at) else { return Ok(None) };
        self.at += 1;
        if matches!(kind, b'+' | b'-') {
            let Some(text) = self.line()? else { return Ok(None) };
            return Ok(Some(match kind {
                b'+' => Reply::Bytes(text.to_vec()),
                _ => Reply::Error(ServerError::from(&*String::from_utf8_lossy(text))),
            }));
        }
        if !matches!(kind, b':' | b'$' | b'*') {
            return Err(Malformed);
        }
        let Some(number) = self.number()? else { return Ok(None) };
        match (kind, number) {
            (b':', number) => Ok(Some(Reply::Int(number))),
            // A null string or list.
            (_, -1) => Ok(Some(Reply::Nil)),
            (b'$', length) => self.string(limited(length, LONGEST_STRING)?),
            _ if depth == 0 => Err(Malformed),
            (_, 2) => {
                let Some(first) = self.reply(depth - 1)? else { return Ok(None) };
                let Some(second) = self.reply(depth - 1)? else { return Ok(None) };
                Ok(Some(match (first, second) {
                    (Reply::Int(first), Reply::Int(second)) => Reply::Pair(first, second),
                    (first, second) => Reply::Array(vec![first, second]),
                }))
            }
            (_, count) => {
                let mut elements = Vec::new();
                for _ in 0..limited(count, MOST_ELEMENTS)? {
                    let Some(element) = self.reply(depth - 1)? else { return Ok(None) };
                    elements.push(element);
                }
                Ok(Some(Reply::Array(elements)))
            }
        }
    }

    /// The number up to the next line end.
    fn number(&mut self) -> Parsed<Option<i64>> {
        let mut at = self.at;
        let negative = self.bytes.get(at) == Some(&b'-');
        at += usize::from(negative || self.bytes.get(at) == Some(&b'+'));
        let first = at;
        let mut number = 0_i64;
        while let Some(byte @ b'0'..=b'9') = self.bytes.get(at) {
            let digit = i64::from(byte - b'0');
            let Some(tens) = number.checked_mul(10) else { return Err(Malformed) };
            let signed = if negative { -digit } else { digit };
            let Some(sum) = tens.checked_add(signed) else { return Err(Malformed) };
            number = sum;
            at += 1;
        }
        match self.bytes[at..] {
            _ if at - first > MOST_DIGITS => Err(Malformed),
            [] => Ok(None),
            [b'\r'] if at > first => Ok(None),
            [b'\r', b'\n', ..] if at > first => {
                self.at = at + 2;
                Ok(Some(number))
            }
            _ => Err(Malformed),
        }
    }

    /// Up to the next line end, which is not included.
    fn line(&mut self) -> Parsed<Option<&'b [u8]>> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
            return if rest.len() < LONGEST_LINE { Ok(None) } else { Err(Malformed) };
        };
        let line = rest[..end].strip_suffix(b"\r").ok_or(Malformed)?;
        self.at += end + 1;
        Ok(Some(line))
    }

    fn string(&mut self, length: usize) -> Parsed<Option<Reply>> {
        let rest = &self.bytes[self.at..];
        if rest.len() < length + 2 {
            return Ok(None);
        }
        if &rest[length..length + 2] != b"\r\n" {
            return Err(Malformed);
        }
        self.at += length + 2;
        Ok(Some(Reply::Bytes(rest[..length].to_vec())))
    }
}

fn limited(length: i64, most: usize) -> Parsed<usize> {
    usize::try_from(length).ok().filter(|length| *length <= most).ok_or(Malformed)
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
