//! Replies of the Redis protocol (RESP2), read from a socket as they come. The `redis` crate's
//! parser would not do, because two questions need an exact answer: whether anything was read
//! beyond the last reply (such a connection must never be used again), and whether a reply is
//! complete. A server sends RESP3 only to clients that ask for it, so its types are an error here.

use std::io::{self, Read};

use super::reply::{Reply, ServerError};

/// The size of one read.
const CHUNK: usize = 4096;
/// A buffer that a long reply has enlarged beyond this is not kept.
const LARGEST_KEPT: usize = 64 << 10;
/// The longest string that Redis sends.
const LONGEST_STRING: usize = 512 << 20;
/// The longest line that is not a string: a number, a status, the text of an error.
const LONGEST_LINE: usize = 64 << 10;
const MOST_ELEMENTS: usize = 1 << 20;
/// No reply to leasehold's requests has lists nested deeper than two.
const DEEPEST: usize = 4;

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
    pub(super) fn next(&mut self) -> Result<Option<Reply>, Malformed> {
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
    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, Malformed> {
        let Some(line) = self.line()? else { return Ok(None) };
        let Some((&kind, rest)) = line.split_first() else { return Err(Malformed) };
        Ok(Some(match kind {
            b':' => Reply::Int(number(rest)?),
            b'+' => Reply::Bytes(rest.to_vec()),
            b'-' => Reply::Error(ServerError::from(&*String::from_utf8_lossy(rest))),
            b'$' => match length(rest, LONGEST_STRING)? {
                None => Reply::Nil,
                Some(length) => match self.string(length)? {
                    Some(bytes) => Reply::Bytes(bytes.to_vec()),
                    None => return Ok(None),
                },
            },
            b'*' => match length(rest, MOST_ELEMENTS)? {
                None => Reply::Nil,
                Some(_) if depth == 0 => return Err(Malformed),
                Some(2) => {
                    let Some(first) = self.reply(depth - 1)? else { return Ok(None) };
                    let Some(second) = self.reply(depth - 1)? else { return Ok(None) };
                    match (first, second) {
                        (Reply::Int(first), Reply::Int(second)) => Reply::Pair(first, second),
                        (first, second) => Reply::Array(vec![first, second]),
                    }
                }
                Some(count) => {
                    let mut elements = Vec::new();
                    for _ in 0..count {
                        match self.reply(depth - 1)? {
                            Some(element) => elements.push(element),
                            None => return Ok(None),
                        }
                    }
                    Reply::Array(elements)
                }
            },
            _ => return Err(Malformed),
        }))
    }

    /// Up to the next line end, which is not included.
    fn line(&mut self) -> Result<Option<&'b [u8]>, Malformed> {
        let rest = &self.bytes[self.at..];
        // The first byte is checked at once, because a line end may never come.
        if rest.first().is_some_and(|kind| !b":+-$*".contains(kind)) {
            return Err(Malformed);
        }
        let Some(end) = rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
            return if rest.len() < LONGEST_LINE { Ok(None) } else { Err(Malformed) };
        };
        let line = rest[..end].strip_suffix(b"\r").ok_or(Malformed)?;
        self.at += end + 1;
        Ok(Some(line))
    }

    fn string(&mut self, length: usize) -> Result<Option<&'b [u8]>, Malformed> {
        let rest = &self.bytes[self.at..];
        if rest.len() < length + 2 {
            return Ok(None);
        }
        if &rest[length..length + 2] != b"\r\n" {
            return Err(Malformed);
        }
        self.at += length + 2;
        Ok(Some(&rest[..length]))
    }
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    let (digits, sign) = match text {
        [b'-', digits @ ..] => (digits, -1),
        [b'+', digits @ ..] => (digits, 1),
        digits => (digits, 1),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    digits
        .iter()
        .try_fold(0_i64, |number, digit| {
            number.checked_mul(10)?.checked_add(sign * i64::from(digit - b'0'))
        })
        .ok_or(Malformed)
}

/// `None` for -1, which means a null string or list.
fn length(digits: &[u8], most: usize) -> Result<Option<usize>, Malformed> {
    match number(digits)? {
        -1 => Ok(None),
        length => {
            usize::try_from(length).ok().filter(|length| *length <= most).map(Some).ok_or(Malformed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> Result<Vec<Reply>, Malformed> {
        let mut reader = ReplyReader { buffer: bytes.to_vec(), start: 0, end: bytes.len() };
        std::iter::from_fn(|| reader.next().transpose()).collect()
    }

    #[test]
    fn every_type_of_resp2_is_read() {
        let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let replies = read_all(
            b":-7\r\n+OK\r\n$-1\r\n*-1\r\n$0\r\n\r\n$4\r\na\r\nb\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
        )
        .unwrap();
        let list = Reply::Array(vec![Reply::Int(1), Reply::Array(vec![text("x")])]);
        assert_eq!(
            replies,
            [Reply::Int(-7), text("OK"), Reply::Nil, Reply::Nil, text(""), text("a\r\nb"), list]
        );
        assert_eq!(read_all(b"*2\r\n:1\r\n:-9\r\n").unwrap(), [Reply::Pair(1, -9)]);
        for n in [i64::MIN, -1, 0, 1_763_700_000_000_001, i64::MAX] {
            assert_eq!(read_all(format!(":{n}\r\n").as_bytes()).unwrap(), [Reply::Int(n)]);
        }
        assert_eq!(read_all(b":+7\r\n").unwrap(), [Reply::Int(7)]);
        let mixed = Reply::Array(vec![Reply::Int(1), Reply::Nil]);
        assert_eq!(
            read_all(b"*2\r\n:1\r\n$-1\r\n*0\r\n").unwrap(),
            [mixed, Reply::Array(Vec::new())]
        );
        let [Reply::Error(error)] = &read_all(b"-WRONGTYPE Operation against\r\n").unwrap()[..]
        else {
            panic!()
        };
        assert_eq!((&*error.code, &*error.text), ("WRONGTYPE", "WRONGTYPE Operation against"));
    }

    #[test]
    fn what_is_not_resp2_is_refused() {
        for bad in [
            "(123\r\n",
            ",1.5\r\n",
            "#t\r\n",
            "_\r\n",
            "%1\r\n",
            ">1\r\n",
            "HTTP/1.1",
            ":x\r\n",
            ":1\n",
            ":\r\n",
            ":-\r\n",
            ":9223372036854775808\r\n",
            ":-9223372036854775809\r\n",
            "$-2\r\n",
            "\r\n",
        ] {
            assert_eq!(read_all(bad.as_bytes()), Err(Malformed), "{bad:?}");
        }
        for bad in [
            "$1\r\nabc\r\n",
            "*1000000000\r\n",
            "$600000000\r\n",
            "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        ] {
            assert_eq!(read_all(bad.as_bytes()), Err(Malformed), "{bad:?}");
        }
    }

    #[test]
    fn a_reply_that_comes_byte_by_byte_is_whole_only_at_its_end() {
        let mut reader = ReplyReader::default();
        for whole in
            [&b"*3\r\n:1\r\n$2\r\nab\r\n-ERR x\r\n"[..], b"*2\r\n:1\r\n:1763700000000001\r\n"]
        {
            for (at, byte) in whole.iter().enumerate() {
                reader.fill(&mut &[*byte][..]).unwrap();
                assert!(!reader.is_empty());
                assert_eq!(
                    reader.next().unwrap().is_some(),
                    at + 1 == whole.len(),
                    "after byte {at}"
                );
            }
            assert!(reader.is_empty());
        }
        reader.fill(&mut &b":1\r\n:2\r\n"[..]).unwrap();
        assert_eq!(reader.next(), Ok(Some(Reply::Int(1))));
        assert!(!reader.is_empty(), "what was read beyond a reply is known");
        assert_eq!(reader.unread(), b":2\r\n");
        assert_eq!(reader.fill(&mut io::empty()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(reader.next(), Ok(Some(Reply::Int(2))), "and stays after an error");
    }
}
