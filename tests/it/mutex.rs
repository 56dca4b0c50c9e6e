//! The plain lock on a real server without faults: exclusion, re-entrancy, waiting, tokens, and the
//! calls for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::ErrorKind;

use crate::rig::{PROMPT, Server, ms, wait_until};
use crate::support::Clients;

#[test]
fn the_hash_is_redissons() {
    let server = Server::start();
    let client = server.client();
    let outer = client.lock("L").unwrap();
    let inner = client.lock("L").unwrap();
    let hash = server.hash("L");
    let (holder, count) = hash.iter().next().unwrap();
    assert_eq!((hash.len(), count.as_str()), (1, "2"));
    assert!(holder.starts_with(&format!("{}:", client.id())));
    assert!((20_000..=30_000).contains(&server.pttl("L")));
    assert!(server.cmd::<u64>(&["GET", "redisson_lock_token:{L}"]) > 1_700_000_000_000_000);
    drop(outer);
    assert_eq!(server.hash("L").values().next().unwrap(), "1");
    assert!(inner.is_held());
    drop(inner);
    assert!(server.hash("L").is_empty());
}

#[test]
fn owned_guards_never_reenter_and_move() {
    let server = Server::start();
    let client = server.client();
    let mutex = client.mutex("w");
    let owned = mutex.lock_owned().unwrap();
    assert!(mutex.try_lock_owned().unwrap().is_none());
    assert!(mutex.try_lock().unwrap().is_none(), "the thread's own hold is not re-entered");
    let bound = client.mutex("v").lock().unwrap();
    assert!(client.mutex("v").try_lock_owned_for(ms(20)).unwrap().is_none());
    drop(bound);
    std::thread::spawn(move || owned.unlock().unwrap()).join().unwrap();
    assert!(mutex.try_lock_owned_until(Instant::now() + ms(10)).unwrap().is_some());
}

#[test]
fn a_wait_costs_a_handful_of_commands_however_long() {
    let server = Server::start();
    // Neither is the hold renewed meanwhile.
    let a = server.builder().lease(Duration::from_secs(600)).io_timeout(PROMPT).build().unwrap();
    let b = server.client();
    let guard = a.lock("job").unwrap();
    // One wait before counting: the first one opens the subscriber connection.
    assert!(b.try_lock_for("job", ms(50)).unwrap().is_none());
    wait_until("the channel is unsubscribed", || server.channels().is_empty());
    server.cmd::<()>(&["CONFIG", "RESETSTAT"]);
    assert!(b.try_lock_for("job", ms(1500)).unwrap().is_none());
    let calls = server.calls();
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    // An attempt, a subscription, another attempt.
    assert!(of("evalsha") <= 2 && of("subscribe") <= 1 && of("publish") == 0, "{calls:?}");
    drop(guard);
}

/// However many threads of one client wait, only one of them sends requests.
#[test]
fn threads_of_one_client_cost_what_one_does() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let guard = a.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiters: Vec<_> = (0..50)
            .map(|_| s.spawn(|| b.try_lock_for("job", ms(600)).unwrap().is_none()))
            .collect();
        std::thread::sleep(ms(300));
        assert!(server.call_count("evalsha") < 15, "{}", server.call_count("evalsha"));
        for waiter in waiters {
            assert!(waiter.join().unwrap());
        }
    });
    drop(guard);
}

#[test]
fn a_hundred_threads_of_two_clients_never_overlap() {
    let server = Server::start();
    let clients = [server.client(), server.client()];
    let inside = AtomicU32::new(0);
    let total = std::sync::Mutex::new(0_u32);
    std::thread::scope(|s| {
        for n in 0..100 {
            let client = &clients[n % 2];
            let (inside, total) = (&inside, &total);
            s.spawn(move || {
                for _ in 0..5 {
                    let guard = client.lock("job").unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    let old = *total.lock().unwrap();
                    std::thread::yield_now();
                    *total.lock().unwrap() = old + 1;
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(*total.lock().unwrap(), 500);
    drop(clients);
    server.assert_clean();
}

#[test]
fn a_thread_that_ends_with_a_forgotten_guard_leaves_no_lock() {
    let server = Server::start();
    let client = server.client();
    let inner = client.clone();
    std::thread::spawn(move || std::mem::forget(inner.lock("job").unwrap())).join().unwrap();
    wait_until("the forgotten hold is released", || server.lock_keys().is_empty());
    assert!(client.try_lock("job").unwrap().is_some());
}

#[test]
fn tokens_grow_for_every_hold_and_survive_flushall() {
    let server = Server::start();
    let client = server.client();
    let mut last = 0;
    let mut take = || {
        let token = client.lock("t").unwrap().fencing_token().unwrap().get();
        assert!(token > last, "{token} after {last}");
        last = token;
    };
    take();
    take();
    server.cmd::<()>(&["FLUSHALL"]);
    take();
    server.cmd::<()>(&["DEL", "redisson_lock_token:{t}"]);
    take();
    assert!(server.pttl("redisson_lock_token:{t}") > 86_000_000);
    // An outdated counter, as after a failover to a replica that lagged.
    server.cmd::<()>(&["SET", "redisson_lock_token:{t}", "5"]);
    take();
    assert_eq!(
        server.pttl("redisson_lock_token:{t}"),
        -1,
        "a counter without a TTL belongs to Java"
    );
}

#[test]
fn keep_token_and_fencing_off() {
    let server = Server::start();
    let client = server.client();
    drop(client.mutex("j").keep_token().lock().unwrap());
    assert_eq!(server.pttl("redisson_lock_token:{j}"), -1);
    let off = server.builder().fencing(false).build().unwrap();
    assert_eq!(off.lock("x").unwrap().fencing_token().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(server.cmd::<u32>(&["EXISTS", "redisson_lock_token:{x}"]), 0);
}

#[test]
fn a_key_prefix_maps_names_as_redisson_does() {
    let server = Server::start();
    let client = server.builder().key_prefix("app:").build().unwrap();
    let guard = client.lock("x").unwrap();
    assert_eq!(guard.name(), "x");
    assert!(!server.hash("app:x").is_empty());
    assert_eq!(server.cmd::<u32>(&["EXISTS", "redisson_lock_token:{app:x}"]), 1);
}

#[test]
fn closing_releases_wakes_and_joins() {
    let server = Server::start();
    let (client, other) = (server.builder().client_name("cl").build().unwrap(), server.client());
    let foreign = other.lock("taken").unwrap();
    let bound = client.lock("a").unwrap();
    let inner = client.lock("a").unwrap();
    let owned = client.mutex("b").lock_owned().unwrap();
    let lost = Arc::new(AtomicU32::new(0));
    let count = lost.clone();
    bound.on_lost(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("taken").map(drop));
        wait_until("the waiter is subscribed", || {
            server.channels().iter().any(|c| c.contains("{taken}"))
        });
        client.close(Duration::from_secs(5)).unwrap();
        assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
    assert!(!bound.is_held() && !owned.is_held());
    assert!(bound.wait_lost(ms(1)).is_lost() && owned.wait_lost(ms(1)).is_lost());
    assert_eq!(bound.ensure_held().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(client.lock("z").unwrap_err().kind(), ErrorKind::Closed);
    wait_until("the callback has run", || lost.load(Ordering::SeqCst) == 1);
    for unlocked in [inner.unlock(), bound.unlock()] {
        let error = unlocked.unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Closed, Some("a")), "{error}");
    }
    drop(owned);
    assert_eq!(server.lock_keys(), ["taken"]);
    drop((foreign, other));
    server.assert_clean();
    assert_eq!(lost.load(Ordering::SeqCst), 1, "reported once");
}

/// Threads that wait while the client closes may be granted the lock by the release that `close`
/// itself sends.
#[test]
fn closing_under_waiting_threads_leaves_no_lock() {
    let server = Server::start();
    for _ in 0..30 {
        let client = server.client();
        let guard = client.mutex("job").lock_owned().unwrap();
        std::thread::scope(|s| {
            let waiters: Vec<_> =
                (0..3).map(|_| s.spawn(|| client.mutex("job").lock_owned().map(drop))).collect();
            std::thread::sleep(ms(3));
            client.close(Duration::from_secs(5)).unwrap();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
            }
        });
        drop(guard);
        assert!(server.lock_keys().is_empty());
    }
}

/// Messages about other releases must not extend a timed call beyond its deadline, attempt by
/// attempt.
#[test]
fn a_timed_try_keeps_its_deadline_in_a_crowd() {
    let server = Server::start();
    let (crowd, one) = ([server.client(), server.client()], server.client());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        for n in 0..4 {
            let (client, stop) = (&crowd[n % 2], &stop);
            s.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    drop(client.lock("job").unwrap());
                }
            });
        }
        let mut late = Duration::ZERO;
        for _ in 0..100 {
            let start = Instant::now();
            drop(one.try_lock_for("job", ms(2)).unwrap());
            late = late.max(start.elapsed().saturating_sub(ms(2)));
        }
        stop.store(true, Ordering::SeqCst);
        assert!(late < Duration::from_secs(5), "{late:?}");
    });
}

/// The situation of a job that a work-stealing pool runs on this thread in the middle of another.
#[test]
fn a_non_reentrant_handle_neither_enters_a_hold_of_its_thread_nor_waits_for_it() {
    let server = Server::start();
    let client = server.builder().lease(Duration::from_secs(60)).build().unwrap();
    let (plain, strict) = (client.mutex("x"), client.mutex("x").non_reentrant());
    let forms = |mutex: &leasehold::ReentrantMutex| {
        let later = Instant::now() + Duration::from_secs(30);
        [
            mutex.lock().err(),
            mutex.try_lock().err(),
            mutex.try_lock_for(Duration::from_secs(30)).err(),
            mutex.try_lock_until(later).err(),
            mutex.lock_owned().err(),
            mutex.try_lock_owned().err(),
            mutex.try_lock_owned_for(Duration::from_secs(30)).err(),
            mutex.try_lock_owned_until(later).err(),
        ]
        .map(|error| error.map(|e| (e.kind(), e.name().map(str::to_owned))))
    };
    let refused = |kind| std::array::from_fn::<_, 8, _>(|_| Some((kind, Some("x".to_owned()))));
    // The same with the non-reentrant handle first.
    let guard = strict.lock().unwrap();
    let start = Instant::now();
    assert_eq!(forms(&strict), refused(ErrorKind::Conflict));
    assert_eq!(forms(&plain), refused(ErrorKind::Conflict));
    for multi in
        [client.multi(["a", "x"]).lock().err(), client.multi(["a", "x"]).try_lock_owned().err()]
    {
        let error = multi.unwrap();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Conflict, Some("x")));
    }
    assert!(guard.is_held() && guard.hold_count() == 1);
    assert_eq!(server.lock_keys(), ["x"], "no part of it was acquired");
    guard.unlock().unwrap();
    let guard = plain.lock().unwrap();
    assert_eq!(forms(&strict), refused(ErrorKind::Conflict));
    assert_eq!(
        plain.lock().unwrap().hold_count(),
        2,
        "a plain handle re-enters a plain one's hold"
    );
    guard.unlock().unwrap();
    let multi = client.multi(["a", "x"]).lock().unwrap();
    assert_eq!(forms(&strict), refused(ErrorKind::Conflict));
    multi.unlock().unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "nothing waits");

    // Other threads and owned guards do wait.
    let guard = strict.lock().unwrap();
    std::thread::scope(|s| {
        let tried = s.spawn(|| strict.try_lock().unwrap().is_none());
        assert!(tried.join().unwrap());
        let waiter = s.spawn(|| strict.lock().map(|guard| guard.is_held()));
        // Nothing on the server shows that this thread waits. If it does not wait yet, it finds the
        // lock free.
        std::thread::sleep(ms(20));
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
    let owned = strict.lock_owned().unwrap();
    assert!(strict.try_lock().unwrap().is_none() && strict.try_lock_owned().unwrap().is_none());
    assert!(!strict.is_held_by_current_thread(), "an owned guard belongs to no thread");
    owned.unlock().unwrap();

    // A lost hold is reported as lost until its guard is dropped.
    let guard = strict.lock().unwrap();
    server.cmd::<()>(&["FLUSHALL"]);
    assert_eq!(guard.extend(Duration::from_secs(60)).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(forms(&strict), refused(ErrorKind::Lost));
    drop(guard);
    assert!(strict.try_lock().unwrap().is_some());
    drop((plain, strict, client));
    server.assert_clean();
}

#[test]
fn a_thread_knows_what_it_holds() {
    let server = Server::start();
    let client = server.client();
    let (mutex, rw) = (client.mutex("x"), client.rw_lock("rw"));
    let elsewhere = || std::thread::scope(|s| s.spawn(|| mutex.is_held_by_current_thread()).join());
    assert!(!mutex.is_held_by_current_thread() && !client.mutex("").is_held_by_current_thread());
    let guard = mutex.lock().unwrap();
    assert!(client.mutex("x").is_held_by_current_thread() && !elsewhere().unwrap());
    assert!(!client.fair("x").is_held_by_current_thread(), "another kind");
    assert!(!client.rw_lock("x").is_write_held_by_current_thread(), "another kind");
    server.cmd::<()>(&["FLUSHALL"]);
    assert_eq!(guard.extend(Duration::from_secs(60)).unwrap_err().kind(), ErrorKind::Lost);
    assert!(!mutex.is_held_by_current_thread(), "it is lost");
    drop(guard);
    let fair = client.fair("y").lock().unwrap();
    assert!(client.fair("y").is_held_by_current_thread());
    drop(fair);
    assert!(!client.fair("y").is_held_by_current_thread());

    let sides = || (rw.is_read_held_by_current_thread(), rw.is_write_held_by_current_thread());
    let write = rw.write().unwrap();
    assert_eq!(sides(), (false, true));
    let inner = rw.read().unwrap();
    assert_eq!(sides(), (true, true));
    drop(inner);
    let read = write.downgrade().unwrap();
    assert_eq!(sides(), (true, false));
    drop(read);
    assert_eq!(sides(), (false, false));
}
