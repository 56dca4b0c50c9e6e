//! The Redis keys and channels that belong to a lock name.

use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::job_keys::is_key_of_job;
use crate::base::lock_name::{Kind, LockName};

/// The hash slot of a key. Without a cluster it has no meaning.
pub(crate) use redis::cluster_routing::Slot;

/// On a master of Redlock: whether it may vote, and its tokens. Not Redisson's.
pub(crate) const NODE_KEY: &str = "leasehold:node";

/// The lock name with which the handshake tests the user's rights. Its keys are never written; some
/// are deleted.
const PROBE_NAME: &str = "leasehold:probe";

/// The fencing token counter of every lock begins with this and a colon.
const TOKEN: &str = "redisson_lock_token";

/// The channel of every plain lock begins with this and a colon.
pub(crate) const LOCK_CHANNEL: &str = "redisson_lock__channel";

/// The keys and channels of one lock. All keys share one hash tag, so that a cluster keeps them in
/// one slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RedisKeys<'n> {
    /// The main key: the name with the client's prefix (in Redisson, the `NameMapper`).
    pub(crate) lock: &'n str,
    /// The name in braces, unless it has braces itself. The other keys are built from it.
    pub(crate) tag: &'n str,
    /// The channel on which releases are published; for a fair lock, the prefix of each waiter's
    /// channel.
    pub(crate) channel: &'n str,
    /// The fencing token counter.
    pub(crate) token: &'n str,
    /// The cluster slot that all of them share.
    pub(crate) slot: Slot,
}

/// What a name keeps of them: as little as possible, because a client may hold many locks.
struct Spelling {
    /// The token counter and, right behind it, the channel.
    text: Box<str>,
    channel_at: u32,
    slot: Slot,
}

/// # Errors
/// `InvalidInput` for a name whose keys a Redis Cluster would put into different slots (it would
/// work until the day the server becomes a cluster), and for a name that [`is_reserved`].
pub(crate) fn check_name(name: &LockName) -> Result<()> {
    let refused = |why: &str| Error::named(ErrorKind::InvalidInput, &name.name, why);
    if !shares_one_slot(&name.key) {
        let error = refused("the braces in this name leave its keys without a common hash tag");
        return Err(error.advise("use no braces, or one non-empty pair as in \"a{b}c\""));
    }
    // Nobody but a job has such a name.
    let is_taken = is_reserved(&name.key) && !is_key_of_job(&name.key);
    if is_taken { Err(refused(RESERVED).advise(Advice::ChooseName)) } else { Ok(()) }
}

/// For a cluster.
///
/// # Errors
/// `InvalidInput` for a latch with braces in its name: Redisson's rule puts its channel into
/// another slot than its key.
pub(crate) fn check_name_in_cluster(name: &LockName) -> Result<()> {
    if name.kind == Kind::Latch && name.key.contains('{') {
        let why = "in a cluster a latch cannot have braces in its name, because its channel would be in another slot \
                   than its count; use a name without braces";
        return Err(Error::named(ErrorKind::InvalidInput, &name.name, why));
    }
    check_name(name)
}

impl<'n> RedisKeys<'n> {
    pub(crate) fn of(name: &'n LockName) -> Self {
        let Spelling { text, channel_at, slot } = name.spelling(|| {
            let token = prefixed(TOKEN, &name.key);
            let channel_at = token.len() as u32;
            let text = (token + &channel_of(name.kind, &name.key)).into();
            Spelling { text, channel_at, slot: Slot::for_key(&*name.key) }
        });
        let (token, channel) = text.split_at(*channel_at as usize);
        Self { lock: &name.key, tag: &token[TOKEN.len() + 1..], channel, token, slot: *slot }
    }

    /// A fair lock's list of waiters.
    pub(crate) fn queue(&self) -> String {
        format!("redisson_lock_queue:{}", self.tag)
    }

    /// The deadlines of a fair lock's waiters.
    pub(crate) fn deadlines(&self) -> String {
        format!("redisson_lock_timeout:{}", self.tag)
    }

    /// The key by which a waiting writer of this library keeps new readers of this library out. Not
    /// Redisson's.
    pub(crate) fn marker(&self) -> String {
        format!("leasehold_writer:{}", self.tag)
    }

    /// What the last holder with data has written. Not Redisson's.
    pub(crate) fn data(&self) -> String {
        format!("leasehold_data:{}", self.tag)
    }

    /// The ends of the leases of a semaphore's permits.
    pub(crate) fn leases(&self) -> String {
        format!("{}:timeout", self.tag)
    }

    /// How many permits of a rate limiter are free, and which were taken when.
    pub(crate) fn rate(&self) -> [String; 2] {
        [format!("{}:value", self.tag), format!("{}:permits", self.tag)]
    }

    /// The key under which a request that must not run twice keeps its answer. Not Redisson's.
    pub(crate) fn idempotency_key(&self, id: &str) -> String {
        format!("leasehold_once:{}:{id}", self.tag)
    }

    /// When the latch was last opened. Not Redisson's.
    pub(crate) fn opened(&self) -> String {
        self.idempotency_key("opened")
    }
}

pub(crate) fn channel_of(kind: Kind, lock: &str) -> String {
    match kind {
        Kind::Mutex | Kind::Fair | Kind::Job => prefixed(LOCK_CHANNEL, lock),
        Kind::Read | Kind::Write => prefixed("redisson_rwlock", lock),
        Kind::Semaphore | Kind::CountingSemaphore => prefixed("redisson_sc", lock),
        // Redisson's rule for latches differs: always braces.
        Kind::Latch => format!("redisson_countdownlatch__channel__{{{lock}}}"),
        // Nobody sends a message when permits come back.
        Kind::RateLimiter => String::new(),
        // Its key has the hash tag of the job, and nothing else has this name.
        Kind::Done => lock.to_owned(),
    }
}

/// The channel on which one waiter of a fair lock is notified.
pub(crate) fn channel_of_waiter(lock: &str, holder: &str) -> String {
    format!("{}:{holder}", channel_of(Kind::Fair, lock))
}

/// The channels of all waiters of one client, on all fair locks.
pub(crate) fn waiters_pattern(client: &str) -> String {
    format!("{LOCK_CHANNEL}:*:{client}:*")
}

/// The key under which a client announces its owner. Not Redisson's. `client`: the prefix of its
/// names, and its id.
pub(crate) fn client_key(client: &str) -> String {
    prefixed("leasehold_client", client)
}

/// The clients that have announced an owner, so that nobody has to search for their keys. Not
/// Redisson's. Its name begins as theirs do, so that the same permission covers it.
pub(crate) const CLIENT_INDEX: &str = "leasehold_client:{index}";

/// A key that no lock of this library uses under this prefix, and one channel of each form to which
/// releases are published.
pub(crate) fn probe_names(prefix: &str) -> (String, Vec<String>) {
    let name = format!("{prefix}{PROBE_NAME}");
    let kinds = [Kind::Mutex, Kind::Read, Kind::Semaphore, Kind::Latch];
    (prefixed(TOKEN, &name), kinds.map(|kind| channel_of(kind, &name)).to_vec())
}

/// Redisson's rule for auxiliary keys: a name with an opening brace is taken to have a hash tag.
fn prefixed(prefix: &str, name: &str) -> String {
    format!("{prefix}:{}", tag_of(name))
}

fn tag_of(name: &str) -> String {
    if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
}

/// The name whose auxiliary keys have this tag.
pub(crate) fn untagged(tag: &str) -> Option<&str> {
    let inner = tag.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match inner.filter(|name| !name.contains('{')) {
        Some(name) => Some(name),
        // A name with braces of its own has no others around it.
        None => tag.contains('{').then_some(tag),
    }
}

/// The error message for a name that [`is_reserved`].
pub(crate) const RESERVED: &str = "with the prefix of the client this is a key that locks and semaphores of another name \
     keep beside their own";

/// Whether this can be an auxiliary key of another lock, latch or semaphore, of this library or of
/// Redisson. A lock with this main key and that other one would overwrite each other. Auxiliary
/// keys begin or end with a hash tag, so they contain a brace: `redisson_lock_token:x` is free.
pub(crate) fn is_reserved(key: &str) -> bool {
    const IN_FRONT: [&str; 8] = [
        "leasehold_client:",
        "leasehold_data:",
        "leasehold_once:",
        "leasehold_writer:",
        "redisson_lock_token:",
        "redisson_lock_queue:",
        "redisson_lock_timeout:",
        "redisson_unlock_latch:",
    ];
    let tagged = |rest: Option<&str>| rest.is_some_and(|rest| rest.contains('{'));
    // The probe's name may follow the prefix of any client.
    key == NODE_KEY
        || is_key_of_job(key)
        || key.ends_with(PROBE_NAME)
        || IN_FRONT.iter().any(|prefix| tagged(key.strip_prefix(prefix)))
        || [":timeout", ":value", ":permits"].iter().any(|suffix| tagged(key.strip_suffix(suffix)))
        || tagged(key.split_once(":rwlock_timeout:").map(|(front, _)| front))
}

/// Whether the name itself and `prefixed(.., name)` have the same hash tag by Redis' rule (the text
/// between the first `{` and the first `}` after it, if there is any).
fn shares_one_slot(name: &str) -> bool {
    match name.find('{') {
        Some(open) => name[open + 1..].find('}').is_some_and(|len| len > 0),
        None => !name.contains('}'),
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
