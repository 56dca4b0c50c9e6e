//! Scripts of Redlock, for one master of several.

use std::time::Duration;

use super::lock::{positive_millis, renew_answers, with_token};
use super::{
    MUTEX_RELEASE, REDLOCK_ACQUIRE, REDLOCK_ADMIT, REDLOCK_LOOK, REDLOCK_RENEW, REDLOCK_TOKEN,
    fail_on_error, unexpected,
};
use crate::base::deadline::ceil_millis;
use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::store::redis::keys::{NODE_KEY, RedisKeys};
use crate::store::redis::wire::{Reply, Request, Shape, WAKE_REDISSON};
use crate::store::{Acquire, Renewal, Renewed, TokenRule};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NodeReply {
    Granted {
        token: u64,
    },
    /// Held by another holder at this master.
    Busy {
        ttl: Option<Duration>,
        holder: String,
    },
    /// The holder has lost it at this master.
    Gone,
    /// The master restarted, was flushed, or is new.
    Quarantined,
}

/// `proposal`: the token that the client proposes.
pub(crate) fn acquire_on_node(acquire: &Acquire<'_>, proposal: u64, run_id: &str) -> Request {
    let Acquire { name, holder, lease, held, token, .. } = *acquire;
    let keys = RedisKeys::of(name);
    let names = [keys.lock.as_bytes(), keys.token.as_bytes(), NODE_KEY.as_bytes()];
    let request = Request::script(&REDLOCK_ACQUIRE, &names);
    let request = request.arg(holder.as_str()).number(ceil_millis(lease)).number(u64::from(held));
    let request = with_token(request, token).number(proposal).arg(run_id).with_limit();
    if held == 0 { request.for_fresh_holder() } else { request }
}

pub(crate) fn acquire_on_node_answer(reply: Reply) -> Result<NodeReply> {
    let Some(parts) = fail_on_error(reply)?.into_list() else {
        return Err(unexpected("an acquire from one master", "no list"));
    };
    Ok(match &parts[..] {
        [Reply::Int(1), Reply::Int(token)] => NodeReply::Granted { token: token.unsigned_abs() },
        [Reply::Int(0), Reply::Int(ttl), rest @ ..] => NodeReply::Busy {
            ttl: positive_millis(*ttl),
            holder: rest.first().map(text).unwrap_or_default(),
        },
        [Reply::Int(2), ..] => NodeReply::Gone,
        [Reply::Int(5), ..] => NodeReply::Quarantined,
        other => return Err(unexpected("an acquire from one master", &format!("{other:?}"))),
    })
}

/// Also for a reply that is read late, whatever its request was.
pub(crate) fn says_quarantined(reply: &Reply) -> bool {
    // That of a renewal is an empty list, and no other script has that answer.
    *reply == Reply::Pair(5, 0) || *reply == Reply::Array(Vec::new())
}

/// The same for an acquire that found the lock taken.
pub(crate) fn says_busy(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(parts) if parts.first() == Some(&Reply::Int(0)))
}

/// Releases one master without notifying leasehold's waiters: the hold of a minority kept none of
/// them from the lock.
pub(crate) fn take_back(name: &LockName, holder: &Holder) -> Request {
    Request::script(&MUTEX_RELEASE, &[name.key.as_bytes()]).arg(holder.as_str()).number(1).arg("")
}

/// Notifies Redisson's waiters at one master; leasehold's ignore the message.
pub(crate) fn wake_redisson(name: &LockName) -> Request {
    Request::plain(&["PUBLISH"])
        .arg(RedisKeys::of(name).channel)
        .arg(WAKE_REDISSON)
        .answered_by(Shape::Number)
}

fn text(reply: &Reply) -> String {
    if let Reply::Bytes(bytes) = reply {
        String::from_utf8_lossy(bytes).into_owned()
    } else {
        String::new()
    }
}

pub(crate) fn renew_on_node<'a>(
    holds: impl Iterator<Item = &'a Renewal> + Clone,
    run_id: &str,
) -> Request {
    let locks = holds.clone().map(|hold| hold.name.key.as_bytes());
    let keys: Vec<&[u8]> = locks.chain(std::iter::once(NODE_KEY.as_bytes())).collect();
    let shape = Shape::EachOrNone(keys.len() as u32 - 1);
    let request = Request::script(&REDLOCK_RENEW, &keys).answered_by(shape);
    let request = holds.clone().fold(request, |request, hold| request.arg(hold.holder.as_str()));
    holds.fold(request, |request, hold| request.number(ceil_millis(hold.lease))).arg(run_id)
}

/// `None`: the master has no vote.
pub(crate) fn renew_on_node_answer(reply: Reply, sent_at: Moment) -> Result<Option<Vec<Renewed>>> {
    renew_answers(reply, sent_at)
        .map(|answers| if answers.is_empty() { None } else { Some(answers) })
}

pub(crate) fn write_back(
    name: &LockName,
    holder: &Holder,
    token: u64,
    rule: TokenRule,
    run_id: &str,
) -> Request {
    let keys = RedisKeys::of(name);
    let names = [keys.lock.as_bytes(), keys.token.as_bytes(), NODE_KEY.as_bytes()];
    let request = Request::script(&REDLOCK_TOKEN, &names).arg(holder.as_str()).number(token);
    with_token(request, rule).arg(run_id)
}

/// Whether the master knows the token now.
pub(crate) fn write_back_answer(reply: Reply) -> Result<bool> {
    match fail_on_error(reply)? {
        Reply::Int(known) => Ok(known == 1),
        other => Err(unexpected("the write-back of a token", &format!("{other:?}"))),
    }
}

/// The vote state that a master has stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The mark at which its quarantine began; `None`: it may vote.
    pub(crate) pending: Option<String>,
    /// The highest token it knows; `None`: it has no data.
    pub(crate) max: Option<u64>,
}

pub(crate) fn inspect_node(run_id: &str, nonce: &str) -> Request {
    Request::script(&REDLOCK_LOOK, &[NODE_KEY.as_bytes()]).arg(run_id).arg(nonce)
}

pub(crate) fn inspect_node_answer(reply: Reply) -> Result<Memory> {
    let Reply::Array(parts) = fail_on_error(reply)? else {
        return Err(unexpected("reading what a master remembers", "no list"));
    };
    match &parts[..] {
        [Reply::Int(may), max, pending] => Ok(Memory {
            pending: (*may == 0).then(|| text(pending)),
            // Written by string.format('%.0f').
            max: text(max).parse().ok(),
        }),
        other => Err(unexpected("reading what a master remembers", &format!("{other:?}"))),
    }
}

pub(crate) fn admit(run_id: &str, pending: &str, floor: u64) -> Request {
    Request::script(&REDLOCK_ADMIT, &[NODE_KEY.as_bytes()]).arg(run_id).arg(pending).number(floor)
}

pub(crate) fn admit_answer(reply: Reply) -> Result<bool> {
    match fail_on_error(reply)? {
        Reply::Int(done) => Ok(done == 1),
        other => Err(unexpected("the admission of a master", &format!("{other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_are_typed() {
        let ints = Reply::Pair;
        assert_eq!(acquire_on_node_answer(ints(1, 7)).unwrap(), NodeReply::Granted { token: 7 });
        assert_eq!(acquire_on_node_answer(ints(5, 0)).unwrap(), NodeReply::Quarantined);
        let no = Reply::Array(vec![Reply::Int(0), Reply::Int(9), Reply::Bytes(b"u:1".to_vec())]);
        let ttl = Some(Duration::from_millis(9));
        assert_eq!(
            acquire_on_node_answer(no).unwrap(),
            NodeReply::Busy { ttl, holder: "u:1".into() }
        );
        assert!(
            acquire_on_node_answer(ints(9, 0)).is_err()
                && acquire_on_node_answer(Reply::Nil).is_err()
        );
        assert!(
            renew_on_node_answer(Reply::Array(Vec::new()), Moment::from_nanos(0))
                .unwrap()
                .is_none()
        );
        let memory = |may, max: &str, pending: &str| {
            let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
            inspect_node_answer(Reply::Array(vec![Reply::Int(may), text(max), text(pending)]))
                .unwrap()
        };
        assert_eq!(memory(1, "12", ""), Memory { pending: None, max: Some(12) });
        assert_eq!(memory(0, "", "r:1"), Memory { pending: Some("r:1".into()), max: None });
    }

    #[test]
    fn a_master_knows_the_token_or_not() {
        for answer in [write_back_answer, admit_answer] {
            assert!(answer(Reply::Int(1)).unwrap());
            assert!(!answer(Reply::Int(0)).unwrap());
            assert!(answer(Reply::Nil).is_err());
        }
        assert!(says_quarantined(&Reply::Pair(5, 0)) && !says_quarantined(&Reply::Pair(1, 0)));
    }
}
