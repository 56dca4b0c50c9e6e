//! A validated lock name and the Redis keys and channels that belong to it.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The longest name in bytes, prefix included. Redis would take 512 MiB; a name this long is a mistake, and it
/// travels with every command.
pub(crate) const MAX_NAME_BYTES: usize = 1024;

/// Everything that Redis knows a lock by. All keys share one hash tag, so that a cluster keeps them together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockKeys {
    /// The name as the user gave it, for errors and logs.
    pub(crate) name: Arc<str>,
    /// The lock hash: the name with the client's prefix (Redisson's `NameMapper`).
    pub(crate) lock: Arc<str>,
    /// Where a full release is published.
    pub(crate) channel: Arc<str>,
    /// The fencing token counter.
    pub(crate) token: String,
}

impl LockKeys {
    /// # Errors
    /// `InvalidInput` for an empty or overlong name, and for one whose keys a Redis Cluster would put into
    /// different slots: it would work until the day the server becomes a cluster.
    pub(crate) fn new(prefix: &str, name: &str) -> Result<Self> {
        let refuse = |why: String| Err(Error::named(ErrorKind::InvalidInput, name, why));
        if name.is_empty() {
            return refuse("a lock name must not be empty".into());
        }
        let lock = format!("{prefix}{name}");
        if lock.len() > MAX_NAME_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a lock name of {} bytes is longer than {MAX_NAME_BYTES} (prefix included)", lock.len()),
            ));
        }
        if !shares_one_slot(&lock) {
            return refuse(
                "the braces in this name leave its keys without a common hash tag; use no braces, or one \
                 non-empty pair as in \"a{b}c\""
                    .into(),
            );
        }
        Ok(Self {
            name: name.into(),
            channel: prefixed("redisson_lock__channel", &lock).into(),
            token: prefixed("redisson_lock_token", &lock),
            lock: lock.into(),
        })
    }
}

/// A channel and a token key of the shape that locks under this prefix use, which no lock of ours has in use.
pub(crate) fn probe_names(prefix: &str) -> (String, String) {
    let name = format!("{prefix}leasehold:probe");
    (prefixed("redisson_lock__channel", &name), prefixed("redisson_lock_token", &name))
}

/// Redisson's rule for auxiliary names: a name with an opening brace anywhere is taken to carry its own hash tag.
fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// Whether the name itself and `prefixed(.., name)` have the same hash tag by Redis' rule (the text between the
/// first `{` and the first `}` behind it, if there is any).
fn shares_one_slot(name: &str) -> bool {
    match name.find('{') {
        Some(open) => name[open + 1..].find('}').is_some_and(|len| len > 0),
        None => !name.contains('}'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_redisson() {
        let plain = LockKeys::new("", "foo").unwrap();
        assert_eq!(&*plain.channel, "redisson_lock__channel:{foo}");
        assert_eq!(plain.token, "redisson_lock_token:{foo}");
        let tagged = LockKeys::new("", "a{b}c").unwrap();
        assert_eq!(&*tagged.channel, "redisson_lock__channel:a{b}c");
        let mapped = LockKeys::new("app:", "x").unwrap();
        assert_eq!((&*mapped.name, &*mapped.lock), ("x", "app:x"));
        assert_eq!(mapped.token, "redisson_lock_token:{app:x}");
    }

    #[test]
    fn cluster_safety_is_the_table_of_the_wire_document() {
        for good in ["foo", "a{b}c", "{x}", "a{b}{c}", "}a{b}", "löck-東京", "with space", "line\nfeed"] {
            assert!(LockKeys::new("", good).is_ok(), "{good}");
        }
        for bad in ["", "a{b", "a{}b", "a}b", "{", "}"] {
            assert_eq!(LockKeys::new("", bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
        assert!(LockKeys::new("", &"x".repeat(MAX_NAME_BYTES)).is_ok());
        assert!(LockKeys::new("p", &"x".repeat(MAX_NAME_BYTES)).is_err());
    }
}
