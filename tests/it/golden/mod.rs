//! Golden vectors of Redisson's protocol against a real server, for every primitive except the
//! plain lock, which `scripts` covers. "Vector" in a comment is the result of Redisson's script.
//! Where leasehold's script returns something else on purpose, the comment says why.

mod fair;
mod names;
mod rate;

use std::collections::BTreeMap;

use redis::Value;

use crate::lua::Bench;
use crate::rig::{Server, wait_until};

const A: &str = "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaa003a98:1";
const B: &str = "bbbbbbbb-bbbb-8bbb-8bbb-bbbbbb003a98:1";

const C: &str = "cccccccc-cccc-8ccc-8ccc-cccccc003a98:1";
/// Redisson clients, whose ids are UUIDs of version 4.
const J: &str = "dddddddd-dddd-4ddd-8ddd-dddddddddddd:57";
const K: &str = "eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee:58";

/// The timeout of each Redisson waiter, in ms.
const FOREIGN_WAIT: i64 = 300_000;
/// No machine is slower than this, and every relevant difference is greater.
const SLACK: i64 = 5_000;

#[track_caller]
fn assert_near(got: i64, wanted: i64) {
    assert!((wanted - SLACK..=wanted + SLACK).contains(&got), "{got} is not near {wanted}");
}

type Messages = Vec<(String, String)>;

fn messages(list: &[(&str, &str)]) -> Messages {
    list.iter().map(|(channel, payload)| ((*channel).to_owned(), (*payload).to_owned())).collect()
}

impl Bench<'_> {
    fn pair(&mut self, script: &str, keys: &[&str], args: &[&str]) -> (i64, i64) {
        // The reply to a fair acquire also contains the next waiter.
        let mut parts: Vec<redis::Value> =
            redis::from_redis_value(self.eval(script, keys, args).unwrap()).unwrap();
        parts.truncate(2);
        redis::from_redis_value(redis::Value::Array(parts)).unwrap()
    }

    fn pttl(&mut self, key: &str) -> i64 {
        self.cmd(&["PTTL", key])
    }

    fn hash(&mut self, key: &str) -> BTreeMap<String, String> {
        self.cmd(&["HGETALL", key])
    }

    /// One attempt of a waiter of the fair lock, with a timeout of 15 s.
    fn fair(&mut self, who: &str) -> (i64, i64) {
        self.pair(
            "fair_acquire",
            &FAIR_KEYS,
            &[who, "30000", "0", "-1", "15000", "0", "300000", FAIR_CHANNEL, "0", "0"],
        )
    }

    fn fair_release(&mut self, who: &str) -> Value {
        self.eval("fair_release", &FAIR_KEYS, &[who, "1", FAIR_CHANNEL, "0", "0"]).unwrap()
    }

    fn queue(&mut self) -> Vec<String> {
        self.cmd(&["LRANGE", FAIR_KEYS[1], "0", "-1"])
    }

    fn deadline(&mut self, who: &str) -> i64 {
        self.cmd(&["ZSCORE", FAIR_KEYS[2], who])
    }

    /// Queues a Redisson waiter like Redisson's script.
    fn redisson_queues(&mut self, who: &str, deadline: i64) {
        self.cmd::<()>(&["RPUSH", FAIR_KEYS[1], who]);
        self.cmd::<()>(&["ZADD", FAIR_KEYS[2], &deadline.to_string(), who]);
    }

    /// The first waiter, a Redisson client, acquires like Redisson's script: it subtracts its
    /// timeout from every other deadline.
    fn redisson_acquires(&mut self, who: &str) {
        self.redisson_acquires_with(who, FOREIGN_WAIT);
    }

    fn redisson_acquires_with(&mut self, who: &str, wait: i64) {
        assert_eq!(self.cmd::<String>(&["LPOP", FAIR_KEYS[1]]), who);
        self.cmd::<()>(&["ZREM", FAIR_KEYS[2], who]);
        for waiter in self.queue() {
            self.cmd::<()>(&["ZINCRBY", FAIR_KEYS[2], &(-wait).to_string(), &waiter]);
        }
        self.cmd::<()>(&["DEL", FAIR_KEYS[0]]);
        self.cmd::<()>(&["HSET", FAIR_KEYS[0], who, "1"]);
        self.cmd::<()>(&["PEXPIRE", FAIR_KEYS[0], "30000"]);
    }

    fn read(&mut self, who: &str, lease: &str) -> (i64, i64) {
        self.pair("read_acquire", &["W", "leasehold_writer:{W}"], &[who, lease, "0", "{W}", "0"])
    }

    fn write(&mut self, who: &str, held: &str) -> (i64, i64) {
        let keys = ["W", "redisson_lock_token:{W}", "leasehold_writer:{W}"];
        self.pair("write_acquire", &keys, &[who, "30000", held, "-1", "0", "0", "0"])
    }

    fn rw_release(&mut self, who: &str, writes: &str, reads: &str) -> (i64, i64) {
        let args = [who, writes, reads, RW_CHANNEL, "{W}"];
        self.pair("rw_release", &["W", "leasehold_writer:{W}"], &args)
    }

    fn rw_renew(&mut self, who: &str, lease: &str) -> Vec<i64> {
        redis::from_redis_value(self.eval("rw_renew", &["W"], &[who, lease, "{W}"]).unwrap())
            .unwrap()
    }
}

const FAIR_KEYS: [&str; 4] =
    ["F", "redisson_lock_queue:{F}", "redisson_lock_timeout:{F}", "redisson_lock_token:{F}"];
const FAIR_CHANNEL: &str = "redisson_lock__channel:{F}";
const RW_CHANNEL: &str = "redisson_rwlock:{W}";

fn level(who: &str, n: u32) -> String {
    format!("{{W}}:{who}:rwlock_timeout:{n}")
}

#[test]
fn a_read_write_lock_follows_the_vectors() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);

    // Vector: read A 300 000, read B 30 000: nil, nil; hash TTL 300 000; one level key each.
    assert_eq!(bench.read(A, "300000"), (1, 0));
    assert_eq!(bench.read(B, "30000"), (1, 0));
    assert_near(bench.pttl("W"), 300_000);
    assert_near(bench.pttl(&level(A, 1)), 300_000);
    assert_near(bench.pttl(&level(B, 1)), 30_000);
    assert_eq!(bench.cmd::<String>(&["GET", &level(A, 1)]), "1");

    // Vector: renew B: 1, and the hash TTL is 30 000, A's level key untouched. Leasehold shortens
    // no lock.
    assert_eq!(bench.rw_renew(B, "30000"), [1]);
    assert_near(bench.pttl("W"), 300_000);
    assert_near(bench.pttl(&level(A, 1)), 300_000);
    // After Redisson's renewal, leasehold raises the lock's TTL to that of its own level again.
    bench.cmd::<()>(&["PEXPIRE", "W", "30000"]);
    let cut = bench.rw_renew(A, "0")[0];
    assert_near(cut, 30_000);
    assert_near(bench.pttl("W"), 300_000);
    assert_eq!(bench.rw_renew(A, "0"), [1]);
    // Even among more levels than the script searches, a shortened TTL is found.
    for n in 0..100 {
        bench.cmd::<()>(&["HSET", "W", &format!("{B}{n}"), "1"]);
    }
    assert_eq!(bench.rw_renew(A, "0"), [1]);
    bench.cmd::<()>(&["PEXPIRE", "W", "20000"]);
    assert_near(bench.rw_renew(A, "0")[0], 20_000);
    assert_near(bench.pttl("W"), 300_000);
    for n in 0..100 {
        bench.cmd::<()>(&["HDEL", "W", &format!("{B}{n}")]);
    }

    // Vector: release B: 0, hash TTL back to A's level key's, no message. Release A: 1, key gone,
    // message 0.
    bench.cmd::<()>(&["PEXPIRE", "W", "30000"]);
    assert_eq!(bench.rw_release(B, "0", "0"), (1, 0));
    assert_near(bench.pttl("W"), 300_000);
    assert!(bench.published().is_empty());
    assert_eq!(bench.rw_release(A, "0", "0"), (2, 1));
    assert_eq!(bench.published(), messages(&[(RW_CHANNEL, "0")]));
    assert!(server.lock_keys().is_empty());

    // Vector: read A lease 60 ms, read B 30 000, wait 100 ms, write C: about 29 900, still blocked.
    assert_eq!(bench.read(A, "60"), (1, 0));
    assert_eq!(bench.read(B, "30000"), (1, 0));
    wait_until("the lease of A has ended", || bench.pttl(&level(A, 1)) == -2);
    let (status, hint) = bench.write(C, "0");
    assert_eq!(status, 0);
    assert_near(hint, 29_900);
    // Vector: release B: 1, hash gone although field A was present, message 0.
    assert!(bench.hash("W").contains_key(A));
    assert_eq!(bench.rw_release(B, "0", "0"), (2, 1));
    assert_eq!(bench.published(), messages(&[(RW_CHANNEL, "0")]));
    assert!(server.lock_keys().is_empty());

    // Vector: write A twice: nil, nil; {mode: write, A:write: 2}, TTL about 60 000. Leasehold keeps
    // the longer of the two leases.
    assert_eq!(bench.write(A, "0"), (1, 0));
    assert_eq!(bench.write(A, "1"), (1, 0));
    let writer = format!("{A}:write");
    let fields = |list: &[(&str, &str)]| messages(list).into_iter().collect::<BTreeMap<_, _>>();
    assert_eq!(bench.hash("W"), fields(&[("mode", "write"), (&writer, "2")]));
    assert_near(bench.pttl("W"), 30_000);
    // Vector: read A inside: nil, adds A: 1. Leasehold sends nothing then; the last write release
    // writes the reads. Vector: write release ×2: 0, 1; {mode: read, A: 1}, no message. Leasehold
    // publishes 1, because waiting readers may enter, and 00 behind it for a Redisson reader that
    // was just about to wait.
    assert_eq!(bench.rw_release(A, "1", "1"), (1, 0));
    assert_eq!(bench.hash("W"), fields(&[("mode", "write"), (&writer, "1")]));
    assert!(bench.published().is_empty());
    assert_eq!(bench.rw_release(A, "0", "1"), (2, 1));
    assert_eq!(bench.hash("W"), fields(&[("mode", "read"), (A, "1")]));
    assert_near(bench.pttl(&level(A, 1)), 30_000);
    assert_eq!(bench.published(), messages(&[(RW_CHANNEL, "1"), (RW_CHANNEL, "00")]));
}

/// Traces of a live Redisson: what leasehold's scripts do with a state that Redisson created.
#[test]
fn a_redisson_reader_is_respected() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    bench.cmd::<()>(&["HSET", "W", "mode", "read", J, "2"]);
    bench.cmd::<()>(&["PEXPIRE", "W", "20000"]);
    for n in [1, 2] {
        bench.cmd::<()>(&["SET", &level(J, n), "1", "PX", "20000"]);
    }
    assert_near(bench.write(C, "0").1, 20_000);
    assert_eq!(bench.read(A, "60000"), (1, 0));
    // It may shorten the lock to its own minimum, even while other leasehold readers hide that.
    assert_near(bench.rw_renew(A, "60000")[0], 20_000);
    assert_near(bench.pttl(&level(J, 1)), 20_000);
    assert_eq!(bench.rw_release(A, "0", "0"), (1, 0));
    // Redisson's keys are unchanged, and the lock ends with them.
    assert_near(bench.pttl("W"), 20_000);
    assert_near(bench.pttl(&level(J, 2)), 20_000);
    assert_eq!(bench.hash("W").get(J).map(String::as_str), Some("2"));
    assert!(bench.published().is_empty());
    // A Redisson writer that also reads excludes everybody.
    bench.cmd::<()>(&["HSET", "W", "mode", "write", &format!("{J}:write"), "1"]);
    assert_near(bench.read(A, "60000").1, 20_000);
    assert_near(bench.write(A, "0").1, 20_000);
}

#[test]
fn a_latch_follows_the_vectors() {
    const CHANNEL: &str = "redisson_countdownlatch__channel__{L}";
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let mut ids = 0;
    // Each request has an idempotency key, which Redisson does not know.
    let mut call = |bench: &mut Bench<'_>, script: &str, args: &[&str]| {
        ids += 1;
        let pair = bench.pair(
            script,
            &["L", &format!("leasehold_once:{{L}}:{ids}"), "leasehold_once:{L}:opened"],
            args,
        );
        (pair, bench.published())
    };
    // Vector: set 2; down; down; down: messages 1, then 0 at the second; the third leaves no key.
    assert_eq!(
        call(&mut bench, "count_set", &["2", "60000", CHANNEL, "1", "0"]),
        ((1, 2), messages(&[(CHANNEL, "1")]))
    );
    assert_eq!(bench.cmd::<String>(&["GET", "L"]), "2");
    assert_eq!(bench.pttl("L"), -1);
    assert_eq!(call(&mut bench, "count_set", &["5", "60000", CHANNEL, "1", "0"]), ((0, 2), vec![]));
    assert_eq!(call(&mut bench, "latch_count_down", &["60000", CHANNEL, "0"]), ((1, 1), vec![]));
    assert_eq!(
        call(&mut bench, "latch_count_down", &["60000", CHANNEL, "0"]),
        ((1, 0), messages(&[(CHANNEL, "0")]))
    );
    assert_eq!(call(&mut bench, "latch_count_down", &["60000", CHANNEL, "0"]), ((0, 0), vec![]));
    assert!(server.lock_keys().is_empty());
    // Redisson's delete publishes 1, which leaves waiters asleep. Leasehold publishes 0 after it.
    bench.cmd::<()>(&["SET", "L", "3"]);
    let reported = messages(&[(CHANNEL, "1"), (CHANNEL, "0")]);
    assert_eq!(call(&mut bench, "latch_delete", &["60000", CHANNEL, "0"]), ((1, 0), reported));
    assert!(server.lock_keys().is_empty());
}

#[test]
fn a_counting_semaphore_follows_the_vectors() {
    const CHANNEL: &str = "redisson_sc:{S}";
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    // Vector: release 3 on a missing key: value 3, message 3. Leasehold does the same to add
    // permits, and to return its own permits.
    assert_eq!(bench.pair("count_add", &["S", "m1"], &["3", "60000", CHANNEL, "0"]), (1, 3));
    assert_eq!(bench.published(), messages(&[(CHANNEL, "3")]));
    bench.cmd::<()>(&["DEL", "S"]);
    assert_eq!(bench.pair("count_release", &["S", "m2"], &["3", "60000", CHANNEL, "1"]), (2, 1));
    assert_eq!(bench.published(), messages(&[(CHANNEL, "3")]));
    assert_eq!(bench.cmd::<String>(&["GET", "S"]), "3");
    // Acquire takes all permits or none and publishes nothing; adding a negative number notifies
    // nobody.
    assert_eq!(bench.pair("count_acquire", &["S", "m3"], &["4", "60000", "0"]), (0, -1));
    assert_eq!(bench.pair("count_acquire", &["S", "m4"], &["3", "60000", "0"]), (1, 0));
    assert_eq!(bench.pair("count_add", &["S", "m5"], &["-2", "60000", CHANNEL, "0"]), (1, -2));
    assert_eq!(bench.cmd::<String>(&["GET", "S"]), "-2");
    assert!(bench.published().is_empty());
}

#[test]
fn permits_with_leases_follow_the_vectors() {
    const CHANNEL: &str = "redisson_sc:{S}";
    const KEYS: [&str; 2] = ["S", "{S}:timeout"];
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let take = |bench: &mut Bench<'_>| {
        bench.pair("permit_acquire", &KEYS, &["ours12345678", "1", "30000", CHANNEL, "0"])
    };
    // Vector: total 2, one no-expiry, one lease 300 ms, third tries: `:<score of the leased one>`.
    // Leasehold returns the remaining time.
    let now = bench.now();
    bench.cmd::<()>(&["SET", "S", "0"]);
    bench.cmd::<()>(&["ZADD", KEYS[1], "922337203685477", "java's permit 01"]);
    bench.cmd::<()>(&["ZADD", KEYS[1], &(now + 300).to_string(), "java's permit 02"]);
    let (status, hint) = take(&mut bench);
    // On a machine so slow that the lease had ended, the permit was granted.
    if bench.now() < now + 300 {
        assert_eq!(status, 0);
        assert!((1..=301).contains(&hint), "{hint}");
        assert!(bench.published().is_empty());
    }
    bench.cmd::<()>(&["ZREM", KEYS[1], "java's permit 02", "ours12345678\0\0\0\u{1}"]);

    // Vector: the same after 350 ms: OK, and message 1 from removing the expired permit. Leasehold
    // publishes the number that is free after its own acquire; that is none, so it publishes
    // nothing.
    bench.cmd::<()>(&["SET", "S", "0"]);
    bench.published();
    bench.cmd::<()>(&["ZADD", KEYS[1], &now.to_string(), "java's permit 02"]);
    assert_eq!(take(&mut bench), (1, 0));
    assert!(bench.published().is_empty());
    // One more expired permit is available to others.
    bench.cmd::<()>(&["DEL", KEYS[1]]);
    for permit in ["java's permit 02", "java's permit 03"] {
        bench.cmd::<()>(&["ZADD", KEYS[1], &now.to_string(), permit]);
    }
    let taken = bench.now();
    assert_eq!(take(&mut bench), (1, 0));
    assert_eq!(bench.published(), messages(&[(CHANNEL, "1")]));
    assert_eq!(bench.cmd::<String>(&["GET", "S"]), "1");
    // 16 bytes and whole milliseconds, two seconds longer than promised, because Redisson removes
    // expired permits by its own clock.
    let members: Vec<(Vec<u8>, String)> = bench.cmd(&["ZRANGE", KEYS[1], "0", "-1", "WITHSCORES"]);
    assert_eq!(members[0].0, b"ours12345678\0\0\0\x01");
    let lease = members[0].1.parse::<i64>().unwrap() - taken;
    assert!((32_000..=32_000 + SLACK).contains(&lease), "{lease}");

    // Vector: release of an expired id: 0, permit returned, message with the new value.
    bench.cmd::<()>(&["ZADD", KEYS[1], &now.to_string(), "ours12345678\0\0\0\u{1}"]);
    let release = |bench: &mut Bench<'_>| {
        bench.pair("permit_release", &KEYS, &["ours12345678", "1", CHANNEL])
    };
    assert_eq!(release(&mut bench), (0, 0));
    assert_eq!(bench.published(), messages(&[(CHANNEL, "2")]));
    assert_eq!(release(&mut bench), (0, 0));
    assert_eq!((bench.published(), bench.cmd::<String>(&["GET", "S"])), (vec![], "2".to_owned()));
}
