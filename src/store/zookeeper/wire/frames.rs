//! Frames from a stream of bytes: a length and that many bytes.

use std::io::{self, Read};

use super::jute::malformed;
use crate::base::error::Result;

/// No reply that the store asks for is longer: a list of a hundred thousand waiters takes 6 MiB.
const LONGEST: usize = 8 << 20;

/// The maximum number of bytes of one read.
const CHUNK: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    buffer: Vec<u8>,
    /// How much of the buffer was already returned.
    start: usize,
}

impl FrameReader {
    /// The next frame, if it has arrived completely.
    ///
    /// # Errors
    /// `Protocol` for a length that no frame has: the other end is not ZooKeeper.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let unread = &self.buffer[self.start..];
        let Some((length, rest)) = unread.split_first_chunk::<4>() else { return Ok(None) };
        let length =
            usize::try_from(i32::from_be_bytes(*length)).ok().filter(|length| *length <= LONGEST);
        let length =
            length.ok_or_else(|| malformed("a frame has a length that no reply can have"))?;
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let frame = frame.to_vec();
        self.start += 4 + length;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        Ok(Some(frame))
    }

    /// One read.
    ///
    /// # Errors
    /// Those of the read; `UnexpectedEof` at the end of the stream.
    pub(crate) fn fill(&mut self, from: &mut impl Read) -> io::Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let length = self.buffer.len();
        self.buffer.resize(length + CHUNK, 0);
        let read = from.read(&mut self.buffer[length..]);
        self.buffer.truncate(length + read.as_ref().map_or(0, |read| *read));
        match read? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
