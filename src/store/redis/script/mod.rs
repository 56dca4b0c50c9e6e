//! The Lua scripts, and a pair of typed functions for each: one makes the request, one reads the
//! reply.

#[macro_use]
#[path = "../lua/manifest.rs"]
mod manifest;

mod data;
mod handshake;
mod inspect;
mod job;
mod lock;
mod look;
mod multi;
mod rate;
mod redlock;
mod without_holder;

pub(crate) use self::data::{ask_for, last_hold, last_hold_answer, set_data, set_data_answer};
pub(crate) use self::handshake::{
    handshake, handshake_in_cluster, handshake_with_master, refused_by_probe,
};
pub(crate) use self::inspect::{
    announced, announced_answer, enter_client, force_unlock, force_unlock_answer, inspect,
    inspect_answer, queue, queue_answer,
};
pub(crate) use self::job::{
    begin_job, end_job, forget_job, job_ended, job_forgotten, job_state, look_at_job, time,
    time_answer,
};
pub(crate) use self::lock::{
    Family, WaiterTimeouts, acquire, acquire_answer, release, release_answer, renew, renew_answers,
};
pub(crate) use self::look::{look, look_answer};
pub(crate) use self::multi::{acquire_all, acquire_all_answer, release_all, release_all_answer};
pub(crate) use self::rate::{change_rate, change_rate_answer, rate_answer, rate_question};
pub(crate) use self::redlock::{
    Memory, NodeReply, acquire_on_node, acquire_on_node_answer, admit, admit_answer, inspect_node,
    inspect_node_answer, renew_on_node, renew_on_node_answer, says_busy, says_quarantined,
    take_back, wake_redisson, write_back, write_back_answer,
};
pub(crate) use self::without_holder::{count, count_answer, count_question, question_answer};
pub(crate) use self::without_holder::{fence_answer, fence_claim, fence_write};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::MOST_NAMES;
#[cfg(test)]
use crate::store::redis::wire::Publishing;
pub(crate) use crate::store::redis::wire::fail_on_error;
use crate::store::redis::wire::{Reply, Script, Shape, sha_of};

/// One static for each row of the table.
macro_rules! statics {
    ($($id:ident = $name:literal $(with $front:literal)* $(then $end:literal)* => $shape:expr;)*) => {
        $(static $id: Script = {
            const SOURCE: &str = lua_source!($name $(with $front)* $(then $end)*);
            Script::new(SOURCE, $shape, || sha_of(SOURCE))
        };)*
        #[cfg(test)]
        static ALL: &[(&str, &Script)] = &[$(($name, &$id)),*];
    };
}

for_each_script!(statics);

/// The script with this hash, for servers that tests make.
#[cfg(test)]
pub(crate) fn name_of(sha: &str) -> Option<&'static str> {
    ALL.iter().find(|(_, script)| script.sha(Publishing::Classic) == sha).map(|(name, _)| *name)
}

/// Loaded by the handshake of every connection: the scripts of the plain lock, and the probe. The
/// others are sent with their source when a server does not know them: all of them would be tens of
/// kilobytes for each connection of each client after a failover.
static LOADED: &[&Script] = &[&MUTEX_ACQUIRE, &MUTEX_RELEASE, &LEASE_RENEW, &CONNECT_PROBE];

/// The same for a master of a Redlock: every script of a round that may end before its reply comes.
/// A master that is slower than the others would refuse the first request of each kind, and take
/// the lock, or free it, only when somebody reads its reply.
static LOADED_INTO_MASTERS: &[&Script] =
    &[&REDLOCK_ACQUIRE, &REDLOCK_TOKEN, &REDLOCK_RENEW, &MUTEX_RELEASE, &LOCK_KEEP, &CONNECT_PROBE];

fn pair(reply: Reply, asked: &str) -> Result<(i64, i64)> {
    match fail_on_error(reply)? {
        Reply::Pair(a, b) => Ok((a, b)),
        other => Err(unexpected(asked, &format!("{other:?}"))),
    }
}

#[cold]
fn unexpected(asked: &str, answer: &str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("the reply to {asked} was {answer}, which no script of leasehold returns"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file states its KEYS, ARGV and replies, and why it may run twice.
    #[test]
    fn every_script_has_its_header() {
        for (name, script) in ALL {
            let own = script.source.find(&format!("-- {name}: ")).expect("a first line");
            let header: String =
                script.source[own..].lines().take_while(|l| l.starts_with("--")).collect();
            for part in ["-- KEYS[", "-- Returns ", "-- Repeat-safe: "] {
                assert!(header.contains(part), "{name}.lua lacks {part:?} in its header");
            }
            assert!(script.source.is_ascii(), "{name}.lua");
        }
    }
}
