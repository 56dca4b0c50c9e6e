//! The Lua scripts, and one typed function for each: keys and values in, a request out, an enum back.

mod count;
mod fence;
mod hold;
mod look;
mod multi;
mod vote;

use std::sync::LazyLock;

pub(crate) use self::count::{Count, CountAnswer, count, count_answer, count_question, question_answer};
pub(crate) use self::fence::{FenceAnswer, fence_answer, fence_claim, fence_write};
pub(crate) use self::hold::{
    Acquire, AcquireAnswer, Family, Levels, ReleaseAnswer, RenewAnswer, TokenRule, Waiting, acquire, acquire_answer,
    release, release_answer, renew, renew_answers,
};
pub(crate) use self::look::{
    Standing, force_unlock, force_unlock_answer, inspect, inspect_answer, queue, queue_answer,
};
pub(crate) use self::multi::{
    AcquireAll, AcquireAllAnswer, Leaving, Part, acquire_all, acquire_all_answer, release_all, release_all_answer,
};
pub(crate) use self::vote::{
    Memory, Vote, admit, admit_answer, look, look_answer, renew_votes, renew_votes_answer, says_no_vote, take_back,
    vote, vote_answer, wake_java, write_back, write_back_answer,
};
use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Reply, Request};

/// One Lua file with what it shares with others.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
    sha: LazyLock<String>,
}

/// A file with functions in front of it and a common end behind it.
macro_rules! source {
    ($name:literal $($with:literal)? $(, $then:literal)?) => {
        concat!(
            $(include_str!(concat!("../lua/lib/", $with, ".lua")),)?
            include_str!(concat!("../lua/", $name, ".lua")),
            $(include_str!(concat!("../lua/lib/", $then, ".lua")),)?
        )
    };
}

macro_rules! scripts {
    ($($id:ident = $name:literal $(with $with:literal)? $(then $then:literal)?;)*) => {
        $(static $id: Script = Script {
            name: $name,
            source: source!($name $($with)? $(, $then)?),
            sha: LazyLock::new(|| redis::Script::new(source!($name $($with)? $(, $then)?)).get_hash().to_owned()),
        };)*
        #[cfg(test)]
        static ALL: &[&Script] = &[$(&$id),*];
    };
}

scripts! {
    MUTEX_ACQUIRE = "mutex_acquire" then "grant";
    MUTEX_RELEASE = "mutex_release";
    MUTEX_INSPECT = "mutex_inspect";
    MUTEX_FORCE_UNLOCK = "mutex_force_unlock";
    LEASE_RENEW = "lease_renew";
    MULTI_ACQUIRE = "multi_acquire";
    MULTI_RELEASE = "multi_release";
    FAIR_ACQUIRE = "fair_acquire" with "queue" then "grant";
    FAIR_RELEASE = "fair_release" with "queue";
    FAIR_FORCE_UNLOCK = "fair_force_unlock" with "queue";
    FAIR_QUEUE = "fair_queue";
    READ_ACQUIRE = "read_acquire" then "grant";
    WRITE_ACQUIRE = "write_acquire" then "grant";
    RW_RELEASE = "rw_release";
    RW_RENEW = "rw_renew";
    RW_FORCE_UNLOCK = "rw_force_unlock";
    PERMIT_ACQUIRE = "permit_acquire" with "permits";
    PERMIT_RELEASE = "permit_release" with "permits";
    PERMIT_RENEW = "permit_renew" with "permits";
    PERMIT_COUNT = "permit_count" with "permits";
    PERMIT_DELETE = "permit_delete" with "once";
    COUNT_ACQUIRE = "count_acquire" with "once";
    COUNT_RELEASE = "count_release" with "once";
    COUNT_SET = "count_set" with "once";
    COUNT_ADD = "count_add" with "once";
    LATCH_COUNT_DOWN = "latch_count_down" with "once";
    LATCH_DELETE = "latch_delete" with "once";
    LATCH_LOOK = "latch_look" with "once";
    REDLOCK_ACQUIRE = "redlock_acquire";
    REDLOCK_RENEW = "redlock_renew";
    REDLOCK_TOKEN = "redlock_token";
    REDLOCK_LOOK = "redlock_look";
    REDLOCK_ADMIT = "redlock_admit";
    CONNECT_PROBE = "connect_probe";
    FENCE_CLAIM = "fence_claim";
    FENCE_WRITE = "fence_write";
}

/// What is loaded whenever a connection is made: the scripts of the plain lock, and those that must not come late. The
/// others are sent whole when a server sees them for the first time: all of them would be tens of kilobytes for each
/// connection of each client after a failover.
pub(crate) static LOADED: &[&Script] = &[&MUTEX_ACQUIRE, &MUTEX_RELEASE, &LEASE_RENEW, &CONNECT_PROBE];

impl Script {
    pub(crate) fn sha(&self) -> &str {
        &self.sha
    }
}

pub(crate) fn connect_probe(key: &str, channels: &[String]) -> Request {
    channels.iter().fold(Request::script(&CONNECT_PROBE, &[key.as_bytes()]), |request, channel| request.arg(channel))
}

pub(crate) fn connect_probe_answer(reply: Reply) -> Result<Vec<String>> {
    let Reply::Array(refused) = fail_on_error(reply)? else { return Err(unexpected(&CONNECT_PROBE, "no list")) };
    Ok(refused
        .into_iter()
        .filter_map(|r| if let Reply::Bytes(b) = r { Some(String::from_utf8_lossy(&b).into_owned()) } else { None })
        .collect())
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

    /// Every file says what its KEYS, ARGV and answers are and why it may run twice.
    #[test]
    fn every_script_has_its_header() {
        for script in ALL {
            let own = script.source.find(&format!("-- {}: ", script.name)).expect("a first line");
            let header: String = script.source[own..].lines().take_while(|l| l.starts_with("--")).collect();
            for part in ["-- KEYS[", "-- Returns ", "-- Repeat-safe: "] {
                assert!(header.contains(part), "{}.lua lacks {part:?} in its header", script.name);
            }
            assert!(script.source.is_ascii(), "{}.lua", script.name);
        }
    }
}
