//! The number that orders the holders of one lock.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The rank of a holder among all holders of one lock: a later holder has a larger token.
///
/// One case differs where a client draws tokens for several of its threads: after a
/// [`force_unlock`](crate::ReentrantMutex::force_unlock) by another client, a thread of the client
/// that was forced out may for a third of a lease begin a turn with a token that its client had
/// drawn before, which is smaller than that of the new holder. A resource that compares tokens
/// refuses it, and the guard is lost at the next renewal.
///
/// A guard returns the token, and the resource compares it. Every token that a guard returns is
/// below 2<sup>53</sup>, so it survives an SQL `BIGINT`, a JSON number and a double unchanged.
/// Tokens of different locks cannot be compared.
///
/// `Display` prints the plain decimal number, for a header or a command line, and `FromStr` reads
/// it.
///
/// With the cargo feature `serde` it is written and read as its number.
///
/// # Examples
///
/// ```
/// use leasehold::fencing::FencingToken;
///
/// let earlier = FencingToken::new(33);
/// let later = FencingToken::new(34);
/// assert!(earlier < later);
///
/// // To another process and back.
/// let header = later.to_string();
/// assert_eq!(header, "34");
/// assert_eq!(header.parse::<FencingToken>()?, later);
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The token with this number, for the resource, which receives it as a number.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::fencing::FencingToken;
    ///
    /// const FIRST: FencingToken = FencingToken::new(1);
    /// assert_eq!(FIRST.get(), 1);
    /// ```
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    ///
    /// # Examples
    ///
    /// ```
    /// # use leasehold::fencing::FencingToken;
    /// assert_eq!(FencingToken::new(34).get(), 34);
    /// ```
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as SQL stores it: bind it for a `BIGINT` column.
    ///
    /// Exact for every token that a guard returns. A number that is too large for a `BIGINT`
    /// becomes the largest one.
    ///
    /// # Examples
    ///
    /// ```
    /// # use leasehold::fencing::FencingToken;
    /// assert_eq!(FencingToken::new(34).as_i64(), 34_i64);
    /// ```
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        // A wrapped number would be negative, and so rank below every token.
        if self.0 > i64::MAX as u64 { i64::MAX } else { self.0 as i64 }
    }
}

impl From<u64> for FencingToken {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

/// Reads what [`Display`](fmt::Display) writes: for a token from a file, a header or an environment
/// variable.
impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for FencingToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for FencingToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_prints_as_its_number() {
        assert!(FencingToken::new(9) < FencingToken::new(10));
        assert_eq!(format!("{:>4}", FencingToken::new(10)), "  10");
        assert_eq!("10".parse(), Ok(FencingToken::from(10)));
        assert_eq!(u64::from(FencingToken::new(10)), 10);
        for text in ["", "-1", " 1", "1.0", "18446744073709551616"] {
            assert!(text.parse::<FencingToken>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn keeps_its_rank_in_sql() {
        let largest_given = (1 << 53) - 1;
        assert_eq!(FencingToken::new(largest_given).as_i64(), largest_given as i64);
        assert_eq!(FencingToken::new(u64::MAX).as_i64(), i64::MAX);
    }
}
