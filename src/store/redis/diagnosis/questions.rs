//! Which commands, keys and channels locks need, and how to ask the server about each.

use super::subject::{Part, Subject};
use crate::base::job_name::JobName;
use crate::base::lock_name::{Kind, LockName};
use crate::store::redis::keys::{NODE_KEY, RedisKeys, client_key};

/// An id that cannot exist: killing it does nothing.
pub(super) const NOBODY: &str = "9223372036854775807";

/// Commands on a key that locks cannot do without.
#[rustfmt::skip]
pub(super) const ON_A_KEY: [&[&str]; 32] = [
    &["hset", "f", "v"], &["hget", "f"], &["hdel", "f"], &["hexists", "f"], &["hgetall"], &["hlen"], &["exists"],
    &["del"], &["get"], &["set", "v"], &["incr"], &["incrby", "1"], &["decrby", "1"], &["pttl"], &["pexpire", "1"],
    &["pexpireat", "1"], &["persist"], &["lindex", "0"], &["lrange", "0", "0"], &["rpush", "v"], &["lpop"],
    &["lrem", "0", "v"], &["zadd", "0", "v"], &["zrem", "v"], &["zscore", "v"], &["zmscore", "v"], &["zcard"],
    &["zcount", "0", "0"], &["zrange", "0", "0"], &["zrangebyscore", "0", "0"], &["hmget", "f"], &["hkeys"],
];
/// How many of them, at the end, are only for Redlock.
const FOR_REDLOCK: usize = 2;

/// One command to ask about, and what it means if it is refused.
pub(super) struct Question {
    pub(super) words: Vec<String>,
    pub(super) refused: Refused,
}

pub(super) enum Refused {
    /// Locks need it. `rule`: what to add to the ACL.
    Needed {
        rule: String,
        what: String,
    },
    /// Locks work without it, but something else does not.
    Helpful {
        rule: &'static str,
        lost: &'static str,
    },
    /// Only for the diagnosis itself.
    Info,
    Config,
    Kill,
    /// A command that shows whether a key may be used; one of several.
    Key(usize),
    Channel(usize),
}

/// A form of the keys of locks, and the ACL rule that permits all keys of this form.
pub(super) struct KeyForm {
    pub(super) key: String,
    pub(super) rule: String,
    /// Without it only the information about holders is lost.
    pub(super) helpful: bool,
}

/// The forms of keys. The first is that of the lock itself.
pub(super) fn key_forms(subject: &Subject) -> Vec<KeyForm> {
    // The key of the handshake would not do: its colon is matched by patterns for other keys.
    let probe = |kind| LockName::new(&subject.key_prefix, "probe", kind);
    let (Ok(fair), Ok(permits)) = (probe(Kind::Fair), probe(Kind::Semaphore)) else {
        return Vec::new();
    };
    let prefix = &subject.key_prefix;
    let keys = RedisKeys::of(&fair);
    let form = |key: &str, rule: &str| KeyForm {
        key: key.to_owned(),
        rule: rule.to_owned(),
        helpful: false,
    };
    let main = format!("~{prefix}*");
    let mut forms = vec![form(keys.lock, &main), form(keys.token, "~redisson_lock_token:*")];
    if matches!(subject.part, Part::Master { .. }) {
        forms.push(form(NODE_KEY, "~leasehold:node"));
    } else {
        let beside = if prefix.contains('{') { main } else { format!("~{{{prefix}*") };
        forms.push(form(&RedisKeys::of(&permits).leases(), &beside));
        forms.push(form(&keys.queue(), "~redisson_lock_queue:*"));
        forms.push(form(&keys.deadlines(), "~redisson_lock_timeout:*"));
        forms.push(form(&keys.marker(), "~leasehold_writer:*"));
        forms.push(form(&keys.idempotency_key("probe"), "~leasehold_once:*"));
        forms.push(form(&keys.data(), "~leasehold_data:*"));
        if let Ok(job) = JobName::new(&fair, "probe") {
            forms.push(form(&job.lease.key, "~leasehold_job:*"));
            forms.push(form(&job.record.key, "~leasehold_done:*"));
            forms.push(form(&job.last, "~leasehold_last:*"));
        }
    }
    let client = client_key(&format!("{prefix}probe"));
    forms.push(KeyForm { helpful: true, ..form(&client, "~leasehold_client:*") });
    forms
}

pub(super) fn questions(
    subject: &Subject,
    sharded: bool,
    keys: &[KeyForm],
    channels: &[String],
) -> Vec<Question> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let needed = |name: &str, all: &[&str]| {
        let refused = Refused::Needed {
            rule: format!("+{name}"),
            what: name.replace('|', " ").to_uppercase(),
        };
        Question { words: words(all), refused }
    };
    // The key that the handshake checks as well.
    let key = keys.get(1).map_or("", |form| &form.key);
    let redlock = matches!(subject.part, Part::Master { .. });
    let count = ON_A_KEY.len() - if redlock { 0 } else { FOR_REDLOCK };
    let mut questions: Vec<Question> = ON_A_KEY[..count]
        .iter()
        .map(|command| needed(command[0], &[&command[..1], &[key], &command[1..]].concat()))
        .collect();
    questions.push(needed("time", &["time"]));
    questions.push(needed("evalsha", &["evalsha", "0", "0"]));
    questions.push(needed("script|load", &["script", "load", ""]));
    if subject.replicas.is_some() {
        questions.push(needed("wait", &["wait", "1", "0"]));
    }
    if subject.part == Part::InCluster {
        questions.extend([
            needed("cluster|slots", &["cluster", "slots"]),
            needed("asking", &["asking"]),
        ]);
    }
    let helpful = |all: &[&str], rule, lost| Question {
        words: words(all),
        refused: Refused::Helpful { rule, lost },
    };
    let ask = |all: &[&str], refused| Question { words: words(all), refused };
    questions.extend([
        helpful(
            &["linsert", key, "before", "a", "b"],
            "+linsert",
            "a fair waiter that was removed loses its place",
        ),
        helpful(
            &["unsubscribe", "c"],
            "+unsubscribe",
            "release messages keep coming for names that nobody waits for",
        ),
        helpful(&["ping"], "+ping", "the end of a subscription is noticed later"),
        helpful(&["echo", "1"], "+echo", "threads wait for each other to use a connection"),
        helpful(
            &["client", "setname", "n"],
            "+client|setname",
            "CLIENT LIST does not show who is connected",
        ),
        helpful(
            &["client", "info"],
            "+client|info",
            "a request whose answer was lost cannot be stopped",
        ),
        ask(&["client", "kill", "id", NOBODY], Refused::Kill),
        ask(&["info", "server"], Refused::Info),
        ask(&["config", "get", "save"], Refused::Config),
    ]);
    for (place, form) in keys.iter().enumerate() {
        // Any of them is enough, because each may be missing as a command.
        let commands: [&[&str]; 3] =
            [&["exists", &form.key], &["del", &form.key], &["pttl", &form.key]];
        questions.extend(commands.iter().map(|command| ask(command, Refused::Key(place))));
    }
    let (publish, subscribe) =
        if sharded { ("spublish", "ssubscribe") } else { ("publish", "subscribe") };
    for (place, channel) in channels.iter().enumerate() {
        questions.push(ask(&[publish, channel, "0"], Refused::Channel(place)));
        questions.push(ask(&[subscribe, channel], Refused::Channel(place)));
    }
    questions
}
