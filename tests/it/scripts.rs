//! The Lua scripts themselves, sent as EVAL to a real server: what they answer, what they leave behind, what they
//! publish, and that a repeat changes nothing.
//!
//! What is expected comes from [`World::expect`], which is written from the headers in `src/store/redis/lua`, not from the bodies.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redis::{ConnectionLike, RedisResult, Value};

use crate::rig::Server;

const LOCK: &str = "L";
const TOKEN: &str = "redisson_lock_token:{L}";
const CHANNEL: &str = "redisson_lock__channel:{L}";

macro_rules! lua {
    ($name:literal $(, $lib:literal)*) => {
        concat!(
            include_str!(concat!("../../src/store/redis/lua/", $name, ".lua")),
            $(include_str!(concat!("../../src/store/redis/lua/lib/", $lib, ".lua")),)*
        )
    };
}

/// TTLs are whole kiloseconds and compared rounded up: no machine is so slow that it changes an outcome.
const MILLIS: i64 = 1_000_000;
/// A PTTL of a key that has no TTL.
const NEVER: i64 = -1;
/// Server times in microseconds of 1970 and of 2096.
const PAST: i64 = 1;
const FUTURE: i64 = 4_000_000_000_000_000;
/// A floor that some of the counters below are above.
const LOW: i64 = 100;
/// No server's clock shows less.
const CLOCK: i64 = 1_700_000_000_000_000;

fn rule_ttl(rule: i64) -> String {
    if rule > 0 { (rule * MILLIS).to_string() } else { rule.to_string() }
}

fn ttl(millis: i64) -> String {
    if millis < 0 { millis.to_string() } else { format!("{}ks", (millis + MILLIS - 1) / MILLIS) }
}

/// A counter: the clock's microseconds are not known beforehand, anything else is.
fn number(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(n) if (CLOCK..FUTURE).contains(&n) => "clock".to_owned(),
        _ => text.to_owned(),
    }
}

fn show(reply: &RedisResult<Value>) -> String {
    let error = |text: String| {
        // Redis 6.2 wraps what a command inside a script said, so the code word may stand anywhere.
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
    /// `rule`: -1 no token, 0 kept for ever, else a TTL in kiloseconds.
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

    /// All that we ever send for holder A.
    fn all_of_a() -> Vec<Self> {
        let mut calls = vec![Self::Inspect, Self::Force, Self::Probe];
        calls.extend((1..=3).map(|held| Self::release("A", held)));
        calls.extend([0, 1, 3].map(|lease| Self::renew("A", lease)));
        let rules = [(-1, LOW, 0), (0, LOW, 0), (9, LOW, 0), (0, FUTURE, 0), (9, FUTURE, 0)];
        let limits = [(-1, LOW, PAST), (9, LOW, PAST), (9, LOW, FUTURE)];
        for (rule, floor, not_after) in rules.into_iter().chain(limits) {
            for (lease, held) in [(1, 0), (3, 0), (1, 1), (3, 1), (3, 2)] {
                calls.push(Self::Acquire { who: "A".to_owned(), lease, held, rule, floor, not_after });
            }
        }
        calls
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Lock {
    Free,
    /// Holder → count, and the TTL in kiloseconds.
    Held(BTreeMap<String, i64>, i64),
    /// Somebody else's string.
    Foreign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    At(i64),
    /// The server's time in microseconds when it was set, or a little more.
    Clock,
    /// What INCR refuses.
    Junk(&'static str),
}

/// What stands in Redis: the lock, and the token counter with its TTL in kiloseconds.
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

    /// What the headers promise: the answer, and the channel that is published on.
    fn expect(&mut self, call: &Call) -> (String, Option<&'static str>) {
        let answer = |text: &str| (text.to_owned(), None);
        if matches!(call, Call::Probe) {
            return ("[]".to_owned(), Some("probe"));
        }
        // A look at a free lock finds no fields.
        let mut empty = (BTreeMap::new(), NEVER);
        let (fields, left) = match &mut self.lock {
            Lock::Foreign if matches!(call, Call::Renew { .. }) => return answer("[!WRONGTYPE]"),
            Lock::Foreign => return answer("!WRONGTYPE"),
            Lock::Held(fields, left) => (fields, left),
            Lock::Free => (&mut empty.0, &mut empty.1),
        };
        let free = fields.is_empty();
        match call {
            Call::Acquire { who, held, .. } if *held > 0 && !fields.contains_key(who) => answer("[2 0]"),
            Call::Acquire { who, .. } if !free && !fields.contains_key(who) => answer(&format!("[0 {}]", kilo(*left))),
            // A re-entry is not undone and not repeated, so it may also be late.
            Call::Acquire { held: 0, not_after: PAST, .. } => answer("[3 0]"),
            Call::Acquire { who, lease, held, rule, floor, .. } => {
                // A hash without a TTL is given one: a lock that never ends is nobody's wish.
                let (mut fields, left) = (fields.clone(), (*left).max(*lease));
                let token = if *held > 0 { Some("0".to_owned()) } else { self.next_token(*rule, *floor) };
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
                if !fields.is_empty() {
                    return answer("[2 0]");
                }
                self.lock = Lock::Free;
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
                let pairs: Vec<_> = fields.iter().map(|(who, count)| format!("{who} {count}")).collect();
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
        let (old, left) = self.token.unwrap_or((Counter::At(0), if rule == 0 { NEVER } else { rule }));
        let (new, below) = match old {
            Counter::At(n) => (Counter::At(n + 1), n + 1 < floor),
            Counter::Clock => (Counter::Clock, floor == FUTURE),
            Counter::Junk(_) => return None,
        };
        // Kept for ever by the rule, or because a counter without a TTL is Java's.
        let kept = rule == 0 || left == NEVER;
        let next = if below { (Counter::Clock, if kept { NEVER } else { rule }) } else { (new, left) };
        self.token = Some(next);
        Some(next.0.text())
    }

    fn picture(&self) -> Picture {
        let mut picture = Picture::new();
        match &self.lock {
            Lock::Free => {}
            Lock::Held(fields, left) => {
                let fields: Vec<_> = fields.iter().map(|(who, count)| format!("{who} {count}")).collect();
                picture.insert(LOCK.to_owned(), format!("hash {} {}", fields.join(" "), kilo(*left)));
            }
            Lock::Foreign => drop(picture.insert(LOCK.to_owned(), "string x -1".to_owned())),
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

/// A server with one connection that runs scripts and one that hears all that is published.
struct Bench<'a> {
    con: redis::Connection,
    ear: redis::PubSub<'a>,
}

impl<'a> Bench<'a> {
    fn new(server: &Server, ear: &'a mut redis::Connection) -> Self {
        let mut ear = ear.as_pubsub();
        ear.psubscribe("*").unwrap();
        Self { con: server.connect(), ear }
    }

    fn cmd<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut cmd = redis::cmd(words[0]);
        cmd.arg(&words[1..]).query(&mut self.con).unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    fn eval(&mut self, script: &str, keys: &[&str], args: &[&str]) -> RedisResult<Value> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script).arg(keys.len()).arg(keys).arg(args);
        // Not `query`: that turns the whole list of answers into an error when one of them is.
        self.con.req_packed_command(&cmd.get_packed_command())
    }

    fn run(&mut self, call: &Call) -> String {
        let text = |n: &i64| (n * MILLIS).to_string();
        let reply = match call {
            Call::Acquire { who, lease, held, rule, floor, not_after } => {
                let args = [who, &text(lease), &held.to_string(), &rule_ttl(*rule)];
                let stamps = [&floor.to_string(), &not_after.to_string()];
                let args: Vec<&str> = args.into_iter().chain(stamps).map(String::as_str).collect();
                self.eval(lua!("mutex_acquire", "grant"), &[LOCK, TOKEN], &args)
            }
            Call::Release { who, held } => {
                self.eval(lua!("mutex_release"), &[LOCK], &[who, &held.to_string(), CHANNEL])
            }
            Call::Renew { who, lease } => self.eval(lua!("lease_renew"), &[LOCK], &[who, &text(lease)]),
            Call::Inspect => {
                let mut reply = self.eval(lua!("mutex_inspect"), &[LOCK], &[]);
                if let Ok(Value::Array(parts)) = &mut reply {
                    // The order of the fields is Redis' own affair.
                    let mut pairs: Vec<_> = parts.split_off(1).chunks(2).map(<[Value]>::to_vec).collect();
                    pairs.sort_by_key(|pair| format!("{pair:?}"));
                    parts.extend(pairs.into_iter().flatten());
                }
                reply
            }
            Call::Force => self.eval(lua!("mutex_force_unlock"), &[LOCK], &[CHANNEL]),
            Call::Probe => self.eval(lua!("connect_probe"), &["no such key"], &["probe"]),
        };
        show(&reply)
    }

    /// Everything that was published since the last call. A mark tells where it ends: nothing is waited for.
    fn heard(&mut self) -> Vec<(String, String)> {
        self.cmd::<u32>(&["PUBLISH", "mark", ""]);
        let next = || {
            let message = self.ear.get_message().unwrap();
            (message.get_channel_name().to_owned(), message.get_payload().unwrap())
        };
        std::iter::repeat_with(next).take_while(|(channel, _): &(String, String)| channel != "mark").collect()
    }

    fn put(&mut self, world: &World) {
        self.cmd::<()>(&["FLUSHALL"]);
        match &world.lock {
            Lock::Free => {}
            Lock::Held(fields, _) => {
                fields.iter().for_each(|(who, count)| self.cmd(&["HSET", LOCK, who, &count.to_string()]));
            }
            Lock::Foreign => self.cmd(&["SET", LOCK, "x"]),
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

    /// All keys of the server, so that nothing is left behind unseen.
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

    /// Runs the call and compares answer, messages and state; returns what differs.
    fn differs(&mut self, world: &mut World, call: &Call) -> Option<String> {
        let before = world.clone();
        let (answer, channel) = world.expect(call);
        let messages: Vec<_> = channel.map(|c| (c.to_owned(), "0".to_owned())).into_iter().collect();
        let wanted = (answer, messages, world.picture());
        let got = (self.run(call), self.heard(), self.picture());
        (wanted != got).then(|| format!("{call:?}\n  in {before:?}\n  gave   {got:?}\n  wanted {wanted:?}"))
    }

    #[track_caller]
    fn step(&mut self, world: &mut World, call: &Call) {
        if let Some(difference) = self.differs(world, call) {
            panic!("{difference}");
        }
    }

    /// The server's own clock, in the microseconds of a token.
    fn micros(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = self.cmd(&["TIME"]);
        seconds * 1_000_000 + micros
    }

    /// An outermost acquire for a holder that gives the lock up again: the token, as answered and as stored.
    fn token(&mut self, rule: &str, floor: i64) -> (i64, String) {
        let args = ["T", "1000000", "0", rule, &floor.to_string(), "0"];
        let reply = self.eval(lua!("mutex_acquire", "grant"), &[LOCK, TOKEN], &args).unwrap();
        let (code, token): (i64, i64) = redis::from_redis_value(reply).unwrap();
        assert_eq!(code, 1);
        self.cmd::<()>(&["DEL", LOCK]);
        (token, self.cmd(&["GET", TOKEN]))
    }
}

/// The plain lock of redisson-wire.md §20. Two rows differ there: Redisson shortens the TTL and adds to the count.
#[test]
fn golden_vectors() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let release = (CHANNEL.to_owned(), "0".to_owned());
    type Row<'a> = (&'a str, &'a [&'a str], &'a str, Option<(&'a str, i64)>);
    let rows: [Row<'_>; 9] = [
        ("acquire", &["A", "30000", "0"], "[1 0]", Some(("1", 30_000))),
        ("acquire", &["A", "10000", "1"], "[1 0]", Some(("2", 30_000))),
        ("acquire", &["A", "60000", "1"], "[1 0]", Some(("2", 60_000))),
        ("release", &["B", "1"], "[0 0]", Some(("2", 60_000))),
        ("release", &["A", "2"], "[1 0]", Some(("1", 60_000))),
        ("release", &["A", "2"], "[1 0]", Some(("1", 60_000))),
        ("release", &["A", "1"], "[2 1]", None),
        ("release", &["A", "1"], "[0 0]", None),
        ("release", &["C", "1"], "[0 0]", None),
    ];
    for (verb, args, answer, after) in rows {
        let reply = if verb == "acquire" {
            bench.eval(lua!("mutex_acquire", "grant"), &[LOCK, TOKEN], &[args, &["-1", "0", "0"]].concat())
        } else {
            bench.eval(lua!("mutex_release"), &[LOCK], &[args, &[CHANNEL]].concat())
        };
        assert_eq!(show(&reply), answer, "{verb} {args:?}");
        assert_eq!(bench.heard(), if answer == "[2 1]" { vec![release.clone()] } else { vec![] }, "{verb} {args:?}");
        let fields: Vec<(String, String)> = bench.cmd(&["HGETALL", LOCK]);
        let left: i64 = bench.cmd(&["PTTL", LOCK]);
        match after {
            Some((count, ttl)) => {
                assert_eq!(fields, [("A".to_owned(), count.to_owned())], "{verb} {args:?}");
                assert!((ttl - 5_000..=ttl).contains(&left), "{verb} {args:?}: {left}");
            }
            None => assert!(bench.picture().is_empty(), "{verb} {args:?}"),
        }
    }
}

/// Every call in every state gives what its header says, and once more leaves what it left.
#[test]
fn every_call_twice_in_every_state() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let locks = [
        World::EMPTY,
        World::held(&[("A", 1)], 2),
        World::held(&[("A", 2)], 2),
        World::held(&[("B", 1)], 2),
        World::held(&[("A", 1), ("B", 1)], 2),
        World::held(&[("A", 1)], NEVER),
        World::held(&[("B", 1)], NEVER),
        World { lock: Lock::Foreign, token: None },
    ];
    let tokens = [
        None,
        Some((Counter::At(500), 5)),
        Some((Counter::At(500), NEVER)),
        Some((Counter::At(LOW - 1), 5)),
        Some((Counter::At(LOW - 2), 5)),
        Some((Counter::At(LOW - 2), NEVER)),
        Some((Counter::Junk("abc"), 5)),
        Some((Counter::Junk("1e3"), NEVER)),
        Some((Counter::Junk("9223372036854775807"), 5)),
    ];
    let mut failures = Vec::new();
    for lock in &locks {
        for token in &tokens {
            for call in Call::all_of_a() {
                let start = World { lock: lock.lock.clone(), token: *token };
                // Only an outermost acquire has to do with the token.
                if *token != tokens[1] && !matches!(call, Call::Acquire { .. }) {
                    continue;
                }
                bench.put(&start);
                let mut once = start;
                failures.extend(bench.differs(&mut once, &call));
                let mut twice = once.clone();
                failures.extend(bench.differs(&mut twice, &call).map(|f| format!("the second time: {f}")));
                // Not by the model alone: a repeat changes nothing, but that a repeated outermost acquire may
                // give a higher token.
                if matches!(call, Call::Acquire { held: 0, rule: 0.., .. }) {
                    once.token = twice.token;
                }
                assert_eq!(once, twice, "{call:?} is not repeat-safe");
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} differences, such as:\n{}",
        failures.len(),
        failures[..failures.len().min(9)].join("\n")
    );
}

#[test]
fn tokens_are_exact_and_never_repeat() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let mut last = 0;
    let day = "86400000";
    // Floors as connections bring them (their server's time) and one of a clock that has been stepped back since.
    let floors = [|now| now, |now| now - 1_000_000, |_| FUTURE];
    let losses: [&[&str]; 5] = [&["PING"], &["FLUSHALL"], &["DEL", TOKEN], &["SET", TOKEN, "1"], &["SET", TOKEN, "0"]];
    for loss in losses.into_iter().chain([losses[1], losses[0]]) {
        for floor in floors {
            bench.cmd::<()>(loss);
            let before = bench.micros();
            let (token, stored) = bench.token(day, floor(before));
            assert_eq!(token.to_string(), stored, "no digit may be lost");
            assert_eq!(stored.len(), 16);
            assert!(token > last, "{token} after {last}, {loss:?}");
            assert!(token <= bench.micros(), "ahead of the clock: {token}");
            last = token;
        }
    }
    // Above the floor it counts on, and is no clock: that would cost every acquire a TIME.
    let (next, _) = bench.token(day, last - 1);
    assert_eq!(next, last + 1);
    // A Java counter may stand anywhere below 2^53.
    let far = (1_i64 << 53) - 2;
    bench.cmd::<()>(&["SET", TOKEN, &far.to_string()]);
    assert_eq!(bench.token(day, CLOCK), (far + 1, (far + 1).to_string()));
    // Even when the floor lies ahead of it and the clock behind.
    bench.cmd::<()>(&["SET", TOKEN, &(CLOCK * 2).to_string()]);
    assert_eq!(bench.token(day, FUTURE).0, CLOCK * 2 + 1);
}

/// Where Java's fenced lock shares the counter, it must never expire: Java would begin again at 1.
#[test]
fn a_counter_that_is_kept_loses_the_ttl_that_an_earlier_acquire_gave_it() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let now = bench.micros();
    bench.token("86400000", now);
    assert!(bench.cmd::<i64>(&["PTTL", TOKEN]) > 0);
    // At the latest a second after the last grant, the floor has passed the counter.
    let later = bench.micros() + 1_000_000;
    bench.token("0", later);
    assert_eq!(bench.cmd::<i64>(&["PTTL", TOKEN]), NEVER);
}

#[test]
fn a_renewal_answers_for_each_lock() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    bench.cmd::<()>(&["SET", "wrong", "x"]);
    for (key, who) in [("a", "A"), ("b", "A"), ("c", "B"), ("d", "A"), ("e", "A")] {
        bench.cmd::<()>(&["HSET", key, who, "1"]);
        bench.cmd::<()>(&["PEXPIRE", key, "2000000"]);
    }
    bench.cmd::<()>(&["PERSIST", "e"]);
    let keys = ["a", "wrong", "b", "c", "free", "d", "e"];
    let leases = ["3000000", "3000000", "1000000", "3000000", "3000000", "0", "3000000"];
    for _ in 0..2 {
        let reply = bench.eval(lua!("lease_renew"), &keys, &[["A"; 7], leases].concat());
        assert_eq!(show(&reply), "[1 !WRONGTYPE 1 0 0 1 1]");
        let ttls: Vec<_> = keys.iter().map(|key| ttl(bench.cmd(&["PTTL", key]))).collect();
        // Raised, foreign, not shortened, another's, free, only looked at, and one that would never have ended.
        assert_eq!(ttls, ["3ks", "-1", "2ks", "2ks", "-2", "2ks", "3ks"]);
    }
    assert!(bench.heard().is_empty());
    assert_eq!(show(&bench.eval(lua!("lease_renew"), &[], &[])), "[]");
}

/// The probe names each command that the user may not run, and only those.
#[test]
fn the_probe_names_what_is_refused() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    #[rustfmt::skip]
    let names = [
        "hexists", "hget", "hdel", "hgetall", "hlen", "exists", "get", "del", "pttl", "pexpire", "pexpireat", "persist",
        "set", "time", "publish", "lindex", "lrange", "lpop", "lrem", "zscore", "zmscore", "zcard", "zcount", "zrange",
        "zrangebyscore", "zrem", "zadd", "incrby", "decrby",
    ];
    // Redis 6.2 cannot be asked for what would write.
    let writes = if server.major() >= 7 { &["hset", "incr", "rpush"][..] } else { &[] };
    for name in names.iter().chain(writes) {
        bench.cmd::<()>(&[
            "ACL",
            "SETUSER",
            "u",
            "reset",
            "on",
            "nopass",
            "allkeys",
            "allchannels",
            "+@all",
            &format!("-{name}"),
        ]);
        let mut user = server.connect();
        redis::cmd("AUTH").arg("u").arg("x").exec(&mut user).unwrap();
        let refused: Vec<String> =
            redis::cmd("EVAL").arg(lua!("connect_probe")).arg(1).arg("k").arg("c").query(&mut user).unwrap();
        assert_eq!(refused.len(), 1, "without {name}: {refused:?}");
        assert!(refused[0].starts_with(&format!("{name}: ")), "without {name}: {refused:?}");
        assert!(bench.picture().is_empty());
    }
}

/// A model of the two fence scripts, with numbers where they compare text.
#[test]
fn fences_compare_numbers_and_may_be_asked_twice() {
    type Fenced = (Option<u64>, Option<&'static str>);
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let picture = |(token, value): Fenced| -> BTreeMap<String, String> {
        let fields =
            [token.map(|t| ("token".to_owned(), t.to_string())), value.map(|v| ("value".to_owned(), v.to_owned()))];
        fields.into_iter().flatten().collect()
    };
    let tokens = [1, 9, 10, 999_999_999, 1_000_000_000, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, u64::MAX];
    let standing = tokens.iter().map(|t| Some(*t)).chain([None]);
    for start in standing.flat_map(|token| [(token, None), (token, Some("old"))]) {
        for ours in tokens {
            let claimed = if start.0.is_some_and(|standing| standing > ours) {
                (format!("[0 {}]", start.0.unwrap()), start)
            } else {
                (format!("[1 {}]", start.1.unwrap_or("nil")), (Some(ours), start.1))
            };
            let written = match start.0 {
                Some(standing) if standing == ours => (format!("[1 {ours}]"), (Some(ours), Some("new"))),
                Some(standing) => (format!("[0 {standing}]"), start),
                None => ("[0 nil]".to_owned(), start),
            };
            let text = ours.to_string();
            let claim: (&str, &[&str]) = (lua!("fence_claim"), &[&text]);
            let write: (&str, &[&str]) = (lua!("fence_write"), &[&text, "new"]);
            for ((script, args), (answer, after)) in [(claim, claimed), (write, written)] {
                bench.cmd::<()>(&["DEL", "v"]);
                picture(start).iter().for_each(|(field, text)| bench.cmd(&["HSET", "v", field, text]));
                for _ in 0..2 {
                    assert_eq!(show(&bench.eval(script, &["v"], args)), answer, "{args:?} at {start:?}");
                    let now: BTreeMap<String, String> = bench.cmd(&["HGETALL", "v"]);
                    assert_eq!(now, picture(after), "{args:?} at {start:?}");
                }
            }
        }
    }
    bench.cmd::<()>(&["SET", "v", "x"]);
    for (script, args) in [(lua!("fence_claim"), &["1"][..]), (lua!("fence_write"), &["1", "new"])] {
        assert_eq!(show(&bench.eval(script, &["v"], args)), "!WRONGTYPE");
    }
    assert_eq!(bench.cmd::<String>(&["GET", "v"]), "x");
    // A lock, also one into which an earlier version has put a value.
    for fields in [&["u:1", "1"][..], &["u:1", "1", "token", "1"], &["u:1", "1", "token", "1", "value", "v"]] {
        bench.cmd::<()>(&["DEL", "v"]);
        bench.cmd::<()>(&[&["HSET", "v"], fields].concat());
        for (script, args) in [(lua!("fence_claim"), &["1"][..]), (lua!("fence_write"), &["1", "new"])] {
            assert_eq!(show(&bench.eval(script, &["v"], args)), "!WRONGTYPE");
            assert_eq!(bench.cmd::<usize>(&["HLEN", "v"]), fields.len() / 2);
        }
    }
}

/// A full server takes no new lock and leaves nothing half-taken; what is held can be kept and given up.
#[test]
fn a_full_server() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let off = Call::Acquire { who: "A".to_owned(), lease: 2, held: 0, rule: -1, floor: LOW, not_after: 0 };
    let held = |count| World::held(&[("A", count)], 2);
    let refused = [
        (World::EMPTY, Call::acquire("A", 0)),
        (World { token: Some((Counter::At(5), NEVER)), ..World::EMPTY }, Call::acquire("A", 0)),
        (World::EMPTY, off),
        (held(1), Call::acquire("A", 1)),
        // HSET wants memory even for the same field; the last release takes it away whatever count stands there.
        (held(2), Call::release("A", 2)),
    ];
    for (world, call) in refused {
        bench.put(&world);
        bench.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        for _ in 0..2 {
            assert_eq!(bench.run(&call), "!OOM", "{call:?} in {world:?}");
            assert_eq!(bench.picture(), world.picture());
        }
        assert!(bench.heard().is_empty());
        bench.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
    let served = [Call::release("A", 1), Call::renew("A", 3), Call::Inspect, Call::Force, Call::Probe];
    for call in served {
        let mut world = held(2);
        bench.put(&world);
        bench.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        bench.step(&mut world, &call);
        bench.step(&mut world, &call);
        bench.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

/// One of three who want the lock: who it is now, how often it has the lock, and what it asked last.
struct Player {
    name: String,
    held: i64,
    last: Option<Call>,
}

/// Random interleavings against the model. `LEASEHOLD_SEED` replays one.
#[test]
fn random_interleavings() {
    const STEPS: usize = 2000;
    let seed = std::env::var("LEASEHOLD_SEED").map_or_else(|_| rand::random(), |s| s.parse().unwrap());
    println!("LEASEHOLD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let mut world = World::EMPTY;
    let mut players = ["A", "B", "C"].map(|letter| Player { name: format!("{letter}:0"), held: 0, last: None });
    let (mut grants, mut last_token) = (0, 0);
    for step in 0..STEPS {
        // Behind everybody's back.
        if rng.random_bool(0.05) {
            let key = if rng.random_bool(0.7) { LOCK } else { TOKEN };
            bench.cmd::<()>(&["DEL", key]);
            if key == LOCK { world.lock = Lock::Free } else { world.token = None }
        }
        let player = &mut players[rng.random_range(0..3)];
        let lease = rng.random_range(1..=3);
        let acquire =
            Call::Acquire { who: player.name.clone(), lease, held: player.held, rule: 9, floor: LOW, not_after: 0 };
        let call = match (rng.random_range(0..8), &player.last) {
            (0..3, _) => acquire,
            (3..5, _) if player.held > 0 => Call::release(&player.name, player.held),
            (5, _) => Call::renew(&player.name, lease),
            (6.., Some(last)) => last.clone(),
            _ => Call::Inspect,
        };
        player.last = Some(call.clone());
        if let Some(difference) = bench.differs(&mut world, &call) {
            panic!("LEASEHOLD_SEED={seed}, step {step}: {difference}");
        }
        let stands = match &world.lock {
            Lock::Held(fields, _) => fields.get(&player.name).copied(),
            _ => None,
        };
        match &call {
            Call::Acquire { who, held, .. } if *who == player.name && stands == Some(held + 1) => {
                player.held = held + 1;
                if *held == 0 {
                    grants += 1;
                    let token: i64 = bench.cmd(&["GET", TOKEN]);
                    assert!(token > last_token, "LEASEHOLD_SEED={seed}, step {step}: {token} after {last_token}");
                    last_token = token;
                }
            }
            Call::Release { who, held } if *who == player.name && *held > 1 && stands.is_some() => {
                player.held = held - 1;
            }
            // Given up, or lost: a holder is never used again.
            Call::Acquire { who, held: 1.., .. } | Call::Release { who, .. } if *who == player.name => {
                *player = Player { name: format!("{}:{step}", &who[..1]), held: 0, last: Some(call) };
            }
            _ => {}
        }
        // Of the lock itself, and not of the model: one holder, and the count that it believes in.
        let fields: BTreeMap<String, i64> = bench.cmd(&["HGETALL", LOCK]);
        assert!(fields.len() <= 1, "LEASEHOLD_SEED={seed}, step {step}: two holders: {fields:?}");
        for (who, count) in fields {
            let owner = players.iter().find(|p| p.name == who);
            assert_eq!(owner.map(|p| p.held), Some(count), "LEASEHOLD_SEED={seed}, step {step}: {who}");
        }
    }
    assert!(grants > STEPS / 50, "LEASEHOLD_SEED={seed}: only {grants} grants");
}
