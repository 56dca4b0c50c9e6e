//! A waiter that reads its client's messages itself: what happens to the others when it leaves, and
//! when the connection is disturbed meanwhile.

use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use crate::rig::{CAP, PROMPT, Proxy, Server, ms, threads_named, wait_until};
use crate::support::{Clients, ShortLease};

/// Long enough that no test can pass because a lease, or a waiter's timer, ended.
const LONG: Duration = Duration::from_secs(60);

fn patient(url: &str, name: &str) -> LockClient {
    LockClient::builder().url(url).lease(LONG).client_name(name).build().unwrap()
}

/// A thread that waits for the lock, gets it and releases it.
fn wait_for<'s>(
    s: &'s Scope<'s, '_>,
    client: &'s LockClient,
    name: &'s str,
) -> ScopedJoinHandle<'s, Duration> {
    s.spawn(move || {
        let began = Instant::now();
        client.lock(name).unwrap().unlock().unwrap();
        began.elapsed()
    })
}

/// Waits until this many waiters have made their attempt after the subscription, and sleep.
fn settled(server: &Server, channels: usize) {
    wait_until("they are subscribed", || server.channels().len() == channels);
    std::thread::sleep(ms(100));
}

/// How often the thread that receives a client's messages has woken up.
#[cfg(target_os = "linux")]
fn wake_ups(client_name: &str) -> u64 {
    let name = format!("lh-notify-{client_name}");
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_it = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|n| n.trim() == name)
    };
    let task = tasks.into_iter().find(is_it).expect("the thread is running");
    let status = std::fs::read_to_string(task.join("status")).unwrap();
    let line =
        status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_message_wakes_nobody_but_its_waiter() {
    let server = Server::start();
    let (holder, client) = (server.client(), patient(&server.url(), "rd1"));
    let mut before = 0;
    let began = Instant::now();
    for round in 0..120 {
        let held = holder.lock("job").unwrap();
        std::thread::scope(|s| {
            let waiter = wait_for(s, &client, "job");
            wait_until("it waits", || server.channels().len() == 1);
            std::thread::sleep(ms(15));
            held.unlock().unwrap();
            waiter.join().unwrap();
        });
        if round == 19 {
            before = wake_ups("rd1");
        }
    }
    // It checks the connection twice per second.
    let more = wake_ups("rd1") - before;
    assert!(more < 70 + 3 * began.elapsed().as_secs(), "{more} in {:?}", began.elapsed());
}

#[test]
fn messages_of_two_waiters_in_one_write_wake_both() {
    let server = Server::start();
    free_two_at_once(&server, &patient(&server.url(), "rd2"));
}

/// Here the second message may have been decrypted with the first, so that poll does not report it.
#[test]
#[cfg(feature = "tls")]
fn messages_of_two_waiters_in_one_record_of_tls_wake_both() {
    let certificates = crate::rig::Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let tls = leasehold::Tls::new().ca_file(certificates.ca_file());
    let client = LockClient::builder().url(server.url()).tls(tls).lease(LONG).build().unwrap();
    free_two_at_once(&server, &client);
}

fn free_two_at_once(server: &Server, client: &LockClient) {
    for order in [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]] {
        for name in order {
            server.cmd::<()>(&["HSET", name, "another:1", "1"]);
            server.cmd::<()>(&["PEXPIRE", name, "60000"]);
        }
        std::thread::scope(|s| {
            // The second relies on the first, which may leave with the second's message unread.
            let first = wait_for(s, client, order[0]);
            settled(server, 1);
            let second = wait_for(s, client, order[1]);
            settled(server, 2);
            let free = "for _, n in ipairs({'a', 'b'}) do redis.call('del', n) \
                        redis.call('publish', 'redisson_lock__channel:{' .. n .. '}', '0') end";
            server.cmd::<()>(&["EVAL", free, "0"]);
            for waiter in [first, second] {
                assert!(waiter.join().unwrap() < PROMPT);
            }
        });
        wait_until("the subscriptions have ended", || server.channels().is_empty());
    }
}

/// One of them is the very first, which has the role of the reader.
#[test]
fn a_waiter_that_gives_up_leaves_the_others_their_messages() {
    let server = Server::start();
    let (client, other) = (patient(&server.url(), "rd3"), server.client());
    let held: Vec<_> = ["a", "b", "c"].map(|name| other.lock(name).unwrap()).into();
    std::thread::scope(|s| {
        let first = s.spawn(|| client.try_lock_for("a", ms(3000)).unwrap().is_none());
        settled(&server, 1);
        let others = ["b", "c"].map(|name| wait_for(s, &client, name));
        settled(&server, 3);
        assert!(first.join().unwrap());
        for guard in held {
            guard.unlock().unwrap();
        }
        for waiter in others {
            assert!(waiter.join().unwrap() < PROMPT);
        }
    });
    client.close(CAP).unwrap();
    drop(other);
    server.assert_clean();
}

#[test]
fn a_message_for_another_waiter_reaches_it_and_the_reader_reads_on() {
    let server = Server::start();
    let (client, other) = (patient(&server.url(), "rd4"), server.client());
    let held = other.lock("a").unwrap();
    std::thread::scope(|s| {
        let reader = wait_for(s, &client, "a");
        settled(&server, 1);
        for _ in 0..10 {
            let held = other.lock("b").unwrap();
            let waiter = wait_for(s, &client, "b");
            // The channel of the round before may still be there.
            wait_until("it waits", || client.stats().waiting() == 2);
            settled(&server, 2);
            held.unlock().unwrap();
            assert!(waiter.join().unwrap() < PROMPT);
        }
        held.unlock().unwrap();
        reader.join().unwrap();
    });
}

/// Fair waiters that each have a turn, so that the role of the reader changes with each turn.
#[test]
fn fair_waiters_of_two_clients_all_get_their_turns() {
    let server = Server::start();
    let clients = ["rd5", "rd6"].map(|name| patient(&server.url(), name));
    let began = Instant::now();
    std::thread::scope(|s| {
        for client in clients.iter().cycle().take(8) {
            s.spawn(|| {
                let lock = client.fair("job");
                for _ in 0..50 {
                    lock.lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
    // A lost message costs a third of the 5 s for which a queue entry is kept.
    assert!(began.elapsed() < 3 * CAP, "{:?}", began.elapsed());
    for client in clients {
        client.close(CAP).unwrap();
    }
    server.assert_clean();
}

#[test]
fn a_connection_that_ends_while_a_waiter_reads_it_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (client, other) = (patient(&proxy.url(), "rd7"), server.client());
    let held = [other.lock("a").unwrap(), other.lock("b").unwrap()];
    std::thread::scope(|s| {
        let reader = wait_for(s, &client, "a");
        settled(&server, 1);
        let sleeper = wait_for(s, &client, "b");
        settled(&server, 2);
        for cut in 2..=6 {
            proxy.cut_all();
            wait_until("another connection subscribes", || {
                proxy.subscribers() >= cut && server.channels().len() == 2
            });
        }
        std::thread::sleep(ms(100));
        for guard in held {
            guard.unlock().unwrap();
        }
        assert!(reader.join().unwrap() < CAP && sleeper.join().unwrap() < CAP);
    });
    client.close(CAP).unwrap();
}

#[test]
fn a_close_ends_the_read_of_a_waiter() {
    let server = Server::start();
    let (client, other) = (patient(&server.url(), "rd8"), server.client());
    let _held = other.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("job").map(drop).unwrap_err().kind());
        settled(&server, 1);
        let began = Instant::now();
        client.close(CAP).unwrap();
        assert_eq!(waiter.join().unwrap(), ErrorKind::Closed);
        assert!(began.elapsed() < PROMPT);
        wait_until("its thread has ended", || threads_named("lh-notify-rd8") == 0);
        wait_until("its subscription has ended", || server.channels().is_empty());
    });
}

#[test]
fn a_server_that_stands_still_while_a_waiter_reads_wakes_it_afterwards() {
    let server = Server::start();
    let client = LockClient::builder()
        .url(server.url())
        .short_lease(ms(2_000))
        .client_name("rd9")
        .build()
        .unwrap();
    let other = server.client();
    let held = other.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = wait_for(s, &client, "job");
        settled(&server, 1);
        server.suspend();
        // Longer than the connection may be silent and a ping may take.
        std::thread::sleep(ms(1_800));
        server.resume();
        held.unlock().unwrap();
        assert!(waiter.join().unwrap() < CAP);
    });
    client.close(CAP).unwrap();
}

/// The hold is passed on in this process while the next thread reads messages of other clients.
#[test]
fn a_release_in_the_same_client_ends_the_read_of_a_waiter() {
    let server = Server::start();
    let (client, other) = (patient(&server.url(), "rda"), server.client());
    let lock = client.fair("job");
    for _ in 0..20 {
        let held = other.fair("job").lock_owned().unwrap();
        std::thread::scope(|s| {
            let waiters: Vec<_> =
                (0..3).map(|_| s.spawn(|| lock.lock().unwrap().unlock().unwrap())).collect();
            wait_until("all queue", || lock.queue_len().unwrap() == 3);
            held.unlock().unwrap();
            let began = Instant::now();
            for waiter in waiters {
                waiter.join().unwrap();
            }
            assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
        });
    }
}
