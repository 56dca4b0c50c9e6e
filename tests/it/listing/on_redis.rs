//! In Redis: which foreign data are recognized, and what a list costs.

use leasehold::fencing::FencingToken;
use leasehold::{ErrorKind, LockClient, Primitive, Redlock, Sentinel};

use super::{LONG, REDIS, listed, names, only, others_see_what_stands, report};
use crate::rig::{Cluster, MASTER_NAME, Sentinels, Server, acl_rule, ms, wait_until};
use crate::support::{Clients, Masters, wait_for_votes};

/// Ids in Redisson's format.
const A: &str = "a8a5ef81-b5b7-4d39-a987-611a1db5d2fe:30";
const B: &str = "0f4f6c1e-3b61-4b0c-9d4d-6c1f6b1de001:7";

#[test]
fn others_see_it_on_one_server() {
    let server = Server::start();
    others_see_what_stands(|builder| builder.url(server.url()).build().unwrap(), REDIS);
    server.assert_clean();
}

/// A prefix and names with characters that are special in patterns.
#[test]
fn others_see_it_with_a_prefix() {
    let server = Server::start();
    for prefix in ["app:", "a*[p]\\?:", "app{1}:"] {
        let beside = server.client();
        let _theirs = [beside.lock("mutex").unwrap(), beside.lock("axpy?:mutex").unwrap()];
        others_see_what_stands(
            |builder| builder.url(server.url()).key_prefix(prefix).build().unwrap(),
            REDIS,
        );
    }
    server.assert_clean();
}

/// Whoever may write to the server chooses the ids: no text for people passes them on as they are.
#[test]
fn an_id_with_control_characters_harms_no_terminal() {
    let server = Server::start();
    let client = server.client();
    server.cmd::<u32>(&["HSET", "job", "x\n\u{1b}[2J", "1"]);
    let found = report(&client, "job");
    let text = found.to_string();
    assert!(text.contains("held by x\\n\\u{1b}[2J"), "{text}");
    assert!(text.lines().all(|line| !line.contains(char::is_control)), "{text:?}");
    assert_eq!(only(&found).holders()[0].id(), "x\n\u{1b}[2J");
}

#[test]
fn a_pattern_may_say_special_characters_plainly() {
    let server = Server::start();
    let client = server.client();
    let own = ["a*b", "a[1]", "a?", "a\\b", "axb", "größe"];
    let _guards: Vec<_> = own.iter().map(|name| client.lock(name).unwrap()).collect();
    for (pattern, found) in [
        ("a\\*b", &["a*b"][..]),
        ("a*b", &["a*b", "a\\b", "axb"]),
        ("a\\[*", &["a[1]"]),
        ("a[[]1]", &["a[1]"]),
        ("a\\?", &["a?"]),
        ("a??", &["a*b", "a\\b", "axb"]),
        ("gr??e", &["größe"]),
        ("gr[ö]*", &["größe"]),
        ("nothing*", &[]),
    ] {
        assert_eq!(names(&client, pattern), found, "{pattern}");
    }
    for bad in ["", "a[", "a\\"] {
        assert_eq!(client.locks(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
    }
}

#[test]
fn the_data_of_others_is_not_listed() {
    let server = Server::start();
    let client = server.client();
    for words in [
        &["SET", "text", "hello"][..],
        &["SET", "number", "7"],
        &["SET", "large", &"x".repeat(100_000)],
        &["HSET", "user", "name", "Ada"],
        &["HSET", "one", "count", "1"],
        &["HSET", "like-one", A, "zero"],
        &["HSET", "negative", A, "-1"],
        &["HSET", "two", A, "1", B, "1"],
        &["HSET", "mode-of-others", "mode", "dark", A, "1"],
        &["HSET", "mode-only", "mode", "read"],
        &["HSET", "mode-and-more", "mode", "read", A, "1", "page", "2"],
        &["HSET", "escapes", &format!("{A}\u{1b}[2J"), "1"],
        &["RPUSH", "list", A],
        &["SADD", "set", A],
        &["ZADD", "zset", "1", A],
        &["XADD", "stream", "*", "a", "1"],
        // A number with a sorted set that does not contain permits, and a set of permits without a
        // number.
        &["SET", "limits", "3"],
        &["ZADD", "{limits}:timeout", "99999999999999", "short"],
        &["ZADD", "{gone}:timeout", "99999999999999", "0123456789abcdef"],
        &["RPUSH", "redisson_lock_queue:no-tag", A],
        // A name that no lock of this library can have.
        &["HSET", "a{b", A, "1"],
        &["HSET", "redisson_lock_token:{x}", A, "1"],
    ] {
        server.cmd::<redis::Value>(words);
    }
    client.fenced_value("value").claim(FencingToken::new(7)).unwrap();
    assert_eq!(listed(&client, "*"), []);
    for name in
        ["text", "large", "user", "two", "list", "set", "zset", "stream", "mode-of-others", "value"]
    {
        let error = client.inspect(name).unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::WrongType, Some(name)), "{error}");
    }
    // By their names these may be locks: Redisson respects holders of any form.
    for (name, primitive) in [("one", Primitive::Mutex), ("mode-only", Primitive::Read)] {
        assert_eq!(only(&report(&client, name)).primitive(), primitive);
    }
    let seen = report(&client, "number");
    assert_eq!((seen.number(), seen.locks().len()), (Some(7), 0));
    assert!(seen.to_string().contains("the number 7"), "{seen}");
    assert_eq!(client.inspect("gone").unwrap(), None);
    // A lock may have this name, and a job may not.
    drop(client.lock("{gone}").unwrap());
    assert_eq!(client.inspect("{gone}").unwrap(), None);
    assert_eq!(client.inspect("a{b").unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// It takes pages of keys, and no further requests.
#[test]
fn a_few_locks_are_found_among_many_keys() {
    let server = Server::start();
    let fill = "for n = 1, 10000 do redis.call('set', 'k' .. n, n) end \
                for n = 1, 300 do redis.call('hset', 'user:' .. n, 'name', n) end";
    server.cmd::<redis::Value>(&["EVAL", fill, "0"]);
    let client = LockClient::builder().url(server.url()).lease(LONG).build().unwrap();
    let own: Vec<String> = (0..250).map(|n| format!("job:{n:03}")).collect();
    let _guard = client.multi(&own).lock().unwrap();
    let before = server.call_count("scan");
    assert_eq!(names(&client, "*"), own);
    let scans = server.call_count("scan") - before;
    assert!((42..=60).contains(&scans), "{scans} pages of 500 keys, twice");
    assert!(server.call_count("evalsha") < 700, "only possible locks are inspected");
    assert_eq!(server.call_count("keys"), 0);
    assert_eq!(names(&client, "job:24?"), own[240..]);
    let before = server.call_count("scan");
    assert_eq!(names(&client, "job:007"), ["job:007"]);
    assert_eq!(server.call_count("scan"), before, "one name needs no search");
}

/// Redisson's own objects, as documented in `redisson-wire.md`.
#[test]
fn locks_of_redisson_are_seen() {
    let server = Server::start();
    let client = server.client();
    let now: Vec<u64> = server.cmd(&["TIME"]);
    let at = |ms: u64| (now[0] * 1000 + ms).to_string();
    for words in [
        &["HSET", "lock", A, "2"][..],
        &["PEXPIRE", "lock", "30000"],
        &["SET", "redisson_lock_token:{lock}", "1763700000000000"],
        &["HSET", "fair", A, "1"],
        &["RPUSH", "redisson_lock_queue:{fair}", B, A],
        &["ZADD", "redisson_lock_timeout:{fair}", &at(330_000), B, "1", A],
        // Free, with a dead waiter.
        &["RPUSH", "redisson_lock_queue:{dead}", B],
        &["ZADD", "redisson_lock_timeout:{dead}", "1", B],
        &["HSET", "write", "mode", "write", &format!("{A}:write"), "2", A, "1"],
        &["SET", &format!("{{write}}:{A}:rwlock_timeout:1"), "1", "PX", "30000"],
        &["PEXPIRE", "write", "60000"],
        &["HSET", "read{1}", "mode", "read", A, "1", B, "2"],
        &["PEXPIRE", "read{1}", "300000"],
        &["SET", &format!("read{{1}}:{A}:rwlock_timeout:1"), "1", "PX", "20000"],
        &["SET", &format!("read{{1}}:{B}:rwlock_timeout:2"), "1", "PX", "40000"],
        &["SET", "latch", "2"],
        &["SET", "free", "0"],
    ] {
        server.cmd::<redis::Value>(words);
    }
    let mut connection = server.connect();
    let mut permits = redis::cmd("ZADD");
    permits
        .arg("{free}:timeout")
        .arg("922337203685477")
        .arg(&[0xa5_u8; 16][..])
        .arg(at(60_000))
        .arg(&[7_u8; 16][..]);
    permits.exec(&mut connection).unwrap();

    assert_eq!(names(&client, "*"), ["dead", "fair", "free", "lock", "read{1}", "write"]);
    let seen = report(&client, "lock");
    let holder = &only(&seen).holders()[0];
    assert_eq!((holder.id(), holder.hold_count(), holder.owner()), (A, 2, None));
    assert_eq!(seen.last_token().map(|token| token.get()), Some(1_763_700_000_000_000));
    assert!(
        seen.to_string().contains(&format!("mutex\n    held by {A}, its lease ends in ")),
        "{seen}"
    );

    let seen = report(&client, "fair");
    assert_eq!(
        (only(&seen).primitive(), only(&seen).remaining()),
        (Primitive::Fair, None),
        "it never ends"
    );
    let queue: Vec<_> =
        seen.queue().iter().map(|one| (one.id(), one.remaining().unwrap() > ms(300_000))).collect();
    assert_eq!(queue, [(B, true), (A, false)]);
    let seen = report(&client, "dead");
    assert!(
        only(&seen).holders().is_empty() && seen.to_string().contains("its place has expired"),
        "{seen}"
    );
    assert_eq!(only(&seen).to_string(), "\"dead\" fair free; 1 wait");

    let seen = report(&client, "write");
    let writer = &only(&seen).holders()[0];
    assert_eq!((only(&seen).primitive(), only(&seen).holders().len()), (Primitive::Write, 1));
    assert_eq!((writer.id(), writer.hold_count()), (A, 3), "it writes twice and reads once");
    let seen = report(&client, "read{1}");
    let left =
        |id| only(&seen).holders().iter().find(|one| one.id() == id).unwrap().remaining().unwrap();
    assert!(
        left(A) <= ms(20_000) && left(B) > ms(20_000) && left(B) <= ms(40_000),
        "each reader has its own lease"
    );

    let seen = report(&client, "free");
    let mut ids: Vec<_> =
        only(&seen).holders().iter().map(|one| (one.id(), one.remaining().is_some())).collect();
    ids.sort_unstable();
    assert_eq!(ids, [(&*"07".repeat(16), true), (&*"a5".repeat(16), false)]);
    assert_eq!((only(&seen).number(), only(&seen).taken()), (Some(0), 2));
    assert_eq!(report(&client, "latch").number(), Some(2));
}

/// 1000 are listed, and all are counted.
#[test]
fn many_readers_permits_and_waiters_are_counted() {
    let server = Server::start();
    let client = server.client();
    let fill = "for n = 1, 1500 do \
                  local id = string.format('a8a5ef81-b5b7-4d39-a987-611a1db5d2fe:%d', n) \
                  redis.call('hset', 'read', id, n == 1 and '4000000000000000000' or 1) \
                  redis.call('set', '{read}:' .. id .. ':rwlock_timeout:1', 1, 'px', 60000) \
                  redis.call('rpush', 'redisson_lock_queue:{fair}', id) \
                  redis.call('zadd', '{pool}:timeout', n <= 1200 and n or ARGV[1] + n, string.format('%016d', n)) \
                end \
                redis.call('hset', 'read', 'mode', 'read') \
                redis.call('pexpire', 'read', 60000) \
                redis.call('set', 'pool', 7)";
    let now: Vec<u64> = server.cmd(&["TIME"]);
    let ends = now[0] * 1000 + 60_000;
    server.cmd::<redis::Value>(&["EVAL", fill, "0", &ends.to_string()]);
    assert_eq!(names(&client, "*"), ["fair", "pool", "read"]);
    let seen = report(&client, "read");
    assert_eq!((only(&seen).primitive(), only(&seen).holders().len()), (Primitive::Read, 1000));
    assert_eq!(only(&seen).taken(), 1500);
    assert!(
        only(&seen).remaining().is_some_and(|left| left > ms(30_000)),
        "{:?}",
        only(&seen).remaining()
    );
    assert!(
        only(&seen).to_string().contains(", and 1499 more")
            && seen.to_string().contains("and 500 more")
    );
    let seen = report(&client, "fair");
    assert_eq!((only(&seen).waiting(), seen.queue().len()), (Some(1500), 1000));
    // Most leases have ended: their permits are available.
    let seen = report(&client, "pool");
    assert_eq!((only(&seen).number(), only(&seen).taken()), (Some(1207), 300));
    let fill = "for n = 1, 1500 do \
                  redis.call('zadd', '{pool}:timeout', ARGV[1] + n, string.format('%016d', n)) \
                end";
    server.cmd::<redis::Value>(&["EVAL", fill, "0", &ends.to_string()]);
    let seen = report(&client, "pool");
    assert_eq!((only(&seen).number(), only(&seen).taken()), (Some(7), 1500));
    assert!(
        only(&seen).holders().len() == 1000
            && only(&seen).to_string().contains("7 free, 1500 taken")
    );
    // A hash of that size is never read.
    let fill = "redis.call('hset', 'large', 'mode', 'read') \
                for n = 1, 100000 do redis.call('hset', 'large', n, 1) end";
    server.cmd::<redis::Value>(&["EVAL", fill, "0"]);
    assert_eq!(client.inspect("large").unwrap_err().kind(), ErrorKind::WrongType);
    // Queues of every length.
    for length in [999, 1000, 1001, 1999, 2000, 2001] {
        let fill =
            "redis.call('del', KEYS[1]) for n = 1, ARGV[1] do redis.call('rpush', KEYS[1], n) end";
        server.cmd::<redis::Value>(&[
            "EVAL",
            fill,
            "1",
            "redisson_lock_queue:{fair}",
            &length.to_string(),
        ]);
        assert_eq!(only(&report(&client, "fair")).waiting(), Some(length));
    }
}

/// Only the beginning of a large string is read, if the user has the right. Redis 6.2 cannot report
/// whether it does.
#[test]
fn a_large_string_is_not_copied() {
    let server = Server::start();
    if server.major() < 7 {
        return;
    }
    let client = server.client();
    server.cmd::<()>(&["SET", "text", &"x".repeat(100_000)]);
    let before = server.call_count("get");
    assert_eq!(client.inspect("text").unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(server.call_count("get"), before);
}

/// A latch that was opened and set again, and a lock that is kept after its holder released it.
#[test]
fn marks_of_this_library_are_understood() {
    let server = Server::start();
    let client = server.client();
    let latch = client.latch("start");
    latch.try_set_count(1).unwrap();
    latch.count_down().unwrap();
    latch.try_set_count(4).unwrap();
    let seen = report(&client, "start");
    assert_eq!((only(&seen).primitive(), only(&seen).number()), (Primitive::Latch, Some(4)));
    drop(client.mutex("cron").min_hold(LONG).lock().unwrap());
    let seen = listed(&client, "cron");
    assert!(
        seen[0].holders()[0].id().ends_with(":kept") && seen[0].holders()[0].is_this_client(),
        "{seen:?}"
    );
    assert!(client.mutex("cron").force_unlock().unwrap());
}

#[test]
fn a_user_who_may_not_search_is_told_what_to_allow() {
    let server = Server::start();
    let rule = acl_rule(&["app:*"]);
    let rule: Vec<&str> = rule.iter().map(String::as_str).collect();
    server.cmd::<()>(
        &[&["ACL", "SETUSER", "u", "reset", "on", ">secret", "resetchannels"], &rule[..]].concat(),
    );
    let url = format!("{}?user=u&pass=secret", server.url());
    let client = LockClient::builder().url(url).key_prefix("app:").lease(LONG).build().unwrap();
    let _guard = client.lock("job").unwrap();
    let error = client.locks("*").unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("+scan"), "{error}");
    assert_eq!(names(&client, "job"), ["job"]);
    assert_eq!(only(&report(&client, "job")).taken(), 1);
    server.cmd::<()>(&["ACL", "SETUSER", "u", "+scan"]);
    assert_eq!(names(&client, "*"), ["job"]);

    // Names that the user may not read are omitted.
    server.cmd::<u32>(&["HSET", "app:other", A, "1"]);
    server.cmd::<()>(&[
        "ACL",
        "SETUSER",
        "u",
        "resetkeys",
        "~app:j*",
        "~{app:j*",
        "~re*",
        "~lease*",
    ]);
    assert_eq!(names(&client, "*"), ["job"]);
    assert_eq!(client.inspect("other").unwrap_err().kind(), ErrorKind::Denied);
}

#[test]
fn a_replica_is_not_believed() {
    let primary = Server::start_tcp(&["--repl-diskless-sync-delay", "0"]);
    let server = Server::start();
    let client = server.client();
    let guard = client.mutex("job").lock_owned().unwrap();
    assert_eq!(names(&client, "*"), ["job"]);
    server.cmd::<()>(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    wait_until("it is refused", || client.locks("*").is_err());
    let error = client.locks("*").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::NotReady), "{error}");
    drop(guard);
}

#[test]
fn others_see_it_behind_sentinels() {
    let rig = Sentinels::start();
    others_see_what_stands(
        |builder| builder.sentinel(Sentinel::new(rig.urls(), MASTER_NAME)).build().unwrap(),
        REDIS,
    );
    rig.assert_clean();
}

#[test]
fn others_see_it_in_a_cluster() {
    let cluster = Cluster::start_primaries();
    let build = |builder: leasehold::Builder| {
        builder.cluster(leasehold::Cluster::new(cluster.urls())).build().unwrap()
    };
    others_see_what_stands(build, REDIS);
    let client = build(LockClient::builder().lease(LONG));
    let own: Vec<String> = (0..60).map(|n| format!("job:{n:02}")).collect();
    let guards: Vec<_> = own.iter().map(|name| client.lock(name).unwrap()).collect();
    let owners: std::collections::BTreeSet<usize> =
        own.iter().map(|name| cluster.owner(cluster.slot(name))).collect();
    assert!(owners.len() > 1, "they are on several primaries");
    assert_eq!(names(&client, "*"), own);
    assert_eq!(names(&client, "job:07"), ["job:07"]);

    // The slot of one lock is moving: its key may be on either side.
    let slot = cluster.slot("job:07");
    let to = owners.iter().copied().find(|owner| *owner != cluster.owner(slot)).unwrap();
    cluster.begin_migration(slot, to);
    // The list is complete or fails: some of its keys do not exist, and might be on either side.
    let whole_or_later = || match client.locks("*") {
        Ok(all) => assert_eq!(all.len(), own.len()),
        Err(e) => assert_eq!(e.kind(), ErrorKind::NotReady, "{e}"),
    };
    whole_or_later();
    cluster.move_keys(slot, to);
    whole_or_later();
    cluster.finish_migration(slot, to);
    assert_eq!(names(&client, "*"), own);
    drop(guards);
    drop(client);
    cluster.assert_clean();
}

#[test]
fn it_is_said_on_how_many_masters_a_lock_stands() {
    let mut masters = Masters::fresh(3);
    let urls = masters.urls();
    let build = |label: &str| {
        let client = LockClient::builder()
            .redlock(Redlock::new(urls.clone()))
            .lease(LONG)
            .io_timeout(ms(5000))
            .owner(label)
            .build()
            .unwrap();
        wait_for_votes(&client, 3);
        client
    };
    let (a, b) = (build("billing-7"), build("cron"));
    let guard = a.mutex("job").lock_owned().unwrap();
    // The leftover of a holder that had no majority.
    masters.0[2].cmd::<u32>(&["HSET", "left", A, "1"]);
    masters.0[2].cmd::<u32>(&["PEXPIRE", "left", "30000"]);
    let seen = |client: &LockClient| -> Vec<_> {
        listed(client, "*")
            .iter()
            .map(|lock| (lock.name().to_owned(), lock.masters(), lock.taken()))
            .collect()
    };
    wait_until("it is held on all", || seen(&b)[0].1 == Some((3, 3)));
    assert_eq!(
        seen(&b),
        [("job".to_owned(), Some((3, 3)), 1), ("left".to_owned(), Some((1, 3)), 1)]
    );
    assert!(report(&b, "job").to_string().contains("(on 3 of 3 masters)"));
    assert_eq!(only(&report(&b, "left")).masters(), Some((1, 3)));
    assert_eq!(b.inspect("free").unwrap(), None);
    masters.0[2].kill();
    assert_eq!(seen(&b), [("job".to_owned(), Some((2, 3)), 1)]);
    masters.0[1].kill();
    assert_eq!(b.locks("*").unwrap_err().kind(), ErrorKind::NoQuorum);
    assert_eq!(b.inspect("job").unwrap_err().kind(), ErrorKind::NoQuorum);
    drop(guard);
}

/// To a look at locks it is a hash like those of applications.
#[test]
fn a_rate_limiter_is_shown_by_its_name() {
    let server = Server::start();
    for client in [server.client(), LockClient::in_memory()] {
        let limiter = client.rate_limiter("api");
        limiter.set_rate(5, LONG).unwrap();
        limiter.acquire(2).unwrap();
        let report = client.inspect("api").unwrap().unwrap();
        let [lock] = report.locks() else { panic!("{report}") };
        assert_eq!(lock.primitive(), Primitive::RateLimiter);
        assert_eq!((lock.number(), lock.taken()), (Some(3), 2));
        assert!(report.to_string().contains("3 free, 2 taken"), "{report}");
        assert_eq!(client.locks("*").unwrap(), [], "only by its name");
        assert!(limiter.delete().unwrap());
        assert_eq!(client.inspect("api").unwrap(), None);
    }
    server.cmd::<()>(&["HSET", "app", "rate", "fast", "interval", "long", "type", "0"]);
    let error = server.client().inspect("app").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    // A limiter of Java that this library does not use says so.
    server.cmd::<()>(&["DEL", "app"]);
    server.cmd::<()>(&["HSET", "app", "rate", "5", "interval", "1000", "type", "1"]);
    let error = server.client().inspect("app").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("PER_CLIENT"), "{error}");
    server.cmd::<()>(&["DEL", "app"]);
    server.assert_clean();
}
