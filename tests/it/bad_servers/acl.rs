//! Users whom an ACL restricts: the documented rule is sufficient, and each part of it is needed.

use std::time::Instant;

use leasehold::{ErrorKind, LockClient};

use super::{LEASE, SECRET, SOON, all_methods_fail, fails, nothing_left, settings, works};
use crate::rig::{CAP, Fault, Proxy, Server, acl_rule, ms, wait_until};
use crate::support::ShortLease;

/// Without any one of these, something fails.
#[rustfmt::skip]
const NEEDED: [&str; 36] = [
    "hset", "hget", "hdel", "hexists", "hgetall", "hlen", "exists", "del", "get", "set", "incr", "incrby", "decrby",
    "pttl", "pexpire", "pexpireat", "persist", "time", "lindex", "lrange", "rpush", "lpop", "lrem", "zadd", "zrem",
    "zscore", "zmscore", "zcard", "zcount", "zrange", "zrangebyscore", "publish", "eval", "evalsha", "script|load", "subscribe",
];
/// Without these everything works, but some of it less well.
#[rustfmt::skip]
const HELPFUL: [&str; 9] = [
    "unsubscribe", "psubscribe", "punsubscribe", "ping", "echo", "client|setname", "client|info", "info",
    // Needed for a fair waiter that was removed from the queue.
    "linsert",
];
const TO_KILL: &str = "client|kill";

/// The I/O timeout of tests that make requests for many seconds.
const PATIENT: std::time::Duration = ms(4000);

struct Acl<'s> {
    server: &'s Server,
}

impl Acl<'_> {
    /// Creates the user `u` again with these rules. Returns the user's URL.
    fn set(&self, rules: &[&str]) -> String {
        let password = format!(">{SECRET}");
        self.server.cmd::<()>(
            &[&["ACL", "SETUSER", "u", "reset", "on", &password, "resetchannels"], rules].concat(),
        );
        format!("{}?user=u&pass={SECRET}", self.server.url())
    }

    /// Creates the user `u` again with the documented rule and these changes. Returns the user's
    /// URL.
    fn user(&self, changes: &[&str]) -> String {
        // Commands are omitted rather than removed afterwards: Redis 6.2 cannot remove a
        // subcommand.
        let (left_out, changes): (Vec<&str>, Vec<&str>) =
            changes.iter().partition(|word| word.starts_with('-'));
        let allowed: Vec<String> = NEEDED
            .iter()
            .chain(&HELPFUL)
            .chain([&TO_KILL])
            .filter(|command| !left_out.iter().any(|word| word[1..] == ***command))
            .map(|command| format!("+{command}"))
            .collect();
        let documented = acl_rule(&["app:*"]);
        let keys_and_channels =
            documented.iter().map(String::as_str).filter(|word| !word.starts_with('+'));
        self.set(
            &keys_and_channels
                .chain(allowed.iter().map(|word| &**word))
                .chain(changes)
                .collect::<Vec<_>>(),
        )
    }

    fn change(&self, words: &[&str]) {
        self.server.cmd::<()>(&[&["ACL", "SETUSER", "u"], words].concat());
    }
}

/// Uses the other primitives, each with one wait.
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
            // Otherwise the waiter would wait until the lease ends.
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
    let semaphore = a.semaphore(named("permits"));
    semaphore.try_set_permits(1)?;
    let permit = semaphore.acquire()?;
    permit.extend(LEASE + ms(5000))?;
    assert!(b.semaphore(semaphore.name()).try_acquire_for(ms(10))?.is_none());
    permit.release()?;
    assert_eq!((semaphore.add_permits(1)?, semaphore.available_permits()?), (2, 2));
    semaphore.delete()?;
    let counting = a.counting_semaphore(named("count"));
    counting.add_permits(1)?;
    counting.acquire()?.release()?;
    counting.delete()?;
    let limiter = a.rate_limiter(named("rate"));
    limiter.try_set_rate(1, ms(20))?;
    limiter.acquire(1)?;
    b.rate_limiter(limiter.name()).acquire(1)?;
    limiter.set_rate(1, LEASE)?;
    assert_eq!((limiter.available_permits()?, limiter.try_acquire(1)?), (1, true));
    assert!(limiter.delete()?);
    let latch = a.latch(named("latch"));
    latch.set_count(1)?;
    assert!(!b.latch(latch.name()).wait_for(ms(10))?);
    assert_eq!((latch.count_down()?, latch.count()?), (0, 0));
    latch.set_count(1)?;
    latch.delete().map(drop)
}

/// Does everything that a lock can do, once. The name is new, so the token counter is created too.
fn whole_life(server: &Server, url: &str, name: &str) -> leasehold::Result<()> {
    let build = || settings(url).io_timeout(PATIENT).key_prefix("app:").build();
    let (a, b) = (build()?, build()?);
    let outer = a.lock(name)?;
    let inner = a.lock(name)?;
    inner.extend(LEASE + ms(5000))?;
    inner.unlock()?;
    assert_eq!(b.mutex(name).holder()?.map(|h| h.hold_count()), Some(1));
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock(name)?.unlock());
        wait_until("the waiter is subscribed, or has failed", || {
            !server.channels().is_empty() || waiter.is_finished()
        });
        let unlocked = outer.unlock();
        if unlocked.is_err() {
            // Otherwise the waiter would wait until the lease ends.
            let _ = b.close(ms(100));
        }
        let waited = waiter.join().unwrap();
        unlocked.and(waited)
    })?;
    let with_data = a.mutex(name).with_data("x").lock()?;
    with_data.set_data("y")?;
    with_data.extend(LEASE + ms(5000))?;
    with_data.unlock()?;
    assert!(b.mutex(name).last_holder()?.is_some_and(|last| last.data() == b"y"));
    a.fair(name).with_data("x").lock()?.unlock()?;
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
    let documented = acl_rule(&["app:*"]);
    let commands = documented.iter().filter(|word| word.starts_with('+')).cloned().collect();
    let tested = NEEDED
        .iter()
        .chain(&HELPFUL)
        .chain([&TO_KILL])
        .map(|command| format!("+{command}"))
        .collect();
    assert_eq!(sorted(commands), sorted(tested), "each command is tested");
    let server = Server::start();
    let acl = Acl { server: &server };
    let url = acl.set(&documented.iter().map(String::as_str).collect::<Vec<_>>());
    whole_life(&server, &url, "job").unwrap();
    whole_life(&server, &url, "a{b}c").unwrap();
    // A renewal raises the TTL.
    let short = settings(&url).key_prefix("app:").short_lease(ms(4000)).build().unwrap();
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
    // An ACL permits a pattern only word for word, which is impossible for a pattern with a
    // client's id: fair waiters then subscribe one by one.
    let pattern = |entry: &redis::Value| format!("{entry:?}").contains("redisson_lock__channel:*:");
    assert!(log.iter().all(pattern), "the server refused something: {log:?}");
}

/// The other keys of a name that contains braces begin with the name itself, without braces around
/// it.
#[test]
fn the_documented_acl_rule_serves_single_names() {
    let server = Server::start();
    let acl = Acl { server: &server };
    for name in ["job", "a{b}c"] {
        let kinds = ["", "-fair", "-rw", "-permits", "-count", "-rate", "-latch"];
        let names = kinds.map(|kind| format!("app:{name}{kind}"));
        let rule = acl_rule(&names.each_ref().map(String::as_str));
        let url = acl.set(&rule.iter().map(String::as_str).collect::<Vec<_>>());
        whole_life(&server, &url, name).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        server.assert_clean();
    }
}

#[test]
fn a_command_that_is_not_permitted_is_reported_when_connecting() {
    let server = Server::start();
    let acl = Acl { server: &server };
    // On Redis 6.2 only a write can show whether these are permitted.
    let asked = if server.major() >= 7 { &["hset", "incr", "rpush"][..] } else { &[] };
    let probed = ["hget", "del", "pexpire", "incrby", "zadd", "publish", "evalsha"];
    for command in asked.iter().chain(&probed) {
        let url = acl.user(&[&format!("-{command}")]);
        fails(ErrorKind::Denied, None, command, || settings(&url).key_prefix("app:").build());
    }
    assert!(server.cmd::<Vec<String>>(&["KEYS", "*"]).is_empty(), "the check writes nothing");
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
    let url = acl.user(&[
        "-unsubscribe",
        "-ping",
        "-client|setname",
        "-client|info",
        "-client|kill",
        "-info",
    ]);
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
        // Without the permission a lock that cannot be released may remain until its lease ends,
        // but not forever.
        server.lock_keys().iter().all(|key| server.pttl(key) != -1)
    });
    server.cmd::<()>(&["FLUSHALL"]);
}

/// Redis does not roll back what a script did before the refused command.
#[test]
fn a_permission_taken_away_later_leaves_no_lock_for_ever() {
    let server = Server::start();
    let acl = Acl { server: &server };
    for command in
        NEEDED.into_iter().filter(|command| server.major() >= 7 || !command.contains('|'))
    {
        let url = acl.user(&[]);
        let client = settings(&url).io_timeout(PATIENT).key_prefix("app:").build().unwrap();
        works(&client, "job");
        server.cmd::<()>(&["DEL", "redisson_lock_token:{app:job}"]);
        acl.change(&[&format!("-{command}")]);
        if let Err(e) = client.try_lock("job").and_then(|guard| guard.unwrap().unlock()) {
            assert_eq!(
                (e.kind(), e.name()),
                (ErrorKind::Denied, Some("job")),
                "without {command}: {e:?}"
            );
        }
        for key in server.lock_keys() {
            assert_ne!(server.pttl(&key), -1, "without {command} the lock {key} never ends");
        }
        acl.change(&[&format!("+{command}")]);
        wait_until(&format!("nothing is left once {command} is permitted again"), || {
            server.lock_keys().is_empty()
        });
        works(&client, "job");
        drop(client);
        server.assert_clean();
    }
}

#[test]
fn a_missing_permission_to_publish_or_for_a_key_is_reported() {
    let server = Server::start();
    let acl = Acl { server: &server };
    let build = |url: &str| settings(url).key_prefix("app:").build();
    // Channels are missing: this is reported when connecting, before a script can fail halfway.
    let url = acl.user(&["resetchannels"]);
    fails(ErrorKind::Denied, None, "publish", || build(&url));
    for pattern in ["&other:*", "&redisson_lock__channel"] {
        let url = acl.user(&["resetchannels", pattern]);
        fails(ErrorKind::Denied, None, "publish", || build(&url));
    }
    // The permission for the lock's key is missing, then the one for the token's key.
    for pattern in ["~redisson_lock_token:*", "~other:*", "~app:*"] {
        let url = acl.user(&["resetkeys", pattern]);
        let client = build(&url).unwrap();
        all_methods_fail(&client, "job", ErrorKind::Denied, "ACL");
        assert!(server.lock_keys().is_empty());
        acl.user(&[]);
        works(&client, "job");
    }
    server.assert_clean();
}

/// A rule that permits each application only its own token keys and channels is stricter than the
/// documented one, and sufficient.
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
        "~leasehold_data:{app:*",
        "~leasehold_client:{app:*",
    ];
    let url = acl.user(&strict);
    whole_life(&server, &url, "strict keys").unwrap();
    // This user has no key that the probe at connect could use, so every script must be safe by
    // itself.
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
fn without_permission_for_client_kill_or_info_a_lost_acquire_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let acl = Acl { server: &server };
    for (round, missing) in
        [&["-client|kill"][..], &["-info"], &["-client|kill", "-client|info", "-info"]]
            .iter()
            .enumerate()
    {
        let query = acl.user(missing).split_once('?').unwrap().1.to_owned();
        let client =
            settings(&format!("{}?{query}", proxy.url())).key_prefix("app:").build().unwrap();
        for (n, fault) in [Fault::CutAfterApplied, Fault::BlackHoleReply].into_iter().enumerate() {
            let name = format!("lost-{round}-{n}");
            proxy.inject(&name, fault);
            match client.try_lock(&name) {
                Ok(guard) => drop(guard.unwrap()),
                Err(e) => assert_eq!(
                    (e.kind(), e.name()),
                    (ErrorKind::Unreachable, Some(&*name)),
                    "{missing:?}"
                ),
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
    all_methods_fail(&client, "job", ErrorKind::Denied, "password");
    fails(ErrorKind::Denied, Some("held"), "password", || guard.unlock());
    acl.user(&[]);
    nothing_left(&server);
    works(&client, "job");
    drop(client);
    server.assert_clean();
}

/// The URL of a user who may do everything at first.
fn url_of_app(server: &Server) -> String {
    server.cmd::<()>(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"]);
    format!("{}?user=app&pass=pw", server.url())
}

/// The script finds the hold, but may not look at how long it still lasts: nothing is extended.
#[test]
fn a_renewal_that_is_refused_does_not_count() {
    let server = Server::start();
    let client = settings(&url_of_app(&server)).short_lease(ms(1500)).build().unwrap();
    let guard = client.lock("job").unwrap();
    server.cmd::<()>(&["ACL", "SETUSER", "app", "-pttl"]);
    assert!(!guard.wait_lost(CAP).is_still_held());
    drop(guard);
}

/// The server refuses the script that renews both, because of the name that is denied.
#[test]
fn a_name_that_is_denied_costs_no_other_hold_its_lease() {
    let server = Server::start();
    let client = settings(&url_of_app(&server)).short_lease(ms(1500)).build().unwrap();
    let guards = ["app:a", "old:b", "app:c"].map(|name| client.lock(name).unwrap());
    let [a, denied, c] = &guards;
    server.cmd::<()>(&["ACL", "SETUSER", "app", "resetkeys", "~app:*"]);
    assert!(!denied.wait_lost(CAP).is_still_held());
    for (name, guard) in [("app:a", a), ("app:c", c)] {
        wait_until(name, || guard.remaining() > ms(1000));
    }
}

/// The server refuses a subscription to several channels because of one of them.
#[test]
fn a_channel_that_is_denied_makes_no_other_waiter_deaf() {
    let server = Server::start();
    let url = url_of_app(&server);
    let (holder, client) = (settings(&url).build().unwrap(), settings(&url).build().unwrap());
    let names = ["old:b", "app:a", "app:c"];
    let guards = names.map(|name| holder.lock(name).unwrap());
    let channel = |name: &str| format!("redisson_lock__channel:{{{name}}}");
    let permitted = format!("&{}*", &channel("app:")[..channel("app:").len() - 1]);
    server.cmd::<()>(&["ACL", "SETUSER", "app", "resetchannels", &permitted]);
    let is_heard = |name| server.channels().contains(&channel(name));
    std::thread::scope(|scope| {
        scope.spawn(|| drop(client.lock("old:b").unwrap()));
        wait_until("it is refused", || {
            !server.cmd::<Vec<redis::Value>>(&["ACL", "LOG"]).is_empty()
        });
        for name in &names[1..] {
            scope.spawn(|| drop(client.lock(*name).unwrap()));
            wait_until(name, || is_heard(name));
        }
        // The end of the connection: all are asked for again, together.
        server.cmd::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        wait_until("both are heard again", || is_heard("app:a") && is_heard("app:c"));
        // Which nobody hears: the user may not publish it.
        server.cmd::<()>(&["ACL", "SETUSER", "app", "&*"]);
        drop(guards);
    });
}
