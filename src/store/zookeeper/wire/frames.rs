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
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    /// Returns a few bytes from each read.
    struct Drops<'b>(&'b [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let (now, later) = self.0.split_at(self.1.min(self.0.len()));
            buffer[..now.len()].copy_from_slice(now);
            self.0 = later;
            Ok(now.len())
        }
    }

    #[test]
    fn frames_come_whole_however_their_bytes_come() {
        let bytes = [0, 0, 0, 3, b'a', b'b', b'c', 0, 0, 0, 0, 0, 0, 0, 1, b'd'];
        for size in 1..=bytes.len() {
            let (mut reader, mut stream, mut frames) =
                (FrameReader::default(), Drops(&bytes, size), Vec::new());
            while reader.fill(&mut stream).is_ok() {
                while let Some(frame) = reader.next().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, [b"abc".to_vec(), Vec::new(), b"d".to_vec()], "{size} at a time");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for garbage in [&b"HTTP/1.1 400"[..], &[0xff, 0xff, 0xff, 0xff], &[0x00, 0x80, 0x00, 0x01]]
        {
            let mut reader = FrameReader::default();
            reader.fill(&mut Drops(garbage, 64)).unwrap();
            assert_eq!(reader.next().unwrap_err().kind(), ErrorKind::Protocol, "{garbage:?}");
        }
        let mut reader = FrameReader::default();
        reader.fill(&mut Drops(&[0x00, 0x80, 0x00, 0x00], 64)).unwrap();
        assert!(reader.next().unwrap().is_none(), "8 MiB may come");
        assert_eq!(
            reader.fill(&mut Drops(&[], 1)).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
