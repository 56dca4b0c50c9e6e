//! Jute, the encoding of all messages: big-endian numbers, and a length before everything that has
//! one.

use crate::base::error::{Error, ErrorKind, Result};

/// Writes the fields of a message one after another.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn bool(mut self, value: bool) -> Self {
        self.0.push(value.into());
        self
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    pub(super) fn bytes(self, value: &[u8]) -> Self {
        let mut length =
            self.int(i32::try_from(value.len()).expect("no field of a request is that long"));
        length.0.extend(value);
        length
    }

    pub(super) fn raw(mut self, value: &[u8]) -> Self {
        self.0.extend(value);
        self
    }
}

/// Reads the fields of a message one after another. A message that is too short or has an
/// impossible length is an error.
pub(super) struct Decoder<'m> {
    rest: &'m [u8],
}

impl<'m> Decoder<'m> {
    pub(super) fn new(message: &'m [u8]) -> Self {
        Self { rest: message }
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'m [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| malformed("it is too short"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many as were asked for"))
    }

    pub(super) fn int(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool> {
        self.array().map(|[byte]: [u8; 1]| byte != 0)
    }

    /// `None` where the server sent none.
    pub(super) fn bytes(&mut self) -> Result<Option<&'m [u8]>> {
        match self.int()? {
            -1 => Ok(None),
            length => {
                let length =
                    usize::try_from(length).map_err(|_| malformed("it has a negative length"))?;
                self.take(length).map(Some)
            }
        }
    }

    pub(super) fn text(&mut self) -> Result<&'m str> {
        let bytes = self.bytes()?.unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|_| malformed("a text in it is not UTF-8"))
    }

    /// Reads as many items as the count says. Each has at least one byte, and the count alone
    /// reserves no memory.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.int()?;
        let mut items = Vec::new();
        for _ in 0..count.max(0) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(super) fn is_at_its_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been read yet.
    pub(super) fn rest(&self) -> &'m [u8] {
        self.rest
    }
}

#[cold]
pub(super) fn malformed(why: &str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("the server sent a message that is not in ZooKeeper's protocol: {why}"),
    )
}

#[cfg(test)]
#[path = "jute_tests.rs"]
mod tests;
