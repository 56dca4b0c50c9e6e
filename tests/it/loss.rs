//! Loss: the guard reports it by polling, by blocking and by callback.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{CancelToken, ErrorKind, Held, LockClient, Loss, LossWait};

use crate::rig::{CAP, Child, Fault, Proxy, Server, logged, ms, record_logs, wait_until};
use crate::support::{Clients, ShortLease};

/// For holds that are lost.
const SHORT: Duration = Duration::from_millis(1000);
/// For holds that must be renewed in time also on a busy machine.
const LEASE: Duration = Duration::from_millis(3000);

#[test]
fn renewal_keeps_a_lock_for_many_leases() {
    let server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let guards: Vec<_> =
        (0..50).map(|n| client.mutex(format!("n{n}")).lock_owned().unwrap()).collect();
    std::thread::sleep(LEASE * 3);
    assert!(guards.iter().all(|g| g.is_held() && g.remaining() > Duration::ZERO));
    assert_eq!(server.lock_keys().len(), 50);
    #[cfg(target_os = "linux")]
    assert!(crate::rig::threads_named("lh-renew-") >= 1);
    drop(guards);
    assert!(server.lock_keys().is_empty());
}

/// A guard that was leaked lives on when its thread, which held the lock, has ended.
#[test]
fn a_wait_says_that_a_hold_was_released_and_not_lost() {
    let client = LockClient::in_memory();
    let take: [fn(&LockClient) -> &'static dyn Held; 2] = [
        |client| Box::leak(Box::new(client.lock("job").unwrap())),
        |client| Box::leak(Box::new(client.multi(["a", "b"]).lock().unwrap())),
    ];
    let (cancelled, long) = (CancelToken::new(), Duration::from_secs(60));
    cancelled.cancel();
    for take in take {
        let guard = std::thread::scope(|s| {
            let holder = s.spawn(|| {
                let guard = take(&client);
                assert_eq!(guard.wait_lost(ms(1)), LossWait::StillHeld);
                guard
            });
            holder.join().unwrap()
        });
        wait_until("the end of the thread has released it", || !guard.is_held());
        assert_eq!(guard.wait_lost(long), LossWait::Released);
        assert_eq!(guard.wait_lost_or_cancelled(long, &cancelled).unwrap(), LossWait::Released);
        assert!(guard.loss().is_none());
    }
    // A loss of one of several counts, whatever became of the others.
    let both = client.multi(["a", "b"]).lock_owned().unwrap();
    assert!(client.mutex("b").force_unlock().unwrap());
    assert_eq!(Held::wait_lost(&both, long), LossWait::Lost);
    assert_eq!(Held::wait_lost_or_cancelled(&both, long, &cancelled).unwrap(), LossWait::Lost);
}

#[test]
fn a_deleted_lock_is_reported_in_three_ways() {
    let server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let guard = client.lock("job").unwrap();
    let inner = client.lock("job").unwrap();
    let reported = Arc::new(AtomicU32::new(0));
    let count = reported.clone();
    guard.on_lost(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    std::thread::scope(|s| {
        let watcher = s.spawn(|| guard.wait_lost(Duration::from_secs(10)).is_lost());
        server.cmd::<u32>(&["DEL", "job"]);
        assert!(watcher.join().unwrap());
    });
    assert!(!guard.is_held() && !inner.is_held());
    assert_eq!(guard.ensure_held().unwrap_err().kind(), ErrorKind::Lost);
    wait_until("the callback has run", || reported.load(Ordering::SeqCst) == 1);
    let late = reported.clone();
    guard.on_lost(move |_| {
        late.fetch_add(10, Ordering::SeqCst);
    });
    wait_until("a callback set after the loss runs", || reported.load(Ordering::SeqCst) == 11);
    // The lock is never silently acquired again while a guard exists.
    assert_eq!(client.lock("job").unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(inner.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(client.try_lock("job").unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert!(client.lock("job").unwrap().is_held());
}

/// The loss may be noticed by the watchdog before the guard, by a guard before the watchdog, or by
/// the client that forces the lock open itself.
#[test]
fn a_loss_is_logged_once() {
    record_logs();
    let server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let lines = |name: &str| {
        let (lost, failed) = (
            logged(log::Level::Warn, &[name, "is lost"]),
            logged(log::Level::Warn, &[name, "failed"]),
        );
        (lost.len(), failed.len(), lost, failed)
    };
    let assert_once = |name: &str| {
        let (lost, failed, ..) = lines(name);
        assert_eq!((lost, failed), (1, 0), "{:?}", lines(name));
    };

    let guard = client.lock("logged-by-watchdog").unwrap();
    server.cmd::<u32>(&["DEL", "logged-by-watchdog"]);
    assert!(guard.wait_lost(Duration::from_secs(10)).is_lost());
    wait_until("the watchdog logs it", || lines("logged-by-watchdog").0 > 0);
    drop(guard);
    assert_once("logged-by-watchdog");

    let long = server.client();
    let guard = long.lock("logged-by-unlock").unwrap();
    server.cmd::<u32>(&["DEL", "logged-by-unlock"]);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert_once("logged-by-unlock");

    let guard = long.lock("logged-by-drop").unwrap();
    server.cmd::<u32>(&["DEL", "logged-by-drop"]);
    drop(guard);
    assert_once("logged-by-drop");

    let guard = client.lock("logged-when-forced").unwrap();
    assert!(client.mutex("logged-when-forced").force_unlock().unwrap());
    wait_until("the watchdog has seen it", || lines("logged-when-forced").0 > 0);
    drop(guard);
    assert_once("logged-when-forced");

    let both = client.multi(["logged-one", "logged-other"]).lock().unwrap();
    server.cmd::<u32>(&["DEL", "logged-one"]);
    assert!(both.wait_lost(Duration::from_secs(10)).is_lost());
    drop(both);
    assert_once("logged-one");
    assert_eq!(lines("logged-other").0, 0, "that one was released");
}

#[test]
fn unlocking_signals_no_loss() {
    let server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let reported = Arc::new(AtomicU32::new(0));
    for _ in 0..3 {
        let guard = client.lock("job").unwrap();
        let count = reported.clone();
        guard.on_lost(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert!(guard.wait_lost(ms(5)).is_still_held());
        guard.unlock().unwrap();
    }
    std::thread::sleep(LEASE * 4 / 3);
    assert_eq!(reported.load(Ordering::SeqCst), 0);
}

#[test]
fn a_fixed_lease_ends_unless_extended() {
    let server = Server::start();
    let client = server.client();
    let mutex = client.mutex("job").with_lease(ms(2000));
    let guard = mutex.lock().unwrap();
    guard.extend(ms(6000)).unwrap();
    assert!(guard.remaining() > ms(3000) && server.pttl("job") > 3000);
    guard.extend(ms(50)).unwrap();
    assert!(guard.remaining() > ms(2000), "never shortened");
    assert!(guard.wait_lost(Duration::from_secs(10)).is_lost());
    assert_eq!(guard.extend(ms(100)).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    // The hold ends in the client a margin before it ends at the server.
    assert!(server.client().try_lock_for("job", Duration::from_secs(5)).unwrap().is_some());
}

#[test]
fn a_forced_out_holder_of_a_fixed_lease_learns_of_it_too() {
    let server = Server::start();
    let client = server.client();
    let guard = client.mutex("job").with_lease(Duration::from_secs(6)).lock().unwrap();
    assert!(server.client().mutex("job").force_unlock().unwrap());
    assert!(guard.wait_lost(ms(5000)).is_lost(), "well before its lease ends");
}

#[test]
fn a_failed_renewal_shortens_nothing_and_is_tried_again() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let lease = ms(4500);
    let client = LockClient::builder().url(proxy.url()).short_lease(lease).build().unwrap();
    let guard = client.lock("job").unwrap();
    for (n, fault) in
        [Fault::BlackHoleReply, Fault::StallReply(ms(2000)), Fault::CutReplyAt(2), Fault::Garbage]
            .into_iter()
            .enumerate()
    {
        proxy.inject("job", fault);
        proxy.wait_hits(n as u32 + 1);
        // Before a renewal it is two thirds of the lease.
        wait_until("it is renewed", || guard.remaining() > lease * 3 / 4);
        assert!(guard.is_held(), "{fault:?}");
    }
    guard.unlock().unwrap();
}

#[test]
fn a_server_that_stays_away_ends_every_hold_in_time() {
    let mut server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let reported = Arc::new(AtomicU32::new(0));
    let guards: Vec<_> =
        (0..10).map(|n| client.mutex(format!("n{n}")).lock_owned().unwrap()).collect();
    for guard in &guards {
        let reported = reported.clone();
        guard.on_lost(move |_| {
            reported.fetch_add(1, Ordering::SeqCst);
        });
    }
    server.kill();
    wait_until("no hold counts as held", || guards.iter().all(|g| !g.is_held()));
    wait_until("every holder is notified", || reported.load(Ordering::SeqCst) == 10);
    server.start_again();
    for guard in guards {
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    }
    assert!(client.lock("n1").unwrap().is_held());
}

/// A key whose type changed must not prevent the renewal of the others.
#[test]
fn one_broken_lock_harms_no_other() {
    let server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let broken = client.lock("broken").unwrap();
    let healthy = client.lock("healthy").unwrap();
    server.cmd::<()>(&["SET", "broken", "a string"]);
    assert!(broken.wait_lost(Duration::from_secs(10)).is_lost());
    std::thread::sleep(LEASE * 2);
    assert!(healthy.is_held());
    server.cmd::<u32>(&["DEL", "broken"]);
}

/// The process is suspended past its lease: the first check after it resumes must report the loss.
#[test]
fn a_suspended_holder_knows_of_its_loss_when_it_resumes() {
    let server = Server::start();
    let mut child = Child::spawn("loss::holder_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    child.expect("held");
    child.signal("STOP");
    let other = server.client();
    let mine = other.lock("job").unwrap();
    child.signal("CONT");
    child.say("look");
    assert_eq!(child.expect("is_held="), "false");
    assert_eq!(child.expect("unlock="), "Lost");
    assert!(mine.is_held());
    assert_eq!(server.hash("job").len(), 1);
    child.wait();
}

#[test]
fn a_waiter_follows_a_killed_holder_when_its_lease_ends() {
    let server = Server::start();
    let mut child = Child::spawn("loss::holder_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    child.expect("held");
    child.kill();
    assert!(server.pttl("job") > 0);
    let client = server.client();
    assert!(client.lock("job").unwrap().is_held());
    drop(client);
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn holder_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = leasehold::LockClient::builder().url(url).short_lease(LEASE).build().unwrap();
    let guard = client.lock("job").unwrap();
    println!("@@held");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    println!("@@is_held={}", guard.is_held());
    println!("@@unlock={:?}", guard.unlock().unwrap_err().kind());
}

/// The callback of a hold that is never lost owns the last handle of the client: dropping it must
/// not hang.
#[test]
fn a_callback_may_own_the_client() {
    let server = Server::start();
    let client = server.builder().short_lease(SHORT).build().unwrap();
    let guard = client.lock("job").unwrap();
    let captured = client.clone();
    guard.on_lost(move |_| drop(captured));
    std::thread::sleep(ms(100));
    drop(guard);
    drop(client);
    server.assert_clean();
}

/// A thread of the same client waits for a hold that ends long before its lease would have.
#[test]
fn a_local_waiter_follows_a_hold_that_was_forced_out() {
    let server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let guard = client.mutex("job").with_lease(Duration::from_secs(3600)).lock_owned().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.lock("job").map(|g| g.is_held()));
        std::thread::sleep(ms(100));
        assert!(server.client().mutex("job").force_unlock().unwrap());
        assert!(waiter.join().unwrap().unwrap());
    });
    drop(guard);
}

/// A lease counts from the request: a slow reply has used up a part of it.
#[test]
fn a_grant_that_was_answered_late_is_renewed_in_time() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = leasehold::LockClient::builder()
        .url(proxy.url())
        .lease(ms(6000))
        .io_timeout(ms(5700))
        .build()
        .unwrap();
    // A third of a lease after the reply would be too late.
    proxy.inject("job", Fault::StallReply(ms(4300)));
    let guard = client.lock("job").unwrap();
    assert!(guard.wait_lost(ms(3000)).is_still_held());
    proxy.wait_hits(1);
}

/// A callback that counts, and its counter; the callback has been dropped when the counter has one
/// owner.
fn counter() -> (Arc<AtomicU32>, impl FnOnce(&Loss) + Send + 'static) {
    let count = Arc::new(AtomicU32::new(0));
    let reported = count.clone();
    (count, move |_| {
        reported.fetch_add(1, Ordering::SeqCst);
    })
}

/// No renewal, timer or other guard notices the loss: only the end of the guard does.
#[test]
fn a_loss_that_unlock_or_drop_sees_first_runs_the_callback() {
    let server = Server::start();
    let client = server.builder().lease(Duration::from_secs(600)).build().unwrap();
    client.semaphore("s").try_set_permits(1).unwrap();
    macro_rules! lose {
        ($($guard:expr),+ $(,)?) => {$(
            for by_drop in [false, true] {
                let guard = $guard;
                let (reported, callback) = counter();
                guard.on_lost(callback);
                server.cmd::<()>(&["FLUSHALL"]);
                if by_drop {
                    drop(guard);
                } else {
                    assert_eq!(leasehold::Held::unlock(guard).unwrap_err().kind(), ErrorKind::Lost, stringify!($guard));
                }
                wait_until(stringify!($guard), || reported.load(Ordering::SeqCst) == 1);
                client.semaphore("s").try_set_permits(1).unwrap();
            }
        )+};
    }
    lose!(
        client.lock("m").unwrap(),
        client.mutex("m").lock_owned().unwrap(),
        client.multi(["a", "b"]).lock().unwrap(),
        client.multi(["a", "b"]).lock_owned().unwrap(),
        client.fair("f").lock().unwrap(),
        client.rw_lock("rw").read().unwrap(),
        client.rw_lock("rw").write_owned().unwrap(),
        client.semaphore("s").acquire().unwrap(),
    );
    // A write hold that is lost does not continue as a read hold.
    let write = client.rw_lock("rw").write().unwrap();
    let (reported, callback) = counter();
    write.on_lost(callback);
    server.cmd::<()>(&["FLUSHALL"]);
    assert_eq!(write.downgrade().unwrap_err().kind(), ErrorKind::Lost);
    wait_until("the callback has run", || reported.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_callback_ends_with_the_guard_it_was_set_through() {
    let server = Server::start();
    let client = server.builder().short_lease(LEASE).build().unwrap();
    let outer = client.lock("job").unwrap();
    let (lost, callback) = counter();
    outer.on_lost(callback);
    let (inner_told, callback) = counter();
    let inner = client.lock("job").unwrap();
    inner.on_lost(callback);
    let (multi_told, callback) = counter();
    let multi = client.multi(["job", "other"]).lock().unwrap();
    multi.on_lost(callback);
    let write = client.rw_lock("rw").write().unwrap();
    let (write_told, callback) = counter();
    write.on_lost(callback);
    multi.unlock().unwrap();
    inner.unlock().unwrap();
    let read = write.downgrade().unwrap();
    for gone in [&inner_told, &multi_told, &write_told] {
        assert_eq!(Arc::strong_count(gone), 1, "the callback is dropped with its guard");
    }
    server.cmd::<()>(&["FLUSHALL"]);
    assert!(
        outer.wait_lost(Duration::from_secs(10)).is_lost()
            && read.wait_lost(Duration::from_secs(10)).is_lost()
    );
    wait_until("the callback of the remaining guard has run", || lost.load(Ordering::SeqCst) == 1);
    assert_eq!(outer.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(lost.load(Ordering::SeqCst), 1, "once");
}

/// Callbacks that block or panic use a limited number of threads, and do not prevent the renewal of
/// any lease.
#[test]
fn many_losses_at_once_take_few_threads() {
    const LEASES: u32 = 400;
    let server = Server::start();
    let lease = Duration::from_secs(6);
    let client = server.builder().short_lease(lease).build().unwrap();
    let other = client.mutex("renewed").lock_owned().unwrap();
    let fixed: Vec<_> = (0..LEASES)
        .map(|n| {
            client.mutex(format!("n{n}")).with_lease(Duration::from_secs(2)).lock_owned().unwrap()
        })
        .collect();
    let (running, most, done) =
        (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let (open, door) = crossbeam_channel::bounded::<()>(0);
    for (n, guard) in fixed.iter().enumerate() {
        let (running, most, done, door) =
            (running.clone(), most.clone(), done.clone(), door.clone());
        let client = client.clone();
        guard.on_lost(move |_| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _ = door.recv();
            running.fetch_sub(1, Ordering::SeqCst);
            // A callback may use the client.
            assert!(n >= 20 || client.try_lock("from a callback").is_err(), "some callbacks panic");
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    assert!(fixed.last().unwrap().wait_lost(Duration::from_secs(10)).is_lost());
    wait_until("callbacks run", || running.load(Ordering::SeqCst) == 16);
    assert!(other.wait_lost(lease * 4 / 3).is_still_held(), "renewed meanwhile");
    drop(open);
    wait_until("all that do not panic are done", || done.load(Ordering::SeqCst) == LEASES - 20);
    assert_eq!(most.load(Ordering::SeqCst), 16);
    drop((fixed, other, client));
    server.assert_clean();
}

/// The logger is foreign code: one that blocks stops the watchdog, but not the callbacks of other
/// leases.
#[test]
fn a_logger_that_blocks_keeps_no_callback_from_running() {
    let server = Server::start();
    let mut child =
        Child::spawn("loss::blocking_logger_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    child.expect("all reported");
    child.kill();
}

#[test]
#[ignore = "a program for other tests"]
fn blocking_logger_process() {
    struct Blocks;
    impl log::Log for Blocks {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            while record.level() <= log::Level::Warn {
                std::thread::park();
            }
        }
        fn flush(&self) {}
    }
    log::set_logger(&Blocks).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let client =
        leasehold::LockClient::open(&std::env::var("LEASEHOLD_TEST_URL").unwrap()).unwrap();
    let leases: Vec<_> = (1..=3)
        .map(|n| {
            let guard =
                client.mutex(format!("n{n}")).with_lease(ms(1000 * n)).lock_owned().unwrap();
            let (reported, callback) = counter();
            guard.on_lost(callback);
            (guard, reported)
        })
        .collect();
    wait_until("every callback has run", || {
        leases.iter().all(|(_, reported)| reported.load(Ordering::SeqCst) == 1)
    });
    println!("@@all reported");
    std::thread::park();
}

/// The reply to a renewal comes after the `max_hold`, so its guard ends before the hold in the
/// store, and lives on, because its user hangs. The lock is free for the other threads.
#[test]
fn a_guard_that_outlives_its_max_hold_keeps_the_lock_from_no_thread() {
    let server = Server::start();
    let builder = server.builder().lease(Duration::from_secs(3)).io_timeout(ms(2500));
    let client = builder.build().unwrap();
    let guard = client.mutex("job").max_hold(ms(1200)).lock_owned().unwrap();
    let taken = Instant::now();
    wait_until("a renewal is about to be sent", || taken.elapsed() > ms(900));
    server.cmd::<()>(&["CLIENT", "PAUSE", "600", "ALL"]);
    assert!(guard.wait_lost(CAP).is_lost());
    wait_until("it is given up in the store", || {
        client.mutex("job").is_locked().is_ok_and(|locked| !locked)
    });
    for _ in 0..3 {
        // Less than the time for which a release under way is waited for.
        let again = client.try_lock_for("job", ms(300)).unwrap();
        again.expect("the lock is free").unlock().unwrap();
    }
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    drop(client);
    server.assert_clean();
}
