//! The golden vectors of Redisson's protocol (redisson-wire.md §20) against a real server, for every noun but the plain
//! lock, which `scripts.rs` has. "Vector" in a comment is what Redisson's script gives; where ours means to give something
//! else, the comment says why. Below them: the names of all keys and channels, as the public API uses them.

use std::collections::BTreeMap;

use redis::Value;

use crate::rig::{Bench, Server, wait_until};

const A: &str = "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaa003a98:1";
const B: &str = "bbbbbbbb-bbbb-8bbb-8bbb-bbbbbb003a98:1";
/// The last six digits of ours are how long each keeps its place in ms: 15 s, and here 5 minutes.
const D: &str = "dddddddd-dddd-8ddd-8ddd-dddddd0493e0:1";
const C: &str = "cccccccc-cccc-8ccc-8ccc-cccccc003a98:1";
/// Java's: its client ids are UUIDs of version 4.
const J: &str = "dddddddd-dddd-4ddd-8ddd-dddddddddddd:57";
const K: &str = "eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee:58";

/// What Redisson adds for every waiter of its own.
const FOREIGN_WAIT: i64 = 300_000;
/// Slower than this no machine is, and every difference that counts is greater.
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
        // A fair grant says as well who waits next.
        let mut parts: Vec<redis::Value> = redis::from_redis_value(self.eval(script, keys, args).unwrap()).unwrap();
        parts.truncate(2);
        redis::from_redis_value(redis::Value::Array(parts)).unwrap()
    }

    fn pttl(&mut self, key: &str) -> i64 {
        self.cmd(&["PTTL", key])
    }

    fn hash(&mut self, key: &str) -> BTreeMap<String, String> {
        self.cmd(&["HGETALL", key])
    }

    /// A try of a fair lock that waits; the own wait is 15 s.
    fn fair(&mut self, who: &str) -> (i64, i64) {
        self.pair(
            "fair_acquire",
            &FAIR_KEYS,
            &[who, "30000", "0", "-1", "15000", "0", "300000", FAIR_CHANNEL, "0", "0"],
        )
    }

    fn fair_release(&mut self, who: &str) -> Value {
        self.eval("fair_release", &FAIR_KEYS[..3], &[who, "1", FAIR_CHANNEL]).unwrap()
    }

    fn queue(&mut self) -> Vec<String> {
        self.cmd(&["LRANGE", FAIR_KEYS[1], "0", "-1"])
    }

    fn deadline(&mut self, who: &str) -> i64 {
        self.cmd(&["ZSCORE", FAIR_KEYS[2], who])
    }

    /// A waiter of Java's queues up as its script does.
    fn java_queues(&mut self, who: &str, deadline: i64) {
        self.cmd::<()>(&["RPUSH", FAIR_KEYS[1], who]);
        self.cmd::<()>(&["ZADD", FAIR_KEYS[2], &deadline.to_string(), who]);
    }

    /// Java's head acquires as its script does: it takes its wait off everybody's deadline.
    fn java_acquires(&mut self, who: &str) {
        self.java_acquires_with(who, FOREIGN_WAIT);
    }

    fn java_acquires_with(&mut self, who: &str, wait: i64) {
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
        redis::from_redis_value(self.eval("rw_renew", &["W"], &[who, lease, "{W}"]).unwrap()).unwrap()
    }
}

const FAIR_KEYS: [&str; 4] = ["F", "redisson_lock_queue:{F}", "redisson_lock_timeout:{F}", "redisson_lock_token:{F}"];
const FAIR_CHANNEL: &str = "redisson_lock__channel:{F}";
const RW_CHANNEL: &str = "redisson_rwlock:{W}";

fn level(who: &str, n: u32) -> String {
    format!("{{W}}:{who}:rwlock_timeout:{n}")
}

fn freed_for(head: &str) -> Value {
    Value::Array(vec![Value::Int(2), Value::Int(1), Value::BulkString(head.into())])
}

#[test]
fn a_fair_lock_follows_the_vectors() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);

    // Vector: A holds; B; C; C again: 30 000; 330 000; 30 000. Ours are told a third of their own wait, because they
    // come by to keep their place.
    assert_eq!(bench.fair(A), (1, 0));
    assert_near(bench.pttl("F"), 30_000);
    let now = bench.now();
    for who in [B, C, C] {
        assert_eq!(bench.fair(who), (0, 5_000));
    }
    assert_eq!(bench.queue(), [B, C]);
    // Vector: scores now + 330 000, now + 630 000. Ours are the own wait: nobody of ours subtracts anything.
    for who in [B, C] {
        let left = bench.deadline(who) - now;
        assert_near(left, 15_000);
    }
    assert!(bench.heard().is_empty());

    // Vector: fair release A: 1, and 0 on the channel of B only.
    assert_eq!(bench.fair_release(A), freed_for(B));
    assert_eq!(bench.heard(), messages(&[(&format!("{FAIR_CHANNEL}:{B}"), "0")]));

    // Vector: B silent, C tries repeatedly: 0, 0, 0 …, queue unchanged. Java spins on the 0; ours is told when to look
    // again, and only its own deadline moves.
    let deadline = bench.deadline(B);
    for _ in 0..3 {
        assert_eq!(bench.fair(C), (0, 5_000));
    }
    assert_eq!((bench.queue(), bench.deadline(B)), (vec![B.to_owned(), C.to_owned()], deadline));

    // Vector: B acquires: nil, and C's score is lowered by 300 000. Ours is left as it is.
    let deadline = bench.deadline(C);
    assert_eq!(bench.fair(B), (1, 0));
    assert_eq!((bench.queue(), bench.deadline(C)), (vec![C.to_owned()], deadline));

    // Vector: lock expired, queue B, C: C tries, B tries: 0; nil.
    bench.cmd::<()>(&["FLUSHALL"]);
    let now = bench.now();
    bench.java_queues(B, now + 15_000);
    bench.java_queues(C, now + 15_000);
    assert_eq!(bench.fair(C), (0, 5_000));
    assert_eq!(bench.fair(B), (1, 0));

    // Vector: empty zset, head B in list, new E: −2, then 0, for ever. To us whoever has no deadline is dead.
    bench.cmd::<()>(&["FLUSHALL"]);
    bench.cmd::<()>(&["RPUSH", FAIR_KEYS[1], K]);
    assert_eq!(bench.fair(A), (1, 0));
    assert!(bench.queue().is_empty());
    // Nobody is passed over without being told: it may live.
    assert_eq!(bench.heard(), messages(&[(&format!("{FAIR_CHANNEL}:{K}"), "0")]));
}

/// What Java does to the deadlines behind it, and what it reads in ours.
#[test]
fn a_fair_waiter_of_ours_outlives_java_ahead_of_it() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    // A fresh waiter of Java's, and one that has waited for almost all of its time.
    for (left, wanted) in [(330_000, 345_000), (20_000, 315_000)] {
        bench.cmd::<()>(&["FLUSHALL"]);
        bench.cmd::<()>(&["HSET", "F", J, "1"]);
        bench.cmd::<()>(&["PEXPIRE", "F", "30000"]);
        let now = bench.now();
        bench.java_queues(K, now + left);
        assert_eq!(bench.fair(B), (0, 5_000));
        let ours = bench.deadline(B);
        assert_near(ours - now, wanted);
        // Another of ours behind it adds nothing, one of Java's adds its own wait.
        assert_eq!(bench.fair(C), (0, 5_000));
        assert_near(bench.deadline(C) - now, wanted);
        let last = bench.deadline(C);
        bench.java_queues(J, last + FOREIGN_WAIT);

        // Trace: after Java ahead acquired, ours is 300 000 lower, and lives.
        bench.java_acquires(K);
        assert_eq!(bench.deadline(B), ours - FOREIGN_WAIT);
        assert!(bench.deadline(B) > bench.now());
        // Its next try puts that right: nobody of Java's is before it now.
        assert_eq!(bench.fair(B), (0, 5_000));
        assert_near(bench.deadline(B) - now, 15_000);

        // It gives up. Trace: Java subtracts its own wait from those behind; ours leaves them as they are.
        let behind = [bench.deadline(C), bench.deadline(J)];
        assert_eq!(bench.fair_release(B), Value::Array(vec![Value::Int(0), Value::Int(0)]));
        assert_eq!(bench.queue(), [C, J]);
        assert_eq!([bench.deadline(C), bench.deadline(J)], behind);
        assert!(bench.heard().is_empty(), "the lock is held");
        // Redisson's queues have no TTL; ours had one for as long as it could die.
        assert_eq!([bench.pttl(FAIR_KEYS[1]), bench.pttl(FAIR_KEYS[2])], [-1, -1]);
    }
}

/// Java counts from the waiter in front of it and takes its own wait back when it leaves; ours counts from Java's, and what it
/// is ahead of the lock's TTL goes with it.
#[test]
fn deadlines_do_not_grow_while_ours_and_java_take_turns() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    bench.cmd::<()>(&["HSET", "F", J, "1"]);
    bench.cmd::<()>(&["PEXPIRE", "F", "30000"]);
    assert_eq!(bench.fair(B), (0, 5_000));
    let (mut first, mut last) = (B, C);
    for _ in 0..50 {
        // One of ours, one of Java's, one of ours: the queue never gets empty.
        let deadline = bench.deadline(first);
        bench.java_queues(K, deadline + FOREIGN_WAIT);
        assert_eq!(bench.fair(last), (0, 5_000));
        let now = bench.now();
        let ahead = bench.deadline(last) - now;
        assert!(ahead <= 30_000 + FOREIGN_WAIT + 2 * 15_000, "{ahead}");
        bench.cmd::<()>(&["DEL", "F"]);
        assert_eq!(bench.fair(first), (1, 0));
        bench.java_acquires(K);
        (first, last) = (last, first);
    }
}

/// What Java in front was given is still in the deadlines when it has left, most of all when its own wait was shorter than what
/// was told: ours that died behind it would stand for that long.
#[test]
fn a_dead_waiter_of_ours_stands_for_its_own_wait_once_java_has_left() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    for (wait, left_in_it) in [(FOREIGN_WAIT, 45_000), (20_000, 295_000)] {
        bench.cmd::<()>(&["FLUSHALL"]);
        bench.cmd::<()>(&["HSET", "F", J, "1"]);
        bench.cmd::<()>(&["PEXPIRE", "F", "30000"]);
        let now = bench.now();
        bench.java_queues(K, now + 30_000 + wait);
        assert_eq!(bench.fair(B), (0, 5_000));
        let patient = [D, "30000", "0", "-1", "300000", "0", "300000", FAIR_CHANNEL, "0", "0"];
        assert_eq!(bench.pair("fair_acquire", &FAIR_KEYS, &patient).0, 0);
        assert_eq!(bench.fair(C), (0, 5_000));
        let last = bench.deadline(C);
        bench.java_queues(J, last + FOREIGN_WAIT);
        assert_eq!(bench.fair(A), (0, 5_000));
        bench.java_acquires_with(K, wait);
        assert_near(bench.deadline(B) - now, left_in_it);
        assert!(bench.deadline(D) - now > 300_000 + 2 * SLACK);

        // B is dead. Whoever of ours comes by next sees it, wherever it stands.
        assert_eq!(bench.fair(A), (0, 5_000));
        assert_near(bench.deadline(B) - now, 15_000);
        assert_near(bench.deadline(C) - now, 15_000);
        // This one has as long as it said: it lives, and will not be back sooner.
        assert_near(bench.deadline(D) - now, 300_000);
        // Java, and ours behind it, have what they would have if they came now.
        assert_near(bench.deadline(J) - now, 330_000);
        assert_near(bench.deadline(A) - now, 345_000);
        let order = [B, D, C, J, A].map(str::to_owned);
        assert_eq!(bench.queue(), order);

        // One who does not wait does the same.
        for (who, behind) in [(B, 315_000), (J, 615_000)] {
            bench.cmd::<()>(&["ZADD", FAIR_KEYS[2], &(now + behind).to_string(), who]);
        }
        let tries = ["aaaaaaaa-aaaa-8aaa-8aaa-aaaaaa003a98:2", "30000", "0", "-1", "0", "0", "300000"];
        let (busy, _) = bench.pair("fair_acquire", &FAIR_KEYS, &[&tries[..], &[FAIR_CHANNEL, "0", "0"]].concat());
        assert_eq!((busy, bench.queue()), (0, order.to_vec()));
        assert_near(bench.deadline(B) - now, 15_000);
        assert_near(bench.deadline(J) - now, 330_000);

        // The head itself, when it comes by as the first of all.
        for (who, behind) in [(B, 315_000), (J, 615_000)] {
            bench.cmd::<()>(&["ZADD", FAIR_KEYS[2], &(now + behind).to_string(), who]);
        }
        assert_eq!(bench.fair(B), (0, 5_000));
        assert_near(bench.deadline(B) - now, 15_000);
        assert_near(bench.deadline(J) - now, 330_000);
        assert!(bench.heard().is_empty());
    }
}

/// Java's `tryLock` takes its own wait from the others, which may be longer than any that was told.
#[test]
fn a_patient_waiter_of_java_costs_nobody_behind_it_its_place() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let told = ["30000", "0", "-1", "15000", "0", "5000", FAIR_CHANNEL, "0", "0"];
    let ours = |bench: &mut Bench<'_>| bench.pair("fair_acquire", &FAIR_KEYS, &[&[B], &told[..]].concat());
    bench.cmd::<()>(&["HSET", "F", J, "1"]);
    bench.cmd::<()>(&["PEXPIRE", "F", "30000"]);
    let (now, patience) = (bench.now(), 2 * FOREIGN_WAIT);
    bench.java_queues(K, now + 30_000 + patience);
    assert_eq!(ours(&mut bench), (0, 5_000));
    assert_near(bench.deadline(B) - now, 30_000 + patience + 15_000);
    let last = bench.deadline(B);
    bench.java_queues(J, last + FOREIGN_WAIT);
    // The patient one has its turn.
    bench.java_acquires(K);
    for _ in 1..patience / FOREIGN_WAIT {
        for behind in [B, J] {
            bench.cmd::<()>(&["ZINCRBY", FAIR_KEYS[2], &(-FOREIGN_WAIT).to_string(), behind]);
        }
    }
    assert!(bench.deadline(B) > bench.now() && bench.deadline(J) > bench.now() + FOREIGN_WAIT);
    // And ours, which was 15 s ahead of what Java behind it may have.
    bench.cmd::<()>(&["DEL", "F"]);
    assert_eq!(ours(&mut bench), (1, 0));
    assert_near(bench.deadline(J) - bench.now(), 30_000 + FOREIGN_WAIT);
    assert_eq!(bench.queue(), [J]);
}

#[test]
fn a_read_write_lock_follows_the_vectors() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);

    // Vector: read A 300 000, read B 30 000: nil, nil; hash TTL 300 000; a level key each.
    assert_eq!(bench.read(A, "300000"), (1, 0));
    assert_eq!(bench.read(B, "30000"), (1, 0));
    assert_near(bench.pttl("W"), 300_000);
    assert_near(bench.pttl(&level(A, 1)), 300_000);
    assert_near(bench.pttl(&level(B, 1)), 30_000);
    assert_eq!(bench.cmd::<String>(&["GET", &level(A, 1)]), "1");

    // Vector: renew B: 1, and the hash TTL is 30 000, A's level key untouched. Ours shortens nobody's lock.
    assert_eq!(bench.rw_renew(B, "30000"), [1]);
    assert_near(bench.pttl("W"), 300_000);
    assert_near(bench.pttl(&level(A, 1)), 300_000);
    // Where Java has renewed, ours lifts the lock to its own level again.
    bench.cmd::<()>(&["PEXPIRE", "W", "30000"]);
    let cut = bench.rw_renew(A, "0")[0];
    assert_near(cut, 30_000);
    assert_near(bench.pttl("W"), 300_000);
    assert_eq!(bench.rw_renew(A, "0"), [1]);
    // Among so many that they are not searched, a cut is found all the same.
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

    // Vector: release B: 0, hash TTL back to A's level key's, no message. Release A: 1, key gone, message 0.
    bench.cmd::<()>(&["PEXPIRE", "W", "30000"]);
    assert_eq!(bench.rw_release(B, "0", "0"), (1, 0));
    assert_near(bench.pttl("W"), 300_000);
    assert!(bench.heard().is_empty());
    assert_eq!(bench.rw_release(A, "0", "0"), (2, 1));
    assert_eq!(bench.heard(), messages(&[(RW_CHANNEL, "0")]));
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
    assert_eq!(bench.heard(), messages(&[(RW_CHANNEL, "0")]));
    assert!(server.lock_keys().is_empty());

    // Vector: write A twice: nil, nil; {mode: write, A:write: 2}, TTL about 60 000. Ours keeps the longer of the two.
    assert_eq!(bench.write(A, "0"), (1, 0));
    assert_eq!(bench.write(A, "1"), (1, 0));
    let writer = format!("{A}:write");
    let fields = |list: &[(&str, &str)]| messages(list).into_iter().collect::<BTreeMap<_, _>>();
    assert_eq!(bench.hash("W"), fields(&[("mode", "write"), (&writer, "2")]));
    assert_near(bench.pttl("W"), 30_000);
    // Vector: read A inside: nil, adds A: 1. Ours sends nothing then; the last write release says what it reads.
    // Vector: write release ×2: 0, 1; {mode: read, A: 1}, no message. Ours publishes 1: the readers that wait may come in;
    // and 00 behind it, for one of Java that was just about to wait.
    assert_eq!(bench.rw_release(A, "1", "1"), (1, 0));
    assert_eq!(bench.hash("W"), fields(&[("mode", "write"), (&writer, "1")]));
    assert!(bench.heard().is_empty());
    assert_eq!(bench.rw_release(A, "0", "1"), (2, 1));
    assert_eq!(bench.hash("W"), fields(&[("mode", "read"), (A, "1")]));
    assert_near(bench.pttl(&level(A, 1)), 30_000);
    assert_eq!(bench.heard(), messages(&[(RW_CHANNEL, "1"), (RW_CHANNEL, "00")]));
}

/// Traces of a live Redisson: what our scripts make of a state that Java's made.
#[test]
fn a_reader_of_java_s_is_respected() {
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    bench.cmd::<()>(&["HSET", "W", "mode", "read", J, "2"]);
    bench.cmd::<()>(&["PEXPIRE", "W", "20000"]);
    for n in [1, 2] {
        bench.cmd::<()>(&["SET", &level(J, n), "1", "PX", "20000"]);
    }
    assert_near(bench.write(C, "0").1, 20_000);
    assert_eq!(bench.read(A, "60000"), (1, 0));
    // It may cut the lock to what it has at least, also while others of ours keep that from being seen.
    assert_near(bench.rw_renew(A, "60000")[0], 20_000);
    assert_near(bench.pttl(&level(J, 1)), 20_000);
    assert_eq!(bench.rw_release(A, "0", "0"), (1, 0));
    // Java's keys stand as they stood, and the lock ends with them.
    assert_near(bench.pttl("W"), 20_000);
    assert_near(bench.pttl(&level(J, 2)), 20_000);
    assert_eq!(bench.hash("W").get(J).map(String::as_str), Some("2"));
    assert!(bench.heard().is_empty());
    // A writer of Java's that reads as well keeps everybody out.
    bench.cmd::<()>(&["HSET", "W", "mode", "write", &format!("{J}:write"), "1"]);
    assert_near(bench.read(A, "60000").1, 20_000);
    assert_near(bench.write(A, "0").1, 20_000);
}

#[test]
fn a_latch_follows_the_vectors() {
    const CHANNEL: &str = "redisson_countdownlatch__channel__{L}";
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let mut ids = 0;
    // Each request has a mark of its own, which Redisson does not know.
    let mut call = |bench: &mut Bench<'_>, script: &str, args: &[&str]| {
        ids += 1;
        let pair =
            bench.pair(script, &["L", &format!("leasehold_once:{{L}}:{ids}"), "leasehold_once:{L}:opened"], args);
        (pair, bench.heard())
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
    assert_eq!(call(&mut bench, "latch_count_down", &["60000", CHANNEL, "0"]), ((1, 0), messages(&[(CHANNEL, "0")])));
    assert_eq!(call(&mut bench, "latch_count_down", &["60000", CHANNEL, "0"]), ((0, 0), vec![]));
    assert!(server.lock_keys().is_empty());
    // Section 13: Redisson's delete publishes 1, which strands whoever waits. Ours publishes 0 behind it.
    bench.cmd::<()>(&["SET", "L", "3"]);
    let told = messages(&[(CHANNEL, "1"), (CHANNEL, "0")]);
    assert_eq!(call(&mut bench, "latch_delete", &["60000", CHANNEL, "0"]), ((1, 0), told));
    assert!(server.lock_keys().is_empty());
}

#[test]
fn a_counting_semaphore_follows_the_vectors() {
    const CHANNEL: &str = "redisson_sc:{S}";
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    // Vector: release 3 on a missing key: value 3, message 3. Ours to add permits, and to give back what it took.
    assert_eq!(bench.pair("count_add", &["S", "m1"], &["3", "60000", CHANNEL, "0"]), (1, 3));
    assert_eq!(bench.heard(), messages(&[(CHANNEL, "3")]));
    bench.cmd::<()>(&["DEL", "S"]);
    assert_eq!(bench.pair("count_release", &["S", "m2"], &["3", "60000", CHANNEL, "1"]), (2, 1));
    assert_eq!(bench.heard(), messages(&[(CHANNEL, "3")]));
    assert_eq!(bench.cmd::<String>(&["GET", "S"]), "3");
    // Section 14: acquire takes all or none and says nothing; adding fewer than none tells nobody (18 #12).
    assert_eq!(bench.pair("count_acquire", &["S", "m3"], &["4", "60000", "0"]), (0, -1));
    assert_eq!(bench.pair("count_acquire", &["S", "m4"], &["3", "60000", "0"]), (1, 0));
    assert_eq!(bench.pair("count_add", &["S", "m5"], &["-2", "60000", CHANNEL, "0"]), (1, -2));
    assert_eq!(bench.cmd::<String>(&["GET", "S"]), "-2");
    assert!(bench.heard().is_empty());
}

#[test]
fn permits_with_leases_follow_the_vectors() {
    const CHANNEL: &str = "redisson_sc:{S}";
    const KEYS: [&str; 2] = ["S", "{S}:timeout"];
    let server = Server::start();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    let take =
        |bench: &mut Bench<'_>| bench.pair("permit_acquire", &KEYS, &["ours12345678", "1", "30000", CHANNEL, "0"]);
    // Vector: total 2, one no-expiry, one lease 300 ms, third tries: `:<score of the leased one>`. Ours is told how long.
    let now = bench.now();
    bench.cmd::<()>(&["SET", "S", "0"]);
    bench.cmd::<()>(&["ZADD", KEYS[1], "922337203685477", "java's permit 01"]);
    bench.cmd::<()>(&["ZADD", KEYS[1], &(now + 300).to_string(), "java's permit 02"]);
    let (status, hint) = take(&mut bench);
    // On a machine so slow that the lease had ended, it was granted.
    if bench.now() < now + 300 {
        assert_eq!(status, 0);
        assert!((1..=301).contains(&hint), "{hint}");
        assert!(bench.heard().is_empty());
    }
    bench.cmd::<()>(&["ZREM", KEYS[1], "java's permit 02", "ours12345678\0\0\0\u{1}"]);

    // Vector: the same after 350 ms: OK, and message 1 from the sweep. Ours publishes what is left after it took, which
    // is none: nobody need come for that.
    bench.cmd::<()>(&["SET", "S", "0"]);
    bench.heard();
    bench.cmd::<()>(&["ZADD", KEYS[1], &now.to_string(), "java's permit 02"]);
    assert_eq!(take(&mut bench), (1, 0));
    assert!(bench.heard().is_empty());
    // With one more that had ended, that is there for somebody else.
    bench.cmd::<()>(&["DEL", KEYS[1]]);
    for permit in ["java's permit 02", "java's permit 03"] {
        bench.cmd::<()>(&["ZADD", KEYS[1], &now.to_string(), permit]);
    }
    let taken = bench.now();
    assert_eq!(take(&mut bench), (1, 0));
    assert_eq!(bench.heard(), messages(&[(CHANNEL, "1")]));
    assert_eq!(bench.cmd::<String>(&["GET", "S"]), "1");
    // Sections 15 and 18 #16: 16 bytes, whole milliseconds, two seconds longer than promised, because Java's clock sweeps.
    let members: Vec<(Vec<u8>, String)> = bench.cmd(&["ZRANGE", KEYS[1], "0", "-1", "WITHSCORES"]);
    assert_eq!(members[0].0, b"ours12345678\0\0\0\x01");
    let lease = members[0].1.parse::<i64>().unwrap() - taken;
    assert!((32_000..=32_000 + SLACK).contains(&lease), "{lease}");

    // Vector: release of an expired id: 0, permit returned, message with the new value.
    bench.cmd::<()>(&["ZADD", KEYS[1], &now.to_string(), "ours12345678\0\0\0\u{1}"]);
    let release = |bench: &mut Bench<'_>| bench.pair("permit_release", &KEYS, &["ours12345678", "1", CHANNEL]);
    assert_eq!(release(&mut bench), (0, 0));
    assert_eq!(bench.heard(), messages(&[(CHANNEL, "2")]));
    assert_eq!(release(&mut bench), (0, 0));
    assert_eq!((bench.heard(), bench.cmd::<String>(&["GET", "S"])), (vec![], "2".to_owned()));
}

/// Each name with the tag that its other keys share.
const NAMES: [(&str, &str); 2] = [("foo", "{foo}"), ("a{b}c", "a{b}c")];

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

impl Bench<'_> {
    /// What was published for Redisson's ears. Clients also call themselves, and each new connection tries whether it may
    /// publish.
    fn heard_by_redisson(&mut self) -> Messages {
        let for_redisson = |channel: &str| channel.starts_with("redisson") && !channel.contains("leasehold:probe");
        self.heard().into_iter().filter(|(channel, _)| for_redisson(channel)).collect()
    }
}

/// A holder id: a UUID that Java's scripts cannot tell from their own, and ours can, and a number.
#[track_caller]
fn assert_holder(holder: &str, client: &str) {
    let (id, number) = holder.rsplit_once(':').unwrap();
    assert_eq!((id, id.len(), &id[14..15]), (client, 36, "8"));
    assert!(number.parse::<i64>().is_ok(), "{number}");
    assert_eq!(id.to_lowercase(), id);
}

#[test]
fn a_fair_lock_has_redisson_s_names() {
    let server = Server::start();
    let (ours, theirs) = (server.client(), server.client());
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    for (name, tag) in NAMES {
        let guard = ours.fair(name).lock().unwrap();
        assert_eq!(server.lock_keys(), [name]);
        let fields = bench.hash(name);
        let (holder, count) = fields.first_key_value().unwrap();
        assert_eq!((fields.len(), count.as_str()), (1, "1"));
        assert_holder(holder, ours.id());
        assert_eq!(bench.cmd::<u32>(&["EXISTS", &format!("redisson_lock_token:{tag}")]), 1);

        let [queue, deadlines] = ["queue", "timeout"].map(|key| format!("redisson_lock_{key}:{tag}"));
        let channel = std::thread::scope(|s| {
            let waiter = s.spawn(|| theirs.fair(name).lock_owned().unwrap());
            wait_until("it waits", || bench.cmd::<u32>(&["ZCARD", &deadlines]) == 1);
            assert_eq!(sorted(server.lock_keys()), sorted(vec![name.to_owned(), queue.clone(), deadlines.clone()]));
            let waiting: Vec<String> = bench.cmd(&["LRANGE", &queue, "0", "-1"]);
            assert_eq!(waiting, bench.cmd::<Vec<String>>(&["ZRANGE", &deadlines, "0", "-1"]));
            assert_holder(&waiting[0], theirs.id());
            let channel = format!("redisson_lock__channel:{tag}:{}", waiting[0]);
            // It listens there, beside our ear: Java's release would find it.
            wait_until("it hears its channel", || bench.cmd::<u32>(&["PUBLISH", &channel, "0"]) == 2);
            bench.heard();
            guard.unlock().unwrap();
            waiter.join().unwrap().unlock().unwrap();
            channel
        });
        // The second release finds nobody to call.
        assert_eq!(bench.heard_by_redisson(), messages(&[(&channel, "0")]));
        assert!(server.lock_keys().is_empty());
    }
}

#[test]
fn a_read_write_lock_has_redisson_s_names() {
    let server = Server::start();
    let (ours, theirs) = (server.client(), server.client());
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    for (name, tag) in NAMES {
        let (lock, channel) = (ours.rw_lock(name), format!("redisson_rwlock:{tag}"));
        let outer = lock.read().unwrap();
        let inner = lock.read().unwrap();
        let fields = bench.hash(name);
        let reader = fields.keys().find(|field| *field != "mode").unwrap().clone();
        assert_holder(&reader, ours.id());
        assert_eq!(fields, messages(&[("mode", "read"), (&reader, "2")]).into_iter().collect());
        let levels = [1, 2].map(|n| format!("{tag}:{reader}:rwlock_timeout:{n}"));
        assert_eq!(sorted(server.lock_keys()), sorted(vec![name.to_owned(), levels[0].clone(), levels[1].clone()]));
        assert_eq!(bench.cmd::<String>(&["GET", &levels[1]]), "1");

        // A writer that waits listens there, and leaves our own marker beside Redisson's keys.
        let marker = format!("leasehold_writer:{tag}");
        std::thread::scope(|s| {
            let writer = s.spawn(|| theirs.rw_lock(name).write_owned().unwrap());
            wait_until("it waits", || {
                server.channels().contains(&channel) && bench.cmd::<u32>(&["EXISTS", &marker]) == 1
            });
            assert_holder(&bench.cmd::<String>(&["GET", &marker]), theirs.id());
            inner.unlock().unwrap();
            assert!(bench.heard_by_redisson().is_empty());
            assert_eq!(sorted(server.lock_keys()), sorted(vec![name.to_owned(), levels[0].clone(), marker.clone()]));
            outer.unlock().unwrap();
            writer.join().unwrap().unlock().unwrap();
        });
        assert_eq!(bench.heard_by_redisson(), messages(&[(&channel, "0"), (&channel, "1"), (&channel, "00")]));
        assert!(server.lock_keys().is_empty());

        // Vector: read inside of write adds a field. Ours does not tell of it until the last write level goes.
        let writing = [lock.write().unwrap(), lock.write().unwrap()];
        let reading = lock.read().unwrap();
        let fields = bench.hash(name);
        let writer = fields.keys().find(|field| *field != "mode").unwrap().clone();
        assert_eq!(fields, messages(&[("mode", "write"), (&writer, "2")]).into_iter().collect());
        assert_holder(writer.strip_suffix(":write").unwrap(), ours.id());
        writing.into_iter().for_each(|guard| guard.unlock().unwrap());
        let reader = writer.strip_suffix(":write").unwrap();
        assert_eq!(bench.hash(name), messages(&[("mode", "read"), (reader, "1")]).into_iter().collect());
        assert_eq!(bench.cmd::<u32>(&["EXISTS", &format!("{tag}:{reader}:rwlock_timeout:1")]), 1);
        assert_eq!(bench.heard_by_redisson(), messages(&[(&channel, "1"), (&channel, "00")]));
        reading.unlock().unwrap();
        assert_eq!(bench.heard_by_redisson(), messages(&[(&channel, "0")]));
        assert!(server.lock_keys().is_empty());
    }
}

#[test]
fn a_latch_has_redisson_s_names() {
    let server = Server::start();
    let client = server.client();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    for (name, tag) in NAMES {
        // The latch's own rule: braces in any case.
        let (latch, channel) = (client.latch(name), format!("redisson_countdownlatch__channel__{{{name}}}"));
        latch.set_count(2).unwrap();
        assert_eq!((bench.cmd::<String>(&["GET", name]), bench.pttl(name)), ("2".to_owned(), -1));
        std::thread::scope(|s| {
            let waiter = s.spawn(|| latch.wait().unwrap());
            wait_until("it waits", || server.channels().contains(&channel));
            assert_eq!(latch.count_down().unwrap(), 1);
            assert_eq!(latch.count_down().unwrap(), 0);
            waiter.join().unwrap();
        });
        assert_eq!(latch.count_down().unwrap(), 0);
        latch.set_count(1).unwrap();
        assert!(latch.delete().unwrap());
        let told = ["1", "0", "1", "1", "0"].map(|payload| (channel.clone(), payload.to_owned()));
        assert_eq!(bench.heard_by_redisson(), told);
        assert_marks_only(&server, tag);
    }
}

/// What is left are answers that expire.
#[track_caller]
fn assert_marks_only(server: &Server, tag: &str) {
    assert!(server.lock_keys().is_empty());
    let marks: Vec<String> = server.cmd(&["KEYS", "leasehold_once:*"]);
    assert!(!marks.is_empty());
    for mark in marks {
        assert!((1..=60_000).contains(&server.pttl(&mark)), "{mark}");
        assert!(mark.starts_with(&format!("leasehold_once:{tag}:")), "{mark}");
        server.cmd::<()>(&["DEL", &mark]);
    }
}

#[test]
fn a_semaphore_has_redisson_s_names() {
    let server = Server::start();
    let client = server.client();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    for (name, tag) in NAMES {
        let (semaphore, channel, leases) =
            (client.semaphore(name), format!("redisson_sc:{tag}"), format!("{tag}:timeout"));
        assert!(semaphore.try_set_permits(3).unwrap());
        assert_eq!(bench.heard_by_redisson(), messages(&[(&channel, "3")]));
        let two = semaphore.acquire_many(2).unwrap();
        assert_eq!(sorted(server.lock_keys()), sorted(vec![name.to_owned(), leases.clone()]));
        assert_eq!(bench.cmd::<String>(&["GET", name]), "1");
        assert_eq!([bench.pttl(name), bench.pttl(&leases)], [-1, -1]);
        let members: Vec<(Vec<u8>, i64)> = bench.cmd(&["ZRANGE", &leases, "0", "-1", "WITHSCORES"]);
        assert_eq!(members.len(), 2);
        for (member, ends) in &members {
            assert_eq!(member.len(), 16);
            assert_near(ends - bench.now(), 32_000);
        }
        two.unlock().unwrap();
        assert_eq!(bench.heard_by_redisson(), messages(&[(&channel, "3")]));

        // The ids that Java knows them by are the members in hexadecimal digits.
        let id = semaphore.acquire_many(3).unwrap().forget();
        let members: Vec<Vec<u8>> = bench.cmd(&["ZRANGE", &leases, "0", "-1"]);
        let hex = |member: &Vec<u8>| member.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(id.redisson_ids(), members.iter().map(hex).collect::<Vec<_>>());
        std::thread::scope(|s| {
            let waiter = s.spawn(|| semaphore.acquire().unwrap());
            wait_until("it waits", || server.channels().contains(&channel));
            // Java gives one back by its id, as its script does.
            bench.cmd::<()>(&[b"ZREM", leases.as_bytes(), &members[1]]);
            bench.cmd::<()>(&["INCR", name]);
            bench.cmd::<()>(&["PUBLISH", &channel, "1"]);
            waiter.join().unwrap().unlock().unwrap();
        });
        assert_eq!(semaphore.acquired_permits().unwrap(), 2);
        assert!(semaphore.delete().unwrap());
        // What Java said, what was given back, and that there is none any more.
        assert_eq!(bench.heard_by_redisson(), messages(&[(&channel, "1"), (&channel, "1"), (&channel, "1")]));
        assert_marks_only(&server, tag);
    }
}

#[test]
fn a_counting_semaphore_has_redisson_s_names() {
    let server = Server::start();
    let client = server.client();
    let mut ear = server.connect();
    let mut bench = Bench::new(&server, &mut ear);
    for (name, tag) in NAMES {
        let (semaphore, channel) = (client.counting_semaphore(name), format!("redisson_sc:{tag}"));
        assert!(semaphore.try_set_permits(2).unwrap());
        let permits = semaphore.acquire_many(2).unwrap();
        assert_eq!(server.lock_keys(), [name]);
        assert_eq!((bench.cmd::<String>(&["GET", name]), bench.pttl(name)), ("0".to_owned(), -1));
        std::thread::scope(|s| {
            let waiter = s.spawn(|| semaphore.acquire().unwrap());
            wait_until("it waits", || server.channels().contains(&channel));
            permits.unlock().unwrap();
            waiter.join().unwrap().unlock().unwrap();
        });
        assert_eq!(semaphore.add_permits(3).unwrap(), 5);
        assert!(semaphore.delete().unwrap());
        let told = ["2", "2", "2", "5", "1"].map(|payload| (channel.clone(), payload.to_owned()));
        assert_eq!(bench.heard_by_redisson(), told);
        assert_marks_only(&server, tag);
    }
}
