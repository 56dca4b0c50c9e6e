//! Any input as a part of a lock name.

use std::fmt::Write;

/// The name of an empty input: an escape without its digits, which no other input gives.
const EMPTY: &str = "%";

/// Elements that a store reserves, as a whole element of a path.
const KEPT: [&str; 4] = ["leases", "locks", "permits", "zookeeper"];

/// Makes any input a valid lock name on every store, or a part of one.
///
/// Use it where a name comes from somebody else (a file name, a user, a tenant), so that the input
/// can neither be refused nor reach outside its place in the name: `format!("invoice:{}",
/// escape_name(user))` is a different lock for each `user`, whatever it contains.
///
/// ASCII letters, digits, `-`, `_` and `.` stay as they are. Every other byte becomes `%` and two
/// upper-case hexadecimal digits, including `:`, `/`, `{` and `}`, which separate or tag names,
/// control characters, and everything outside ASCII. The first byte is also escaped when it is `.`
/// or `_`, and in the inputs `leases`, `locks`, `permits` and `zookeeper`, which are reserved in
/// ZooKeeper. An empty input becomes `%`.
///
/// Different inputs give different names, and [`unescape_name`] gives the input back. Escaping
/// twice escapes the `%` again.
///
/// A name has at most 1024 bytes, with everything that is put in front of it (also
/// [`Builder::key_prefix`](crate::Builder::key_prefix)). An input of 341 bytes always fits when
/// nothing is in front; a longer one may not, and the lock call then returns
/// [`InvalidInput`](crate::ErrorKind::InvalidInput). No I/O.
///
/// # Examples
/// ```
/// use leasehold::{escape_name, unescape_name};
///
/// assert_eq!(escape_name("invoice-17.pdf"), "invoice-17.pdf");
/// assert_eq!(escape_name("a/b{c}: 5 €"), "a%2Fb%7Bc%7D%3A%205%20%E2%82%AC");
/// assert_eq!(unescape_name("a%2Fb").as_deref(), Some(&b"a/b"[..]));
/// ```
#[must_use]
pub fn escape_name(input: impl AsRef<[u8]>) -> String {
    let input = input.as_ref();
    if input.is_empty() {
        return EMPTY.to_owned();
    }
    let is_kept = KEPT.iter().any(|kept| kept.as_bytes() == input);
    let mut name = String::with_capacity(input.len() + 16);
    for (place, &byte) in input.iter().enumerate() {
        let stays = match byte {
            b'.' | b'_' => place > 0,
            b'-' => true,
            _ => byte.is_ascii_alphanumeric() && !(is_kept && place == 0),
        };
        if stays {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

/// The input from which [`escape_name`] made this name, or `None` if it did not make it. No I/O.
#[must_use]
pub fn unescape_name(name: &str) -> Option<Vec<u8>> {
    let input = if name == EMPTY { Vec::new() } else { unescaped(name)? };
    // Each input has one name: "%61" is not a name, because this input is called "a".
    (escape_name(&input) == name).then_some(input)
}

fn unescaped(name: &str) -> Option<Vec<u8>> {
    let mut bytes = name.bytes();
    let mut input = Vec::with_capacity(name.len());
    while let Some(byte) = bytes.next() {
        input.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    Some(input)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::base::lock_name::MAX_NAME_BYTES;

    /// Every input of up to two bytes, every byte between others, and what stores keep.
    fn inputs() -> Vec<Vec<u8>> {
        let mut inputs = vec![Vec::new()];
        for a in 0..=255_u8 {
            inputs.extend([vec![a], vec![b'x', a, b'y'], vec![a, b'c', b'_']]);
            inputs.extend((0..=255_u8).map(|b| vec![a, b]));
        }
        let words = [
            "_c_",
            "_c_x",
            "locks",
            "leases",
            "permits",
            "zookeeper",
            "locksmith",
            "...",
            "%61",
            "%",
            "%%",
        ];
        inputs.extend(words.map(|word| word.as_bytes().to_vec()));
        inputs
    }

    #[test]
    fn each_input_has_a_name_of_its_own_and_comes_back() {
        let mut names = HashSet::new();
        for input in inputs() {
            let name = escape_name(&input);
            assert_eq!(unescape_name(&name).as_ref(), Some(&input), "{name}");
            names.insert(name.clone());
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.%".contains(c);
            assert!(!name.is_empty() && name.chars().all(is_plain), "{name:?}");
        }
        let distinct: HashSet<_> = inputs().into_iter().collect();
        assert_eq!(names.len(), distinct.len());
    }

    #[test]
    fn what_it_has_not_made_is_no_escaped_name() {
        for name in ["", "a b", "%6", "%6g", "%61", "%2f", ".", "_c_", "locks", "é", "%%", "a%"] {
            assert_eq!(unescape_name(name), None, "{name}");
        }
    }

    #[test]
    fn no_store_keeps_such_a_name_for_itself() {
        for input in inputs() {
            let name = escape_name(&input);
            assert!(!name.starts_with(['.', '_']) && !KEPT.contains(&&*name), "{name}");
        }
        assert_eq!(escape_name("_c_x"), "%5Fc_x");
        assert_eq!(escape_name("locks"), "%6Cocks");
        assert_eq!(escape_name("locksmith"), "locksmith");
    }

    #[test]
    fn a_third_of_the_longest_name_always_fits() {
        assert_eq!(escape_name(vec![0xff; MAX_NAME_BYTES / 3]).len(), MAX_NAME_BYTES / 3 * 3);
        assert_eq!(MAX_NAME_BYTES / 3, 341);
    }
}
