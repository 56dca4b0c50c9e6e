//! The fair lock: the order of its waiters, whatever happens to them.

mod dead_waiters;
mod hand_over;

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::{ErrorKind, FairMutex, LockClient};

use crate::lua::script;
use crate::rig::{Server, ms, wait_until};
use crate::support::Clients;

const QUEUE: &str = "redisson_lock_queue:{t}";
const DEADLINES: &str = "redisson_lock_timeout:{t}";
/// Redisson's client ids are UUIDs of version 4. A test writes their deadlines before their queue
/// entries, because a waiter without a deadline is removed.
const REDISSON: &str = "11111111-2222-4333-8444-555555555555";

fn client(server: &Server, waiter_timeout: Duration) -> LockClient {
    server
        .builder()
        .waiter_timeout(waiter_timeout)
        .outage_timeout(Duration::from_secs(15))
        .build()
        .unwrap()
}

fn queue(server: &Server) -> Vec<String> {
    server.cmd(&["LRANGE", QUEUE, "0", "-1"])
}

fn deadlines(server: &Server) -> BTreeMap<String, u64> {
    let flat: Vec<String> = server.cmd(&["ZRANGE", DEADLINES, "0", "-1", "WITHSCORES"]);
    flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse::<f64>().unwrap() as u64)).collect()
}

fn server_millis(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.cmd(&["TIME"]);
    seconds * 1000 + micros / 1000
}

/// Queues a Redisson waiter with the timeout `wait` behind a lock that is held for another 30 s.
fn redisson_queues(server: &Server, java: &str, wait: u64) {
    let deadline = (server_millis(server) + 30_000 + wait).to_string();
    server.cmd::<()>(&["ZADD", DEADLINES, &deadline, java]);
    server.cmd::<()>(&["RPUSH", QUEUE, java]);
}

/// Acquires the lock as Redisson's first waiter does. It is one script, because a waiter of
/// leasehold may check at any time.
fn redisson_acquires(server: &Server, java: &str, wait: u64) {
    let script = "redis.call('lpop', KEYS[2])
        redis.call('zrem', KEYS[3], ARGV[1])
        for _, waiter in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
          redis.call('zincrby', KEYS[3], -tonumber(ARGV[2]), waiter)
        end
        redis.call('hset', KEYS[1], ARGV[1], 1)
        redis.call('pexpire', KEYS[1], 30000)";
    server.cmd::<()>(&["EVAL", script, "3", "t", QUEUE, DEADLINES, java, &wait.to_string()]);
}

fn wait_for_queue(server: &Server, length: usize) {
    wait_until(&format!("{length} in the queue"), || queue(server).len() == length);
}

#[test]
fn it_is_reentrant_and_its_hash_is_redissons() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let fair = client.fair("t");
    let outer = fair.lock().unwrap();
    let inner = fair.try_lock().unwrap().unwrap();
    assert_eq!(server.hash("t").values().collect::<Vec<_>>(), ["2"]);
    assert_eq!(
        (outer.hold_count(), outer.fencing_token().unwrap()),
        (2, inner.fencing_token().unwrap())
    );
    assert_eq!(fair.holder().unwrap().unwrap().hold_count(), 2);
    drop(outer);
    assert!(other.fair("t").try_lock_for(ms(30)).unwrap().is_none());
    inner.unlock().unwrap();
    assert!(!fair.is_locked().unwrap());
    assert!(other.fair("t").try_lock().unwrap().is_some());
}

#[test]
fn a_waiter_that_gives_up_leaves_at_once_and_the_others_move_up() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let guard = a.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        let first = s.spawn(|| a.fair("t").try_lock_for(ms(3000)).unwrap().is_some());
        wait_for_queue(&server, 1);
        let second = s.spawn(|| b.fair("t").lock().unwrap().unlock());
        wait_for_queue(&server, 2);
        assert_eq!(b.fair("t").position().unwrap(), Some(1));
        assert!(!first.join().unwrap());
        assert_eq!(b.fair("t").position().unwrap(), Some(0));
        assert_eq!(deadlines(&server).len(), 1);
        guard.unlock().unwrap();
        second.join().unwrap().unwrap();
    });
    drop((a, b));
    server.assert_clean();
}

/// The first waiter is woken and leaves instead of acquiring the lock: the wake-up must be passed
/// to the next one.
#[test]
fn a_first_waiter_that_leaves_passes_its_wake_up_on() {
    let server = Server::start();
    let (a, b) = (server.client(), client(&server, Duration::from_secs(300)));
    let guard = a.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        // The first waiter is in the queue, but nobody receives its messages.
        let first = format!("{}:77", b.id());
        let late = (server_millis(&server) + 3_600_000).to_string();
        server.cmd::<()>(&["ZADD", DEADLINES, &late, &first]);
        server.cmd::<()>(&["RPUSH", QUEUE, &first]);
        let waiter = s.spawn(|| b.fair("t").lock().unwrap().unlock());
        wait_for_queue(&server, 2);
        guard.unlock().unwrap();
        let (status, _, next, _): (u32, u32, String, u64) = leave_for(&server, &first);
        assert_eq!(status, 2, "the release gave it the lock");
        assert!(next.starts_with(b.id()));
        waiter.join().unwrap().unwrap();
    });
    drop((a, b));
    server.assert_clean();
}

/// The release notified the first waiter; a waiter behind it has nothing to pass on. Otherwise,
/// with 200 threads that give up after some ms, the first waiter received a message from each and
/// was late for its turn.
#[test]
fn a_waiter_that_leaves_from_the_middle_wakes_nobody() {
    let server = Server::start();
    let client = client(&server, Duration::from_secs(300));
    // Nobody holds the lock, and the first waiter is slow.
    let first = format!("{}:77", client.id());
    let late = (server_millis(&server) + 200_000).to_string();
    server.cmd::<()>(&["ZADD", DEADLINES, &late, &first]);
    server.cmd::<()>(&["RPUSH", QUEUE, &first]);
    let mut subscriber = server.connect();
    let mut messages = subscriber.as_pubsub();
    messages.subscribe(format!("redisson_lock__channel:{{t}}:{first}")).unwrap();
    std::thread::scope(|s| {
        let behind = s.spawn(|| {
            client.fair("t").try_lock_for(Duration::from_secs(30)).unwrap().unwrap().unlock()
        });
        wait_for_queue(&server, 2);
        wait_until("it is subscribed beside us", || server.channels().len() == 2);
        let give_up = || client.fair("t").try_lock_for(ms(50)).unwrap().is_none();
        let leavers: Vec<_> = (0..10).map(|_| s.spawn(give_up)).collect();
        assert!(leavers.into_iter().all(|leaver| leaver.join().unwrap()));
        assert_eq!(queue(&server).len(), 2);
        server.cmd::<()>(&[
            "PUBLISH",
            &format!("redisson_lock__channel:{{t}}:{first}"),
            "the first",
        ]);
        assert_eq!(messages.get_message().unwrap().get_payload::<String>().unwrap(), "the first");
        // The first waiter may have been notified, and leaves: the next one is notified.
        let (_, receivers, _): (u32, u32, String) = leave_for(&server, &first);
        assert_eq!(receivers, 1);
        behind.join().unwrap().unwrap();
    });
    drop(messages);
    drop((subscriber, client));
    server.assert_clean();
}

/// The request that a client sends when a waiter gives up.
fn leave_for<T: redis::FromRedisValue>(server: &Server, waiter: &str) -> T {
    let channel = "redisson_lock__channel:{t}";
    let script = script("fair_release");
    let keys = ["t", QUEUE, DEADLINES, "redisson_lock_token:{t}"];
    let words = [&["EVAL", script, "4"][..], &keys, &[waiter, "1", channel, "0", "0"]].concat();
    server.cmd(&words)
}

/// The server compares each message on any channel with the pattern of each client.
#[test]
fn few_waiters_have_a_channel_each_and_many_share_a_pattern() {
    let server = Server::start();
    let a = server.client();
    let names = ["t", "u", "v"];
    let patterns = || server.cmd::<u32>(&["PUBSUB", "NUMPAT"]);
    // The last round is as the first: a pattern does not outlive the need for it.
    for waiters in [3, 15, 45, 6] {
        let guards: Vec<_> = names.iter().map(|name| a.fair(name).lock_owned().unwrap()).collect();
        std::thread::scope(|s| {
            for n in 0..waiters {
                let fair = a.fair(names[n % 3]);
                s.spawn(move || fair.lock().unwrap().unlock().unwrap());
            }
            for name in names {
                wait_until("they wait", || a.fair(name).queue_len().unwrap() == waiters / 3);
            }
            let alone = if waiters > 16 { 16 } else { waiters };
            wait_until("the subscriptions", || server.channels().len() == alone);
            wait_until("the pattern", || patterns() == u32::from(waiters > 16));
            drop(guards);
        });
        wait_until("they end with the linger", || patterns() == 0 && server.channels().is_empty());
    }
    drop(a);
    server.assert_clean();
}

/// One attempt while the lock is taken, one when the subscription is confirmed (a message before
/// that would have been missed), and one after the message.
#[test]
fn a_wait_costs_two_attempts() {
    let server = Server::start();
    // A waiter that is not woken for long tries once more.
    let [a, b] = [(); 2].map(|()| client(&server, Duration::from_secs(300)));
    // A script that the server does not know yet is sent twice.
    a.fair("t").lock().unwrap().unlock().unwrap();
    assert_eq!(a.fair("t").queue_len().unwrap(), 0);
    for _ in 0..3 {
        let guard = a.fair("t").lock().unwrap();
        let before = server.call_count("evalsha");
        std::thread::scope(|s| {
            let waiter = s.spawn(|| b.fair("t").lock().unwrap().unlock());
            wait_for_queue(&server, 1);
            wait_until("it is subscribed", || server.channels().len() == 1);
            wait_until("it tried again", || server.call_count("evalsha") >= before + 2);
            guard.unlock().unwrap();
            waiter.join().unwrap().unwrap();
        });
        let tries = server.call_count("evalsha") - before;
        // On a busy machine one may be repeated.
        assert!((4..=5).contains(&tries), "{tries} with two releases, the first one a grant");
    }
}

#[test]
fn closing_and_failing_leave_the_queue() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let guard = a.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.fair("t").lock().unwrap_err().kind());
        wait_for_queue(&server, 1);
        b.close(Duration::from_secs(5)).unwrap();
        assert_eq!(waiter.join().unwrap(), ErrorKind::Closed);
        assert!(queue(&server).is_empty());
        // The key changes its type during the wait: the waiter reports the error and leaves the
        // queue.
        let waiter = s.spawn(|| a.fair("t").lock_owned().unwrap_err().kind());
        wait_for_queue(&server, 1);
        let holder = queue(&server).concat();
        server.cmd::<()>(&["SET", "t", "x"]);
        server.cmd::<()>(&["PUBLISH", &format!("redisson_lock__channel:{{t}}:{holder}"), "0"]);
        assert_eq!(waiter.join().unwrap(), ErrorKind::WrongType);
        wait_for_queue(&server, 0);
    });
    server.cmd::<()>(&["DEL", "t"]);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
}

/// A waiter is in the queue before its client has read the reply. So its first attempt can fail
/// with the server, and so can those before the server is back.
fn lock_and_unlock_in_spite_of_a_restart(fair: &FairMutex) {
    wait_until("the server is back and grants", || match fair.lock() {
        Ok(guard) => {
            guard.unlock().unwrap();
            true
        }
        Err(e) if e.kind() == ErrorKind::Unreachable => false,
        Err(e) => panic!("{e}"),
    });
}

#[test]
fn a_flush_or_a_restart_strands_nobody() {
    let mut server = Server::start();
    let clients = [client(&server, ms(900)), client(&server, ms(900))];
    for round in ["flush", "restart"] {
        let guard = clients[0].fair("t").lock_owned().unwrap();
        std::thread::scope(|s| {
            for n in 0..6 {
                let fair = clients[n % 2].fair("t");
                s.spawn(move || lock_and_unlock_in_spite_of_a_restart(&fair));
            }
            wait_for_queue(&server, 6);
            if round == "flush" {
                server.cmd::<()>(&["FLUSHALL"]);
            } else {
                server.restart();
            }
            let _ = guard.unlock();
        });
    }
    drop(clients);
    server.assert_clean();
}

#[test]
fn force_unlock_passes_the_lock_to_the_first_waiter() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let guard = a.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.fair("t").lock().unwrap().unlock());
        wait_for_queue(&server, 1);
        assert!(b.fair("t").force_unlock().unwrap());
        waiter.join().unwrap().unwrap();
    });
    assert!(!b.fair("t").force_unlock().unwrap());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn another_kind_of_lock_under_its_name_is_reported() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let guard = a.fair("t").lock().unwrap();
    assert_eq!(a.lock("t").unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(a.rw_lock("t").read().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(b.rw_lock("t").read().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(b.rw_lock("t").write().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(b.semaphore("t").acquire().unwrap_err().kind(), ErrorKind::WrongType);
    guard.unlock().unwrap();
    let write = a.rw_lock("t").write().unwrap();
    assert_eq!(b.fair("t").try_lock_for(ms(50)).unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(b.lock("t").unwrap_err().kind(), ErrorKind::WrongType);
    write.unlock().unwrap();
}
