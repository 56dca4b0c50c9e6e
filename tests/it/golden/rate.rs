//! The rate limiter: what Redisson 4.7.0 was seen to write, and what it reads.

use super::assert_near;
use crate::lua::Bench;
use crate::rig::{Server, ms};
use crate::support::Clients;

const KEYS: [&str; 3] = ["R", "{R}:value", "{R}:permits"];

impl Bench<'_> {
    /// An entry of Redisson's: 16 random bytes behind their number, and one permit in four bytes.
    fn redisson_took(&mut self, before: i64) {
        let at = (self.now() - before).to_string();
        let entry = [&[16][..], &[b'j'; 15], &[before as u8], &[1, 0, 0, 0]].concat();
        self.cmd::<()>(&[&b"ZADD"[..], KEYS[2].as_bytes(), at.as_bytes(), &entry]);
        self.cmd::<()>(&["DECR", KEYS[1]]);
    }

    /// The entries with their scores, oldest first.
    fn taken(&mut self) -> Vec<(Vec<u8>, i64)> {
        self.cmd(&["ZRANGE", KEYS[2], "0", "-1", "WITHSCORES"])
    }

    fn take(&mut self, id: &str, permits: &str) -> (i64, i64) {
        self.pair("rate_acquire", &KEYS, &[id, permits, "0"])
    }

    fn set_rate(&mut self, mark: &str, args: &[&str]) -> (i64, i64) {
        let keys = [&KEYS[..], &[mark]].concat();
        self.pair("rate_set", &keys, &[args, &["60000", "0"]].concat())
    }
}

#[test]
fn a_rate_limiter_follows_the_vectors() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    // Vector: trySetRate(OVERALL, 5, 900 s): four fields, no TTL, no other key. (The key of the
    // request is leasehold's own.)
    assert_eq!(bench.set_rate("m1", &["5", "900000", "0"]), (1, 0));
    let fields = [("interval", "900000"), ("keepAliveTime", "0"), ("rate", "5"), ("type", "0")];
    let fields = fields.map(|(field, value)| (field.to_owned(), value.to_owned()));
    assert_eq!(bench.hash("R").into_iter().collect::<Vec<_>>(), fields);
    assert_eq!((bench.pttl("R"), bench.cmd::<u32>(&["EXISTS", KEYS[1], KEYS[2]])), (-1, 0));
    // Vector: tryAcquire(2): the value is what is left. The entry says how long its id is, and its
    // score is the time. (Redisson's id has 16 bytes, leasehold's 12; Redisson reads any length.)
    assert_eq!(bench.take("abcdefghijkl", "2"), (1, 0));
    assert_eq!(bench.cmd::<String>(&["GET", KEYS[1]]), "3");
    let (taken, now) = (bench.taken(), bench.now());
    assert_eq!(taken[0].0, b"\x0cabcdefghijkl\x02\0\0\0");
    assert_near(taken[0].1, now);
    // Vector: one more of Redisson's, taken before ours: three are too many then. Redisson's answer
    // is when the first entry ends, leasehold's when enough have ended.
    bench.redisson_took(600_000);
    let (busy, after) = bench.take("ABCDEFGHIJKL", "3");
    assert_eq!(busy, 0);
    assert_near(after, 300_000);
    assert_near(bench.take("ABCDEFGHIJKL", "5").1, 900_000);
    // Vector: when the interval of an entry is over, the next call adds its permits to the value.
    bench.redisson_took(900_001);
    assert_eq!(bench.cmd::<String>(&["GET", KEYS[1]]), "1");
    assert_eq!(bench.take("ABCDEFGHIJKL", "2"), (1, 0));
    assert_eq!(bench.cmd::<String>(&["GET", KEYS[1]]), "0");
    assert_eq!(bench.taken().len(), 3);
    // Vector: trySetRate changes nothing then, and setRate removes value and entries.
    assert_eq!(bench.set_rate("m1", &["9", "1", "0"]), (1, 0), "a repeat");
    assert_eq!(bench.set_rate("m2", &["9", "1", "0"]), (0, 0));
    assert_eq!(bench.hash("R").get("rate").map(String::as_str), Some("5"));
    assert_eq!(bench.set_rate("m2", &["9", "1", "1"]), (1, 0));
    assert_eq!(bench.cmd::<u32>(&["EXISTS", KEYS[1], KEYS[2]]), 0);
    assert!(bench.published().is_empty(), "Redisson has no channel for it");
}

#[test]
fn a_rate_limiter_has_redisson_s_names() {
    let server = Server::start();
    let client = server.client();
    for (name, tag) in [("foo", "{foo}"), ("a{b}c", "a{b}c")] {
        let limiter = client.rate_limiter(name);
        limiter.set_rate(3, ms(60_000)).unwrap();
        limiter.acquire(1).unwrap();
        let mut expected = vec![name.to_owned(), format!("{tag}:permits"), format!("{tag}:value")];
        let mut keys = server.lock_keys();
        keys.sort();
        expected.sort();
        assert_eq!(keys, expected);
        assert!(limiter.delete().unwrap());
        assert!(server.lock_keys().is_empty());
    }
}
