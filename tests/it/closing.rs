//! `close`: whom it notifies, what it returns, and what it leaves behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, LockClient, Loss};

use crate::rig::{CAP, Child, Fault, PROMPT, Proxy, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};

/// So long that no test can pass because a lease ended.
const LONG: Duration = Duration::from_secs(60);

fn patient(url: String) -> LockClient {
    LockClient::builder().url(url).lease(LONG).io_timeout(Duration::from_secs(5)).build().unwrap()
}

fn counter() -> (Arc<AtomicU32>, impl FnOnce(&Loss) + Send + 'static) {
    let count = Arc::new(AtomicU32::new(0));
    let reported = count.clone();
    (count, move |_| {
        reported.fetch_add(1, Ordering::SeqCst);
    })
}

#[track_caller]
fn assert_closed<T: std::fmt::Debug>(result: leasehold::Result<T>, name: &str) {
    let e: Error = result.unwrap_err();
    assert_eq!((e.kind(), e.name()), (ErrorKind::Closed, Some(name)), "{e:?}");
}

#[test]
fn a_guard_that_a_close_released_reports_it_at_every_hold_count() {
    let server = Server::start();
    let client = patient(server.url());
    let counting = client.counting_semaphore("count");
    counting.try_set_permits(1).unwrap();
    let permit = counting.acquire().unwrap();
    let (outer, inner) = (client.lock("a").unwrap(), client.lock("a").unwrap());
    let both = client.multi(["a", "b"]).lock().unwrap();
    let (writes, reads) =
        (client.rw_lock("rw").write().unwrap(), client.rw_lock("rw").read().unwrap());
    let downgraded = client.rw_lock("down").write().unwrap();
    let downgraded_owned = client.rw_lock("owned").write_owned().unwrap();
    let reader = client.rw_lock("read").read_owned().unwrap();
    client.close(CAP).unwrap();
    assert!(
        [outer.is_held(), both.is_held(), writes.is_held(), reads.is_held(), reader.is_held()]
            == [false; 5]
    );
    assert!(
        inner.wait_lost(CAP).is_lost()
            && both.wait_lost(CAP).is_lost()
            && reads.wait_lost(CAP).is_lost()
    );
    // Callbacks that are registered late run too, each of them.
    for _ in 0..3 {
        let (reported, callback) = counter();
        reader.on_lost(callback);
        wait_until("the callback runs", || reported.load(Ordering::SeqCst) == 1);
    }
    assert_closed(inner.unlock(), "a");
    assert_closed(both.unlock(), "a");
    assert_closed(outer.unlock(), "a");
    assert_closed(reads.unlock(), "rw");
    assert_closed(writes.unlock(), "rw");
    assert_closed(downgraded.downgrade(), "down");
    assert_closed(downgraded_owned.downgrade(), "owned");
    assert_closed(reader.unlock(), "read");
    assert_closed(permit.release(), "count");
    assert_eq!(server.lock_keys(), ["count"]);
}

/// The holder's job continues: it must be notified before another client can acquire the lock.
#[test]
fn holders_are_notified_before_their_locks_are_released() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = patient(proxy.url());
    let guard = client.mutex("job").lock_owned().unwrap();
    let (reported, callback) = counter();
    guard.on_lost(callback);
    proxy.inject("job", Fault::Hold);
    std::thread::scope(|s| {
        s.spawn(|| {
            let _ = client.close(CAP);
        });
        wait_until("the callback has run", || reported.load(Ordering::SeqCst) == 1);
        assert!(guard.wait_lost(CAP).is_lost() && !guard.is_held());
        assert_eq!(server.hash("job").len(), 1, "its release has not reached the server");
        proxy.release_held();
    });
    wait_until("it is free", || server.lock_keys().is_empty());
}

#[test]
fn what_was_lost_before_is_no_failure_of_a_close() {
    let mut server = Server::start();
    let client = server.builder().short_lease(ms(3000)).build().unwrap();
    let gone = client.lock("gone").unwrap();
    let over = client.mutex("over").with_lease(ms(1500)).lock().unwrap();
    server.cmd::<u32>(&["DEL", "gone"]);
    // A loss that only the close notices.
    let unseen = client.mutex("unseen").with_lease(LONG).lock().unwrap();
    server.cmd::<u32>(&["DEL", "unseen"]);
    assert!(gone.wait_lost(CAP).is_lost() && over.wait_lost(CAP).is_lost());
    client.close(CAP).unwrap();
    assert_eq!(
        over.unlock().unwrap_err().kind(),
        ErrorKind::Lost,
        "the loss was earlier than the close"
    );
    assert_eq!(gone.ensure_held().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(unseen.unlock().unwrap_err().kind(), ErrorKind::Closed);

    // A lease that has run out ends without the server.
    let client = server.client();
    let over = client.mutex("over").with_lease(ms(1500)).lock().unwrap();
    assert!(over.wait_lost(CAP).is_lost());
    // Includes the margin for clock drift.
    std::thread::sleep(ms(1200));
    server.kill();
    client.close(CAP).unwrap();
}

#[test]
fn a_close_reports_what_is_not_confirmed_and_for_how_long_it_may_last() {
    let mut server = Server::start();
    let client = patient(server.url());
    let guards: Vec<_> =
        (0..12).map(|n| client.mutex(format!("n{n}")).lock_owned().unwrap()).collect();
    server.kill();
    let error = client.close(ms(300)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let text = error.to_string();
    assert!(text.contains("\"n") && text.contains("2 more"), "{text}");
    let (_, rest) = text.split_once("for ").unwrap();
    let seconds: f64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!((50.0..=62.0).contains(&seconds), "{text}");
    // A second call returns the same error.
    assert_eq!(client.close(CAP).unwrap_err().to_string(), text);
    drop(guards);
}

#[test]
fn an_outage_that_ends_within_the_time_is_no_failure_of_a_close() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = patient(proxy.url());
    let (held, other) =
        (client.mutex("a").lock_owned().unwrap(), client.mutex("b").lock_owned().unwrap());
    proxy.cut_all();
    proxy.refuse(true);
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(ms(300));
            proxy.refuse(false);
        });
        client.close(CAP).unwrap();
    });
    assert!(server.lock_keys().is_empty());
    drop((held, other));
}

#[test]
fn a_second_close_waits_for_the_first() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = patient(proxy.url());
    let guard = client.mutex("job").lock_owned().unwrap();
    proxy.inject("job", Fault::StallReply(ms(4000)));
    std::thread::scope(|s| {
        let first = s.spawn(|| client.close(CAP));
        proxy.wait_hits(1);
        let start = Instant::now();
        let hurried = client.close(ms(20));
        assert_eq!(hurried.unwrap_err().kind(), ErrorKind::Unreachable, "it is not closed yet");
        client.close(CAP).unwrap();
        assert!(start.elapsed() > ms(200), "the first was not done after {:?}", start.elapsed());
        first.join().unwrap().unwrap();
    });
    drop(guard);
}

/// The watchdog is renewing when the timeout ends: its connection is not kept.
#[test]
fn a_close_that_runs_out_of_time_leaves_no_socket() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::builder()
        .url(proxy.url())
        .lease(ms(12_000))
        .io_timeout(ms(3500))
        .connections(1)
        .build()
        .unwrap();
    let guard = client.mutex("job").lock_owned().unwrap();
    proxy.inject("job", Fault::StallReply(ms(2500)));
    proxy.wait_hits(1);
    client.close(Duration::ZERO).unwrap_err();
    wait_until("it becomes free nevertheless", || server.lock_keys().is_empty());
    wait_until("no connection is left", || server.client_lines().len() == 1);
    drop((guard, client));
    server.assert_clean();
}

/// The marker of a waiting writer keeps readers out for the waiter timeout, and not for the time
/// that a place in a fair queue can last.
#[test]
fn a_close_beside_a_waiting_writer_says_for_how_long_its_marker_lasts() {
    let server = Server::start();
    let short = LockClient::builder()
        .url(server.url())
        .lease(ms(3000))
        .waiter_timeout(ms(4000))
        .io_timeout(ms(2500));
    let client = short.build().unwrap();
    let reader = server.client().rw_lock("rw").read_owned().unwrap();
    std::thread::scope(|s| {
        let writes = s.spawn(|| client.rw_lock("rw").write().map(drop));
        wait_until("it waits", || server.lock_keys().len() > 2);
        server.suspend();
        let error = client.close(ms(300)).unwrap_err().to_string();
        server.resume();
        assert_eq!(writes.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        let seconds: f64 = error
            .split("for ")
            .find_map(|rest| rest.split_once(" s at most")?.0.parse().ok())
            .unwrap();
        // A request that is under way may arrive until its I/O timeout is over.
        assert!(seconds <= 7.0, "{error}");
    });
    drop(reader);
}

#[test]
fn guards_that_a_close_released_are_dropped_silently() {
    let server = Server::start();
    let mut child =
        Child::spawn("closing::closing_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    assert_eq!(child.expect("warnings="), "0");
    child.wait();
}

#[test]
#[ignore = "a program for other tests"]
fn closing_process() {
    struct Count(AtomicU32);
    impl log::Log for Count {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            if record.level() <= log::Level::Warn {
                eprintln!("{}", record.args());
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        fn flush(&self) {}
    }
    static WARNINGS: Count = Count(AtomicU32::new(0));
    log::set_logger(&WARNINGS).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let client = patient(std::env::var("LEASEHOLD_TEST_URL").unwrap());
    client.counting_semaphore("c").try_set_permits(1).unwrap();
    let guards = (
        (client.lock("a").unwrap(), client.lock("a").unwrap()),
        (client.rw_lock("rw").write().unwrap(), client.rw_lock("rw").read().unwrap()),
        (client.multi(["m", "n"]).lock().unwrap(), client.fair("f").lock_owned().unwrap()),
        client.counting_semaphore("c").acquire().unwrap(),
    );
    client.close(CAP).unwrap();
    drop(guards);
    println!("@@warnings={}", WARNINGS.0.load(Ordering::SeqCst));
}

#[test]
fn closing_in_a_short_outage_gives_back_what_has_no_lease() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::builder().url(proxy.url()).io_timeout(ms(2000)).build().unwrap();
    let (counting, leased) = (client.counting_semaphore("c"), client.semaphore("s"));
    counting.try_set_permits(5).unwrap();
    leased.try_set_permits(5).unwrap();
    let (permit, other) = (counting.acquire().unwrap(), leased.acquire().unwrap());
    proxy.cut_all();
    proxy.refuse(true);
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(ms(300));
            proxy.refuse(false);
        });
        client.close(PROMPT).unwrap();
    });
    assert_eq!((server.cmd::<i64>(&["GET", "c"]), server.cmd::<i64>(&["GET", "s"])), (5, 5));
    assert_eq!(permit.release().unwrap_err().kind(), ErrorKind::Closed);
    drop(other);
    assert_eq!(server.cmd::<i64>(&["GET", "c"]), 5);
}
