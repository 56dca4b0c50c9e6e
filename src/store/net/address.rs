//! Where a server listens, and the text of its URL.

use std::fmt;
#[cfg(unix)]
use std::path::PathBuf;

use crate::base::error::{Error, ErrorKind, Result};

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp {
        host: String,
        port: u16,
    },
    #[cfg(unix)]
    Unix(PathBuf),
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            #[cfg(unix)]
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Decodes the %-escapes of a text. The crate `percent-encoding` would let invalid ones pass.
///
/// # Errors
/// `InvalidInput` for an invalid escape, and for text that is not UTF-8.
pub(crate) fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(invalid(
                "a '%' in the URL must be followed by two hexadecimal digits; a literal '%' is written %25",
            ));
        };
        bytes.push(u8::try_from(high * 16 + low).expect("two digits are one byte"));
    }
    String::from_utf8(bytes).map_err(|_| invalid("the URL is not UTF-8 after its %-escapes are decoded"))
}

#[cold]
fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}
