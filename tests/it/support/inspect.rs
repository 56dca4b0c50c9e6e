//! What a test may ask a server, each time over a connection of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis::{FromRedisValue, RedisResult, Value};

use super::{CAP, Server, became_true};

/// Fencing counters outlive their locks on purpose, so they are no dirt.
const KEPT_PREFIX: &str = "redisson_lock_token:";

impl Server {
    /// Runs a command; panics on an error reply.
    #[track_caller]
    pub(crate) fn cmd(&self, words: &[&str]) -> Value {
        self.query(words)
    }

    /// Runs a command; panics on an error reply or one of another type.
    #[track_caller]
    pub(crate) fn query<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_query(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs a command that may fail.
    #[track_caller]
    pub(crate) fn try_query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        run(&mut self.inspector(), words)
    }

    /// All keys.
    #[track_caller]
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        self.query::<Vec<Vec<u8>>>(&["KEYS", "*"]).into_iter().map(text).collect()
    }

    /// A hash; empty when there is no such key.
    #[track_caller]
    pub(crate) fn hash(&self, key: &str) -> BTreeMap<String, String> {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = self.query(&["HGETALL", key]);
        pairs.into_iter().map(|(field, value)| (text(field), text(value))).collect()
    }

    /// Milliseconds to live; -1 without an end, -2 without the key.
    #[track_caller]
    pub(crate) fn pttl(&self, key: &str) -> i64 {
        self.query(&["PTTL", key])
    }

    /// A plain value.
    #[track_caller]
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.query::<Option<Vec<u8>>>(&["GET", key]).map(text)
    }

    /// Lines of `CLIENT LIST`, without monitors and the connection that asks.
    #[track_caller]
    pub(crate) fn clients(&self) -> Vec<String> {
        let mut connection = self.inspector();
        let id: u64 = run(&mut connection, &["CLIENT", "ID"]).unwrap();
        let own = format!("id={id} ");
        let list: String = run(&mut connection, &["CLIENT", "LIST"]).unwrap();
        let lines = list.lines().filter(|line| !line.starts_with(&own) && !line.contains(" flags=O "));
        lines.map(str::to_owned).collect()
    }

    /// How many connections others have.
    #[track_caller]
    pub(crate) fn client_count(&self) -> usize {
        self.clients().len()
    }

    /// Channels with a subscriber, plain and sharded.
    #[track_caller]
    pub(crate) fn pubsub_channels(&self) -> Vec<String> {
        let mut connection = self.inspector();
        let mut names: Vec<Vec<u8>> = run(&mut connection, &["PUBSUB", "CHANNELS"]).unwrap();
        // Redis 6.2 has no sharded ones and answers with an error.
        names.extend(run::<Vec<Vec<u8>>>(&mut connection, &["PUBSUB", "SHARDCHANNELS"]).unwrap_or_default());
        let mut names: Vec<_> = names.into_iter().map(text).collect();
        names.sort();
        names
    }

    /// Calls per command since the last [`Self::reset_stats`], in lower case, those from scripts included.
    ///
    /// Subcommands have names of their own (`client|list`) since Redis 7.0; 6.2 counts them all as `client`.
    #[track_caller]
    pub(crate) fn commandstats(&self) -> HashMap<String, u64> {
        let info: String = self.query(&["INFO", "commandstats"]);
        let parse = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
        };
        info.lines().filter_map(parse).collect()
    }

    /// Starts [`Self::commandstats`] anew.
    #[track_caller]
    pub(crate) fn reset_stats(&self) {
        self.cmd(&["CONFIG", "RESETSTAT"]);
    }

    /// Calls of all commands since the last [`Self::reset_stats`], without those of these two functions and `AUTH`.
    #[track_caller]
    pub(crate) fn total_commands(&self) -> u64 {
        let ours = ["info", "config", "config|resetstat", "auth"];
        self.commandstats().iter().filter(|(name, _)| !ours.contains(&name.as_str())).map(|(_, calls)| calls).sum()
    }

    /// Waits until nothing is left: no key but fencing counters, no connection, no subscription.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        let mut left = Vec::new();
        let is_clean = became_true(CAP / 2, || {
            left.clear();
            let keys = self.keys().into_iter().filter(|key| !key.starts_with(KEPT_PREFIX));
            left.extend(keys.map(|key| format!("key {key:?}")));
            left.extend(self.clients().into_iter().map(|line| format!("client {line}")));
            left.extend(self.pubsub_channels().into_iter().map(|name| format!("channel {name:?}")));
            left.is_empty()
        });
        assert!(is_clean, "left on the server:\n  {}", left.join("\n  "));
    }

    /// A connection that sends nothing but what it is told to, so that it does not disturb counts.
    #[track_caller]
    fn inspector(&self) -> redis::Connection {
        use redis::IntoConnectionInfo;
        let info = self.url().into_connection_info().unwrap();
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let client = redis::Client::open(info.set_redis_settings(settings)).unwrap();
        let connection = client.get_connection_with_timeout(CAP).unwrap();
        connection.set_read_timeout(Some(CAP)).unwrap();
        connection
    }
}

fn run<T: FromRedisValue>(connection: &mut redis::Connection, words: &[&str]) -> RedisResult<T> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query(connection)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}
