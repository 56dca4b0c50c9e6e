//! Read holds next to a Redisson reader, whose renewals set the TTL of the whole lock to its own
//! watchdog timeout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{LockClient, OwnedRwLockReadGuard};

use crate::rig::{Proxy, Server, ms, wait_until};
use crate::support::Clients;

const REDISSON: &str = "11111111-2222-4333-8444-555555555555:1";
const WATCHDOG: Duration = ms(3000);

/// Redisson's script, with the steps that matter here.
const ACQUIRE: &str = "
    redis.call('hset', KEYS[1], 'mode', 'read')
    redis.call('hincrby', KEYS[1], ARGV[1], 1)
    redis.call('set', '{' .. KEYS[1] .. '}:' .. ARGV[1] .. ':rwlock_timeout:1', '1', 'px', ARGV[2])
    redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[2]))";

/// The renewal of Redisson 4.7: the lock, and the levels of this client's holders.
const RENEW: &str = "
    local count = redis.call('hget', KEYS[1], ARGV[1])
    if count then
        for n = 1, count do
            redis.call('pexpire', '{' .. KEYS[1] .. '}:' .. ARGV[1] .. ':rwlock_timeout:' .. n, ARGV[2])
        end
        redis.call('pexpire', KEYS[1], ARGV[2])
    end";

/// The renewal before 4.4: the lock, and the levels of all readers.
const RENEW_BEFORE_4_4: &str = "
    if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
        redis.call('pexpire', KEYS[1], ARGV[2])
        for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
            for n = 1, tonumber(redis.call('hget', KEYS[1], field)) or 0 do
                redis.call('pexpire', '{' .. KEYS[1] .. '}:' .. field .. ':rwlock_timeout:' .. n, ARGV[2])
            end
        end
    end";

fn run(connection: &mut redis::Connection, script: &str, name: &str) {
    let millis = WATCHDOG.as_millis().to_string();
    redis::cmd("EVAL").arg(script).arg(&["1", name, REDISSON, &millis]).exec(connection).unwrap();
}

/// Reads and renews until it is stopped.
fn java(server: &Server, renewal: &str, name: &str, killed: &AtomicBool) {
    let mut connection = server.connect();
    let mut due = Instant::now() + WATCHDOG / 3;
    while !killed.load(Ordering::SeqCst) {
        if Instant::now() >= due {
            due = Instant::now() + WATCHDOG / 3;
            run(&mut connection, renewal, name);
        }
        std::thread::sleep(ms(2));
    }
}

/// Stops it on drop, so also when an assertion fails.
struct Killed<'a>(&'a AtomicBool);

impl Drop for Killed<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy)]
struct Case {
    java_first: bool,
    renewal: &'static str,
    take: fn(&LockClient, &str) -> OwnedRwLockReadGuard,
    /// Other readers of this client raise the TTL all the time, so no check finds it shortened.
    others: bool,
    /// How long both read before the Redisson reader is stopped.
    alive: Duration,
}

fn renewed(client: &LockClient, name: &str) -> OwnedRwLockReadGuard {
    client.rw_lock(name).read_owned().unwrap()
}

fn fixed(client: &LockClient, name: &str) -> OwnedRwLockReadGuard {
    client.rw_lock(name).with_lease(Duration::from_secs(60)).read_owned().unwrap()
}

fn five_minutes(client: &LockClient, name: &str) -> OwnedRwLockReadGuard {
    client.rw_lock(name).with_lease(Duration::from_secs(300)).read_owned().unwrap()
}

fn extended(client: &LockClient, name: &str) -> OwnedRwLockReadGuard {
    let guard = renewed(client, name);
    guard.extend(Duration::from_secs(300)).unwrap();
    guard
}

fn downgraded(client: &LockClient, name: &str) -> OwnedRwLockReadGuard {
    client.rw_lock(name).write_owned().unwrap().downgrade().unwrap()
}

const CASE: Case =
    Case { java_first: false, renewal: RENEW, take: renewed, others: false, alive: ms(2300) };

/// Runs both readers for a while; `then` stops the Redisson reader.
fn beside_java(
    case: Case,
    client: &LockClient,
    server: &Server,
    then: impl FnOnce(&OwnedRwLockReadGuard, Killed<'_>),
) {
    let killed = AtomicBool::new(false);
    std::thread::scope(|s| {
        if case.java_first {
            run(&mut server.connect(), ACQUIRE, "w");
        }
        let guard = (case.take)(client, "w");
        if !case.java_first {
            run(&mut server.connect(), ACQUIRE, "w");
        }
        s.spawn(|| java(server, case.renewal, "w", &killed));
        let kill = Killed(&killed);
        let end = Instant::now() + case.alive;
        while Instant::now() < end {
            if case.others {
                drop(client.rw_lock("w").read().unwrap());
            }
            std::thread::sleep(ms(1));
            assert!(guard.is_held(), "Java is running, and the server is reachable");
        }
        then(&guard, kill);
    });
}

fn side_by_side(cases: &[Case], check: impl Fn(Case) + Sync) {
    let check = &check;
    std::thread::scope(|s| cases.iter().for_each(|&case| drop(s.spawn(move || check(case)))));
}

/// Neither the lock nor the hold ends with the Redisson reader, whether the hold's lease is longer
/// or shorter than Redisson's.
#[test]
fn a_read_hold_outlives_the_redisson_reader_that_shortened_its_lock() {
    let cases = [
        CASE,
        Case { java_first: true, take: fixed, ..CASE },
        Case { take: five_minutes, ..CASE },
        Case { take: downgraded, ..CASE },
        Case { renewal: RENEW_BEFORE_4_4, take: five_minutes, java_first: true, ..CASE },
        Case { renewal: RENEW_BEFORE_4_4, ..CASE },
    ];
    side_by_side(&cases, |case| {
        let server = Server::start();
        let client = server.client();
        beside_java(case, &client, &server, |guard, kill| {
            drop(kill);
            let start = Instant::now();
            while start.elapsed() < WATCHDOG + ms(1200) {
                assert!(
                    server.pttl("w") > 0,
                    "a writer could be in {:?} after Java's end",
                    start.elapsed()
                );
                assert!(guard.is_held());
                std::thread::sleep(ms(10));
            }
            // Nothing can shorten it any more.
            wait_until("its own lease counts again", || {
                guard.remaining() > Duration::from_secs(15)
            });
            assert!(server.pttl("w") >= i64::try_from(guard.remaining().as_millis()).unwrap());
        });
        drop(client);
        server.assert_clean();
    });
}

/// The server becomes unreachable, and the Redisson reader dies soon after: the lock ends some time
/// after its last renewal, and the hold must have ended in the client by then.
#[test]
fn a_read_hold_that_cannot_be_checked_ends_before_the_shortened_lock_is_free() {
    let early = Case { java_first: true, alive: ms(600), ..CASE };
    let cases = [
        CASE,
        Case { alive: ms(2600), take: fixed, ..CASE },
        Case { alive: ms(2900), take: downgraded, ..CASE },
        Case { alive: ms(3200), others: true, ..CASE },
        Case { take: extended, ..early },
        Case { take: five_minutes, ..early },
        Case { renewal: RENEW_BEFORE_4_4, alive: ms(3400), take: five_minutes, ..CASE },
    ];
    side_by_side(&cases, |case| {
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let client = LockClient::open(&proxy.url()).unwrap();
        beside_java(case, &client, &server, |guard, kill| {
            proxy.silence(true);
            let watchdog = i64::try_from(WATCHDOG.as_millis()).unwrap();
            wait_until("Java has renewed", || server.pttl("w") <= watchdog);
            drop(kill);
            std::thread::scope(|s| {
                let reported = s.spawn(|| guard.wait_lost(Duration::from_secs(20)).is_lost());
                wait_until("a writer could be in", || server.pttl("w") == -2);
                assert!(!guard.is_held(), "the hold still counts for {:?}", guard.remaining());
                assert!(reported.join().unwrap());
            });
            proxy.silence(false);
            proxy.cut_all();
        });
        drop(client);
        drop(proxy);
        // After the end of a lock, the keys of its levels remain until their leases end.
        let left = server.lock_keys();
        assert!(
            left.iter().all(|key| key.contains(":rwlock_timeout:") && server.pttl(key) > 0),
            "{left:?}"
        );
        server.cmd::<()>(&["FLUSHALL"]);
        server.assert_clean();
    });
}

/// Without Redisson, each leasehold reader has its own lease, whatever the others' leases are.
#[test]
fn a_read_hold_beside_a_shorter_one_lasts_as_long_as_its_own_lease() {
    let server = Server::start();
    let short = server.builder().lease(ms(2100)).build().unwrap();
    let _short = short.rw_lock("w").read_owned().unwrap();
    let client = server.client();
    let guard = client.rw_lock("w").read_owned().unwrap();
    // Renewals of the other client count at the server.
    let looks = client.stats().requests();
    let start = Instant::now();
    while start.elapsed() < ms(2500) {
        assert!(guard.remaining() > Duration::from_secs(19), "only {:?}", guard.remaining());
        std::thread::sleep(ms(5));
    }
    assert!(client.stats().requests() > looks, "it was checked");
}
