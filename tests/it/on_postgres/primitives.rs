//! The behaviour of each primitive, beyond the contract.

use std::time::Duration;

use leasehold::{ErrorKind, SetPermits};

use super::server;
use crate::rig::{PROMPT, ms, wait_until};
use crate::support::Clients;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_mutex_is_reentrant_and_has_growing_tokens() {
    let server = server!();
    let (a, b) = (server.client(), server.client());
    let outer = a.lock("job").unwrap();
    let inner = a.lock("job").unwrap();
    assert_eq!(
        (outer.hold_count(), inner.fencing_token().unwrap()),
        (2, outer.fencing_token().unwrap())
    );
    assert_eq!(server.number_of("SELECT level::bigint FROM leasehold.lock"), 2);
    assert!(b.try_lock("job").unwrap().is_none());
    assert!(b.try_lock_for("job", ms(50)).unwrap().is_none());
    let holder = b.mutex("job").holder().unwrap().unwrap();
    assert_eq!(holder.hold_count(), 2);
    drop(inner);
    assert!(b.try_lock("job").unwrap().is_none());
    let token = outer.fencing_token().unwrap();
    outer.unlock().unwrap();
    let next = b.try_lock("job").unwrap().unwrap();
    assert!(next.fencing_token().unwrap() > token);
    assert!(a.mutex("job").force_unlock().unwrap() && !a.mutex("job").force_unlock().unwrap());
    assert_eq!(next.unlock().unwrap_err().kind(), ErrorKind::Lost);
    drop((a, b));
    server.assert_clean();
}

#[test]
fn a_fair_lock_is_given_in_the_order_of_arrival() {
    let server = server!();
    let (a, b) = (server.client(), server.client());
    let guard = a.fair("job").lock().unwrap();
    let order = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for n in 0..4_usize {
            let (client, order) = (if n % 2 == 0 { &a } else { &b }, &order);
            s.spawn(move || {
                let guard = client.fair("job").lock().unwrap();
                order.lock().push(n);
                guard.unlock().unwrap();
            });
            wait_until("it waits", || client.fair("job").queue_len().unwrap() == n + 1);
        }
        assert_eq!(b.fair("job").position().unwrap(), Some(1));
        guard.unlock().unwrap();
    });
    assert_eq!(*order.lock(), [0, 1, 2, 3]);
    drop((a, b));
    server.assert_clean();
}

#[test]
fn readers_share_and_a_writer_downgrades() {
    let server = server!();
    let (a, b) = (server.client(), server.client());
    let readers = (a.rw_lock("data").read().unwrap(), b.rw_lock("data").read().unwrap());
    assert!(b.rw_lock("data").try_write().is_err(), "this thread reads");
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            assert!(b.rw_lock("data").try_write().unwrap().is_none());
            b.rw_lock("data").write().unwrap().unlock().unwrap();
        });
        wait_until("a writer waits", || server.held().contains(&"data barred".to_owned()));
        let reads = s.spawn(|| a.rw_lock("data").try_read().unwrap().is_some());
        assert!(!reads.join().unwrap(), "a waiting writer goes first");
        drop(readers);
        waits.join().unwrap();
    });
    let guard = a.rw_lock("data").write().unwrap();
    let other = || {
        std::thread::scope(|s| {
            s.spawn(|| b.rw_lock("data").try_read().unwrap().is_some()).join().unwrap()
        })
    };
    assert!(!other());
    let guard = guard.downgrade().unwrap();
    assert!(other());
    guard.unlock().unwrap();
    drop((a, b));
    server.assert_clean();
}

#[test]
fn several_locks_are_taken_as_one() {
    let server = server!();
    let (a, b) = (server.client(), server.client());
    let one = b.lock("b").unwrap();
    assert!(a.multi(["c", "b", "a"]).try_lock().unwrap().is_none());
    assert_eq!(server.held(), ["b"]);
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            let guard = a.multi(["c", "b", "a"]).lock().unwrap();
            assert_eq!(server.held(), ["a", "b", "c"]);
            let tokens = ["a", "b", "c"].map(|name| guard.fencing_token(name).unwrap());
            guard.unlock().unwrap();
            tokens
        });
        wait_until("it will be notified", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        let token = one.fencing_token().unwrap();
        one.unlock().unwrap();
        assert!(waits.join().unwrap()[1] > token);
    });
    drop((a, b));
    server.assert_clean();
}

#[test]
fn permits_are_counted() {
    let server = server!();
    let (a, b) = (server.client(), server.client());
    let pool = a.semaphore("pool");
    assert_eq!(pool.try_acquire().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(pool.try_set_permits(3).unwrap(), leasehold::SetPermits::New);
    assert_eq!(pool.try_set_permits(5).unwrap(), leasehold::SetPermits::Different { current: 3 });
    let two = pool.acquire_many(2).unwrap();
    assert_eq!(
        (pool.available_permits().unwrap(), b.semaphore("pool").acquired_permits().unwrap()),
        (1, 2)
    );
    assert!(b.semaphore("pool").try_acquire_many(2).unwrap().is_none());
    assert_eq!(pool.try_acquire_many(4).unwrap_err().kind(), ErrorKind::Conflict);
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.semaphore("pool").acquire_many(2).unwrap().release().unwrap());
        wait_until("it will be notified", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        two.release().unwrap();
        waits.join().unwrap();
    });
    assert_eq!(pool.add_permits(2).unwrap(), 5);
    assert_eq!(a.latch("pool").count().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(a.try_lock("pool").unwrap_err().kind(), ErrorKind::WrongType);
    assert!(pool.delete().unwrap());
    a.lock("pool").unwrap().unlock().unwrap();

    let counting = a.counting_semaphore("count");
    assert_eq!(counting.try_set_permits(2).unwrap(), SetPermits::New);
    assert_eq!(counting.try_set_permits(3).unwrap(), SetPermits::SetBefore { free: 2 });
    let permit = counting.acquire_many(2).unwrap();
    assert!(b.counting_semaphore("count").try_acquire_for(ms(50)).unwrap().is_none());
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.counting_semaphore("count").acquire().map(drop).unwrap());
        wait_until("it waits", || server.listeners() > 0);
        drop(permit);
        waits.join().unwrap();
    });
    assert_eq!(counting.available_permits().unwrap(), 2);
    drop((pool, counting, a, b));
    server.assert_clean();
}

#[test]
fn a_latch_opens_for_all() {
    let server = server!();
    let (a, b) = (server.client(), server.client());
    let latch = a.latch("start");
    assert!(latch.try_wait().unwrap(), "an unset latch is open");
    assert!(latch.try_set_count(2).unwrap());
    assert!(!latch.try_wait().unwrap());
    std::thread::scope(|s| {
        let waits =
            [&a, &b].map(|client| s.spawn(|| client.latch("start").wait_for(LONG).unwrap()));
        // A later waiter would wait for the next opening.
        wait_until("both wait", || server.listeners() == 2);
        assert_eq!(
            (b.latch("start").count_down().unwrap(), b.latch("start").count().unwrap()),
            (1, 1)
        );
        let start = std::time::Instant::now();
        assert_eq!(b.latch("start").count_down().unwrap(), 0);
        // Setting the latch again does not hide the opening from them.
        latch.set_count(1).unwrap();
        for waits in waits {
            assert!(waits.join().unwrap());
        }
        assert!(start.elapsed() < PROMPT);
    });
    assert!(latch.delete().unwrap());
    drop((latch, a, b));
    server.assert_clean();
}

/// A change of a latch whose outcome stays unknown is only marked as used: it returns no permits.
#[test]
fn a_change_that_is_given_up_gives_nothing_back() {
    let server = server!();
    let count = |kind: &str, what: &str, id: &str| {
        server.texts(&format!(
            "SELECT leasehold_v1.count('l', '{kind}', '{what}', 1, '{id}', 60000, 0, '')::text"
        ))[0]
            .clone()
    };
    assert_eq!(count("l", "begin", "a"), "(1,1)");
    assert_eq!(count("l", "down", "b"), "(1,0)");
    assert_eq!(count("c", "back", "b"), "(0,0)", "it has run: nothing to undo");
    assert_eq!(count("c", "back", "late"), "(0,0)");
    assert_eq!(count("l", "begin", "late"), "(2,0)", "it arrives late, and does not run");
    assert_eq!(server.number_of("SELECT count(*) FROM leasehold.lock WHERE number IS NOT NULL"), 0);
}
