//! The fields of a packet.

use crate::store::database::Malformed;

pub(super) type Parsed<T> = std::result::Result<T, Malformed>;

/// Reads the fields of a packet.
pub(super) struct Fields<'p>(pub(super) &'p [u8]);

impl<'p> Fields<'p> {
    pub(super) fn take(&mut self, length: usize) -> Parsed<&'p [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Parsed<u8> {
        Ok(self.take(1)?[0])
    }

    /// An integer of so many bytes, the lowest first.
    pub(super) fn integer(&mut self, length: usize) -> Parsed<u64> {
        Ok(self.take(length)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// What a zero byte ends.
    pub(super) fn until_zero(&mut self) -> Parsed<&'p [u8]> {
        let length = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let text = self.take(length)?;
        self.take(1)?;
        Ok(text)
    }

    /// An integer whose first byte says how long it is.
    pub(super) fn packed(&mut self) -> Parsed<u64> {
        match self.byte()? {
            0xfc => self.integer(2),
            0xfd => self.integer(3),
            0xfe => self.integer(8),
            0xfb | 0xff => Err(Malformed),
            small => Ok(small.into()),
        }
    }

    pub(super) fn column(&mut self) -> Parsed<Option<String>> {
        if self.0.first() == Some(&0xfb) {
            self.take(1)?;
            return Ok(None);
        }
        let length = usize::try_from(self.packed()?).map_err(|_| Malformed)?;
        String::from_utf8(self.take(length)?.to_vec()).map(Some).map_err(|_| Malformed)
    }
}
