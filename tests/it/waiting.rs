//! Waiters for different locks in one client: each is woken by its own lock.

use std::time::{Duration, Instant};

use crate::rig::{PROMPT, Server, ms, wait_until};
use crate::support::Clients;

/// So long that no lock becomes free because its lease ends.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_plain_lock_behind_a_fair_hold_of_its_client_is_woken() {
    let server = Server::start();
    let client = server.client();
    let held = client.fair("t").lock_owned().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.mutex("t").try_lock_for(PROMPT).unwrap().is_some());
        std::thread::sleep(ms(50));
        held.unlock().unwrap();
        assert!(waiter.join().unwrap());
    });
}

/// The locks `{x}` and `x` have the same channel.
#[test]
fn two_locks_that_share_a_channel_are_both_notified() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let (one, other) = (b.mutex("x").lock_owned().unwrap(), b.mutex("{x}").lock_owned().unwrap());
    std::thread::scope(|s| {
        let first = s.spawn(|| a.mutex("x").try_lock_for(PROMPT).unwrap().is_some());
        wait_until("it is subscribed", || server.channels().len() == 1);
        std::thread::sleep(ms(30));
        let second = s.spawn(|| a.mutex("{x}").try_lock_for(PROMPT).unwrap().is_some());
        std::thread::sleep(ms(30));
        one.unlock().unwrap();
        assert!(first.join().unwrap(), "not notified since the other subscribed");
        other.unlock().unwrap();
        assert!(second.join().unwrap());
    });
}

/// Under contention not every hand-over costs a subscribe and an unsubscribe.
#[test]
fn a_subscription_stays_for_a_second_after_its_last_waiter() {
    let server = Server::start();
    let (holder, waiter) = (server.client(), server.client());
    let subscribed = || server.call_count("subscribe");
    let began = Instant::now();
    for _ in 0..5 {
        let held = holder.lock("job").unwrap();
        std::thread::scope(|s| {
            s.spawn(|| waiter.lock("job").unwrap().unlock().unwrap());
            wait_until("it waits", || {
                waiter.stats().waiting() == 1 && !server.channels().is_empty()
            });
            held.unlock().unwrap();
        });
    }
    // One of each client: the holder may have to wait for the waiter before.
    assert!(subscribed() <= 2 + 2 * began.elapsed().as_secs(), "{}", subscribed());
    drop((holder, waiter));
    server.assert_clean();
}

/// Each thread of the queue becomes its leader in turn. None of them asks once more whether the
/// server is back, or the last one would wait for as many I/O timeouts as there are threads.
#[test]
fn the_outage_timeout_holds_for_all_threads_that_queue() {
    let threads = 24;
    let io_timeout = ms(1500);
    let server = Server::start();
    let builder = server.builder().lease(Duration::from_secs(6)).io_timeout(io_timeout);
    let client = builder.outage_timeout(ms(1000)).build().unwrap();
    let guard = server.builder().lease(LONG).build().unwrap().mutex("job").lock_owned().unwrap();
    std::thread::scope(|s| {
        let fails = || {
            let error = client.lock("job").map(drop).unwrap_err();
            assert!(error.to_string().contains("outage_timeout"), "{error}");
            Instant::now()
        };
        let waiting: Vec<_> = (0..threads).map(|_| s.spawn(fails)).collect();
        wait_until("all wait", || client.snapshot().waits().len() == threads);
        server.suspend();
        let failed: Vec<_> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
        let (first, last) = (failed.iter().min().unwrap(), failed.iter().max().unwrap());
        assert!(
            *last - *first < io_timeout * threads as u32 / 2,
            "{:?} after the first",
            *last - *first
        );
        server.resume();
    });
    drop(guard);
}
