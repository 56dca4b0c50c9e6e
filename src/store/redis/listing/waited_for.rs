//! The names with waiters: a waiter listens on the channel of the name, whatever its language.

use std::collections::BTreeSet;

use crate::base::error::{ErrorKind, Result};
use crate::base::log;
use crate::store::redis::keys::{LOCK_CHANNEL, untagged};
use crate::store::redis::wire::{Publishing, Reply, Request, Shape, fail_on_error};

/// The text before the tag of a name in the channels of everything but latches.
const CHANNELS: [&str; 3] = [LOCK_CHANNEL, "redisson_rwlock", "redisson_sc"];
const LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__";

/// The server searches the channels that it has, not its keys.
pub(crate) fn channels(publishing: Publishing) -> Request {
    let which = match publishing {
        Publishing::Classic => "CHANNELS",
        Publishing::Sharded => "SHARDCHANNELS",
    };
    Request::plain(&["PUBSUB", which, "redisson_*"]).answered_by(Shape::Any)
}

/// The keys of the names. None for a user who may not ask, who then sees only what clients have
/// announced.
pub(crate) fn answer(reply: Reply) -> Result<BTreeSet<String>> {
    let channels = match fail_on_error(reply) {
        Ok(reply) => reply.into_list().unwrap_or_default(),
        Err(e) if e.kind() == ErrorKind::Denied => {
            log::debug!("it is not known which locks are waited for: {}", e.chain());
            Vec::new()
        }
        Err(e) => return Err(e),
    };
    let key = |reply: Reply| {
        if let Reply::Bytes(bytes) = reply {
            key_of(std::str::from_utf8(&bytes).ok()?)
        } else {
            None
        }
    };
    Ok(channels.into_iter().filter_map(key).collect())
}

/// The key of the name that the channel belongs to.
pub(super) fn key_of(channel: &str) -> Option<String> {
    if let Some(rest) = channel.strip_prefix(LATCH_CHANNEL) {
        return Some(rest.strip_prefix('{')?.strip_suffix('}')?.to_owned());
    }
    let tag = CHANNELS.iter().find_map(|front| channel.strip_prefix(front)?.strip_prefix(':'))?;
    untagged(without_waiter(tag)).map(str::to_owned)
}

/// A fair waiter that may not subscribe to the pattern has its holder id after the tag.
fn without_waiter(tag: &str) -> &str {
    let Some((front, number)) = tag.rsplit_once(':') else { return tag };
    match front.rsplit_once(':') {
        Some((name, client))
            if client.len() == 36 && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            name
        }
        _ => tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::lock_name::Kind;
    use crate::store::redis::keys::{channel_of, channel_of_waiter};

    #[test]
    fn every_channel_leads_to_its_name() {
        for name in ["job", "a{b}c", "a:b", "löck"] {
            for kind in
                [Kind::Mutex, Kind::Fair, Kind::Read, Kind::Write, Kind::Semaphore, Kind::Latch]
            {
                assert_eq!(key_of(&channel_of(kind, name)).as_deref(), Some(name), "{kind:?}");
            }
            let waiter = channel_of_waiter(name, "a8a5ef81-b5b7-8d39-a987-611a1db5d2fe:30");
            assert_eq!(key_of(&waiter).as_deref(), Some(name));
        }
        for other in [
            "redisson_topic",
            "redisson_lock__channel:job",
            "news",
            "redisson_countdownlatch__channel__x",
        ] {
            assert_eq!(key_of(other), None, "{other}");
        }
    }
}
