//! The Lua scripts, sent as EVAL to a real server: their replies, their writes and their messages,
//! and that a repeat changes nothing.
//!
//! [`World::expect`] returns the expected result. It is derived from the headers in
//! `src/store/redis/lua` and not from the scripts.

mod mutex;
mod renew_probe_fence;
mod tokens;

use std::collections::BTreeMap;

use redis::{ConnectionLike, RedisResult, Value};

use crate::lua::script;
use crate::rig::Server;

/// Two holders.
const A: &str = "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:1";
const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb:1";
const LOCK: &str = "L";
const TOKEN: &str = "redisson_lock_token:{L}";
const CHANNEL: &str = "redisson_lock__channel:{L}";

/// TTLs are whole kiloseconds and compared rounded up, so that a slow machine does not change
/// results.
const MILLIS: i64 = 1_000_000;
/// The PTTL of a key without a TTL.
const NEVER: i64 = -1;
/// Server times in microseconds of 1970 and of 2096.
const PAST: i64 = 1;
const FUTURE: i64 = 4_000_000_000_000_000;
/// A floor below some of the counters in these tests.
const LOW: i64 = 100;
/// Earlier than the clock of any server.
const CLOCK: i64 = 1_700_000_000_000_000;

fn rule_ttl(rule: i64) -> String {
    if rule > 0 { (rule * MILLIS).to_string() } else { rule.to_string() }
}

fn ttl(millis: i64) -> String {
    if millis < 0 { millis.to_string() } else { format!("{}ks", (millis + MILLIS - 1) / MILLIS) }
}

/// A counter as text: the clock's microseconds are not known in advance, everything else is.
fn number(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(n) if (CLOCK..FUTURE).contains(&n) => "clock".to_owned(),
        _ => text.to_owned(),
    }
}

fn show(reply: &RedisResult<Value>) -> String {
    let error = |text: String| {
        // Redis 6.2 wraps the error of a command inside a script, so the error code may be anywhere
        // in it.
        let code = ["WRONGTYPE", "OOM"].into_iter().find(|code| text.contains(code));
        format!("!{}", code.unwrap_or("ERR"))
    };
    match reply {
        Err(e) => error(e.to_string()),
        Ok(Value::ServerError(e)) => error(e.to_string()),
        Ok(Value::Int(n)) if *n > MILLIS / 2 && *n < CLOCK => ttl(*n),
        Ok(Value::Int(n)) => number(&n.to_string()),
        Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Ok(Value::Array(parts)) => {
            let parts: Vec<_> = parts.iter().map(|part| show(&Ok(part.clone()))).collect();
            format!("[{}]", parts.join(" "))
        }
        Ok(Value::Nil) => "nil".to_owned(),
        Ok(other) => format!("{other:?}"),
    }
}

#[derive(Debug, Clone)]
enum Call {
    /// `rule`: -1 for no token, 0 for a counter that never expires, else its TTL in kiloseconds.
    Acquire {
        who: String,
        lease: i64,
        held: i64,
        rule: i64,
        floor: i64,
        not_after: i64,
    },
    Release {
        who: String,
        held: i64,
    },
    Renew {
        who: String,
        lease: i64,
    },
    Inspect,
    Force,
    Probe,
}

impl Call {
    fn acquire(who: &str, held: i64) -> Self {
        Self::Acquire { who: who.to_owned(), lease: 2, held, rule: 9, floor: LOW, not_after: 0 }
    }

    fn release(who: &str, held: i64) -> Self {
        Self::Release { who: who.to_owned(), held }
    }

    fn renew(who: &str, lease: i64) -> Self {
        Self::Renew { who: who.to_owned(), lease }
    }

    /// Every call that leasehold sends for holder A.
    fn all_of_a() -> Vec<Self> {
        let mut calls = vec![Self::Inspect, Self::Force, Self::Probe];
        calls.extend((1..=3).map(|held| Self::release(A, held)));
        calls.extend([0, 1, 3].map(|lease| Self::renew(A, lease)));
        let rules = [(-1, LOW, 0), (0, LOW, 0), (9, LOW, 0), (0, FUTURE, 0), (9, FUTURE, 0)];
        let limits = [(-1, LOW, PAST), (9, LOW, PAST), (9, LOW, FUTURE)];
        for (rule, floor, not_after) in rules.into_iter().chain(limits) {
            for (lease, held) in [(1, 0), (3, 0), (1, 1), (3, 1), (3, 2)] {
                calls.push(Self::Acquire {
                    who: A.to_owned(),
                    lease,
                    held,
                    rule,
                    floor,
                    not_after,
                });
            }
        }
        calls
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Lock {
    Free,
    /// Each holder with its count, and the TTL in kiloseconds.
    Held(BTreeMap<String, i64>, i64),
    /// A string that is not a lock.
    Foreign,
    /// A hash of an application.
    ForeignHash,
}

/// The fields of such a hash.
const USERS: [&str; 2] = ["alice", "1"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    At(i64),
    /// The server's time in microseconds when it was set, or a little more.
    Clock,
    /// A value that INCR refuses.
    Junk(&'static str),
}

/// The keys in Redis: the lock, and the token counter with its TTL in kiloseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct World {
    lock: Lock,
    token: Option<(Counter, i64)>,
}

/// Each key with its content and TTL, as text.
type Picture = BTreeMap<String, String>;

impl World {
    const EMPTY: Self = Self { lock: Lock::Free, token: None };

    fn held(fields: &[(&str, i64)], ttl: i64) -> Self {
        let fields = fields.iter().map(|(who, count)| ((*who).to_owned(), *count)).collect();
        Self { lock: Lock::Held(fields, ttl), token: None }
    }

    /// What the headers promise: the reply, and the channel of the message.
    fn expect(&mut self, call: &Call) -> (String, Option<&'static str>) {
        let answer = |text: &str| (text.to_owned(), None);
        if matches!(call, Call::Probe) {
            return ("[]".to_owned(), Some("probe"));
        }
        // Reading a free lock finds no fields.
        let mut empty = (BTreeMap::new(), NEVER);
        let (fields, left) = match &mut self.lock {
            Lock::Foreign if matches!(call, Call::Renew { .. }) => return answer("[!WRONGTYPE]"),
            Lock::Foreign => return answer("!WRONGTYPE"),
            Lock::ForeignHash => {
                return answer(match call {
                    Call::Acquire { held: 0, .. } | Call::Force => "!WRONGTYPE",
                    Call::Acquire { .. } => "[2 0]",
                    Call::Release { .. } => "[0 0]",
                    Call::Renew { .. } => "[0]",
                    Call::Inspect => "[-1 alice 1]",
                    Call::Probe => unreachable!(),
                });
            }
            Lock::Held(fields, left) => (fields, left),
            Lock::Free => (&mut empty.0, &mut empty.1),
        };
        let free = fields.is_empty();
        match call {
            Call::Acquire { who, held, .. } if *held > 0 && !fields.contains_key(who) => {
                answer("[2 0]")
            }
            Call::Acquire { who, .. } if !free && !fields.contains_key(who) => {
                answer(&format!("[0 {}]", kilo(*left)))
            }
            // A re-entry is neither undone nor repeated, so it may also be late.
            Call::Acquire { held: 0, not_after: PAST, .. } => answer("[3 0]"),
            Call::Acquire { who, lease, held, rule, floor, .. } => {
                // A hash without a TTL gets one: a lock must never last forever.
                let (mut fields, left) = (fields.clone(), (*left).max(*lease));
                let token =
                    if *held > 0 { Some("0".to_owned()) } else { self.next_token(*rule, *floor) };
                let Some(token) = token else { return answer("!ERR") };
                fields.insert(who.clone(), held + 1);
                self.lock = Lock::Held(fields, left);
                answer(&format!("[1 {token}]"))
            }
            Call::Release { who, .. } if !fields.contains_key(who) => answer("[0 0]"),
            Call::Release { who, held } if *held > 1 => {
                fields.insert(who.clone(), held - 1);
                answer("[1 0]")
            }
            Call::Release { who, .. } => {
                fields.remove(who);
                if fields.is_empty() {
                    self.lock = Lock::Free;
                }
                ("[2 1]".to_owned(), Some(CHANNEL))
            }
            Call::Renew { who, .. } if !fields.contains_key(who) => answer("[0]"),
            Call::Renew { lease, .. } => {
                if *lease > 0 {
                    *left = (*left).max(*lease);
                }
                answer("[1]")
            }
            Call::Inspect if free => answer("[-2]"),
            Call::Inspect => {
                let pairs: Vec<_> =
                    fields.iter().map(|(who, count)| format!("{who} {count}")).collect();
                answer(&format!("[{} {}]", kilo(*left), pairs.join(" ")))
            }
            Call::Force if free => answer("0"),
            Call::Force => {
                self.lock = Lock::Free;
                ("1".to_owned(), Some(CHANNEL))
            }
            Call::Probe => unreachable!(),
        }
    }

    fn next_token(&mut self, rule: i64, floor: i64) -> Option<String> {
        if rule < 0 {
            return Some("0".to_owned());
        }
        let (old, left) =
            self.token.unwrap_or((Counter::At(0), if rule == 0 { NEVER } else { rule }));
        let (new, below) = match old {
            Counter::At(n) => (Counter::At(n + 1), n + 1 < floor),
            Counter::Clock => (Counter::Clock, floor == FUTURE),
            Counter::Junk(_) => return None,
        };
        // The counter never expires, by its rule or because Redisson created it without a TTL.
        let kept = rule == 0 || left == NEVER;
        let next =
            if below { (Counter::Clock, if kept { NEVER } else { rule }) } else { (new, left) };
        self.token = Some(next);
        Some(next.0.text())
    }

    fn picture(&self) -> Picture {
        let mut picture = Picture::new();
        match &self.lock {
            Lock::Free => {}
            Lock::Held(fields, left) => {
                let fields: Vec<_> =
                    fields.iter().map(|(who, count)| format!("{who} {count}")).collect();
                picture
                    .insert(LOCK.to_owned(), format!("hash {} {}", fields.join(" "), kilo(*left)));
            }
            Lock::Foreign => drop(picture.insert(LOCK.to_owned(), "string x -1".to_owned())),
            Lock::ForeignHash => {
                drop(picture.insert(LOCK.to_owned(), format!("hash {} -1", USERS.join(" "))));
            }
        }
        if let Some((counter, left)) = self.token {
            picture.insert(TOKEN.to_owned(), format!("string {} {}", counter.text(), kilo(left)));
        }
        picture
    }
}

impl Counter {
    fn text(self) -> String {
        match self {
            Self::At(n) => n.to_string(),
            Self::Clock => "clock".to_owned(),
            Self::Junk(text) => text.to_owned(),
        }
    }
}

fn kilo(left: i64) -> String {
    if left < 0 { left.to_string() } else { format!("{left}ks") }
}

/// One connection that runs scripts, and one that receives all published messages.
struct Bench<'a> {
    con: redis::Connection,
    subscriber: redis::PubSub<'a>,
}

impl<'a> Bench<'a> {
    fn new(server: &Server, subscriber: &'a mut redis::Connection) -> Self {
        let mut subscriber = subscriber.as_pubsub();
        subscriber.psubscribe("*").unwrap();
        Self { con: server.connect(), subscriber }
    }

    fn cmd<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut cmd = redis::cmd(words[0]);
        cmd.arg(&words[1..]).query(&mut self.con).unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    fn eval(&mut self, script: &str, keys: &[&str], args: &[&str]) -> RedisResult<Value> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script).arg(keys.len()).arg(keys).arg(args);
        // Not `query`, which turns a whole list of replies into an error when one of them is an
        // error.
        self.con.req_packed_command(&cmd.get_packed_command())
    }

    fn run(&mut self, call: &Call) -> String {
        let text = |n: &i64| (n * MILLIS).to_string();
        let reply = match call {
            Call::Acquire { who, lease, held, rule, floor, not_after } => {
                let args = [who, &text(lease), &held.to_string(), &rule_ttl(*rule)];
                let one = "1".to_owned();
                let stamps = [&one, &floor.to_string(), &not_after.to_string()];
                let args: Vec<&str> = args.into_iter().chain(stamps).map(String::as_str).collect();
                self.eval(script("mutex_acquire"), &[LOCK, TOKEN], &args)
            }
            Call::Release { who, held } => {
                self.eval(script("mutex_release"), &[LOCK], &[who, &held.to_string(), CHANNEL])
            }
            Call::Renew { who, lease } => {
                self.eval(script("lease_renew"), &[LOCK], &[who, &text(lease)])
            }
            Call::Inspect => {
                let mut reply =
                    self.eval(script("mutex_inspect"), &[LOCK, "leasehold_data:{L}"], &[]);
                if let Ok(Value::Array(parts)) = &mut reply {
                    assert_eq!(parts.remove(1), Value::Nil, "nobody writes data");
                    // Redis returns the fields in any order.
                    let mut pairs: Vec<_> =
                        parts.split_off(1).chunks(2).map(<[Value]>::to_vec).collect();
                    pairs.sort_by_key(|pair| format!("{pair:?}"));
                    parts.extend(pairs.into_iter().flatten());
                }
                reply
            }
            Call::Force => self.eval(script("mutex_force_unlock"), &[LOCK], &[CHANNEL]),
            Call::Probe => self.eval(script("connect_probe"), &["no such key"], &["probe"]),
        };
        show(&reply)
    }

    /// The messages published since the last call. A marker message shows where they end, so no
    /// wait is needed.
    fn published(&mut self) -> Vec<(String, String)> {
        self.cmd::<u32>(&["PUBLISH", "mark", ""]);
        let next = || {
            let message = self.subscriber.get_message().unwrap();
            (message.get_channel_name().to_owned(), message.get_payload().unwrap())
        };
        std::iter::repeat_with(next)
            .take_while(|(channel, _): &(String, String)| channel != "mark")
            .collect()
    }

    fn put(&mut self, world: &World) {
        self.cmd::<()>(&["FLUSHALL"]);
        match &world.lock {
            Lock::Free => {}
            Lock::Held(fields, _) => {
                for (who, count) in fields {
                    self.cmd::<()>(&["HSET", LOCK, who, &count.to_string()]);
                }
            }
            Lock::Foreign => self.cmd(&["SET", LOCK, "x"]),
            Lock::ForeignHash => self.cmd(&["HSET", LOCK, USERS[0], USERS[1]]),
        }
        if let Some((counter, _)) = world.token {
            self.cmd::<()>(&["SET", TOKEN, &counter.text()]);
        }
        let ttls = [(LOCK, if let Lock::Held(_, left) = world.lock { left } else { NEVER })];
        for (key, left) in ttls.into_iter().chain(world.token.map(|(_, left)| (TOKEN, left))) {
            if left != NEVER {
                self.cmd::<()>(&["PEXPIRE", key, &(left * MILLIS).to_string()]);
            }
        }
    }

    /// All keys of the server, so that a test notices anything that is left behind.
    fn picture(&mut self) -> Picture {
        const LOOK: &str = "local out = {}
            for _, key in ipairs(redis.call('keys', '*')) do
              local kind, body = redis.call('type', key).ok, {}
              if kind == 'hash' then body = redis.call('hgetall', key) end
              if kind == 'string' then body = {redis.call('get', key)} end
              out[#out + 1] = {key, kind, redis.call('pttl', key), body}
            end
            return out";
        let keys: Vec<(String, String, i64, Vec<String>)> =
            redis::cmd("EVAL").arg(LOOK).arg(0).query(&mut self.con).unwrap();
        let line = |(key, kind, left, body): (String, String, i64, Vec<String>)| {
            let mut pairs: Vec<_> = body.chunks(2).map(|pair| pair.join(" ")).collect();
            pairs.sort();
            let body = if kind == "string" { number(&pairs[0]) } else { pairs.join(" ") };
            (key, format!("{kind} {body} {}", ttl(left)))
        };
        keys.into_iter().map(line).collect()
    }

    /// Runs the call and compares its reply, messages and state with the model. Returns the
    /// difference.
    fn differs(&mut self, world: &mut World, call: &Call) -> Option<String> {
        let before = world.clone();
        let (answer, channel) = world.expect(call);
        let messages: Vec<_> =
            channel.map(|c| (c.to_owned(), "0".to_owned())).into_iter().collect();
        let wanted = (answer, messages, world.picture());
        let got = (self.run(call), self.published(), self.picture());
        (wanted != got)
            .then(|| format!("{call:?}\n  in {before:?}\n  gave   {got:?}\n  wanted {wanted:?}"))
    }

    #[track_caller]
    fn step(&mut self, world: &mut World, call: &Call) {
        if let Some(difference) = self.differs(world, call) {
            panic!("{difference}");
        }
    }

    /// The server's clock in microseconds, as in a token.
    fn micros(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = self.cmd(&["TIME"]);
        seconds * 1_000_000 + micros
    }

    /// Acquires and releases the lock for a holder. Returns its token, as in the reply and as
    /// stored.
    fn token(&mut self, rule: &str, floor: i64) -> (i64, String) {
        let args = ["T", "1000000", "0", rule, "1", &floor.to_string(), "0"];
        let reply = self.eval(script("mutex_acquire"), &[LOCK, TOKEN], &args).unwrap();
        let (code, token): (i64, i64) = redis::from_redis_value(reply).unwrap();
        assert_eq!(code, 1);
        self.cmd::<()>(&["DEL", LOCK]);
        (token, self.cmd(&["GET", TOKEN]))
    }
}
