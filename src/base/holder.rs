//! Who holds a lock: client ids and holder ids.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::data::HoldData;
use crate::base::deadline::ceil_millis;
use crate::base::digits::Digits;
use crate::base::random;
use crate::os::atomic::{AtomicU64, Ordering};

/// The identity of one client: a lower-case UUID of version 8.
///
/// Version 8, because Java's ids are version 4: fair locks must distinguish waiters of this library
/// from those of Redisson, and Redlock must distinguish holders. The last six digits are the
/// client's `waiter_timeout` in milliseconds: a script reads there how long each waiter in a fair
/// queue may be silent, whichever client it belongs to. No other code may parse an id.
#[derive(Debug)]
pub(crate) struct ClientId {
    text: Arc<str>,
    waiter_timeout: Duration,
    next: AtomicU64,
}

/// The digits of the `waiter_timeout`: 6 hexadecimal ones, enough for 279 minutes.
const TIMEOUT_DIGITS: u128 = 0xff_ffff;

impl ClientId {
    pub(crate) fn random(waiter_timeout: Duration) -> Self {
        Self { waiter_timeout, ..Self::from_bits(random::id(), ceil_millis(waiter_timeout)) }
    }

    fn from_bits(bits: u128, waiter_timeout: u64) -> Self {
        let bits =
            (bits & !(0xf << 76) & !(0x3 << 62) & !TIMEOUT_DIGITS) | (0x8 << 76) | (0x2 << 62);
        let bits = bits | (u128::from(waiter_timeout) & TIMEOUT_DIGITS);
        let hex = format!("{bits:032x}");
        let text = format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        );
        Self {
            text: text.into(),
            waiter_timeout: Duration::from_millis(waiter_timeout),
            next: AtomicU64::new(1),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// How long what a waiter has left in the store keeps others out without a sign of it.
    pub(crate) fn waiter_timeout(&self) -> Duration {
        self.waiter_timeout
    }

    /// A holder id that no other acquisition of any client ever has.
    ///
    /// Fresh for every outermost call: an undo, a late renewal or a late release then affects only
    /// its own acquisition.
    pub(crate) fn fresh_holder(&self) -> Holder {
        let number = Digits::of(self.fresh_number());
        Holder::new([self.text.as_bytes(), b":", number.as_bytes()])
    }

    /// A number that is higher than all that this client has drawn before.
    pub(crate) fn fresh_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a holder id that was read from the store belongs to this client.
    pub(crate) fn owns(&self, holder: &str) -> bool {
        holder.strip_prefix(&*self.text).is_some_and(|rest| rest.starts_with(':'))
    }
}

/// The id of one acquisition in the store: `<client id>:<number>`, or random digits for permits.
///
/// The text is kept in place, not on the heap: every lock call makes one and clones it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    length: u8,
    /// Padded with zeros.
    text: [u8; LONGEST_HOLDER],
    /// What a grant writes beside the hold. It belongs to the holder, so that every request of such
    /// a hold (a repeat, a renewal, its undo) knows that the store has its data.
    data: Option<HoldData>,
}

/// A client id, a colon, the digits of a `u64`, and the suffix while the lock is kept.
const LONGEST_HOLDER: usize = CLIENT_LENGTH + 1 + 20 + KEPT.len();

/// Length of a client's id in bytes.
pub(crate) const CLIENT_LENGTH: usize = 36;

/// Suffix of the id of a holder that has given up its hold while the lock stays taken.
const KEPT: &str = ":kept";

impl Holder {
    fn new<const N: usize>(parts: [&[u8]; N]) -> Self {
        let mut text = [0; LONGEST_HOLDER];
        let mut length = 0;
        for part in parts {
            text[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }
        Self { length: length as u8, text, data: None }
    }

    /// The id under which the lock stays taken after this holder has given it up before its
    /// `min_hold` was over.
    pub(crate) fn kept(&self) -> Self {
        Self::new([self.as_str().as_bytes(), KEPT.as_bytes()])
    }

    /// The same holder, whose grant writes this data.
    pub(crate) fn with_data(mut self, data: Option<HoldData>) -> Self {
        self.data = data;
        self
    }

    /// What its grant writes; `None` for a hold without data, which pays nothing for it.
    pub(crate) fn data(&self) -> Option<&HoldData> {
        self.data.as_ref()
    }

    /// For an acquisition of permits: 12 random bytes in hexadecimal. Followed by four bytes with
    /// the number of a permit, it is the permit's id for Redisson.
    pub(crate) fn random_permits() -> Self {
        Self::new([format!("{:024x}", random::id() >> 32).as_bytes()])
    }

    /// Parses the text of [`random_permits`](Self::random_permits).
    pub(crate) fn parse_permits(text: &str) -> Option<Self> {
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (text.len() == 24 && text.chars().all(is_digit)).then(|| Self::new([text.as_bytes()]))
    }

    /// The bytes of [`random_permits`](Self::random_permits).
    pub(crate) fn permit_bytes(&self) -> Vec<u8> {
        let digits = self.as_str().as_bytes().chunks_exact(2);
        let byte = |pair| {
            std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
        };
        digits.map(|pair| byte(pair).unwrap_or_default()).collect()
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..self.length.into()]).expect("it was written as text")
    }
}

/// The part of a holder id that is the same on all masters of a Redlock. Java's `RedissonRedLock`
/// uses another client for each master, so only the number of its thread is the same.
pub(crate) fn hold_on_many(holder: &str) -> &str {
    if is_foreign(holder) { holder.rsplit(':').next().unwrap_or(holder) } else { holder }
}

/// The client and the number in the id of a holder of this library. The number may be followed by a
/// colon and the side of a read-write lock.
pub(crate) fn client_and_number(holder: &str) -> Option<(&str, u64)> {
    let (client, number) = holder.split_once(':').filter(|_| !is_foreign(holder))?;
    let number = number.split(':').next()?.parse().ok()?;
    (client.len() == CLIENT_LENGTH).then_some((client, number))
}

/// Whether this is the id of a lock that its holder has given up and that stays taken.
pub(crate) fn is_kept(holder: &str) -> bool {
    // In the id of a writer, the side comes last.
    holder.strip_suffix(":write").unwrap_or(holder).ends_with(KEPT)
}

/// Whether the holder id is of another library.
pub(crate) fn is_foreign(holder: &str) -> bool {
    holder.as_bytes().get(14) != Some(&b'8')
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_version_8_and_lower_case() {
        for bits in [0, u128::MAX, random::id()] {
            let id = ClientId::from_bits(bits, 300_000);
            let text = id.as_str();
            assert_eq!(text.len(), 36);
            assert_eq!(&text[14..15], "8");
            assert!("89ab".contains(&text[19..20]), "{text}");
            assert_eq!(&text[30..], "0493e0");
            assert!(
                text.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c))
            );
        }
    }

    #[test]
    fn permits_are_twelve_bytes() {
        let holder = Holder::random_permits();
        let bytes = holder.permit_bytes();
        assert_eq!(bytes.len(), 12);
        assert_eq!(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(), holder.as_str());
    }

    #[test]
    fn foreign_holders_are_recognized() {
        let own = ClientId::random(Duration::from_secs(5)).fresh_holder();
        assert!(!is_foreign(own.as_str()));
        assert_eq!(hold_on_many(own.as_str()), own.as_str());
        assert!(is_foreign("a8a5ef81-b5b7-4d39-a987-611a1db5d2fe:30") && is_foreign("somebody"));
        assert_eq!(client_and_number("a8a5ef81-b5b7-4d39-a987-611a1db5d2fe:30"), None);
        assert_eq!(hold_on_many("a8a5ef81-b5b7-4d39-a987-611a1db5d2fe:30"), "30");
    }

    #[test]
    fn the_longest_id_has_room() {
        let id = ClientId::random(Duration::from_secs(5));
        let first = id.fresh_holder();
        assert_eq!(client_and_number(first.as_str()), Some((id.as_str(), 1)));
        assert_eq!(client_and_number(&format!("{}:write", first.as_str())), Some((id.as_str(), 1)));
        id.next.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(id.fresh_holder().as_str(), format!("{}:{}", id.as_str(), u64::MAX));
    }

    #[test]
    fn holders_never_repeat() {
        let random = || ClientId::random(Duration::from_secs(5));
        let id = random();
        let a = id.fresh_holder();
        let b = id.fresh_holder();
        assert_ne!(a, b);
        assert!(id.owns(a.as_str()) && !random().owns(a.as_str()));
    }
}
