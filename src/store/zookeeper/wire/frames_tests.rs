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
    for garbage in [&b"HTTP/1.1 400"[..], &[0xff, 0xff, 0xff, 0xff], &[0x00, 0x80, 0x00, 0x01]] {
        let mut reader = FrameReader::default();
        reader.fill(&mut Drops(garbage, 64)).unwrap();
        assert_eq!(reader.next().unwrap_err().kind(), ErrorKind::Protocol, "{garbage:?}");
    }
    let mut reader = FrameReader::default();
    reader.fill(&mut Drops(&[0x00, 0x80, 0x00, 0x00], 64)).unwrap();
    assert!(reader.next().unwrap().is_none(), "8 MiB may come");
    assert_eq!(reader.fill(&mut Drops(&[], 1)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
