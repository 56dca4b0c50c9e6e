//! Servers that refuse, cannot, or are none: a typed error at once, nothing left behind, and the same client works
//! again when the server does.

use std::error::Error as _;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Builder, Error, ErrorKind, LockClient};

use crate::rig::{CAP, Fault, Masters, Proxy, Server, logged, ms, record_logs, wait_until};

const SECRET: &str = "s3cr3t-pw";
const IO_TIMEOUT: Duration = ms(500);
/// Long: no test may pass because a lease ended.
const LEASE: Duration = Duration::from_secs(60);
/// "Within the I/O timeout", for a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(5);

fn settings(url: &str) -> Builder {
    LockClient::builder().url(url).lease(LEASE).io_timeout(IO_TIMEOUT)
}

fn client(server: &Server) -> LockClient {
    settings(&server.url()).build().unwrap()
}

/// The call fails soon, so, of this lock, says this of the cause, and keeps the password to itself.
#[track_caller]
fn fails<T: Debug>(
    kind: ErrorKind,
    name: Option<&str>,
    says: &str,
    call: impl FnOnce() -> leasehold::Result<T>,
) -> Error {
    let start = Instant::now();
    let e = call().unwrap_err();
    assert!(start.elapsed() < SOON, "it took {:?}: {e:?}", start.elapsed());
    assert_eq!((e.kind(), e.name()), (kind, name), "{e:?}");
    assert!(e.to_string().contains(says), "{e} does not say {says:?}");
    let mut all = format!("{e} {e:?}");
    let mut cause = e.source();
    while let Some(c) = cause {
        all += &format!(" {c} {c:?}");
        cause = c.source();
    }
    assert!(!all.contains(SECRET), "{all}");
    e
}

/// What every attempt meets on a client that is connected already.
#[track_caller]
fn all_verbs_fail(client: &LockClient, name: &str, kind: ErrorKind, says: &str) {
    let (mutex, named) = (client.mutex(name), Some(name));
    fails(kind, named, says, || mutex.try_lock());
    fails(kind, named, says, || mutex.lock());
    fails(kind, named, says, || mutex.try_lock_for(LEASE));
    fails(kind, named, says, || mutex.lock_owned());
}

#[track_caller]
fn works(client: &LockClient, name: &str) {
    let guard = match client.try_lock(name) {
        // Once: a machine that is busy with other tests may take longer than that.
        Err(e) if e.to_string().contains("did not answer within the I/O timeout") => client.try_lock(name),
        outcome => outcome,
    };
    let guard = guard.unwrap().expect("nobody else has it");
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

#[track_caller]
fn nothing_left(server: &Server) {
    wait_until("no lock is left", || server.lock_keys().is_empty());
}

fn query<T: redis::FromRedisValue>(connection: &mut redis::Connection, words: &[&str]) -> redis::RedisResult<T> {
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    cmd.query(connection)
}

// ---------------------------------------------------------------------------------------------- users and passwords

#[test]
fn a_wrong_password_is_denied_and_the_right_one_works() {
    let server = Server::start();
    let open_before = client(&server);
    works(&open_before, "before");
    let lazy = settings(&server.url()).connect_lazily().build().unwrap();
    // Logged in before there was a password, so it stays logged in.
    let mut admin = server.connect();
    query::<()>(&mut admin, &["CONFIG", "SET", "requirepass", SECRET]).unwrap();

    let url = server.url();
    fails(ErrorKind::Denied, None, "password", || settings(&url).build());
    fails(ErrorKind::Denied, None, "password", || settings(&format!("{url}?pass={SECRET}-not")).build());
    fails(ErrorKind::Denied, None, "password", || settings(&format!("{url}?user=who&pass={SECRET}")).build());
    all_verbs_fail(&lazy, "job", ErrorKind::Denied, "password");
    let good = settings(&format!("{url}?pass={SECRET}")).build().unwrap();
    works(&good, "job");
    let other = settings(&format!("{url}?pass={SECRET}")).build().unwrap();
    waits_and_is_woken(&good, &other, "job", || {
        !query::<Vec<String>>(&mut admin, &["PUBSUB", "CHANNELS"]).unwrap().is_empty()
    });

    query::<()>(&mut admin, &["CONFIG", "SET", "requirepass", ""]).unwrap();
    works(&lazy, "job");
    works(&open_before, "job");
    drop((lazy, open_before, good, other, admin));
    server.assert_clean();
}

/// `b` waits for the lock that `a` has, and gets it by message.
#[track_caller]
fn waits_and_is_woken(a: &LockClient, b: &LockClient, name: &str, mut listens: impl FnMut() -> bool) {
    let guard = a.lock(name).unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            let start = Instant::now();
            b.lock(name).and_then(|guard| guard.unlock()).unwrap();
            start.elapsed()
        });
        wait_until("the waiter listens", &mut listens);
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap() < LEASE / 2, "woken by the timer");
    });
}

/// The rule of the crate docs, word for word, for locks with these names.
fn documented_rule(names: &[&str]) -> Vec<String> {
    let docs: String = include_str!("../../src/guide/operations.rs")
        .lines()
        .filter_map(|l| l.strip_prefix("//!"))
        .collect::<Vec<_>>()
        .join(" ");
    let (_, rule) = docs.split_once("A user with an ACL needs these").unwrap();
    let (_, rule) = rule.split_once(" `~<names>").unwrap();
    let rule = format!("~<names>{rule}");
    let (rule, _) = rule.split_once('`').unwrap();
    let with_names = |word: &str| match word.contains("<names>") {
        true => names.iter().map(|name| word.replace("<names>", name)).collect(),
        false => vec![word.to_owned()],
    };
    rule.split_whitespace().flat_map(with_names).collect()
}
/// Without any of these something fails.
#[rustfmt::skip]
const NEEDED: [&str; 36] = [
    "hset", "hget", "hdel", "hexists", "hgetall", "hlen", "exists", "del", "get", "set", "incr", "incrby", "decrby",
    "pttl", "pexpire", "pexpireat", "persist", "time", "lindex", "lrange", "rpush", "lpop", "lrem", "zadd", "zrem",
    "zscore", "zmscore", "zcard", "zcount", "zrange", "zrangebyscore", "publish", "eval", "evalsha", "script|load", "subscribe",
];
/// Without these everything works, some of it less well.
#[rustfmt::skip]
const HELPFUL: [&str; 8] = [
    "unsubscribe", "psubscribe", "punsubscribe", "ping", "client|setname", "client|info", "info",
    // For a fair waiter whose place was lost.
    "linsert",
];
const TO_KILL: &str = "client|kill";

struct Acl<'s> {
    server: &'s Server,
}

impl Acl<'_> {
    /// The user `u` from scratch, with these rules.
    fn set(&self, rules: &[&str]) -> String {
        let password = format!(">{SECRET}");
        self.server.cmd::<()>(&[&["ACL", "SETUSER", "u", "reset", "on", &password, "resetchannels"], rules].concat());
        format!("{}?user=u&pass={SECRET}", self.server.url())
    }

    /// The user `u` from scratch, with the documented rule and then these changes.
    fn user(&self, changes: &[&str]) -> String {
        // Left out rather than taken away again: Redis 6.2 cannot take away a subcommand.
        let (left_out, changes): (Vec<&str>, Vec<&str>) = changes.iter().partition(|word| word.starts_with('-'));
        let allowed: Vec<String> = NEEDED
            .iter()
            .chain(&HELPFUL)
            .chain([&TO_KILL])
            .filter(|command| !left_out.iter().any(|word| word[1..] == ***command))
            .map(|command| format!("+{command}"))
            .collect();
        let documented = documented_rule(&["app:*"]);
        let keys_and_channels = documented.iter().map(String::as_str).filter(|word| !word.starts_with('+'));
        self.set(&keys_and_channels.chain(allowed.iter().map(|word| &**word)).chain(changes).collect::<Vec<_>>())
    }

    fn change(&self, words: &[&str]) {
        self.server.cmd::<()>(&[&["ACL", "SETUSER", "u"], words].concat());
    }
}

/// The other nouns, each waited for once.
fn the_others(a: &LockClient, b: &LockClient, name: &str) -> leasehold::Result<()> {
    let named = |kind: &str| format!("{name}-{kind}");
    let (fair, rw) = (named("fair"), named("rw"));
    let guard = a.fair(&fair).lock()?;
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.fair(&fair).lock()?.unlock());
        wait_until("it is in the queue, or has failed", || {
            waiter.is_finished() || a.fair(&fair).queue_len().is_ok_and(|n| n == 1)
        });
        let unlocked = guard.unlock();
        if unlocked.is_err() {
            // Or the waiter would wait for the end of the lease.
            let _ = b.close(ms(100));
        }
        let waited = waiter.join().unwrap();
        unlocked.and(waited)
    })?;
    a.fair(&fair).lock()?.unlock()?;
    assert!(!a.fair(&fair).force_unlock()?);
    let write = a.rw_lock(&rw).write()?;
    let inner = a.rw_lock(&rw).read()?;
    let read = write.downgrade()?;
    drop(inner);
    b.rw_lock(&rw).read()?.unlock()?;
    assert!(b.rw_lock(&rw).try_write_for(ms(10))?.is_none());
    read.unlock()?;
    b.rw_lock(&rw).write()?.unlock()?;
    assert!(!a.rw_lock(&rw).force_unlock()?);
    let semaphore = a.semaphore(&named("permits"));
    semaphore.try_set_permits(1)?;
    let permit = semaphore.acquire()?;
    permit.extend(LEASE + ms(5000))?;
    assert!(b.semaphore(semaphore.name()).try_acquire_for(ms(10))?.is_none());
    permit.unlock()?;
    assert_eq!((semaphore.add_permits(1)?, semaphore.available_permits()?), (2, 2));
    semaphore.delete()?;
    let counting = a.counting_semaphore(&named("count"));
    counting.add_permits(1)?;
    counting.acquire()?.unlock()?;
    counting.delete()?;
    let latch = a.latch(&named("latch"));
    latch.set_count(1)?;
    assert!(!b.latch(latch.name()).wait_for(ms(10))?);
    assert_eq!((latch.count_down()?, latch.count()?), (0, 0));
    latch.set_count(1)?;
    latch.delete().map(drop)
}

/// Everything that a lock can do, once. The name is fresh, so that the token counter is made as well.
fn whole_life(server: &Server, url: &str, name: &str) -> leasehold::Result<()> {
    let build = || settings(url).key_prefix("app:").build();
    let (a, b) = (build()?, build()?);
    let outer = a.lock(name)?;
    let inner = a.lock(name)?;
    inner.extend(LEASE + ms(5000))?;
    inner.unlock()?;
    assert_eq!(b.mutex(name).holder()?.map(|h| h.hold_count()), Some(1));
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock(name)?.unlock());
        wait_until("the waiter listens, or has failed", || !server.channels().is_empty() || waiter.is_finished());
        let unlocked = outer.unlock();
        if unlocked.is_err() {
            // Or the waiter would wait for the end of the lease.
            let _ = b.close(ms(100));
        }
        let waited = waiter.join().unwrap();
        unlocked.and(waited)
    })?;
    the_others(&a, &b, name)?;
    let forced = b.lock(name)?;
    assert!(a.mutex(name).force_unlock()?);
    assert_eq!(forced.unlock().unwrap_err().kind(), ErrorKind::Lost);
    Ok(())
}

#[test]
fn the_documented_acl_rule_is_enough() {
    let sorted = |mut words: Vec<String>| {
        words.sort();
        words
    };
    let documented = documented_rule(&["app:*"]);
    let commands = documented.iter().filter(|word| word.starts_with('+')).cloned().collect();
    let tested = NEEDED.iter().chain(&HELPFUL).chain([&TO_KILL]).map(|command| format!("+{command}")).collect();
    assert_eq!(sorted(commands), sorted(tested), "each command is tested");
    let server = Server::start();
    let acl = Acl { server: &server };
    let url = acl.set(&documented.iter().map(String::as_str).collect::<Vec<_>>());
    whole_life(&server, &url, "job").unwrap();
    whole_life(&server, &url, "a{b}c").unwrap();
    // Renewed: the TTL goes up by itself.
    let short = settings(&url).key_prefix("app:").lease(ms(1500)).build().unwrap();
    let guard = short.lock("renewed").unwrap();
    let mut least = i64::MAX;
    wait_until("a renewal", || {
        let pttl = server.pttl("app:renewed");
        least = least.min(pttl);
        pttl > least
    });
    assert!(guard.is_held());
    drop((guard, short));
    server.assert_clean();
    let log: Vec<redis::Value> = server.cmd(&["ACL", "LOG"]);
    // A pattern must be permitted word for word, which one with a client's id cannot be: fair waiters then listen one by
    // one.
    let pattern = |entry: &redis::Value| format!("{entry:?}").contains("redisson_lock__channel:*:");
    assert!(log.iter().all(pattern), "the server refused something: {log:?}");
}

/// The keys of a name with braces are its own, without braces around it.
#[test]
fn the_documented_acl_rule_serves_single_names() {
    let server = Server::start();
    let acl = Acl { server: &server };
    for name in ["job", "a{b}c"] {
        let kinds = ["", "-fair", "-rw", "-permits", "-count", "-latch"];
        let names = kinds.map(|kind| format!("app:{name}{kind}"));
        let rule = documented_rule(&names.each_ref().map(String::as_str));
        let url = acl.set(&rule.iter().map(String::as_str).collect::<Vec<_>>());
        whole_life(&server, &url, name).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        server.assert_clean();
    }
}

#[test]
fn a_missing_command_is_told_when_connecting() {
    let server = Server::start();
    let acl = Acl { server: &server };
    // Redis 6.2 has no way to ask for these without writing.
    let asked = if server.major() >= 7 { &["hset", "incr", "rpush"][..] } else { &[] };
    let probed = ["hget", "del", "pexpire", "incrby", "zadd", "publish", "evalsha"];
    for command in asked.iter().chain(&probed) {
        let url = acl.user(&[&format!("-{command}")]);
        fails(ErrorKind::Denied, None, command, || settings(&url).key_prefix("app:").build());
    }
    assert!(server.cmd::<Vec<String>>(&["KEYS", "*"]).is_empty(), "asking writes nothing");
}

#[test]
fn each_command_of_the_acl_rule_is_needed_or_helpful() {
    let server = Server::start();
    let acl = Acl { server: &server };
    for command in NEEDED.into_iter().filter(|c| *c != "subscribe") {
        let url = acl.user(&[&format!("-{command}")]);
        fails_somehow(&server, &url, command);
    }
    for command in HELPFUL.into_iter().chain([TO_KILL]) {
        let url = acl.user(&[&format!("-{command}")]);
        whole_life(&server, &url, command).unwrap_or_else(|e| panic!("without {command}: {e:?}"));
        server.assert_clean();
    }
    let url = acl.user(&["-unsubscribe", "-ping", "-client|setname", "-client|info", "-client|kill", "-info"]);
    whole_life(&server, &url, "without all of them").unwrap();
    server.assert_clean();
}

#[track_caller]
fn fails_somehow(server: &Server, url: &str, command: &str) {
    let start = Instant::now();
    let Err(e) = whole_life(server, url, command) else { panic!("{command} is not needed") };
    assert!(start.elapsed() < SOON, "without {command}: {:?}", start.elapsed());
    assert_eq!(e.kind(), ErrorKind::Denied, "without {command}: {e:?}");
    assert!(e.to_string().contains("ACL"), "without {command}: {e}");
    server.cmd::<()>(&["CLIENT", "KILL", "USER", "u"]);
    wait_until(&format!("nothing is left without {command}"), || {
        // What cannot be released without the permission may stand until its lease ends, but not for ever.
        server.lock_keys().iter().all(|key| server.pttl(key) != -1)
    });
    server.cmd::<()>(&["FLUSHALL"]);
}

/// Redis does not roll back what a script did before the command that is refused.
#[test]
fn a_permission_taken_away_later_leaves_no_lock_for_ever() {
    let server = Server::start();
    let acl = Acl { server: &server };
    for command in NEEDED.into_iter().filter(|command| server.major() >= 7 || !command.contains('|')) {
        let url = acl.user(&[]);
        let client = settings(&url).key_prefix("app:").build().unwrap();
        works(&client, "job");
        server.cmd::<()>(&["DEL", "redisson_lock_token:{app:job}"]);
        acl.change(&[&format!("-{command}")]);
        if let Err(e) = client.try_lock("job").and_then(|guard| guard.unwrap().unlock()) {
            assert_eq!((e.kind(), e.name()), (ErrorKind::Denied, Some("job")), "without {command}: {e:?}");
        }
        for key in server.lock_keys() {
            assert_ne!(server.pttl(&key), -1, "without {command} the lock {key} never ends");
        }
        acl.change(&[&format!("+{command}")]);
        wait_until(&format!("nothing is left once {command} is permitted again"), || server.lock_keys().is_empty());
        works(&client, "job");
        drop(client);
        server.assert_clean();
    }
}

#[test]
fn a_missing_right_to_publish_or_to_a_key_is_told() {
    let server = Server::start();
    let acl = Acl { server: &server };
    let build = |url: &str| settings(url).key_prefix("app:").build();
    // No channels: told at connect, before a script can fail half-way.
    let url = acl.user(&["resetchannels"]);
    fails(ErrorKind::Denied, None, "publish", || build(&url));
    for pattern in ["&other:*", "&redisson_lock__channel"] {
        let url = acl.user(&["resetchannels", pattern]);
        fails(ErrorKind::Denied, None, "publish", || build(&url));
    }
    // The lock's key, and the token's.
    for pattern in ["~redisson_lock_token:*", "~other:*", "~app:*"] {
        let url = acl.user(&["resetkeys", pattern]);
        let client = build(&url).unwrap();
        all_verbs_fail(&client, "job", ErrorKind::Denied, "ACL");
        assert!(server.lock_keys().is_empty());
        acl.user(&[]);
        works(&client, "job");
    }
    server.assert_clean();
}

/// A rule that gives each application its own token keys and channels is stricter than the documented one, and enough.
#[test]
fn keys_and_channels_of_one_prefix_are_enough() {
    let server = Server::start();
    let acl = Acl { server: &server };
    let strict = [
        "resetkeys",
        "~app:*",
        "~{app:*",
        "~redisson_lock_token:{app:*",
        "~redisson_lock_queue:{app:*",
        "~redisson_lock_timeout:{app:*",
        "~leasehold_writer:{app:*",
        "~leasehold_once:{app:*",
    ];
    let url = acl.user(&strict);
    whole_life(&server, &url, "strict keys").unwrap();
    // The connect cannot probe with a key of its own here, so each must hold by itself.
    for command in ["pexpire", "hdel", "publish"] {
        let url = acl.user(&[&strict[..], &[&format!("-{command}")]].concat());
        fails_somehow(&server, &url, command);
    }
    let channels = [
        "resetchannels",
        "&redisson_lock__channel:{app:*",
        "&redisson_rwlock:{app:*",
        "&redisson_sc:{app:*",
        "&redisson_countdownlatch__channel__{app:*",
    ];
    let url = acl.user(&[&strict[..], &channels].concat());
    whole_life(&server, &url, "strict channels").unwrap();
    server.assert_clean();
}

#[test]
fn without_the_right_to_kill_or_to_ask_a_lost_acquire_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let acl = Acl { server: &server };
    for (round, missing) in
        [&["-client|kill"][..], &["-info"], &["-client|kill", "-client|info", "-info"]].iter().enumerate()
    {
        let query = acl.user(missing).split_once('?').unwrap().1.to_owned();
        let client = settings(&format!("{}?{query}", proxy.url())).key_prefix("app:").build().unwrap();
        for (n, fault) in [Fault::CutAfterApplied, Fault::BlackHoleReply].into_iter().enumerate() {
            let name = format!("lost-{round}-{n}");
            proxy.inject(&name, fault);
            match client.try_lock(&name) {
                Ok(guard) => drop(guard.unwrap()),
                Err(e) => assert_eq!((e.kind(), e.name()), (ErrorKind::Unreachable, Some(&*name)), "{missing:?}"),
            }
            nothing_left(&server);
            works(&client, &name);
        }
    }
    proxy.wait_hits(6);
}

#[test]
fn a_user_who_is_deleted_is_denied_until_it_is_back() {
    let server = Server::start();
    let acl = Acl { server: &server };
    let url = acl.user(&[]);
    let client = settings(&url).key_prefix("app:").build().unwrap();
    let guard = client.lock("held").unwrap();
    server.cmd::<u32>(&["ACL", "DELUSER", "u"]);
    all_verbs_fail(&client, "job", ErrorKind::Denied, "password");
    fails(ErrorKind::Denied, Some("held"), "password", || guard.unlock());
    acl.user(&[]);
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

// ------------------------------------------------------------------------------------------------------------- data

#[test]
fn a_key_of_another_type_is_told_and_left_alone() {
    let server = Server::start();
    let client = client(&server);
    for make in [&["SET", "job", "v"][..], &["RPUSH", "job", "v"], &["SADD", "job", "v"], &["ZADD", "job", "1", "v"]] {
        server.cmd::<()>(make);
        all_verbs_fail(&client, "job", ErrorKind::WrongType, "another name or a key_prefix");
        let mutex = client.mutex("job");
        fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.is_locked());
        fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.holder());
        fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || mutex.force_unlock());
        assert_eq!(server.cmd::<u32>(&["EXISTS", "job"]), 1, "somebody else's data is not ours to delete");
        server.cmd::<()>(&["DEL", "job"]);
        works(&client, "job");
    }
    // Put in its place while it is held.
    let guard = client.lock("job").unwrap();
    server.cmd::<()>(&["SET", "job", "v"]);
    fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || guard.extend(LEASE * 2));
    fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || client.lock("job"));
    fails(ErrorKind::WrongType, Some("job"), "WRONGTYPE", || guard.unlock());
    server.cmd::<()>(&["DEL", "job"]);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

#[test]
fn a_token_key_that_is_no_number_is_told_before_anything_is_taken() {
    let server = Server::start();
    let client = client(&server);
    let token = "redisson_lock_token:{job}";
    for make in [&["SET", token, "abc"][..], &["SET", token, "1.5"], &["HSET", token, "f", "v"], &["RPUSH", token, "v"]]
    {
        server.cmd::<()>(&["DEL", token]);
        server.cmd::<()>(make);
        all_verbs_fail(&client, "job", ErrorKind::WrongType, "another name or a key_prefix");
        assert!(server.lock_keys().is_empty());
        server.cmd::<()>(&["DEL", token]);
        works(&client, "job");
    }
    // Numbers that no counter of ours reaches: an error or a larger token, but never the same one twice.
    for far in ["9223372036854775807", "9007199254740992", "100000000000000000", "-5"] {
        server.cmd::<()>(&["SET", token, far]);
        let next = || client.try_lock("job").map(|guard| guard.unwrap().fencing_token().unwrap().get());
        let tokens: Vec<u64> = (0..4).map_while(|_| next().ok()).collect();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "from {far}: {tokens:?}");
        assert!(server.lock_keys().is_empty(), "from {far}");
    }
    drop(client);
    server.assert_clean();
}

// ------------------------------------------------------------------------------- servers that take no writes just now

fn port_of(server: &Server) -> String {
    server.url().trim_end_matches('/').rsplit(':').next().unwrap().to_owned()
}

#[test]
fn a_replica_is_refused() {
    let primary = Server::start_tcp(&[]);
    let replica = Server::start_tcp(&["--replicaof", "127.0.0.1", &port_of(&primary)]);
    let lazy = settings(&replica.url()).connect_lazily().build().unwrap();
    fails(ErrorKind::ReadOnly, None, "connect to the primary", || settings(&replica.url()).build());
    all_verbs_fail(&lazy, "job", ErrorKind::ReadOnly, "connect to the primary");
    replica.cmd::<()>(&["REPLICAOF", "NO", "ONE"]);
    works(&lazy, "job");
    drop(lazy);
    replica.assert_clean();
}

#[test]
fn a_primary_that_is_demoted_under_its_clients_and_promoted_again() {
    let server = Server::start();
    let client = client(&server);
    let guard = client.lock("held").unwrap();
    works(&client, "job");
    // Of a primary that is not there: it keeps its data and serves it, read-only.
    server.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    all_verbs_fail(&client, "job", ErrorKind::ReadOnly, "connect to the primary");
    fails(ErrorKind::ReadOnly, Some("held"), "connect to the primary", || guard.extend(LEASE * 2));
    fails(ErrorKind::ReadOnly, Some("held"), "connect to the primary", || guard.unlock());
    server.cmd::<()>(&["REPLICAOF", "NO", "ONE"]);
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

/// A call that waits already puts up with it.
#[test]
fn a_waiting_call_rides_out_a_demotion() {
    let server = Server::start();
    let (a, b) = (client(&server), client(&server));
    let guard = a.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock("job").and_then(|guard| guard.unlock()));
        wait_until("the waiter listens", || !server.channels().is_empty());
        server.cmd::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
        fails(ErrorKind::ReadOnly, Some("job"), "primary", || guard.unlock());
        server.cmd::<()>(&["REPLICAOF", "NO", "ONE"]);
        waiter.join().unwrap().unwrap();
    });
    drop((a, b));
    server.assert_clean();
}

#[test]
fn too_few_replicas_and_a_disk_that_cannot_be_written() {
    let gone = std::env::temp_dir().join(format!("lh-gone-{}", std::process::id()));
    std::fs::create_dir_all(&gone).unwrap();
    let server = Server::start_with(&["--dir", gone.to_str().unwrap()]);
    std::fs::remove_dir_all(&gone).unwrap();
    let client = client(&server);
    let cannot_save = || {
        server.cmd::<()>(&["CONFIG", "SET", "save", "3600 1"]);
        let _: redis::RedisResult<String> = query(&mut server.connect(), &["BGSAVE"]);
        wait_until("the save has failed", || {
            server.cmd::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
        });
    };
    let can_save = || server.cmd::<()>(&["CONFIG", "SET", "save", ""]);
    let few = || server.cmd::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let enough = || server.cmd::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    for (says, ill, well) in
        [("NOREPLICAS", &few as &dyn Fn(), &enough as &dyn Fn()), ("MISCONF", &cannot_save, &can_save)]
    {
        if says == "NOREPLICAS" && server.major() < 7 {
            // Redis 6.2 does not ask for replicas inside scripts.
            continue;
        }
        let guard = client.lock("held").unwrap();
        ill();
        all_verbs_fail(&client, "job", ErrorKind::ReadOnly, says);
        fails(ErrorKind::ReadOnly, Some("held"), says, || guard.extend(LEASE * 2));
        fails(ErrorKind::ReadOnly, Some("held"), says, || guard.unlock());
        // A fresh client can connect: only writes are refused.
        let fresh = settings(&server.url()).build().unwrap();
        fails(ErrorKind::ReadOnly, Some("job"), says, || fresh.try_lock("job"));
        well();
        nothing_left(&server);
        works(&client, "job");
        works(&fresh, "job");
    }
    drop(client);
    server.assert_clean();
}

#[test]
fn a_full_server_takes_no_lock_but_gives_back_those_it_has() {
    let server = Server::start();
    let client = client(&server);
    let short = settings(&server.url()).lease(ms(1500)).build().unwrap();
    let renewed = short.lock("renewed").unwrap();
    let (held, owned) = (client.lock("held").unwrap(), client.mutex("owned").lock_owned().unwrap());
    let inner = client.lock("held").unwrap();
    let _taken = client.lock("taken").unwrap();
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    all_verbs_fail(&client, "job", ErrorKind::Full, "maxmemory");
    assert!(!server.lock_keys().contains(&"job".to_owned()));
    // A client can still connect, find a lock taken, and hear of its release.
    let late = settings(&server.url()).build().unwrap();
    assert!(late.try_lock("taken").unwrap().is_none());
    held.extend(LEASE * 2).unwrap();
    // An inner level may be refused, as its count takes memory; the lock itself must come free.
    if let Err(e) = inner.unlock() {
        assert_eq!((e.kind(), e.name()), (ErrorKind::Full, Some("held")));
    }
    held.unlock().unwrap();
    std::thread::spawn(move || owned.unlock()).join().unwrap().unwrap();
    assert!(late.mutex("taken").force_unlock().unwrap());
    // Over the whole of its lease, so it is renewed.
    assert!(!renewed.wait_lost(ms(1800)));
    renewed.unlock().unwrap();
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    nothing_left(&server);
    works(&client, "job");
    works(&late, "held");
    drop((client, late, short, _taken));
    server.assert_clean();
}

#[test]
fn a_server_busy_with_a_script_is_not_ready() {
    let server = Server::start_with(&["--lua-time-limit", "50"]);
    let client = client(&server);
    let guard = client.lock("held").unwrap();
    works(&client, "job");
    let endless = std::thread::scope(|s| {
        let endless = s.spawn(|| query::<()>(&mut server.connect(), &["EVAL", "while true do end", "0"]));
        let mut admin = server.connect();
        wait_until("the server is busy", || {
            query::<String>(&mut admin, &["PING"]).is_err_and(|e| e.code() == Some("BUSY"))
        });
        fails(ErrorKind::NotReady, None, "BUSY", || settings(&server.url()).build());
        all_verbs_fail(&client, "job", ErrorKind::NotReady, "try again later");
        fails(ErrorKind::NotReady, Some("held"), "BUSY", || guard.extend(LEASE * 2));
        fails(ErrorKind::NotReady, Some("held"), "BUSY", || guard.unlock());
        query::<()>(&mut admin, &["SCRIPT", "KILL"]).unwrap();
        endless.join().unwrap()
    });
    endless.unwrap_err();
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

/// Not yet answering even BUSY: the client gives up by its own clock.
#[test]
fn a_server_that_hangs_in_a_command_is_unreachable() {
    let server = Server::start();
    let client = client(&server);
    works(&client, "job");
    server.suspend();
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&server.url()).build());
    all_verbs_fail(&client, "job", ErrorKind::Unreachable, "");
    server.resume();
    nothing_left(&server);
    wait_until("the lock is to be had", || client.try_lock("job").is_ok_and(|guard| guard.is_some()));
    drop(client);
    server.assert_clean();
}

#[test]
fn a_loading_server_is_not_ready() {
    if Server::start().major() < 7 {
        // It has no setting that makes loading slow enough to be met.
        return;
    }
    // Slow to load, and answering meanwhile.
    let args = ["--key-load-delay", "40000", "--loading-process-events-interval-bytes", "1024"];
    let mut server = Server::start_with(&args);
    let (client, url) = (client(&server), server.url());
    let guard = client.lock("held").unwrap();
    for n in 0..100 {
        server.cmd::<()>(&["SET", &format!("ballast{n}"), &format!("{n:0>2048}").replace('0', "x")]);
    }
    server.cmd::<()>(&["CONFIG", "SET", "rdbcompression", "no"]);
    server.cmd::<()>(&["SAVE"]);
    server.kill();
    let back = std::thread::spawn(move || {
        server.start_again();
        server
    });
    let mut loading = None;
    wait_until("the server is loading", || match settings(&url).build() {
        Err(e) if e.kind() == ErrorKind::Unreachable => false,
        outcome => {
            loading = Some(outcome.map(drop));
            true
        }
    });
    fails(ErrorKind::NotReady, None, "LOADING", || loading.unwrap());
    all_verbs_fail(&client, "job", ErrorKind::NotReady, "try again later");
    fails(ErrorKind::NotReady, Some("held"), "LOADING", || guard.unlock());
    let server = back.join().unwrap();
    for n in 0..100 {
        server.cmd::<()>(&["DEL", &format!("ballast{n}")]);
    }
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

// ------------------------------------------------------------------------------------------ what is no server at all

/// A listener whose connections are each served by `serve`, and that knows how many are open.
struct Fake {
    dir: PathBuf,
    open: Arc<AtomicU32>,
}

impl Fake {
    fn start(serve: impl Fn(UnixStream) + Send + Sync + 'static) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lh-fake-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let listener = UnixListener::bind(dir.join("s")).unwrap();
        let open = Arc::new(AtomicU32::new(0));
        let (serve, count) = (Arc::new(serve), open.clone());
        // Ends with the process: nobody connects once the file is gone.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (serve, count) = (serve.clone(), count.clone());
                count.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    serve(stream);
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { dir, open }
    }

    /// Answers each request.
    fn answering(answer: impl Fn(&[String]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |mut stream| {
            let mut requests = BufReader::new(stream.try_clone().unwrap());
            while let Some(words) = read_request(&mut requests) {
                if stream.write_all(&answer(&words)).is_err() {
                    return;
                }
            }
        })
    }

    /// Says this at once, and then listens until the client goes.
    fn saying(words: &[u8]) -> Self {
        let words = words.to_vec();
        Self::start(move |mut stream| {
            let _ = stream.write_all(&words);
            let _ = stream.read_to_end(&mut Vec::new());
        })
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", self.dir.join("s").display())
    }

    #[track_caller]
    fn assert_left(&self) {
        wait_until("every connection is gone", || self.open.load(Ordering::SeqCst) == 0);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn read_request(from: &mut impl BufRead) -> Option<Vec<String>> {
    let mut line = String::new();
    let mut number = |from: &mut dyn BufRead| {
        line.clear();
        from.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let count = number(from)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(from)? + 2];
            from.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            String::from_utf8(word).ok()
        })
        .collect()
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// What a call that might never return gives; `None`: it failed, or did not return.
fn bounded<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(call()));
    receiver.recv_timeout(CAP).ok()
}

#[test]
fn nobody_there_is_told_at_once() {
    let server = Server::start();
    let dead = server.dir().join("dead");
    drop(UnixListener::bind(&dead).unwrap());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for url in [
        "redis+unix:///nonexistent/socket".to_owned(),
        format!("redis+unix://{}", dead.display()),
        format!("redis://127.0.0.1:{port}/"),
    ] {
        fails(ErrorKind::Unreachable, None, "no server listens at", || settings(&url).build());
        let lazy = settings(&url).connect_lazily().build().unwrap();
        all_verbs_fail(&lazy, "job", ErrorKind::Unreachable, "no server listens at");
    }
    // No socket at all, but a file.
    let file = server.dir().join("file");
    std::fs::write(&file, "").unwrap();
    fails(ErrorKind::Unreachable, None, "", || settings(&format!("redis+unix://{}", file.display())).build());
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_unreachable() {
    let fake = Fake::saying(b"");
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&fake.url()).build());
    let lazy = settings(&fake.url()).connect_lazily().build().unwrap();
    all_verbs_fail(&lazy, "job", ErrorKind::Unreachable, "io_timeout");
    drop(lazy);
    fake.assert_left();

    // Not even accepted: it lies in the kernel's queue.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&url).build());
    let url = format!("redis://:{SECRET}@127.0.0.1:{}/", listener.local_addr().unwrap().port());
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&url).build());
}

/// On a unix socket a connect to a server with a full queue blocks, and has no timeout of its own.
#[test]
fn a_server_whose_queue_is_full_is_unreachable_within_the_timeout() {
    let server = Server::start_with(&["--tcp-backlog", "1"]);
    let client = client(&server);
    works(&client, "job");
    server.suspend();
    let (url, handle) = (server.url(), client.clone());
    let returned = bounded(move || {
        for _ in 0..5 {
            fails(ErrorKind::Unreachable, None, "", || settings(&url).build());
            fails(ErrorKind::Unreachable, Some("job"), "", || handle.try_lock("job"));
        }
    });
    server.resume();
    assert_eq!(returned, Some(()), "a connect blocks beyond its timeout");
    nothing_left(&server);
    wait_until("the lock is to be had", || client.try_lock("job").is_ok_and(|guard| guard.is_some()));
}

#[test]
fn silence_in_the_middle_is_unreachable_and_the_client_recovers() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = settings(&proxy.url()).build().unwrap();
    let guard = client.lock("held").unwrap();
    works(&client, "job");
    proxy.silence(true);
    all_verbs_fail(&client, "job", ErrorKind::Unreachable, "io_timeout");
    fails(ErrorKind::Unreachable, Some("held"), "io_timeout", || guard.unlock());
    fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&proxy.url()).build());
    proxy.silence(false);
    nothing_left(&server);
    wait_until("the client works again", || client.try_lock("job").is_ok_and(|guard| guard.is_some()));
    // The same with connections that are closed as soon as they are made.
    proxy.refuse(true);
    proxy.cut_all();
    all_verbs_fail(&client, "job", ErrorKind::Unreachable, "");
    proxy.refuse(false);
    works(&client, "job");
    nothing_left(&server);
    drop((client, proxy));
    server.assert_clean();
}

#[test]
fn what_does_not_speak_redis_is_told_as_such() {
    for words in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\0\0\0\0\0\0\0\0\r\n",
        b"*x\r\n",
        &b"*1\r\n".repeat(100_000),
    ] {
        let fake = Fake::saying(words);
        let shown = String::from_utf8_lossy(&words[..words.len().min(20)]).into_owned();
        let url = fake.url();
        let e = bounded(move || settings(&url).build().unwrap_err()).expect("an answer of some kind");
        assert_eq!(e.kind(), ErrorKind::Protocol, "{shown:?}: {e:?}");
        assert!(e.to_string().contains("does not speak the Redis protocol"), "{shown:?}: {e}");
        let lazy = settings(&fake.url()).connect_lazily().build().unwrap();
        fails(ErrorKind::Protocol, Some("job"), "Redis protocol", || lazy.try_lock("job"));
        fails(ErrorKind::Protocol, Some("job"), "Redis protocol", || lazy.lock("job"));
        drop(lazy);
        fake.assert_left();
    }
    // What a TLS port says.
    let fake = Fake::saying(b"\x15\x03\x03\x00\x02\x02\x50");
    fails(ErrorKind::Protocol, None, "but TLS", || settings(&fake.url()).build());
    fake.assert_left();
    // Redis' grammar, but no Redis.
    for answer in ["+OK\r\n", ":1\r\n", "*0\r\n", "$-1\r\n", "-ERR unknown command\r\n"] {
        let fake = Fake::answering(|_| answer.into());
        let e = settings(&fake.url()).build().unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Protocol | ErrorKind::Server), "{answer:?}: {e:?}");
        fake.assert_left();
    }
}

#[test]
fn garbage_in_the_middle_is_told_and_the_client_recovers() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = settings(&proxy.url()).build().unwrap();
    for round in 1..4 {
        // A name for each, because what is undone in the background bears the name of its lock as well.
        let (taking, giving, waiting) = (format!("taking{round}"), format!("giving{round}"), format!("waiting{round}"));
        proxy.inject(&taking, Fault::Garbage);
        fails(ErrorKind::Protocol, Some(&taking), "does not speak the Redis protocol", || client.try_lock(&taking));
        proxy.wait_hits(3 * round - 2);
        nothing_left(&server);
        works(&client, &taking);

        let guard = client.lock(&giving).unwrap();
        proxy.inject(&giving, Fault::Garbage);
        fails(ErrorKind::Protocol, Some(&giving), "does not speak the Redis protocol", || guard.unlock());
        nothing_left(&server);
        works(&client, &giving);

        // While it waits: an outage like any other.
        let other = settings(&server.url()).build().unwrap();
        let guard = other.lock(&waiting).unwrap();
        proxy.inject_after(&waiting, 1, Fault::Garbage);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| client.lock(&waiting).and_then(|guard| guard.unlock()));
            proxy.wait_hits(3 * round);
            guard.unlock().unwrap();
            waiter.join().unwrap().unwrap();
        });
        nothing_left(&server);
    }
    drop((client, proxy));
    server.assert_clean();
}

#[test]
fn half_a_reply_and_then_silence_is_unreachable() {
    for half in [&b"$5\r\nhe"[..], b"+O", b"*2\r\n:1\r\n", b"$999999999999\r\nx", b"*2147483647\r\n"] {
        let fake = Fake::saying(half);
        let shown = String::from_utf8_lossy(half);
        let e = settings(&fake.url()).build().unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol), "{shown:?}: {e:?}");
        fake.assert_left();
    }

    // In the middle: once armed, three bytes of whatever the server says next pass, and then no more.
    let server = Server::start();
    let (upstream, armed) = (server.socket(), Arc::new(AtomicBool::new(false)));
    let arm = armed.clone();
    let fake = Fake::start(move |client| {
        let server = UnixStream::connect(&upstream).unwrap();
        let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let upward = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from_client, &mut to_server);
            let _ = to_server.shutdown(std::net::Shutdown::Both);
        });
        let (mut server, mut client, mut chunk) = (server, client, vec![0; 1 << 16]);
        while let Ok(n @ 1..) = server.read(&mut chunk) {
            let halved = armed.swap(false, Ordering::SeqCst);
            let _ = client.write_all(&chunk[..if halved { n.min(3) } else { n }]);
            if halved {
                break;
            }
        }
        let _ = upward.join();
    });
    let client = settings(&fake.url()).build().unwrap();
    works(&client, "job");
    arm.store(true, Ordering::SeqCst);
    fails(ErrorKind::Unreachable, Some("job"), "io_timeout", || client.try_lock("job"));
    nothing_left(&server);
    works(&client, "job");
    let guard = client.lock("job").unwrap();
    arm.store(true, Ordering::SeqCst);
    fails(ErrorKind::Unreachable, Some("job"), "io_timeout", || guard.unlock());
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    fake.assert_left();
    server.assert_clean();
}

/// Every byte restarts the wait of a plain socket timeout, and an answer that has no end never ends.
#[test]
fn an_answer_that_trickles_without_end_is_given_up() {
    let fake = Fake::start(|mut stream| {
        let mut byte = b"+";
        while stream.write_all(byte).is_ok() {
            byte = b"x";
            std::thread::sleep(ms(40));
        }
    });
    let url = fake.url();
    let returned = bounded(move || drop(fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&url).build())));
    assert_eq!(returned, Some(()), "it goes on reading");
    fake.assert_left();
}

/// A server that sends its answers piece by piece has the I/O timeout for all of them together.
#[test]
fn a_handshake_that_trickles_has_one_deadline() {
    // Each answer alone is in time. Without a password, and with one: the log-in has its share of the same time.
    let fake = Fake::answering(|words| {
        std::thread::sleep(IO_TIMEOUT * 3 / 4);
        match &*words[0] {
            "INFO" => bulk("redis_version:7.2.4"),
            "SCRIPT" => bulk("0123456789012345678901234567890123456789"),
            "TIME" => b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n".to_vec(),
            "EVALSHA" => b"*0\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        }
    });
    for url in [fake.url(), format!("{}?db=2&user=u&pass={SECRET}", fake.url())] {
        let start = Instant::now();
        fails(ErrorKind::Unreachable, None, "io_timeout", || settings(&url).build());
        assert!(start.elapsed() < IO_TIMEOUT * 4, "{:?}", start.elapsed());
    }
    fake.assert_left();
}

// ---------------------------------------------------------------------------------------- servers of the wrong kind

/// Answers the handshake as Redis would, with this as its INFO.
fn fake_redis(info: &'static str) -> Fake {
    Fake::answering(move |words| match &*words[0] {
        "INFO" => bulk(info),
        "CLIENT" => b"-ERR Unknown subcommand\r\n".to_vec(),
        "SCRIPT" => bulk("0123456789012345678901234567890123456789"),
        "TIME" => b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n".to_vec(),
        _ => b"-ERR unknown command\r\n".to_vec(),
    })
}

#[test]
fn servers_that_are_too_old_or_of_another_kind_say_so() {
    for (info, says) in [
        ("# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\nrun_id:aa\r\n", "5.0.14"),
        ("# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\nrun_id:aa\r\n", "6.2 or later"),
        ("# Server\r\nredis_version:7.2.4\r\nredis_mode:sentinel\r\nrun_id:aa\r\n", "sentinel"),
        ("# Server\r\nredis_version:7.2.4\r\nserver_mode:sentinel\r\nrun_id:aa\r\n", "sentinel"),
    ] {
        let fake = fake_redis(info);
        fails(ErrorKind::Unsupported, None, says, || settings(&fake.url()).build());
        let lazy = settings(&fake.url()).connect_lazily().build().unwrap();
        fails(ErrorKind::Unsupported, Some("job"), says, || lazy.try_lock("job"));
        drop(lazy);
        fake.assert_left();
    }
}

#[test]
fn a_cluster_node_is_refused() {
    // Its bus listens 10 000 above its port, which must exist.
    let port = (0..200)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
        .chain(20_000..21_000)
        .find(|port| *port < 55_000 && std::net::TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok())
        .unwrap();
    let server = Server::start_with(&["--cluster-enabled", "yes", "--port", &port.to_string()]);
    fails(ErrorKind::Unsupported, None, "cluster node", || settings(&server.url()).build());
    let lazy = settings(&server.url()).connect_lazily().build().unwrap();
    all_verbs_fail(&lazy, "job", ErrorKind::Unsupported, "cluster node");
}

#[test]
fn a_sentinel_is_refused() {
    let dir = std::env::temp_dir().join(format!("lh-sentinel-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let socket = dir.join("s");
    let mut sentinel = Sentinel::start(&dir, &socket);
    let url = format!("redis+unix://{}", socket.display());
    wait_until("the sentinel answers", || UnixStream::connect(&socket).is_ok());
    fails(ErrorKind::Unsupported, None, "sentinel", || settings(&url).build());
    sentinel.end();
    let _ = std::fs::remove_dir_all(&dir);
}

struct Sentinel(std::process::Child);

impl Sentinel {
    fn start(dir: &Path, socket: &Path) -> Self {
        // It writes its state into its configuration, so it needs a file.
        let file = dir.join("sentinel.conf");
        std::fs::write(&file, format!("port 0\nunixsocket {}\ndir {}\n", socket.display(), dir.display())).unwrap();
        let named = std::env::var("LEASEHOLD_SERVER").ok();
        let names = named.iter().map(String::as_str).chain(["redis-server", "valkey-server"]);
        let mut tries = names.map(|name| {
            let mut command = std::process::Command::new(name);
            command
                .arg(&file)
                .arg("--sentinel")
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
            command.spawn()
        });
        Self(tries.find_map(Result::ok).unwrap())
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn a_database_that_does_not_exist_is_told() {
    let server = Server::start();
    let url = format!("{}?db=99&user=default&pass={SECRET}", server.url());
    fails(ErrorKind::InvalidInput, None, "has no database 99", || settings(&url).build());
    let second = settings(&format!("{}?db=2", server.url())).build().unwrap();
    works(&second, "job");
    drop(second);
    server.assert_clean();
}

/// Told once for each client and server, whatever it connects.
#[test]
fn a_policy_that_evicts_is_told_once() {
    record_logs();
    let server = Server::start();
    let address = server.socket().display().to_string();
    let told = || logged(log::Level::Warn, &[&address, "allkeys-lru", "noeviction"]).len();
    let with = |maxmemory: &str, policy: &str| {
        server.cmd::<()>(&["CONFIG", "SET", "maxmemory", maxmemory]);
        server.cmd::<()>(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let client = client(&server);
        let guard = client.lock("job").unwrap();
        std::thread::scope(|s| {
            // Connections of the locks, of the watchdog, and one more for each that was cut.
            s.spawn(|| works(&client, "other"));
            s.spawn(|| works(&client, "third"));
        });
        server.cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        wait_until("it connects again", || guard.extend(LEASE * 2).is_ok());
        guard.unlock().unwrap();
        told()
    };
    assert_eq!(with("0", "allkeys-lru"), 0, "without a limit nothing is evicted");
    assert_eq!(with("100mb", "noeviction"), 0);
    assert_eq!(with("100mb", "allkeys-lru"), 1);
    assert_eq!(with("100mb", "allkeys-lru"), 2, "another client");
    let masters = Masters::fresh(3);
    masters.0[1].cmd::<()>(&["CONFIG", "SET", "maxmemory", "100mb"]);
    masters.0[1].cmd::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    drop(masters.client());
    let told = |n: usize| logged(log::Level::Warn, &[&masters.0[n].socket().display().to_string(), "noeviction"]).len();
    assert_eq!([0, 1, 2].map(told), [0, 1, 0]);
}

/// A full server says so and ends the connection. The client still has one over which its hold can be renewed.
#[test]
fn at_maxclients_a_hold_is_renewed_over_the_connection_that_is_there() {
    let server = Server::start();
    let mut admin = server.connect();
    let client = settings(&server.url()).lease(ms(1500)).connections(1).build().unwrap();
    let open = query::<String>(&mut admin, &["CLIENT", "LIST"]).unwrap().lines().count();
    query::<()>(&mut admin, &["CONFIG", "SET", "maxclients", &open.to_string()]).unwrap();
    fails(ErrorKind::NotReady, None, "maxclients", || settings(&server.url()).build());

    let guard = client.lock("job").unwrap();
    let (mut least, mut renewals) = (i64::MAX, 0);
    wait_until("renewals over more than one lease", || {
        let pttl = query::<i64>(&mut admin, &["PTTL", "job"]).unwrap();
        renewals += u32::from(pttl > least);
        least = pttl;
        !guard.is_held() || renewals > 4
    });
    assert!(guard.is_held(), "lost, although the client has a connection that works");
    query::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "1000"]).unwrap();
    guard.unlock().unwrap();
    drop((client, admin));
    server.assert_clean();
}

// -------------------------------------------------------------------------------------------------- death in between

#[test]
fn a_server_that_dies_between_two_verbs_and_comes_back() {
    let mut server = Server::start();
    let client = client(&server);
    for round in 0..3 {
        works(&client, "job");
        let guard = client.lock("held").unwrap();
        server.kill();
        all_verbs_fail(&client, "job", ErrorKind::Unreachable, "no server listens at");
        fails(ErrorKind::Unreachable, Some("held"), "", || client.mutex("held").holder());
        fails(ErrorKind::Unreachable, Some("held"), "", || guard.extend(LEASE * 2));
        if round == 0 {
            fails(ErrorKind::Unreachable, Some("held"), "", || guard.unlock());
        } else {
            drop(guard);
        }
        server.start_again();
        works(&client, "job");
        works(&client, "held");
        nothing_left(&server);
    }
    drop(client);
    server.assert_clean();
}

/// Dropped while nobody answers: nothing hangs, and the server is clean when it is back.
#[test]
fn a_client_that_is_dropped_while_the_server_is_away_leaves_no_thread() {
    let server = Server::start();
    let client = settings(&server.url()).client_name("away").build().unwrap();
    let guard = client.lock("held").unwrap();
    server.suspend();
    let start = Instant::now();
    drop((guard, client));
    assert!(start.elapsed() < SOON * 2, "{:?}", start.elapsed());
    server.resume();
    wait_until("its connections are gone", || server.client_lines().iter().all(|line| !line.contains("name=away")));
}
