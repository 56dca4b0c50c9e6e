//! The Lua scripts, and one typed function for each: keys and values in, a request out, an enum back.

use std::sync::LazyLock;
use std::time::Duration;

use crate::deadline::ceil_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::holder::Holder;
use crate::key::LockKeys;
use crate::wire::{Reply, Request};

/// One Lua file, loaded into the server whenever a connection is made.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
    sha: LazyLock<String>,
}

macro_rules! scripts {
    ($($id:ident = $name:literal;)*) => {
        $(static $id: Script = Script {
            name: $name,
            source: include_str!(concat!("lua/", $name, ".lua")),
            sha: LazyLock::new(|| redis::Script::new(include_str!(concat!("lua/", $name, ".lua"))).get_hash().to_owned()),
        };)*
        /// Every script, in the order in which they are loaded.
        pub(crate) static ALL: &[&Script] = &[$(&$id),*];
    };
}

scripts! {
    MUTEX_ACQUIRE = "mutex_acquire";
    MUTEX_RELEASE = "mutex_release";
    MUTEX_INSPECT = "mutex_inspect";
    MUTEX_FORCE_UNLOCK = "mutex_force_unlock";
    LEASE_RENEW = "lease_renew";
    CONNECT_PROBE = "connect_probe";
    FENCE_CLAIM = "fence_claim";
    FENCE_WRITE = "fence_write";
}

impl Script {
    pub(crate) fn sha(&self) -> &str {
        &self.sha
    }
}

/// What becomes of the fencing token of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRule {
    /// None is given.
    Off,
    /// The counter is never given a TTL, because Java's fenced lock shares the name.
    KeptForEver,
    /// A counter of our own, which Redis may forget a day after the last grant: the floor does not need it.
    Expires,
}

const TOKEN_TTL: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireAnswer {
    Granted {
        token: u64,
    },
    /// Held by another. `None`: for ever, or for an unknown time.
    Busy {
        ttl: Option<Duration>,
    },
    /// The holder had it and has lost it.
    Gone,
    /// It reached the server after its not-after; nothing was done.
    TooLate,
}

pub(crate) fn acquire(keys: &LockKeys, holder: &Holder, lease: Duration, held: u32, rule: TokenRule) -> Request {
    let request = Request::script(&MUTEX_ACQUIRE, &[keys.lock.as_bytes(), keys.token.as_bytes()])
        .arg(holder.as_str())
        .number(ceil_millis(lease))
        .number(u64::from(held));
    match rule {
        TokenRule::Off => request.arg("-1"),
        TokenRule::KeptForEver => request.number(0),
        TokenRule::Expires => request.number(ceil_millis(TOKEN_TTL)),
    }
    .stamped()
}

pub(crate) fn acquire_answer(reply: Reply) -> Result<AcquireAnswer> {
    match pair(reply, &MUTEX_ACQUIRE)? {
        (1, token) => Ok(AcquireAnswer::Granted { token: token.unsigned_abs() }),
        (0, pttl) => {
            Ok(AcquireAnswer::Busy { ttl: u64::try_from(pttl).ok().filter(|t| *t > 0).map(Duration::from_millis) })
        }
        (2, _) => Ok(AcquireAnswer::Gone),
        (3, _) => Ok(AcquireAnswer::TooLate),
        other => Err(unexpected(&MUTEX_ACQUIRE, &format!("{other:?}"))),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReleaseAnswer {
    NotHeld,
    Level,
    /// Freed; this many subscribers were reached.
    Freed {
        receivers: u64,
    },
}

pub(crate) fn release(keys: &LockKeys, holder: &Holder, held: u32) -> Request {
    Request::script(&MUTEX_RELEASE, &[keys.lock.as_bytes()])
        .arg(holder.as_str())
        .number(u64::from(held))
        .arg(&*keys.channel)
}

pub(crate) fn release_answer(reply: Reply) -> Result<ReleaseAnswer> {
    match pair(reply, &MUTEX_RELEASE)? {
        (0, _) => Ok(ReleaseAnswer::NotHeld),
        (1, _) => Ok(ReleaseAnswer::Level),
        (2, receivers) => Ok(ReleaseAnswer::Freed { receivers: receivers.unsigned_abs() }),
        other => Err(unexpected(&MUTEX_RELEASE, &format!("{other:?}"))),
    }
}

#[derive(Debug)]
pub(crate) enum RenewAnswer {
    Held,
    Gone,
    Failed(Error),
}

/// `lease` zero only looks whether the holder still stands.
pub(crate) fn renew<'a>(holds: impl Iterator<Item = (&'a LockKeys, &'a Holder, Duration)> + Clone) -> Request {
    let keys: Vec<&[u8]> = holds.clone().map(|(k, _, _)| k.lock.as_bytes()).collect();
    let mut request = Request::script(&LEASE_RENEW, &keys);
    for (_, holder, _) in holds.clone() {
        request = request.arg(holder.as_str());
    }
    for (_, _, lease) in holds {
        request = request.number(ceil_millis(lease));
    }
    request
}

pub(crate) fn renew_answers(reply: Reply) -> Result<Vec<RenewAnswer>> {
    let Reply::Array(answers) = fail_on_error(reply)? else { return Err(unexpected(&LEASE_RENEW, "no list")) };
    Ok(answers
        .into_iter()
        .map(|answer| match answer {
            Reply::Int(1) => RenewAnswer::Held,
            Reply::Int(0) => RenewAnswer::Gone,
            other => RenewAnswer::Failed(match fail_on_error(other) {
                Err(e) => e,
                Ok(other) => unexpected(&LEASE_RENEW, &format!("{other:?}")),
            }),
        })
        .collect())
}

/// What stands in Redis under a lock's name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// `None`: the lock would never expire.
    pub(crate) ttl: Option<Duration>,
    /// Each holder id with its hold count.
    pub(crate) holders: Vec<(String, u64)>,
}

pub(crate) fn inspect(keys: &LockKeys) -> Request {
    Request::script(&MUTEX_INSPECT, &[keys.lock.as_bytes()])
}

/// `None`: the lock is free.
pub(crate) fn inspect_answer(reply: Reply) -> Result<Option<Standing>> {
    let Reply::Array(parts) = fail_on_error(reply)? else { return Err(unexpected(&MUTEX_INSPECT, "no list")) };
    let mut parts = parts.into_iter();
    let Some(Reply::Int(pttl)) = parts.next() else { return Err(unexpected(&MUTEX_INSPECT, "no TTL")) };
    let mut holders = Vec::new();
    while let (Some(Reply::Bytes(field)), Some(Reply::Bytes(value))) = (parts.next(), parts.next()) {
        // A count that is no number is somebody else's business; the lock is held all the same.
        let count = std::str::from_utf8(&value).ok().and_then(|v| v.parse().ok()).unwrap_or(1);
        holders.push((String::from_utf8_lossy(&field).into_owned(), count));
    }
    Ok((!holders.is_empty()).then(|| Standing { ttl: u64::try_from(pttl).ok().map(Duration::from_millis), holders }))
}

pub(crate) fn force_unlock(keys: &LockKeys) -> Request {
    Request::script(&MUTEX_FORCE_UNLOCK, &[keys.lock.as_bytes()]).arg(&*keys.channel)
}

pub(crate) fn force_unlock_answer(reply: Reply) -> Result<bool> {
    match fail_on_error(reply)? {
        Reply::Int(n) => Ok(n == 1),
        other => Err(unexpected(&MUTEX_FORCE_UNLOCK, &format!("{other:?}"))),
    }
}

pub(crate) fn connect_probe(key: &str, channel: &str) -> Request {
    Request::script(&CONNECT_PROBE, &[key.as_bytes()]).arg(channel)
}

pub(crate) fn connect_probe_answer(reply: Reply) -> Result<Vec<String>> {
    let Reply::Array(refused) = fail_on_error(reply)? else { return Err(unexpected(&CONNECT_PROBE, "no list")) };
    Ok(refused
        .into_iter()
        .filter_map(|r| if let Reply::Bytes(b) = r { Some(String::from_utf8_lossy(&b).into_owned()) } else { None })
        .collect())
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FenceAnswer {
    /// The claim stands; for a claim, with the value that is there.
    Accepted(Option<Vec<u8>>),
    /// A newer claim stands (or, for a write, none does).
    Refused { standing: Option<u64> },
}

pub(crate) fn fence_claim(key: &str, token: u64) -> Request {
    Request::script(&FENCE_CLAIM, &[key.as_bytes()]).number(token)
}

pub(crate) fn fence_write(key: &str, token: u64, value: &[u8]) -> Request {
    Request::script(&FENCE_WRITE, &[key.as_bytes()]).number(token).arg(value)
}

pub(crate) fn fence_answer(reply: Reply) -> Result<FenceAnswer> {
    let Reply::Array(parts) = fail_on_error(reply)? else { return Err(unexpected(&FENCE_CLAIM, "no list")) };
    let mut parts = parts.into_iter();
    let (status, value) = (parts.next(), parts.next());
    let value = if let Some(Reply::Bytes(bytes)) = value { Some(bytes) } else { None };
    match status {
        Some(Reply::Int(1)) => Ok(FenceAnswer::Accepted(value)),
        Some(Reply::Int(0)) => Ok(FenceAnswer::Refused {
            standing: value.and_then(|v| String::from_utf8(v).ok()).and_then(|v| v.parse().ok()),
        }),
        other => Err(unexpected(&FENCE_CLAIM, &format!("{other:?}"))),
    }
}

fn pair(reply: Reply, script: &Script) -> Result<(i64, i64)> {
    match fail_on_error(reply)? {
        Reply::Array(parts) => match parts[..] {
            [Reply::Int(a), Reply::Int(b)] => Ok((a, b)),
            _ => Err(unexpected(script, &format!("{parts:?}"))),
        },
        other => Err(unexpected(script, &format!("{other:?}"))),
    }
}

/// An error reply as the typed error it stands for.
pub(crate) fn fail_on_error(reply: Reply) -> Result<Reply> {
    match reply {
        Reply::Error(e) => Err(e.into_error()),
        other => Ok(other),
    }
}

#[cold]
fn unexpected(script: &Script, what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("script {} answered {what}", script.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_typed() {
        let ints = |a, b| Reply::Array(vec![Reply::Int(a), Reply::Int(b)]);
        assert_eq!(acquire_answer(ints(1, 7)).unwrap(), AcquireAnswer::Granted { token: 7 });
        assert_eq!(acquire_answer(ints(0, 5)).unwrap(), AcquireAnswer::Busy { ttl: Some(Duration::from_millis(5)) });
        for no_hint in [0, -1, -2] {
            assert_eq!(acquire_answer(ints(0, no_hint)).unwrap(), AcquireAnswer::Busy { ttl: None });
        }
        assert_eq!(acquire_answer(ints(9, 0)).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(acquire_answer(Reply::Nil).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(inspect_answer(Reply::Array(vec![Reply::Int(-2)])).unwrap(), None);
    }

    /// Every file says what its KEYS, ARGV and answers are and why it may run twice.
    #[test]
    fn every_script_has_its_header() {
        for script in ALL {
            let header: String = script.source.lines().take_while(|l| l.starts_with("--")).collect();
            for part in [&format!("-- {}: ", script.name), "-- KEYS[", "-- Returns ", "-- Repeat-safe: "] {
                assert!(header.contains(part), "{}.lua lacks {part:?} in its header", script.name);
            }
            assert!(script.source.is_ascii(), "{}.lua", script.name);
        }
    }
}
