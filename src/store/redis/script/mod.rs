//! The Lua scripts, and one typed function for each: keys and values in, a request out, an enum back.

mod count;
mod fence;
mod inspect;
mod lock;
mod multi;
mod redlock;

use std::sync::LazyLock;

pub(crate) use self::count::{count, count_answer, count_question, question_answer};
pub(crate) use self::fence::{fence_answer, fence_claim, fence_write};
pub(crate) use self::inspect::{force_unlock, force_unlock_answer, inspect, inspect_answer, queue, queue_answer};
pub(crate) use self::lock::{
    Family, WaiterTimeouts, acquire, acquire_answer, release, release_answer, renew, renew_answers,
};
pub(crate) use self::multi::{acquire_all, acquire_all_answer, release_all, release_all_answer};
pub(crate) use self::redlock::{
    Memory, NodeReply, acquire_on_node, acquire_on_node_answer, admit, admit_answer, inspect_node, inspect_node_answer,
    renew_on_node, renew_on_node_answer, says_quarantined, take_back, wake_redisson, write_back, write_back_answer,
};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::MOST_NAMES;
use crate::store::redis::wire::{Reply, Request, Shape};

/// One Lua file with what it shares with others.
#[derive(Debug)]
pub(crate) struct Script {
    #[cfg(test)]
    name: &'static str,
    pub(crate) source: &'static str,
    /// What its answers look like, as far as its arguments do not say.
    pub(crate) shape: Shape,
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
    ($($id:ident = $name:literal $(with $with:literal)? $(then $then:literal)? => $shape:expr;)*) => {
        $(static $id: Script = Script {
            #[cfg(test)]
            name: $name,
            source: source!($name $($with)? $(, $then)?),
            shape: $shape,
            sha: LazyLock::new(|| redis::Script::new(source!($name $($with)? $(, $then)?)).get_hash().to_owned()),
        };)*
        #[cfg(test)]
        static ALL: &[&Script] = &[$(&$id),*];
    };
}

scripts! {
    MUTEX_ACQUIRE = "mutex_acquire" then "grant" => Shape::status(3);
    MUTEX_RELEASE = "mutex_release" => Shape::status(2);
    MUTEX_INSPECT = "mutex_inspect" => Shape::List;
    MUTEX_FORCE_UNLOCK = "mutex_force_unlock" => Shape::Number;
    LEASE_RENEW = "lease_renew" => Shape::List;
    MULTI_ACQUIRE = "multi_acquire" => Shape::Status { top: 4, least: 2, most: MOST_NAMES as u16 + 1, fresh: false };
    MULTI_RELEASE = "multi_release" => Shape::List;
    FAIR_ACQUIRE = "fair_acquire" with "queue" then "grant" => Shape::status(3);
    FAIR_RELEASE = "fair_release" with "queue" => Shape::status(2);
    FAIR_FORCE_UNLOCK = "fair_force_unlock" with "queue" => Shape::Number;
    FAIR_QUEUE = "fair_queue" => Shape::Pair;
    READ_ACQUIRE = "read_acquire" then "grant" => Shape::status(3);
    WRITE_ACQUIRE = "write_acquire" then "grant" => Shape::status(3);
    RW_RELEASE = "rw_release" => Shape::status(2);
    RW_RENEW = "rw_renew" => Shape::List;
    RW_FORCE_UNLOCK = "rw_force_unlock" => Shape::Number;
    PERMIT_ACQUIRE = "permit_acquire" with "permits" => Shape::status(4);
    PERMIT_RELEASE = "permit_release" with "permits" => Shape::status(2);
    PERMIT_RENEW = "permit_renew" with "permits" => Shape::List;
    PERMIT_COUNT = "permit_count" with "permits" => Shape::Pair;
    PERMIT_DELETE = "permit_delete" with "once" => Shape::status(3);
    COUNT_ACQUIRE = "count_acquire" with "once" => Shape::status(3);
    COUNT_RELEASE = "count_release" with "once" => Shape::status(2);
    COUNT_SET = "count_set" with "once" => Shape::status(3);
    COUNT_ADD = "count_add" with "once" => Shape::status(5);
    LATCH_COUNT_DOWN = "latch_count_down" with "once" => Shape::status(3);
    LATCH_DELETE = "latch_delete" with "once" => Shape::status(3);
    LATCH_LOOK = "latch_look" with "once" => Shape::Pair;
    REDLOCK_ACQUIRE = "redlock_acquire" => Shape::status(5);
    REDLOCK_RENEW = "redlock_renew" => Shape::Any;
    REDLOCK_TOKEN = "redlock_token" => Shape::Number;
    REDLOCK_LOOK = "redlock_look" => Shape::status(1);
    REDLOCK_ADMIT = "redlock_admit" => Shape::Number;
    CONNECT_PROBE = "connect_probe" => Shape::Any;
    FENCE_CLAIM = "fence_claim" => Shape::Status { top: 1, least: 1, most: 2, fresh: false };
    FENCE_WRITE = "fence_write" => Shape::Status { top: 1, least: 1, most: 2, fresh: false };
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
    let Reply::Array(refused) = fail_on_error(reply)? else {
        return Err(unexpected("the probe of permissions", "no list"));
    };
    Ok(refused
        .into_iter()
        .filter_map(|r| if let Reply::Bytes(b) = r { Some(String::from_utf8_lossy(&b).into_owned()) } else { None })
        .collect())
}

fn pair(reply: Reply, asked: &str) -> Result<(i64, i64)> {
    match fail_on_error(reply)? {
        Reply::Array(parts) => match parts[..] {
            [Reply::Int(a), Reply::Int(b)] => Ok((a, b)),
            _ => Err(unexpected(asked, &format!("{parts:?}"))),
        },
        other => Err(unexpected(asked, &format!("{other:?}"))),
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
fn too_late() -> Error {
    Error::new(ErrorKind::Unreachable, "the request reached the server after the I/O timeout")
}

#[cold]
fn unexpected(asked: &str, answer: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("the answer to {asked} was {answer}, which no script of ours answers"))
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
