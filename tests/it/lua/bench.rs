//! Sends scripts as EVAL over one connection while another connection receives all published
//! messages.

use std::collections::BTreeMap;

use redis::{ConnectionLike, RedisResult, Value};

use super::scripts;
use crate::rig::Server;

/// TTLs are whole kiloseconds and compared rounded, so that a slow machine does not change results.
pub(crate) const MILLIS: i64 = 1_000_000;
/// Redisson's score for a permit without an expiry.
const NEVER: i64 = 922_337_203_685_477;

pub(crate) fn kilo(millis: i64) -> String {
    if millis < 0 { millis.to_string() } else { format!("{}ks", (millis + MILLIS / 2) / MILLIS) }
}

/// The content of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) kind: String,
    /// Fields, members or elements, each with its value or score. Sorted, except for lists.
    pub(crate) body: Vec<(String, String)>,
    pub(crate) pttl: String,
}

/// All keys of a server, so that a test notices anything that is left behind.
pub(crate) type Picture = BTreeMap<String, Content>;

pub(crate) struct Bench<'a> {
    con: redis::Connection,
    subscriber: redis::PubSub<'a>,
    scripts: BTreeMap<&'static str, &'static str>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(server: &Server, subscriber: &'a mut redis::Connection) -> Self {
        let mut subscriber = subscriber.as_pubsub();
        subscriber.psubscribe("*").unwrap();
        Self { con: server.connect(), subscriber, scripts: scripts() }
    }

    pub(crate) fn cmd<T: redis::FromRedisValue>(&mut self, words: &[impl redis::ToRedisArgs]) -> T {
        let mut cmd = redis::Cmd::new();
        for word in words {
            cmd.arg(word);
        }
        cmd.query(&mut self.con).unwrap_or_else(|e| {
            panic!(
                "{}: {e}",
                String::from_utf8_lossy(&cmd.get_packed_command()).replace("\r\n", " ")
            )
        })
    }

    /// Runs one of the crate's scripts.
    pub(crate) fn eval(
        &mut self,
        script: &str,
        keys: &[impl redis::ToRedisArgs],
        args: &[impl redis::ToRedisArgs],
    ) -> RedisResult<Value> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(self.scripts[script]).arg(keys.len());
        for word in keys {
            cmd.arg(word);
        }
        for word in args {
            cmd.arg(word);
        }
        // Not `query`, which turns a whole list of replies into an error when one of them is an
        // error.
        self.con.req_packed_command(&cmd.get_packed_command())
    }

    /// The messages published since the last call. A marker message shows where they end, so no
    /// wait is needed.
    pub(crate) fn published(&mut self) -> Vec<(String, String)> {
        self.cmd::<u32>(&["PUBLISH", "mark", ""]);
        let next = || {
            let message = self.subscriber.get_message().unwrap();
            (message.get_channel_name().to_owned(), message.get_payload().unwrap())
        };
        std::iter::repeat_with(next)
            .take_while(|(channel, _): &(String, String)| channel != "mark")
            .collect()
    }

    /// The server's clock in ms.
    pub(crate) fn now(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = self.cmd(&["TIME"]);
        seconds * 1000 + micros / 1000
    }

    /// The current content of all keys, with remaining times instead of timestamps. `name` shortens
    /// long names.
    pub(crate) fn picture(&mut self, name: impl Fn(&str) -> String) -> Picture {
        const LOOK: &str = "local out = {}
            for _, key in ipairs(redis.call('keys', '*')) do
              local kind, body = redis.call('type', key).ok, {}
              if kind == 'hash' then body = redis.call('hgetall', key) end
              if kind == 'string' then body = {'', redis.call('get', key)} end
              if kind == 'zset' then body = redis.call('zrange', key, 0, -1, 'withscores') end
              if kind == 'list' then
                for _, element in ipairs(redis.call('lrange', key, 0, -1)) do
                  body[#body + 1] = element
                  body[#body + 1] = ''
                end
              end
              out[#out + 1] = {key, kind, redis.call('pttl', key), body}
            end
            return out";
        let now = self.now();
        let score = |text: &str| match text
            .parse()
            .expect("scores are whole milliseconds, or Java cannot read them")
        {
            NEVER => "never".to_owned(),
            at if at <= now => "past".to_owned(),
            at => kilo(at - now),
        };
        let keys: Vec<(String, String, i64, Vec<Vec<u8>>)> = self.cmd(&["EVAL", LOOK, "0"]);
        let content = |(key, kind, pttl, body): (String, String, i64, Vec<Vec<u8>>)| {
            let text = |bytes: &[u8]| {
                std::str::from_utf8(bytes).map_or_else(|_| format!("{bytes:?}"), &name)
            };
            let pair = |pair: &[Vec<u8>]| {
                let (member, value) = (text(&pair[0]), text(&pair[1]));
                // These are times in the data of a hold.
                let is_time = kind == "zset"
                    || kind == "hash" && ["until", "asked"].contains(&member.as_str());
                (member, if is_time { score(&value) } else { value })
            };
            let mut body: Vec<_> = body.chunks(2).map(pair).collect();
            if kind != "list" {
                body.sort();
            }
            (name(&key), Content { kind, body, pttl: kilo(pttl) })
        };
        // A key that is about to expire may be gone the next time.
        keys.into_iter().map(content).filter(|(_, content)| content.pttl != "0ks").collect()
    }
}
