//! The rate limiter: both libraries take permits from one, and each reads what the other has
//! written.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use crate::java::Jvm;
use crate::rig::{CAP, Fault, Proxy, Server, ms, wait_until};
use crate::support::Clients;
use crate::world::{World, world};

const HOUR: Duration = Duration::from_secs(3600);

/// Type, content and TTL of the keys of a limiter, without times and ids.
fn picture(server: &Server, name: &str) -> Vec<String> {
    const LOOK: &str = "local out = {}
        for _, key in ipairs(redis.call('keys', '*' .. ARGV[1] .. '*')) do
          local kind, body = redis.call('type', key).ok, ''
          if kind == 'hash' then
            for _, field in ipairs({'rate', 'interval', 'type', 'keepAliveTime'}) do
              body = body .. field .. '=' .. redis.call('hget', key, field) .. ' '
            end
            body = body .. redis.call('hlen', key)
          elseif kind == 'zset' then
            for _, entry in ipairs(redis.call('zrange', key, 0, -1)) do
              local id, permits = struct.unpack('Bc0I', entry)
              body = body .. permits .. (#entry == #id + 5 and ' ' or '?')
            end
          else
            body = redis.call('get', key)
          end
          if not string.find(key, 'leasehold_once', 1, true) then
            out[#out + 1] = key .. ' ' .. kind .. ' ' .. redis.call('pttl', key) .. ' ' .. body
          end
        end
        table.sort(out)
        return out";
    server.cmd::<Vec<String>>(&["EVAL", LOOK, "0", name])
}

/// The same calls on either side leave the same keys.
#[test]
fn both_libraries_write_the_same() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let ours = client.rate_limiter("ours");
    let same = |after: &str| {
        let ours = picture(&world.server, "ours");
        let theirs = picture(&world.server, "java");
        let renamed: Vec<_> = theirs.iter().map(|line| line.replace("java", "ours")).collect();
        assert_eq!(ours, renamed, "{after}");
        ours.len()
    };
    assert!(ours.try_set_rate(5, HOUR).unwrap());
    assert_eq!(java.call("rate java trySetRate 5 3600000"), "true");
    assert_eq!(same("the rate is set"), 1);
    assert!(ours.try_acquire(2).unwrap());
    assert_eq!(java.call("rate java tryAcquire 2"), "true");
    assert_eq!(same("two permits are taken"), 3);
    assert!(!ours.try_acquire(4).unwrap());
    assert_eq!(java.call("rate java tryAcquire 4"), "false");
    assert_eq!(same("four are too many"), 3);
    ours.acquire(3).unwrap();
    java.call("rate java acquire 3");
    assert_eq!(same("three more are taken"), 3);
    ours.set_rate(2, ms(1)).unwrap();
    java.call("rate java setRate 2 1");
    assert_eq!(same("the rate is replaced"), 1);
    for _ in 0..2 {
        ours.acquire(1).unwrap();
        java.call("rate java acquire 1");
        std::thread::sleep(ms(5));
    }
    ours.acquire(2).unwrap();
    java.call("rate java acquire 2");
    assert_eq!(same("earlier permits are swept"), 3);
    assert!(ours.delete().unwrap());
    assert_eq!(java.call("rate java delete"), "true");
    assert_eq!(same("it is deleted"), 0);
}

#[test]
fn both_libraries_take_from_one_limiter() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let limiter = client.rate_limiter("r1");
    assert_eq!(java.call("rate r1 trySetRate 6 3600000"), "true");
    assert!(!limiter.try_set_rate(1, HOUR).unwrap());
    assert_eq!(limiter.rate().unwrap(), Some((6, HOUR)));
    limiter.acquire(2).unwrap();
    assert_eq!(java.call("rate r1 availablePermits"), "4");
    assert_eq!(java.call("rate r1 tryAcquire 3"), "true");
    assert_eq!(limiter.available_permits().unwrap(), 1);
    assert!(!limiter.try_acquire(2).unwrap());
    assert_eq!(java.call("rate r1 tryAcquire 2 30"), "false");
    limiter.acquire(1).unwrap();
    assert_eq!(java.call("rate r1 tryAcquire 1"), "false");

    // Redisson's release frees permits and leaves their entry.
    java.call("rate r1 release 2");
    assert_eq!(limiter.available_permits().unwrap(), 2);
    assert!(limiter.try_acquire(2).unwrap() && !limiter.try_acquire(1).unwrap());

    limiter.set_rate(3, HOUR).unwrap();
    assert_eq!(java.call("rate r1 config"), "OVERALL 3 3600000");
    assert_eq!(java.call("rate r1 tryAcquire 3"), "true");
    assert_eq!(java.call("rate r1 delete"), "true");
    assert_eq!(limiter.acquire(1).unwrap_err().kind(), ErrorKind::Conflict);
    assert!(limiter.try_set_rate(4, HOUR).unwrap());
    assert_eq!(java.call("rate r1 trySetRate 9 1"), "false");
    assert_eq!(java.call("rate r1 availablePermits"), "4");
    assert!(limiter.delete().unwrap());
}

#[test]
fn each_library_waits_for_what_the_other_took() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let limiter = client.rate_limiter("r2");
    let per = ms(600);
    limiter.try_set_rate(2, per).unwrap();
    let begun = Instant::now();
    assert_eq!(java.call("rate r2 tryAcquire 2"), "true");
    assert!(limiter.try_acquire_for(2, CAP).unwrap());
    java.call("rate r2 acquire 2");
    // The clocks of both are the same here, and count whole milliseconds.
    assert!(begun.elapsed() > per * 2 - ms(5), "{:?}", begun.elapsed());
    limiter.delete().unwrap();
}

/// An acquisition that was undone leaves what Redisson reads as if it had not been, and one that
/// was repeated counts once.
#[test]
fn redisson_counts_a_lost_reply_once_or_not_at_all() {
    let world = World::with(&[]);
    let java = world.jvm.thread();
    let proxy = Proxy::start(&world.server);
    assert_eq!(java.call("rate r3 trySetRate 5 3600000"), "true");
    assert_eq!(java.call("rate r3 tryAcquire 1"), "true");
    // The server knows the script then: a lost "unknown script" would be no lost reply of it.
    assert!(world.client().rate_limiter("unset").try_acquire(1).is_err());
    let before = picture(&world.server, "r3");
    let client = LockClient::builder().url(proxy.url()).io_timeout(ms(500)).build().unwrap();
    let limiter = client.rate_limiter("r3");
    proxy.inject("{r3}:permits", Fault::BlackHoleReply);
    assert_eq!(limiter.try_acquire(3).unwrap_err().kind(), ErrorKind::Unreachable);
    wait_until("it is undone", || client.stats().unknown_outcomes() == 0);
    assert_eq!(picture(&world.server, "r3"), before);
    assert_eq!(java.call("rate r3 availablePermits"), "4");

    // A connection that ends is taken for one that had ended while idle: the request is repeated.
    limiter.available_permits().unwrap();
    proxy.inject("{r3}:permits", Fault::CutReplyAt(3));
    assert!(limiter.try_acquire(3).unwrap());
    proxy.wait_hits(2);
    assert_eq!(java.call("rate r3 availablePermits"), "1");
    assert_eq!(java.call("rate r3 tryAcquire 1"), "true");
    assert_eq!(java.call("rate r3 tryAcquire 1"), "false");
}

#[test]
fn redisson_s_other_settings_are_followed_or_refused() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    assert_eq!(java.call("rate r4 trySetRateFor 5 1000 900000"), "true");
    let limiter = client.rate_limiter("r4");
    world.server.cmd::<()>(&["PEXPIRE", "r4", "400000"]);
    limiter.acquire(1).unwrap();
    let ends = ["r4", "{r4}:value", "{r4}:permits"].map(|key| world.server.pttl(key));
    assert!(ends.iter().all(|ttl| *ttl > 800_000), "{ends:?}");
    limiter.set_rate(5, HOUR).unwrap();
    assert_eq!(world.server.pttl("r4"), -1);

    assert_eq!(java.call("rate r5 trySetRateOfEach 5 1000"), "true");
    assert_eq!(java.call("rate r5 tryAcquire 1"), "true");
    let refused = client.rate_limiter("r5").acquire(1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("PER_CLIENT"), "{refused}");
}

/// Threads of both libraries together get no more than the rate, and none is stuck.
#[test]
fn the_rate_holds_for_both_libraries_together() {
    let world = world();
    let per = ms(200);
    world.client().rate_limiter("r6").try_set_rate(10, per).unwrap();
    let begun = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let client = world.client();
                (0..10).for_each(|_| client.rate_limiter("r6").acquire(1).unwrap());
            });
            s.spawn(|| {
                let java = world.jvm.thread();
                (0..10).for_each(|_| assert_eq!(java.call("rate r6 acquire 1"), "ok"));
            });
        }
    });
    // Sixty permits: ten at once, and then at most ten in each interval.
    assert!(begun.elapsed() > per * 5 - ms(10), "{:?}", begun.elapsed());
}

/// Redisson repeats a request whose reply was lost, with the same id, and takes its permits again.
/// They are missing until a leasehold client finds that nothing is taken.
#[test]
fn permits_that_redisson_took_twice_come_back() {
    let server = Server::start_tcp(&[]);
    let proxy = Proxy::before(&server);
    let jvm = Jvm::connect(&[proxy.url()], &[]);
    let java = jvm.thread();
    assert_eq!(java.call("rate r7 trySetRate 5 5000"), "true");
    // The server knows the script then.
    java.call("rate other trySetRate 1 1");
    assert_eq!(java.call("rate other tryAcquire 1"), "true");
    proxy.inject("{r7}:permits", Fault::CutAfterApplied);
    assert_eq!(java.call("rate r7 tryAcquire 2"), "true");
    proxy.wait_hits(1);
    assert_eq!(server.cmd::<i64>(&["GET", "{r7}:value"]), 1, "four are taken");
    wait_until("the interval is over", || java.call("rate r7 availablePermits") == "3");
    assert_eq!(server.cmd::<u32>(&["ZCARD", "{r7}:permits"]), 0, "and two are missing for ever");
    java.fail("rate r7 tryAcquire 4");
    assert!(server.client().rate_limiter("r7").try_acquire(5).unwrap());
}
