//! Interleavings that a review found: each was wrong once.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use crate::rig::{Fault, Proxy, Server, ms, wait_until};

/// Far below the leases and timers that would end a wait otherwise.
const PROMPT: Duration = Duration::from_secs(8);

fn proxied(proxy: &Proxy) -> LockClient {
    LockClient::builder().url(proxy.url()).io_timeout(ms(500)).build().unwrap()
}

/// It got "busy" just before others were let go first, and slept on that answer although permits had come free.
#[test]
fn a_call_that_let_others_go_first_asks_again() {
    for _ in 0..3 {
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let (a, b) = (LockClient::builder().url(proxy.url()).build().unwrap(), server.client());
        b.semaphore("s").try_set_permits(2).unwrap();
        let held = b.semaphore("s").acquire().unwrap();
        // Somebody else listens, so turns are counted.
        let mut connection = server.connect();
        let mut ear = connection.as_pubsub();
        ear.subscribe("redisson_sc:{s}").unwrap();
        let mine = a.semaphore("s");
        for _ in 0..5 {
            mine.acquire().unwrap().unlock().unwrap();
        }
        // The turn falls due while the first try is under way.
        proxy.inject("{s}:timeout", Fault::StallReply(ms(20)));
        std::thread::scope(|s| {
            let waiter = s.spawn(|| mine.try_acquire_many_for(2, PROMPT).unwrap().is_some());
            std::thread::sleep(ms(12));
            held.unlock().unwrap();
            assert!(waiter.join().unwrap(), "it slept beside two free permits");
        });
    }
}

/// An inner release that was never applied leaves a level that was promised longer than the next one asks for.
#[test]
fn a_reader_that_reenters_after_a_lost_release_keeps_its_lease() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (a, b) = (proxied(&proxy), server.client());
    let with = |lease: u64| a.rw_lock("w").with_lease(ms(lease));
    let outer = with(2000).read().unwrap();
    let inner = with(60_000).read().unwrap();
    proxy.inject("redisson_rwlock:{w}", Fault::CutBeforeSend);
    proxy.refuse(true);
    assert!(inner.unlock().is_err());
    proxy.refuse(false);
    let again = with(1000).read().unwrap();
    b.rw_lock("w").read().unwrap().unlock().unwrap();
    assert!(outer.remaining() > Duration::from_secs(50));
    assert!(server.pttl("w") > 50_000, "the lock ends before its reader's lease: {}", server.pttl("w"));
    drop((again, outer));
}

#[test]
fn closing_in_a_short_outage_gives_back_what_has_no_lease() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = proxied(&proxy);
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
    assert_eq!(permit.unlock().unwrap_err().kind(), ErrorKind::Closed);
    drop(other);
    assert_eq!(server.cmd::<i64>(&["GET", "c"]), 5);
}

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

#[test]
fn a_reader_behind_a_downgraded_hold_that_leaves_does_not_wait_for_a_timer() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let a = LockClient::builder().url(proxy.url()).io_timeout(Duration::from_secs(7)).build().unwrap();
    let b = server.client();
    let read = a.rw_lock("w").write_owned().unwrap().downgrade().unwrap();
    let other = b.rw_lock("w").read().unwrap();
    proxy.inject("redisson_rwlock:{w}", Fault::StallReply(ms(200)));
    std::thread::scope(|s| {
        let release = s.spawn(|| read.unlock());
        proxy.wait_hits(1);
        let start = Instant::now();
        a.rw_lock("w").read_owned().unwrap().unlock().unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        release.join().unwrap().unwrap();
    });
    drop(other);
}

/// All deadlines have passed together: whoever asks first must not take the others for dead.
#[test]
fn a_server_that_stood_still_does_not_turn_the_queue_around() {
    let server = Server::start();
    let clients: Vec<_> =
        (0..3).map(|_| server.builder().waiter_timeout(ms(600)).outage_timeout(PROMPT).build().unwrap()).collect();
    let guard = clients[0].fair("t").lock_owned().unwrap();
    let queue = || server.cmd::<Vec<String>>(&["LRANGE", "redisson_lock_queue:{t}", "0", "-1"]);
    std::thread::scope(|s| {
        for n in 0..9 {
            let fair = clients[n % 3].fair("t");
            s.spawn(move || fair.lock().unwrap().unlock().unwrap());
            wait_until("it is in the queue", || queue().len() == n + 1);
        }
        let before = queue();
        server.suspend();
        std::thread::sleep(ms(1500));
        server.resume();
        let now = || server.cmd::<(u64, u64)>(&["TIME"]).0 as f64 * 1000.0;
        wait_until("all have asked again", || {
            let live: u32 = server.cmd(&["ZCOUNT", "redisson_lock_timeout:{t}", &now().to_string(), "+inf"]);
            live == 9
        });
        assert_eq!(queue(), before);
        guard.unlock().unwrap();
    });
}

/// `x` in braces has the same channel as `x`.
#[test]
fn two_locks_that_share_a_channel_both_hear() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let (one, other) = (b.mutex("x").lock_owned().unwrap(), b.mutex("{x}").lock_owned().unwrap());
    std::thread::scope(|s| {
        let first = s.spawn(|| a.mutex("x").try_lock_for(PROMPT).unwrap().is_some());
        wait_until("it listens", || server.channels().len() == 1);
        std::thread::sleep(ms(30));
        let second = s.spawn(|| a.mutex("{x}").try_lock_for(PROMPT).unwrap().is_some());
        std::thread::sleep(ms(30));
        one.unlock().unwrap();
        assert!(first.join().unwrap(), "deaf since the other listens");
        other.unlock().unwrap();
        assert!(second.join().unwrap());
    });
}

/// The request was held up, its caller was told that it may have counted, and by then the name is another latch's.
#[test]
fn a_count_given_up_in_doubt_does_not_run_on_the_next_latch() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (a, b) = (proxied(&proxy), server.client());
    a.latch("l").set_count(2).unwrap();
    proxy.inject("leasehold_once", Fault::Hold);
    std::thread::scope(|s| {
        let count = s.spawn(|| a.latch("l").count_down());
        proxy.wait_hits(1);
        proxy.refuse(true);
        assert_eq!(count.join().unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
    });
    proxy.refuse(false);
    // Beside the mark of the count that was set.
    wait_until("it is settled", || server.cmd::<Vec<String>>(&["KEYS", "leasehold_once:{l}:*"]).len() == 2);
    b.latch("l").delete().unwrap();
    b.latch("l").set_count(1).unwrap();
    proxy.release_held();
    assert_eq!(b.latch("l").count().unwrap(), 1);
    b.latch("l").delete().unwrap();
}

#[test]
fn deleting_a_counting_semaphore_touches_no_other_key() {
    let server = Server::start();
    let client = server.client();
    server.cmd::<()>(&["SET", "{c}:timeout", "somebody's"]);
    assert!(!client.counting_semaphore("c").delete().unwrap());
    client.counting_semaphore("c").try_set_permits(1).unwrap();
    assert!(client.counting_semaphore("c").delete().unwrap());
    assert_eq!(server.cmd::<String>(&["GET", "{c}:timeout"]), "somebody's");
}

#[test]
fn a_reader_whose_lease_has_ended_is_told_so_when_it_wants_to_write() {
    let server = Server::start();
    let client = server.client();
    let read = client.rw_lock("w").with_lease(ms(50)).read().unwrap();
    assert!(read.wait_lost(PROMPT));
    assert_eq!(client.rw_lock("w").try_write().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(client.rw_lock("w").try_write_owned().unwrap_err().kind(), ErrorKind::Lost);
    drop(read);
    assert!(client.rw_lock("w").try_write_for(PROMPT).unwrap().is_some());
}
