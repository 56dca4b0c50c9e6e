//! Every script of the primitives, sent twice in every state of its keys: the second run returns
//! what the header promises for a repeat, changes nothing and publishes nothing. The scripts of the
//! plain lock have a model of their own in `scripts`.
//!
//! The tables are derived from the headers in `src/store/redis/lua`. A row is a state, given by the
//! commands that create it, and the reply to each call. A call is a script, its KEYS and, after
//! `|`, its ARGV. In both, `2ks` is a time of 2000 s, `@2ks` one that far ahead of the server's
//! clock, `$A` a holder, `$A.1` the key of its first read level, `%P` an acquisition of permits and
//! `%P1` its first permit, `&P2` an entry of two permits of a rate limiter, taken by Redisson if it
//! is `&J2`; keys have the names used in the headers. In replies `>0` is a message
//! `0`, and `>0@B` one to the channel of waiter B.

mod data;
mod keep;
mod tables;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use redis::{RedisResult, Value};

use self::data::DATA;
use self::keep::KEEP;
use self::tables::{
    CLIENT, COUNTS, FAIR, INDEX, JOB, LATCH, LOOK, MULTI, PERMITS, RATE, READ_WRITE, REDLOCK, RUN,
};
use crate::lua::{Bench, Content, MILLIS, Picture, kilo, scripts};
use crate::rig::Server;

/// Three leasehold holders, and a Redisson holder: the version of its UUID is 4.
const HOLDERS: [(&str, &str); 4] = [
    ("$A", "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:1"),
    ("$B", "bbbbbbbb-bbbb-8bbb-8bbb-bbbbbbbbbbbb:1"),
    ("$C", "cccccccc-cccc-8ccc-8ccc-cccccccccccc:1"),
    ("$J", "dddddddd-dddd-4ddd-8ddd-dddddddddddd:57"),
];

const KEYS: [(&str, &str); 19] = [
    ("record", "leasehold_done:{L}/1"),
    ("last", "leasehold_last:{L}"),
    ("queue", "redisson_lock_queue:{L}"),
    ("deadlines", "redisson_lock_timeout:{L}"),
    ("token", "redisson_lock_token:{L}"),
    ("token2", "redisson_lock_token:{M}"),
    ("marker", "leasehold_writer:{L}"),
    ("data", "leasehold_data:{L}"),
    ("leases", "{L}:timeout"),
    ("spare", "{N}:value"),
    ("uses", "{N}:permits"),
    ("mark", "leasehold_once:{L}:m"),
    ("done", "leasehold_once:{L}:n"),
    ("opened", "leasehold_once:{L}:opened"),
    ("tag", "{L}"),
    ("channel", "channel"),
    ("node", "leasehold:node"),
    ("client", "leasehold_client:{c}"),
    ("index", "leasehold_client:{index}"),
];

struct Primitive {
    calls: &'static [&'static str],
    /// The commands that create each state, and the first reply to each call.
    states: &'static [(&'static str, &'static str)],
}

/// A word of a table as it is sent.
fn expand(word: &str, now: i64) -> Vec<u8> {
    if let Some(number) = word.strip_suffix("ks") {
        let (from, number) = number.strip_prefix('@').map_or((0, number), |number| (now, number));
        if let Ok(number) = number.parse::<i64>() {
            return (from + number * MILLIS).to_string().into_bytes();
        }
    }
    if let Some(permit) = word.strip_prefix('%') {
        let mut member = permit[..1].repeat(12).into_bytes();
        if let Ok(number) = permit[1..].parse::<u32>() {
            member.extend(number.to_be_bytes());
        }
        return member;
    }
    if let Some(entry) = word.strip_prefix('&') {
        let id = entry[..1].repeat(if entry.starts_with('J') { 16 } else { 12 });
        let permits = entry[1..].parse::<u32>().expect("a number of permits");
        return [&[id.len() as u8], id.as_bytes(), &permits.to_le_bytes()].concat();
    }
    // A field, not the short name of a key.
    if let Some(field) = word.strip_prefix('=') {
        return field.as_bytes().to_vec();
    }
    if let Some((_, key)) = KEYS.iter().find(|(short, _)| *short == word) {
        return key.as_bytes().to_vec();
    }
    let word = match word.split_once('.') {
        Some((holder, level)) if holder.starts_with('$') => {
            format!("{{L}}:{holder}:rwlock_timeout:{level}")
        }
        _ => word.to_owned(),
    };
    HOLDERS.iter().fold(word, |word, (short, id)| word.replace(short, id)).into_bytes()
}

/// Replaces holder ids by their letters.
fn shorten(text: &str) -> String {
    HOLDERS.iter().fold(text.to_owned(), |text, (short, id)| text.replace(id, &short[1..]))
}

fn show(reply: &RedisResult<Value>) -> String {
    // Redis 6.2 wraps the error of a command inside a script, so the error code may be anywhere in
    // it.
    let error = |text: String| {
        let codes = [("WRONGTYPE", "!TYPE"), ("not an integer", "!INT")];
        codes
            .into_iter()
            .find(|(code, _)| text.contains(code))
            .map_or(format!("!{text}"), |(_, s)| s.to_owned())
    };
    match reply {
        Err(e) => error(e.to_string()),
        Ok(Value::ServerError(e)) => error(e.to_string()),
        Ok(Value::Int(n)) if *n > MILLIS / 4 && *n < 1000 * MILLIS => kilo(*n),
        Ok(Value::Int(n)) => n.to_string(),
        Ok(Value::BulkString(bytes)) => shorten(&String::from_utf8_lossy(bytes)),
        Ok(Value::Array(parts)) if parts.is_empty() => "none".to_owned(),
        Ok(Value::Array(parts)) => {
            parts.iter().map(|part| show(&Ok(part.clone()))).collect::<Vec<_>>().join(",")
        }
        Ok(other) => format!("{other:?}"),
    }
}

/// Removes the values of tokens: a repeated grant may have a higher one.
fn without_token(mut picture: Picture) -> Picture {
    for (_, token) in picture.iter_mut().filter(|(key, _)| key.starts_with("redisson_lock_token:"))
    {
        token.body.clear();
    }
    if let Some(node) = picture.get_mut("leasehold:node") {
        node.body.retain(|(field, _)| field != "max");
    }
    picture
}

fn send(bench: &mut Bench<'_>, commands: &str) {
    let now = bench.now();
    for command in commands.split(';').filter(|command| !command.trim().is_empty()) {
        let words: Vec<_> = command.split_whitespace().map(|word| expand(word, now)).collect();
        bench.cmd::<Value>(&words);
    }
}

fn script_of(call: &str) -> &str {
    call.split_whitespace().next().expect("a call begins with its script")
}

/// The reply, followed by the messages.
fn run(bench: &mut Bench<'_>, call: &str) -> String {
    let now = bench.now();
    let (keys, args) = call.split_once('|').expect("a bar between keys and arguments");
    let words = |text: &str| -> Vec<Vec<u8>> {
        text.split_whitespace().map(|word| expand(word, now)).collect()
    };
    let mut answer = show(&bench.eval(script_of(call), &words(keys)[1..], &words(args)));
    for (channel, payload) in bench.published() {
        let waiter =
            shorten(channel.strip_prefix("channel").expect("no other channel")).replace(':', "@");
        write!(answer, ">{payload}{waiter}").unwrap();
    }
    answer
}

/// The reply that a header promises for a repeat right after the first run.
fn second_answer(call: &str, first: &str, after: &Picture) -> String {
    let script = script_of(call);
    let answer = first.split('>').next().unwrap_or_default();
    let stands = |who: &str| {
        after.get("L").is_some_and(|lock| {
            lock.body.iter().any(|(holder, _)| holder.trim_end_matches(":write") == who)
        })
    };
    match (script, answer.split(',').next().unwrap_or_default()) {
        // It was released, or left the queue, so it is gone now.
        ("fair_release" | "data_fair_release", "0" | "2") => "0,0".to_owned(),
        // It has its place by then.
        ("fair_acquire" | "data_fair_acquire", "0") if answer.ends_with(",1") => {
            format!("{}0", &answer[..answer.len() - 1])
        }
        ("data_release", "2") => "0,0".to_owned(),
        ("permit_release" | "rate_give_back", "2") => "0,0".to_owned(),
        // Permits that are known to have been taken have been returned; otherwise there is nothing
        // to return.
        ("count_release", "2") => if call.ends_with('1') { "2,0" } else { "0,0" }.to_owned(),
        ("rw_release", "1" | "2") => if stands("A") { "1,0" } else { "0,0" }.to_owned(),
        ("fair_force_unlock" | "rw_force_unlock" | "redlock_admit", "1") => "0".to_owned(),
        ("multi_acquire", "1") => {
            let number = |word: &str| word.parse::<i64>().expect("a number");
            let again = answer
                .split(',')
                .skip(1)
                .map(number)
                .map(|token| if token > 0 { token + 1 } else { 0 });
            again.fold("1".to_owned(), |answer, token| format!("{answer},{token}"))
        }
        // The lease was given up.
        ("job_end", "1") if !call.contains(" -1 ") => "0,0".to_owned(),
        ("job_forget", "1") => "0".to_owned(),
        // It is kept already: the waiters were notified.
        ("lock_keep" | "fair_keep", "1") => "1,0".to_owned(),
        // Each lock by itself: those that the first run released are gone now.
        ("multi_release", _) => answer
            .split(',')
            .collect::<Vec<_>>()
            .chunks(2)
            .map(|pair| match pair {
                ["2", _] => "0,0".to_owned(),
                ["1", _] => "1,0".to_owned(),
                pair => pair.join(","),
            })
            .collect::<Vec<_>>()
            .join(","),
        // Every grant has its own token.
        ("fair_acquire" | "write_acquire" | "redlock_acquire" | "mutex_acquire", "1")
            if answer != "1,0" && !answer.starts_with("1,0,") =>
        {
            let (token, next) = answer[2..]
                .split_once(',')
                .map_or((&answer[2..], None), |(token, next)| (token, Some(next)));
            let drawn = if script_of(call) == "mutex_acquire" { 5 } else { 1 };
            let token = token.parse::<i64>().expect("a token") + drawn;
            // The reply to a fair acquire also contains the next waiter, which stays the same.
            next.map_or_else(|| format!("1,{token}"), |next| format!("1,{token},{next}"))
        }
        _ => answer.to_owned(),
    }
}

fn number(picture: &Picture, key: &str) -> Option<i64> {
    picture.get(key).and_then(|content| content.body.first()?.1.parse().ok())
}

fn members(picture: &Picture, key: &str) -> Vec<String> {
    picture.get(key).map_or_else(Vec::new, |content| {
        content.body.iter().map(|(member, _)| member.clone()).collect()
    })
}

/// The level keys that exist, and those that the counts in the lock require.
fn levels(picture: &Picture) -> (BTreeSet<String>, BTreeSet<String>) {
    let there = picture.keys().filter(|key| key.contains(":rwlock_timeout:")).cloned().collect();
    let fields = picture.get("L").map_or(&[][..], |lock| &lock.body);
    let of_readers = fields.iter().any(|(field, _)| field == "mode");
    let readers = fields
        .iter()
        .filter(|(field, _)| of_readers && field != "mode" && !field.ends_with(":write"));
    let demanded = readers.flat_map(|(reader, count)| {
        (1..=count.parse::<u32>().unwrap_or(0))
            .map(move |n| format!("{{L}}:{reader}:rwlock_timeout:{n}"))
    });
    (there, demanded.collect())
}

/// The latest end of a read level, of all readers or of one.
fn longest_level(picture: &Picture, of: &str) -> i64 {
    let ends = |(key, content): (&String, &Content)| {
        let matches = key.contains(":rwlock_timeout:") && key.contains(of);
        matches.then(|| content.pttl.trim_end_matches("ks").parse::<i64>().unwrap_or(-1))
    };
    picture.iter().filter_map(ends).max().unwrap_or(-1)
}

/// Whether the lock lasts at least as long as its longest reader.
fn outlives_its_readers(picture: &Picture) -> bool {
    let ttl = picture.get("L").map_or("-1", |lock| lock.pttl.trim_end_matches("ks"));
    ttl.parse::<i64>().expect("a TTL") >= longest_level(picture, "")
}

/// Whether every waiter is in the queue once and has a deadline, and nobody else has a deadline.
fn is_in_step(picture: &Picture) -> bool {
    let [queue, deadlines] =
        ["queue", "timeout"].map(|key| members(picture, &format!("redisson_lock_{key}:{{L}}")));
    let waiters: BTreeSet<_> = queue.iter().collect();
    waiters.len() == queue.len() && waiters == deadlines.iter().collect()
}

/// The number of permits, free or held; `None` if there is no semaphore.
fn permits(picture: &Picture) -> Option<i64> {
    number(picture, "L")
        .map(|free| free + i64::try_from(members(picture, "{L}:timeout").len()).unwrap())
}

fn has_a(picture: &Picture, lock: &str) -> bool {
    members(picture, lock).iter().any(|holder| holder == "A")
}

/// The rules that no call may break, whatever its reply.
fn broken(call: &str, before: &Picture, after: &Picture, answer: &str) -> Vec<&'static str> {
    let script = script_of(call);
    let (was_there, was_demanded) = levels(before);
    let (there, demanded) = levels(after);
    // No client counts more levels than exist: its count increases after a reply, and decreases
    // before a request.
    let counted = was_demanded.iter().filter(|key| key.contains(":A:")).count();
    let held = if script == "read_acquire" { call.split_whitespace().nth(6) } else { None };
    let may_be = held.is_none_or(|held| held.parse::<usize>().unwrap() <= counted);
    let keeps = script.ends_with("_acquire") || script == "rw_renew" || answer.starts_with("1,0");
    let reads = keeps && demanded.iter().any(|key| key.contains(":A:"));
    let has_lock = after.get("L").is_some_and(|lock| lock.kind == "hash");
    let endless = |lock: &Content| lock.kind == "hash" && lock.pttl == "-1";
    // A lock that had no TTL before is not leasehold's, and is not changed.
    let for_ever = |lock: &&str| {
        after.get(*lock).is_some_and(endless) && after.get(*lock) != before.get(*lock)
    };
    let half = |picture: &Picture| has_a(picture, "L") != has_a(picture, "M");
    let partly =
        script == "multi_acquire" && call.contains("$A $A 0 0") && half(after) && !half(before);
    let rules = [
        (["L", "M"].iter().any(for_ever), "a lock has no TTL"),
        (partly, "one of two locks was taken"),
        (
            was_there == was_demanded && may_be && there != demanded,
            "the level keys are not 1 to each reader's count",
        ),
        (
            has_lock && outlives_its_readers(before) && !outlives_its_readers(after),
            "a lock ends before its readers",
        ),
        (
            reads && longest_level(after, ":A:") < longest_level(before, ":A:"),
            "a reader was promised more",
        ),
        (is_in_step(before) && !is_in_step(after), "queue and deadlines differ"),
        (
            script.starts_with("permit_")
                && script != "permit_delete"
                && permits(before).is_some_and(|all| permits(after) != Some(all)),
            "permits were made or lost",
        ),
        (
            script.starts_with("latch_") && answer.ends_with(">0") && after.contains_key("L"),
            "a 0 was published beside a count: Java's waiters spin",
        ),
    ];
    rules.into_iter().filter_map(|(broken, rule)| broken.then_some(rule)).collect()
}

/// Sends each call in each state twice.
fn every_call_twice(primitive: &Primitive) {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let mut failures = Vec::new();
    for (state, answers) in primitive.states {
        let wanted: Vec<_> = answers.split_whitespace().collect();
        let mut got = Vec::new();
        for call in primitive.calls {
            let mut fail = |what: String| failures.push(format!("{call}\n  in {state}\n  {what}"));
            bench.cmd::<()>(&["FLUSHALL"]);
            send(&mut bench, state);
            let before = bench.picture(shorten);
            let first = run(&mut bench, call);
            let once = bench.picture(shorten);
            let second = run(&mut bench, call);
            let twice = bench.picture(shorten);
            // A release does as much as possible even if one key is broken: otherwise a lock would
            // last for its whole lease, and a queue entry until its deadline.
            let does_what_it_can = ["fair_release", "multi_release"].contains(&script_of(call));
            // Tokens are drawn before anything is acquired; an unused one is a gap.
            let changed = match script_of(call) {
                "multi_acquire" => without_token(once.clone()) != without_token(before.clone()),
                _ => once != before,
            };
            if first.starts_with('!') && changed && !does_what_it_can {
                fail(format!("an error changed something: {before:?}\n  became {once:?}"));
            }
            for rule in broken(call, &before, &once, &first) {
                fail(format!("answered {first}: {rule}: {before:?}\n  became {once:?}"));
            }
            let promised = second_answer(call, &first, &once);
            if second != promised && !(does_what_it_can && first.starts_with('!')) {
                fail(format!("answered {first}, and the second time {second} and not {promised}"));
            }
            if without_token(once.clone()) != without_token(twice.clone()) {
                fail(format!("is not repeat-safe: {once:?}\n  became {twice:?}"));
            }
            if number(&twice, "redisson_lock_token:{L}") < number(&once, "redisson_lock_token:{L}")
            {
                fail("the token decreased".to_owned());
            }
            got.push(first);
        }
        if wanted != got {
            failures.push(format!(
                "in {state}\n  wanted {}\n  got    {}",
                wanted.join(" "),
                got.join(" ")
            ));
        }
    }
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_repeat_on_a_fair_lock_changes_nothing() {
    every_call_twice(&FAIR);
}

#[test]
fn every_call_of_a_run_twice_in_every_state() {
    every_call_twice(&RUN);
}

#[test]
fn looking_at_a_client_changes_nothing() {
    every_call_twice(&CLIENT);
    every_call_twice(&INDEX);
    every_call_twice(&LOOK);
}

#[test]
fn a_repeat_on_several_locks_changes_nothing() {
    every_call_twice(&MULTI);
}

#[test]
fn a_repeat_on_a_lock_that_is_kept_changes_nothing() {
    every_call_twice(&KEEP);
}

#[test]
fn a_repeat_for_a_hold_with_data_changes_nothing() {
    every_call_twice(&DATA);
}

#[test]
fn a_repeat_on_a_master_changes_nothing() {
    every_call_twice(&REDLOCK);
}

#[test]
fn a_repeat_on_a_read_write_lock_changes_nothing() {
    every_call_twice(&READ_WRITE);
}

#[test]
fn a_repeat_on_permits_with_leases_changes_nothing() {
    every_call_twice(&PERMITS);
}

#[test]
fn a_repeat_on_a_rate_limiter_changes_nothing() {
    every_call_twice(&RATE);
}

#[test]
fn a_repeat_on_a_job_changes_nothing() {
    every_call_twice(&JOB);
}

#[test]
fn a_repeat_on_counted_permits_changes_nothing() {
    every_call_twice(&COUNTS);
}

#[test]
fn a_repeat_on_a_latch_changes_nothing() {
    every_call_twice(&LATCH);
}

/// A repeat that runs after other clients acquired changes none of their keys and notifies nobody.
#[test]
fn a_repeat_after_others_came_leaves_them_alone() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let b_reads = "DEL L; HSET L mode read $B 1; PEXPIRE L 2ks; SET $B.1 1 PX 2ks";
    let b_writes = "DEL L; HSET L mode write $B:write 1; PEXPIRE L 2ks";
    let b_has_m = "DEL M; HSET M $B 1; PEXPIRE M 2ks";
    let b_takes = "DEL L; HSET L $B 1; PEXPIRE L 2ks; RPUSH queue $C; ZADD deadlines @3ks $C";
    // The state before, the call, what happens then, the reply to the repeat.
    let rows = [
        (
            "HSET L $A 1; PEXPIRE L 2ks",
            "fair_release L queue deadlines token | $A 1 channel 0 0",
            b_takes,
            "0,0",
        ),
        (
            "HSET L $A 2; PEXPIRE L 2ks",
            "fair_release L queue deadlines token | $A 2 channel 0 0",
            b_takes,
            "0,0",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks",
            "fair_acquire L queue deadlines token | $A 3ks 1 0 0 0 300ks channel 0 0",
            b_takes,
            "2,0",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET M $A 1; PEXPIRE M 2ks",
            "multi_acquire L M token token2 | $A $A 1 1 3ks 0 channel 0 0 0",
            b_has_m,
            "2,0,2",
        ),
        (
            "HSET L $A 1; HSET M $A 1",
            "multi_release L M | $A $A 1 1 channel channelM",
            b_has_m,
            "0,0,0,0",
        ),
        (
            "HSET L mode read $A 1; PEXPIRE L 2ks; SET $A.1 1 PX 2ks",
            "rw_release L marker | $A 0 0 channel tag",
            b_writes,
            "0,0",
        ),
        (
            "HSET L mode write $A:write 1; PEXPIRE L 2ks",
            "rw_release L marker | $A 0 0 channel tag",
            b_reads,
            "0,0",
        ),
        (
            "HSET L mode write $A:write 1; PEXPIRE L 2ks",
            "rw_release L marker | $A 0 1 channel tag",
            b_writes,
            "0,0",
        ),
        (
            "HSET L mode write $A:write 2; PEXPIRE L 2ks",
            "rw_release L marker | $A 1 0 channel tag",
            b_writes,
            "0,0",
        ),
        (
            "SET marker $A PX 3ks",
            "rw_release L marker | $A 0 0 channel tag",
            "SET marker $B PX 3ks",
            "0,0",
        ),
        ("HSET L mode write $A:write 1; PEXPIRE L 2ks", "rw_renew L | $A 3ks tag", b_reads, "0"),
        (
            "HSET L mode read $A 1; PEXPIRE L 2ks; SET $A.1 1 PX 2ks",
            "rw_renew L | $A 3ks tag",
            b_writes,
            "0",
        ),
        (
            "HSET L mode write $A:write 1; PEXPIRE L 2ks",
            "write_acquire L token marker | $A 3ks 1 0 0 0 0",
            b_writes,
            "2,0",
        ),
        (
            "HSET L mode read $A 1; PEXPIRE L 2ks; SET $A.1 1 PX 2ks",
            "read_acquire L marker | $A 3ks 1 tag 0",
            b_reads,
            "2,0",
        ),
        (
            "SET L 0; ZADD leases @2ks %P1",
            "permit_release L leases | %P 1 channel",
            "SET L 0; ZADD leases @2ks %B1",
            "0,0",
        ),
        (
            "SET L 0; ZADD leases @2ks %P1",
            "permit_renew leases | %P 3ks 1",
            "ZREM leases %P1; ZADD leases @2ks %B1",
            "0",
        ),
        (
            "SET L 2",
            "permit_delete L leases mark | 1ks channel 0",
            "SET L 3; ZADD leases @2ks %B1",
            "1,0",
        ),
        ("SET L 0", "count_release L mark | 1 1ks channel 1", "SET L 0", "2,0"),
        ("SET L 1", "count_acquire L mark | 1 1ks 0", "SET L 5", "1,0"),
        ("SET L 1", "count_add L mark | 2 1ks channel 0", "SET L 9", "1,3"),
        ("", "count_set L mark | 2 1ks channel 1 0", "DEL L", "1,2"),
        // A second latch with the name of the first: a 0 published now would make Redisson's
        // waiters spin.
        ("SET L 1", "latch_count_down L mark opened | 1ks channel 0", "SET L 3", "1,0"),
        ("SET L 2", "latch_count_down L mark opened | 1ks channel 0", "SET L 7", "1,1"),
        ("", "latch_count_down L mark opened | 1ks channel 0", "SET L 1", "0,0"),
        ("SET L 1", "latch_delete L mark opened | 1ks channel 0", "SET L 3", "1,0"),
        (
            "HSET N rate 3 interval 2ks type 0",
            "rate_acquire N spare uses | %P 2 0",
            "DECRBY spare 1; ZADD uses @-1ks &J1",
            "1,0",
        ),
        (
            "HSET N rate 3 interval 2ks type 0; SET spare 1; ZADD uses @-1ks &P2",
            "rate_give_back N spare uses | %P 2",
            "DECRBY spare 2; ZADD uses @-1ks &J2",
            "0,0",
        ),
        (
            "HSET N rate 3 interval 2ks type 0",
            "rate_set N spare uses mark | 5 3ks 1 1ks 0",
            "HSET N rate 4; SET spare 3; ZADD uses @-1ks &J1",
            "1,0",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks",
            "job_begin L record last | 1 2 $A me 3ks 9ks",
            "DEL L; HSET L $B 1; PEXPIRE L 2ks; HSET record attempts 2; HSET last holder $B",
            "8,0,,",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks",
            "job_end L record last | 1 -1 $A me 3ks 9ks channel",
            "HSET L $B 1; PEXPIRE L 2ks; HSET last newest 2 holder $B",
            "1,0",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks",
            "job_end L record last | 1 1ks $A me 3ks 9ks channel",
            "HSET L $B 1; PEXPIRE L 2ks; HSET record attempts 2",
            "0,0",
        ),
        // It was forgotten, and begun anew.
        (
            "HSET L $A 1; PEXPIRE L 2ks",
            "job_end L record last | 1 -1 $A me 3ks 9ks channel",
            "HDEL record at; HSET record attempts 1 holder $B; HSET L $B 1; PEXPIRE L 2ks",
            "0,0",
        ),
        (
            "HSET N rate 3 interval 2ks type 0",
            "rate_delete N spare uses mark | 1ks 0",
            "HSET N rate 3 interval 2ks type 0",
            "1,0",
        ),
    ];
    for (state, call, meanwhile, wanted) in rows {
        bench.cmd::<()>(&["FLUSHALL"]);
        send(&mut bench, state);
        run(&mut bench, call);
        send(&mut bench, meanwhile);
        let theirs = bench.picture(shorten);
        assert_eq!(run(&mut bench, call), wanted, "{call} after {meanwhile}");
        assert_eq!(bench.picture(shorten), theirs, "{call} after {meanwhile}");
    }
}

/// Every script is run twice, here or in `scripts`.
#[test]
fn no_script_is_left_out() {
    let plain =
        [include_str!("../scripts/mod.rs"), include_str!("../scripts/renew_probe_fence.rs")]
            .concat();
    let calls = [
        &FAIR,
        &RUN,
        &KEEP,
        &MULTI,
        &REDLOCK,
        &READ_WRITE,
        &PERMITS,
        &COUNTS,
        &LATCH,
        &RATE,
        &JOB,
        &CLIENT,
        &INDEX,
        &LOOK,
        &DATA,
    ]
    .map(|primitive| primitive.calls)
    .concat();
    let all = scripts();
    assert!(all.len() > 20, "the table was not read: {all:?}");
    for name in all.keys() {
        let tested = plain.contains(&format!("script(\"{name}\""))
            || calls.iter().any(|call| script_of(call) == *name);
        assert!(tested, "{name} is in no table");
    }
}
