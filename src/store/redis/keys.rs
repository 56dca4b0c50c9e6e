//! The Redis keys and channels that belong to a lock name.

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::{Kind, LockName};

/// What a master of Redlock must not forget about itself: whether it may vote, and its tokens. Not Redisson's.
pub(crate) const NODE_KEY: &str = "leasehold:node";

/// The name that the rights of a user are asked with: nothing of it is ever written, some of it is deleted.
const PROBE_NAME: &str = "leasehold:probe";

/// What the channel of every plain lock begins with, before a colon.
pub(crate) const LOCK_CHANNEL: &str = "redisson_lock__channel";

/// Everything that Redis knows a lock by. All keys share one hash tag, so that a cluster keeps them together.
#[derive(Debug)]
pub(crate) struct RedisKeys {
    /// The main key: the name with the client's prefix (Redisson's `NameMapper`).
    pub(crate) lock: Arc<str>,
    /// The name in braces, unless it has some: the other keys are built from it.
    pub(crate) tag: String,
    /// Where what waiters wait for is published; for a fair lock, what the channel of each waiter begins with.
    pub(crate) channel: Arc<str>,
    /// The fencing token counter.
    pub(crate) token: String,
}

/// # Errors
/// `InvalidInput` for a name whose keys a Redis Cluster would put into different slots (it would work until the day the
/// server becomes a cluster), and for one that [`is_reserved`].
pub(crate) fn check_name(name: &LockName) -> Result<()> {
    let refuse = |why: &str| Err(Error::named(ErrorKind::InvalidInput, &name.name, why));
    if !shares_one_slot(&name.key) {
        return refuse(
            "the braces in this name leave its keys without a common hash tag; use no braces, or one non-empty pair as \
             in \"a{b}c\"",
        );
    }
    if is_reserved(&name.key) { refuse(RESERVED) } else { Ok(()) }
}

impl RedisKeys {
    pub(crate) fn of(name: &LockName) -> &Self {
        name.spelling(|| Self {
            channel: channel_of(name.kind, &name.key).into(),
            token: prefixed("redisson_lock_token", &name.key),
            tag: tag_of(&name.key),
            lock: name.key.clone(),
        })
    }

    /// A fair lock's list of waiters.
    pub(crate) fn queue(&self) -> String {
        format!("redisson_lock_queue:{}", self.tag)
    }

    /// The deadlines of a fair lock's waiters.
    pub(crate) fn deadlines(&self) -> String {
        format!("redisson_lock_timeout:{}", self.tag)
    }

    /// Where a waiting writer of ours keeps new readers of ours out. Not Redisson's.
    pub(crate) fn marker(&self) -> String {
        format!("leasehold_writer:{}", self.tag)
    }

    /// When the leases of a semaphore's permits end.
    pub(crate) fn leases(&self) -> String {
        format!("{}:timeout", self.tag)
    }

    /// Where a request that must not run twice leaves its answer. Not Redisson's.
    pub(crate) fn idempotency_key(&self, id: &str) -> String {
        format!("leasehold_once:{}:{id}", self.tag)
    }

    /// When a latch was opened last. Not Redisson's.
    pub(crate) fn opened(&self) -> String {
        self.idempotency_key("opened")
    }
}

pub(crate) fn channel_of(kind: Kind, lock: &str) -> String {
    match kind {
        Kind::Mutex | Kind::Fair => prefixed(LOCK_CHANNEL, lock),
        Kind::Read | Kind::Write => prefixed("redisson_rwlock", lock),
        Kind::Semaphore | Kind::CountingSemaphore => prefixed("redisson_sc", lock),
        // Redisson's own rule for latches: braces in any case.
        Kind::Latch => format!("redisson_countdownlatch__channel__{{{lock}}}"),
    }
}

/// Where one waiter of a fair lock is called.
pub(crate) fn channel_of_waiter(lock: &str, holder: &str) -> String {
    format!("{}:{holder}", channel_of(Kind::Fair, lock))
}

/// The channels of all waiters of one client on fair locks, whatever the lock.
pub(crate) fn waiters_pattern(client: &str) -> String {
    format!("{LOCK_CHANNEL}:*:{client}:*")
}

/// A key that no lock of ours has in use under this prefix, and a channel of each shape that we publish on.
pub(crate) fn probe_names(prefix: &str) -> (String, Vec<String>) {
    let name = format!("{prefix}{PROBE_NAME}");
    let kinds = [Kind::Mutex, Kind::Read, Kind::Semaphore, Kind::Latch];
    (prefixed("redisson_lock_token", &name), kinds.map(|kind| channel_of(kind, &name)).to_vec())
}

/// Redisson's rule for auxiliary names: a name with an opening brace anywhere is taken to carry its own hash tag.
fn prefixed(prefix: &str, name: &str) -> String {
    format!("{prefix}:{}", tag_of(name))
}

fn tag_of(name: &str) -> String {
    if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
}

/// What to say of a name that [`is_reserved`].
pub(crate) const RESERVED: &str = "with the prefix of the client this is a key that locks and semaphores of another name \
     keep beside their own (see \"In Redis\" in the crate's documentation); choose another name or another key_prefix";

/// Whether another lock, latch or semaphore, of ours or of Redisson's, can have this very key beside its own: whatever
/// stood there would break that one, or the other way round. Such a key ends in a hash tag or has one in front, so it
/// contains a brace: `redisson_lock_token:x` is nobody's.
pub(crate) fn is_reserved(key: &str) -> bool {
    const IN_FRONT: [&str; 6] = [
        "leasehold_once:",
        "leasehold_writer:",
        "redisson_lock_token:",
        "redisson_lock_queue:",
        "redisson_lock_timeout:",
        "redisson_unlock_latch:",
    ];
    let tagged = |rest: Option<&str>| rest.is_some_and(|rest| rest.contains('{'));
    // Another client's prefix may stand in front of the probe's name.
    key == NODE_KEY
        || key.ends_with(PROBE_NAME)
        || IN_FRONT.iter().any(|prefix| tagged(key.strip_prefix(prefix)))
        || tagged(key.strip_suffix(":timeout"))
        || tagged(key.split_once(":rwlock_timeout:").map(|(front, _)| front))
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

    fn name(name: &str, kind: Kind) -> LockName {
        LockName::new("", name, kind).unwrap()
    }

    #[test]
    fn names_follow_redisson() {
        let foo = name("foo", Kind::Mutex);
        let plain = RedisKeys::of(&foo);
        assert_eq!(&*plain.channel, "redisson_lock__channel:{foo}");
        assert_eq!(&*plain.token, "redisson_lock_token:{foo}");
        let braces = name("a{b}c", Kind::Mutex);
        let tagged = RedisKeys::of(&braces);
        assert_eq!(&*tagged.channel, "redisson_lock__channel:a{b}c");
        let app = LockName::new("app:", "x", Kind::Mutex).unwrap();
        let mapped = RedisKeys::of(&app);
        assert_eq!(&*mapped.lock, "app:x");
        assert_eq!(&*mapped.token, "redisson_lock_token:{app:x}");
    }

    /// Redisson's rules for names.
    #[test]
    fn every_kind_has_its_own_names() {
        for (name, tag, latch) in [
            ("foo", "{foo}", "redisson_countdownlatch__channel__{foo}"),
            ("a{b}c", "a{b}c", "redisson_countdownlatch__channel__{a{b}c}"),
        ] {
            let [fair, read, semaphore, of_latch] =
                [Kind::Fair, Kind::Read, Kind::Semaphore, Kind::Latch].map(|kind| self::name(name, kind));
            let fair = RedisKeys::of(&fair);
            assert_eq!(channel_of_waiter(name, "u:1"), format!("redisson_lock__channel:{tag}:u:1"));
            assert_eq!(fair.queue(), format!("redisson_lock_queue:{tag}"));
            assert_eq!(fair.deadlines(), format!("redisson_lock_timeout:{tag}"));
            assert_eq!(*RedisKeys::of(&read).channel, format!("redisson_rwlock:{tag}"));
            assert_eq!(*RedisKeys::of(&semaphore).channel, format!("redisson_sc:{tag}"));
            assert_eq!(RedisKeys::of(&semaphore).leases(), format!("{tag}:timeout"));
            assert_eq!(&*RedisKeys::of(&of_latch).channel, latch);
        }
    }

    #[test]
    fn no_name_is_a_key_that_another_lock_has_beside_its_own() {
        for name in ["x", "a{b}c"] {
            let fair = self::name(name, Kind::Fair);
            let keys = RedisKeys::of(&fair);
            let level = format!("{}:u:1:rwlock_timeout:1", keys.tag);
            let latch = format!("redisson_unlock_latch:{}:0", keys.tag);
            let beside = [
                keys.queue(),
                keys.deadlines(),
                keys.marker(),
                keys.leases(),
                keys.idempotency_key("u:1"),
                level,
                latch,
            ];
            for key in beside.iter().map(String::as_str).chain([
                &*keys.token,
                NODE_KEY,
                "leasehold:probe",
                "p:leasehold:probe",
            ]) {
                assert_eq!(
                    check_name(&self::name(key, Kind::Latch)).unwrap_err().kind(),
                    ErrorKind::InvalidInput,
                    "{key}"
                );
                // It is the key that clashes, not the name.
                let (prefix, name) = key.split_at(7);
                assert_eq!(
                    check_name(&LockName::new(prefix, name, Kind::Read).unwrap()).unwrap_err().name(),
                    Some(name),
                    "{key}"
                );
            }
        }
        assert!(check_name(&LockName::new("app:", NODE_KEY, Kind::Mutex).unwrap()).is_ok());
        for free in ["redisson_lock_token:x", "leasehold_once", "leasehold:nodes", "job:timeout", "timeout:{x}"] {
            assert!(check_name(&name(free, Kind::Mutex)).is_ok(), "{free}");
        }
    }

    #[test]
    fn cluster_safety_is_the_table_of_the_wire_document() {
        for good in ["foo", "a{b}c", "{x}", "a{b}{c}", "}a{b}", "löck-東京", "with space", "line\nfeed"] {
            assert!(check_name(&name(good, Kind::Fair)).is_ok(), "{good}");
        }
        for bad in ["a{b", "a{}b", "a}b", "{", "}"] {
            assert_eq!(check_name(&name(bad, Kind::Latch)).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }
}
