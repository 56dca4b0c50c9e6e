//! `stop_waiting`: which calls it ends, what continues, and what is left. `contract::waits` covers
//! what holds for all primitives and stores.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{CancelToken, ErrorKind, LockClient, Result};

use crate::rig::{CAP, Fault, PROMPT, Proxy, Server, ms, wait_until};
use crate::support::Clients;

/// So long that no test can pass because a lease ended.
const LONG: Duration = Duration::from_secs(60);

const CLOSED: Option<ErrorKind> = Some(ErrorKind::Closed);

fn client(url: String) -> LockClient {
    LockClient::builder().url(url).lease(LONG).io_timeout(Duration::from_secs(5)).build().unwrap()
}

fn ended<G>(outcome: Result<G>) -> Option<ErrorKind> {
    outcome.err().map(|e| e.kind())
}

#[test]
fn holds_live_on_until_the_close() {
    let server = Server::start();
    let client = server.builder().lease(ms(900)).build().unwrap();
    assert_eq!(client.semaphore("s").try_set_permits(3).unwrap(), leasehold::SetPermits::New);
    client.latch("l").set_count(2).unwrap();
    let job = client.lock("job").unwrap();
    let rw = client.rw_lock("rw").write().unwrap();
    let (reads, permit) =
        (client.rw_lock("r").read_owned().unwrap(), client.semaphore("s").acquire().unwrap());
    let both = client.multi(["a", "b"]).lock().unwrap();
    let fixed = client.mutex("fixed").with_lease(ms(2000)).lock().unwrap();
    client.stop_waiting();
    fixed.extend(LONG).unwrap();
    // Longer than the lease, several times.
    assert!(job.wait_lost(ms(3000)).is_still_held(), "it is renewed");
    assert!(
        rw.is_held() && reads.is_held() && permit.is_held() && both.is_held() && fixed.is_held()
    );
    // Calls that do not wait still work.
    let again = client.lock("job").unwrap();
    assert_eq!(again.hold_count(), 2);
    let both_again = client.multi(["a", "b"]).lock().unwrap();
    let inner = client.rw_lock("rw").read().unwrap();
    again.unlock().unwrap();
    both_again.unlock().unwrap();
    inner.unlock().unwrap();
    assert_eq!(client.latch("l").count_down().unwrap(), 1);
    assert_eq!(client.semaphore("s").available_permits().unwrap(), 2);
    // One of these two names is not held yet.
    assert_eq!(ended(client.multi(["a", "c"]).lock()), CLOSED);
    let read = rw.downgrade().unwrap();
    assert!(read.is_held());
    job.unlock().unwrap();
    assert!(server.client().try_lock("job").unwrap().is_some());
    client.close(CAP).unwrap();
    assert!(
        !read.is_held()
            && !reads.is_held()
            && !permit.is_held()
            && !both.is_held()
            && !fixed.is_held()
    );
    drop((read, reads, permit, both, fixed));
    let other = server.client();
    other.semaphore("s").delete().unwrap();
    other.latch("l").delete().unwrap();
    drop((client, other));
    server.assert_clean();
}

#[test]
fn every_call_that_takes_or_waits_is_refused() {
    let server = Server::start();
    let client = client(server.url());
    client.stop_waiting();
    let token = CancelToken::new();
    let sent = server.call_count("evalsha");
    let latch = client.latch("latch");
    let refused = [
        ended(client.lock("job")),
        ended(client.try_lock("job")),
        ended(client.try_lock_for("job", LONG)),
        ended(client.mutex("job").with_cancel(&token).lock_owned()),
        ended(client.fair("job").lock()),
        ended(client.rw_lock("job").read()),
        ended(client.rw_lock("job").write_owned()),
        ended(client.multi(["a", "b"]).try_lock()),
        ended(client.semaphore("s").acquire()),
        ended(client.counting_semaphore("c").try_acquire()),
        ended(latch.wait()),
        ended(latch.try_wait()),
    ];
    assert_eq!(refused, [CLOSED; 12]);
    assert_eq!(server.call_count("evalsha"), sent, "nothing is sent");
    let error = client.lock("job").unwrap_err();
    assert_eq!(error.name(), Some("job"));
    assert!(
        error.to_string().contains("stopped waiting") && !error.to_string().contains("was closed"),
        "{error}"
    );
    client.close(CAP).unwrap();
    client.stop_waiting();
    let error = client.lock("job").unwrap_err();
    assert!(error.to_string().contains("was closed"), "{error}");
    drop((client, latch));
    server.assert_clean();
}

/// Nothing is sent to a server that hangs, and a fair waiter's queue entry is removed when it
/// answers.
#[test]
fn it_does_not_wait_for_a_server_that_hangs() {
    let server = Server::start();
    let holder = client(server.url());
    let builder = LockClient::builder().url(server.url()).lease(LONG).waiter_timeout(LONG);
    let stopped = builder.io_timeout(Duration::from_secs(14)).build().unwrap();
    let guard = holder.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| ended(stopped.fair("t").lock()));
        wait_until("it queues", || holder.fair("t").queue_len().unwrap() == 1);
        wait_until("it is subscribed", || !server.channels().is_empty());
        std::thread::sleep(ms(50));
        server.suspend();
        let start = Instant::now();
        stopped.stop_waiting();
        let returned = start.elapsed();
        let outcome = waiter.join().unwrap();
        let took = start.elapsed();
        server.resume();
        assert_eq!(outcome, CLOSED);
        assert!(returned < PROMPT && took < PROMPT, "{returned:?}, {took:?}");
        wait_until("its queue entry is removed", || holder.fair("t").queue_len().unwrap() == 0);
    });
    drop((guard, holder, stopped));
    server.assert_clean();
}

#[test]
fn a_grant_that_is_on_its_way_wins_and_no_reply_is_undone() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    for fault in [Fault::StallReply(ms(300)), Fault::BlackHoleReply] {
        let client =
            LockClient::builder().url(proxy.url()).lease(LONG).io_timeout(ms(900)).build().unwrap();
        let hits = proxy.hits();
        proxy.inject("job", fault);
        std::thread::scope(|s| {
            let call = s.spawn(|| client.mutex("job").lock_owned());
            proxy.wait_hits(hits + 1);
            client.stop_waiting();
            match (fault, call.join().unwrap()) {
                (Fault::BlackHoleReply, outcome) => assert_eq!(ended(outcome), CLOSED),
                (_, guard) => {
                    let guard = guard.unwrap();
                    assert!(guard.is_held());
                    guard.unlock().unwrap();
                }
            }
        });
        wait_until("nothing is left", || server.lock_keys().is_empty());
    }
    server.assert_clean();
}

#[test]
fn waits_end_during_an_outage() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let holder = client(server.url());
    let builder = LockClient::builder().url(proxy.url()).lease(LONG).io_timeout(ms(1000));
    let stopped = builder.outage_timeout(LONG).build().unwrap();
    let (guard, fair_guard) = (holder.lock("job").unwrap(), holder.fair("fair").lock().unwrap());
    std::thread::scope(|s| {
        let calls = [
            s.spawn(|| ended(stopped.mutex("job").lock())),
            s.spawn(|| ended(stopped.mutex("job").lock_owned())),
            s.spawn(|| ended(stopped.fair("fair").lock())),
        ];
        wait_until("it waits", || !server.channels().is_empty());
        wait_until("it queues", || holder.fair("fair").queue_len().unwrap() == 1);
        proxy.refuse(true);
        proxy.cut_all();
        // Long enough for the leaders to notice the outage by a failed attempt.
        std::thread::sleep(ms(700));
        stopped.stop_waiting();
        wait_until("all have ended", || calls.iter().all(|call| call.is_finished()));
        for call in calls {
            assert_eq!(call.join().unwrap(), CLOSED);
        }
        proxy.refuse(false);
        wait_until("its queue entry is removed", || holder.fair("fair").queue_len().unwrap() == 0);
    });
    stopped.close(CAP).unwrap();
    drop((guard, fair_guard, holder, stopped));
    server.assert_clean();
}

/// The hold is no longer passed to another thread of the client: it is released at the server, and
/// another client gets it.
#[test]
fn the_hold_does_not_pass_on_any_more() {
    for in_memory in [false, true] {
        let server = Server::start();
        let (stopped, other) = if in_memory {
            let one = LockClient::in_memory();
            (one.clone(), LockClient::in_memory_shared(&one).unwrap())
        } else {
            (client(server.url()), client(server.url()))
        };
        let turns = AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    loop {
                        match stopped.lock("job") {
                            Ok(guard) => {
                                turns.fetch_add(1, Ordering::SeqCst);
                                guard.unlock().unwrap();
                            }
                            Err(e) => return assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
                        }
                    }
                });
            }
            wait_until("it is passed on", || turns.load(Ordering::SeqCst) > 500);
            stopped.stop_waiting();
        });
        assert!(!other.mutex("job").is_locked().unwrap());
        drop(other.try_lock("job").unwrap().expect("nothing is held"));
        stopped.close(CAP).unwrap();
        drop((stopped, other));
        server.assert_clean();
    }
}

/// A pool whose threads begin and end calls all the time: all calls end.
#[test]
fn calls_that_begin_meanwhile_end_too() {
    let server = Server::start();
    let keys = || {
        let mut keys = server.lock_keys();
        keys.sort();
        keys
    };
    for round in 0..20 {
        let (holder, stopped) = (client(server.url()), client(server.url()));
        let guard = holder.fair("fair").lock().unwrap();
        let _ = holder.counting_semaphore("none").try_set_permits(0).unwrap();
        let reads = holder.rw_lock("rw").read_owned().unwrap();
        let before = keys();
        std::thread::scope(|s| {
            for n in 0..8 {
                let stopped = &stopped;
                s.spawn(move || {
                    let outcome = match n % 4 {
                        0 => ended(stopped.fair("fair").lock()),
                        1 => ended(stopped.rw_lock("rw").write()),
                        2 => ended(stopped.multi(["rw-too", "fair-too"]).lock()),
                        _ => ended(stopped.counting_semaphore("none").acquire()),
                    };
                    // Nobody holds the names of the multi-lock.
                    assert!(outcome == CLOSED || n % 4 == 2, "{outcome:?}");
                });
            }
            std::thread::sleep(Duration::from_micros(round * 150));
            stopped.stop_waiting();
        });
        wait_until("no queue entry and no marker is left", || keys() == before);
        drop((guard, reads));
        stopped.close(CAP).unwrap();
    }
    assert!(client(server.url()).counting_semaphore("none").delete().unwrap());
    server.assert_clean();
}
