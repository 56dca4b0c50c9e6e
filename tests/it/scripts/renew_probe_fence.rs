//! The scripts that renew leases, probe for permissions and check fencing tokens.

use std::collections::BTreeMap;

use super::{Bench, show, ttl};
use crate::lua::script;
use crate::rig::Server;

#[test]
fn a_renewal_answers_for_each_lock() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    bench.cmd::<()>(&["SET", "wrong", "x"]);
    for (key, who) in [("a", "A"), ("b", "A"), ("c", "B"), ("d", "A"), ("e", "A")] {
        bench.cmd::<()>(&["HSET", key, who, "1"]);
        bench.cmd::<()>(&["PEXPIRE", key, "2000000"]);
    }
    bench.cmd::<()>(&["PERSIST", "e"]);
    let keys = ["a", "wrong", "b", "c", "free", "d", "e"];
    let leases = ["3000000", "3000000", "1000000", "3000000", "3000000", "0", "3000000"];
    for _ in 0..2 {
        let reply = bench.eval(script("lease_renew"), &keys, &[["A"; 7], leases].concat());
        assert_eq!(show(&reply), "[1 !WRONGTYPE 1 0 0 1 1]");
        let ttls: Vec<_> = keys.iter().map(|key| ttl(bench.cmd(&["PTTL", key]))).collect();
        // In this order: raised, of another type, not shortened, held by another, free, only read,
        // and one without a TTL.
        assert_eq!(ttls, ["3ks", "-1", "2ks", "2ks", "-2", "2ks", "3ks"]);
    }
    assert!(bench.published().is_empty());
    assert_eq!(show(&bench.eval(script("lease_renew"), &[], &[])), "[]");
}

/// The probe names each command that the user may not run, and no other.
#[test]
fn the_probe_names_what_is_refused() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    #[rustfmt::skip]
    let names = [
        "hexists", "hget", "hdel", "hgetall", "hlen", "exists", "get", "del", "pttl", "pexpire", "pexpireat", "persist",
        "set", "time", "publish", "lindex", "lrange", "lpop", "lrem", "zscore", "zmscore", "zcard", "zcount", "zrange",
        "zrangebyscore", "zrem", "zadd", "incrby", "decrby",
    ];
    // On Redis 6.2 only a write can show whether these are permitted.
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
        let refused: Vec<String> = redis::cmd("EVAL")
            .arg(script("connect_probe"))
            .arg(1)
            .arg("k")
            .arg("c")
            .query(&mut user)
            .unwrap();
        assert_eq!(refused.len(), 1, "without {name}: {refused:?}");
        assert!(refused[0].starts_with(&format!("{name}: ")), "without {name}: {refused:?}");
        assert!(bench.picture().is_empty());
    }
}

/// A model of the two fence scripts: it compares numbers where the scripts compare text.
#[test]
fn fences_compare_numbers_and_may_be_asked_twice() {
    type Fenced = (Option<u64>, Option<&'static str>);
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let picture = |(token, value): Fenced| -> BTreeMap<String, String> {
        let fields = [
            token.map(|t| ("token".to_owned(), t.to_string())),
            value.map(|v| ("value".to_owned(), v.to_owned())),
        ];
        fields.into_iter().flatten().collect()
    };
    let tokens =
        [1, 9, 10, 999_999_999, 1_000_000_000, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, u64::MAX];
    let standing = tokens.iter().map(|t| Some(*t)).chain([None]);
    for start in standing.flat_map(|token| [(token, None), (token, Some("old"))]) {
        for ours in tokens {
            let claimed = if start.0.is_some_and(|standing| standing > ours) {
                (format!("[0 {}]", start.0.unwrap()), start)
            } else {
                (format!("[1 {}]", start.1.unwrap_or("nil")), (Some(ours), start.1))
            };
            let written = match start.0 {
                Some(standing) if standing == ours => {
                    (format!("[1 {ours}]"), (Some(ours), Some("new")))
                }
                Some(standing) => (format!("[0 {standing}]"), start),
                None => ("[0 nil]".to_owned(), start),
            };
            let text = ours.to_string();
            let claim: (&str, &[&str]) = (script("fence_claim"), &[&text]);
            let write: (&str, &[&str]) = (script("fence_write"), &[&text, "new"]);
            for ((script, args), (answer, after)) in [(claim, claimed), (write, written)] {
                bench.cmd::<()>(&["DEL", "v"]);
                for (field, text) in &picture(start) {
                    bench.cmd::<()>(&["HSET", "v", field, text]);
                }
                for _ in 0..2 {
                    assert_eq!(
                        show(&bench.eval(script, &["v"], args)),
                        answer,
                        "{args:?} at {start:?}"
                    );
                    let now: BTreeMap<String, String> = bench.cmd(&["HGETALL", "v"]);
                    assert_eq!(now, picture(after), "{args:?} at {start:?}");
                }
            }
        }
    }
    bench.cmd::<()>(&["SET", "v", "x"]);
    for (script, args) in
        [(script("fence_claim"), &["1"][..]), (script("fence_write"), &["1", "new"])]
    {
        assert_eq!(show(&bench.eval(script, &["v"], args)), "!WRONGTYPE");
    }
    assert_eq!(bench.cmd::<String>(&["GET", "v"]), "x");
    // A lock, and one into which an earlier version has put a value.
    for fields in
        [&["u:1", "1"][..], &["u:1", "1", "token", "1"], &["u:1", "1", "token", "1", "value", "v"]]
    {
        bench.cmd::<()>(&["DEL", "v"]);
        bench.cmd::<()>(&[&["HSET", "v"], fields].concat());
        for (script, args) in
            [(script("fence_claim"), &["1"][..]), (script("fence_write"), &["1", "new"])]
        {
            assert_eq!(show(&bench.eval(script, &["v"], args)), "!WRONGTYPE");
            assert_eq!(bench.cmd::<usize>(&["HLEN", "v"]), fields.len() / 2);
        }
    }
}
