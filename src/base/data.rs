//! The data that a holder has beside its hold, for everybody who looks at the lock.

use std::fmt;
use std::sync::Arc;

use crate::base::error::{Result, invalid};

/// Maximum length of the data of a hold, in bytes: every look at the lock reads it.
pub(crate) const MOST_DATA: usize = 1024;

/// `Debug` and the log never have its bytes: they may be a secret of the user.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct HoldData(Arc<[u8]>);

impl HoldData {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// # Errors
    /// `InvalidInput` if there are too many.
    pub(crate) fn check(&self) -> Result<()> {
        let length = self.0.len();
        if length <= MOST_DATA {
            return Ok(());
        }
        let why =
            format!("{length} bytes of data are more than the {MOST_DATA} that a hold may have");
        Err(invalid(why))
    }
}

impl fmt::Debug for HoldData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// In quotes, with everything escaped that could be taken for something else in a terminal or a
/// log.
impl fmt::Display for HoldData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for chunk in self.0.utf8_chunks() {
            write!(f, "{}{}", chunk.valid().escape_debug(), chunk.invalid().escape_ascii())?;
        }
        f.write_str("\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    #[test]
    fn its_text_is_escaped_and_its_debug_has_none() {
        let data = HoldData::new(b"a \"b\"\n\x1b[31m \xff \xe2\x82\xac\xe2\x80\xae");
        assert_eq!(data.to_string(), r#""a \"b\"\n\u{1b}[31m \xff €\u{202e}""#);
        assert_eq!(format!("{data:?}"), "20 bytes");
    }

    #[test]
    fn it_has_a_limit() {
        HoldData::new(&[0; MOST_DATA]).check().unwrap();
        let error = HoldData::new(&[0; MOST_DATA + 1]).check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("1025 bytes"), "{error}");
    }
}
