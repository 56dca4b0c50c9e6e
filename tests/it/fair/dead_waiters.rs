//! Waiters that die, are suspended, are removed from the queue, or wait behind a Redisson client.

use std::time::{Duration, Instant};

use leasehold::LockClient;

use super::{
    DEADLINES, QUEUE, REDISSON, client, deadlines, queue, redisson_acquires, redisson_queues,
    server_millis, wait_for_queue,
};
use crate::rig::{CAP, Child, PROMPT, Server, ms, wait_until};
use crate::support::Clients;

#[test]
fn a_live_waiter_is_never_removed_and_polls_little() {
    let server = Server::start();
    let (a, b) = (client(&server, ms(3000)), client(&server, ms(3000)));
    let guard = a.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        let first = s.spawn(|| a.fair("t").lock().unwrap().fencing_token().unwrap());
        wait_for_queue(&server, 1);
        let second = s.spawn(|| b.fair("t").lock().unwrap().fencing_token().unwrap());
        wait_for_queue(&server, 2);
        let (before, order) = (server.call_count("evalsha"), queue(&server));
        let start = Instant::now();
        while start.elapsed() < ms(6000) {
            assert_eq!(queue(&server), order, "after {:?}", start.elapsed());
            assert!(
                server.pttl(QUEUE) > 0 && server.pttl(DEADLINES) > 0,
                "an abandoned queue must expire"
            );
            std::thread::sleep(ms(50));
        }
        // Two waiters that each poll every third of 3 s, and few renewals of the hold.
        let tries = server.call_count("evalsha") - before;
        let passed = start.elapsed();
        assert!(tries <= 2 * (passed.as_secs() + 1) + 4, "{tries} attempts in {passed:?}");
        guard.unlock().unwrap();
        assert!(first.join().unwrap() < second.join().unwrap());
    });
}

/// Somebody deleted the queue and not the deadlines, and a waiter queued after that and died.
#[test]
fn a_release_ends_where_only_a_deadline_is_alive() {
    let server = Server::start();
    let client = client(&server, ms(1000));
    let guard = client.fair("t").lock().unwrap();
    let dead = format!("{REDISSON}:2");
    server.cmd::<()>(&["ZADD", DEADLINES, "1", &dead]);
    server.cmd::<()>(&["RPUSH", QUEUE, &dead]);
    let later = (server_millis(&server) + 60_000).to_string();
    server.cmd::<()>(&["ZADD", DEADLINES, &later, &format!("{REDISSON}:1")]);
    guard.unlock().unwrap();
    assert!(server.hash("t").is_empty());
    client.fair("t").lock().unwrap().unlock().unwrap();
    server.cmd::<()>(&["DEL", DEADLINES]);
}

#[test]
#[ignore = "a program for other tests"]
fn waiting_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let timeout = std::env::var("LEASEHOLD_TEST_TIMEOUT").unwrap().parse().unwrap();
    let client = LockClient::builder().url(url).waiter_timeout(ms(timeout)).build().unwrap();
    println!("@@id {}", client.id());
    let guard = client.fair("t").lock().unwrap();
    println!("@@locked");
    guard.unlock().unwrap();
}

fn spawn_waiter(server: &Server, place: usize) -> Child {
    spawn_waiter_for(server, place, "2500").0
}

/// With this `waiter_timeout` in ms. Returns its client's id as well.
fn spawn_waiter_for(server: &Server, place: usize, timeout: &str) -> (Child, String) {
    let settings = [("LEASEHOLD_TEST_URL", &*server.url()), ("LEASEHOLD_TEST_TIMEOUT", timeout)];
    let mut child = Child::spawn("fair::dead_waiters::waiting_process", &settings);
    let id = child.expect("id");
    wait_for_queue(server, place);
    (child, id)
}

/// One dead waiter at the front and one in the middle: the others wait for seconds, keep their
/// order, and do not poll faster meanwhile.
#[test]
fn dead_waiters_hold_up_the_others_for_no_longer_than_their_timeout() {
    let server = Server::start();
    let (a, b) = (client(&server, ms(2500)), client(&server, ms(2500)));
    let guard = a.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        let mut first = spawn_waiter(&server, 1);
        let second = s.spawn(|| a.fair("t").lock().unwrap().fencing_token().unwrap());
        wait_for_queue(&server, 2);
        let mut middle = spawn_waiter(&server, 3);
        let last = s.spawn(|| b.fair("t").lock().unwrap().fencing_token().unwrap());
        wait_for_queue(&server, 4);
        first.kill();
        middle.kill();
        let before = server.call_count("evalsha");
        let start = Instant::now();
        guard.unlock().unwrap();
        assert!(second.join().unwrap() < last.join().unwrap());
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        let tries = server.call_count("evalsha") - before;
        assert!(tries < 40, "{tries} attempts while a dead waiter was first");
    });
    drop((a, b));
    server.assert_clean();
}

/// The Redisson waiter in front had 20 s, but the deadlines behind it allowed for 300 s. The
/// difference must not count once Redisson has left.
#[test]
fn a_waiter_that_died_behind_redisson_blocks_no_longer_once_redisson_has_left() {
    let server = Server::start();
    let a = client(&server, ms(1000));
    let java = format!("{REDISSON}:1");
    for waits in [true, false] {
        let guard = a.fair("t").lock().unwrap();
        redisson_queues(&server, &java, 20_000);
        let mut dead = spawn_waiter(&server, 2);
        std::thread::scope(|s| {
            let behind = s.spawn(|| !waits || a.fair("t").try_lock_for(CAP).unwrap().is_some());
            wait_for_queue(&server, if waits { 3 } else { 2 });
            dead.kill();
            guard.unlock().unwrap();
            redisson_acquires(&server, &java, 20_000);
            // Redisson's release notifies the dead waiter.
            server.cmd::<()>(&["DEL", "t"]);
            assert!(behind.join().unwrap(), "a dead waiter delays it for minutes");
        });
        // Without a waiter, an occasional attempt has the same effect.
        wait_until("it is free", || a.fair("t").try_lock().unwrap().is_some());
    }
    drop(a);
    server.assert_clean();
}

#[test]
fn a_first_waiter_that_stops_after_its_wake_up_does_not_stall_the_rest() {
    let server = Server::start();
    let a = client(&server, ms(1000));
    let guard = a.fair("t").lock().unwrap();
    let mut first = spawn_waiter(&server, 1);
    std::thread::scope(|s| {
        let next = s.spawn(|| a.fair("t").lock().unwrap().unlock());
        wait_for_queue(&server, 2);
        first.signal("STOP");
        guard.unlock().unwrap();
        next.join().unwrap().unwrap();
    });
    // The suspended waiter was removed meanwhile, and gets its turn nevertheless.
    first.signal("CONT");
    first.expect("locked");
    first.wait();
    drop(a);
    server.assert_clean();
}

/// The release gives it the lock, and the message comes when another has it.
#[test]
fn a_waiter_that_is_stopped_as_it_is_given_the_lock_asks_for_it() {
    let server = Server::start();
    let a = client(&server, ms(5000));
    let guard = a.fair("t").lock().unwrap();
    let (mut first, id) = spawn_waiter_for(&server, 1, "5000");
    std::thread::scope(|s| {
        let (takes, taken) = std::sync::mpsc::channel();
        let a = &a;
        let next = s.spawn(move || takes.send(a.fair("t").lock_owned().unwrap()));
        wait_for_queue(&server, 2);
        first.signal("STOP");
        guard.unlock().unwrap();
        let holders = server.hash("t");
        assert!(holders.keys().all(|holder| holder.starts_with(&*id)), "{holders:?}");
        next.join().unwrap().unwrap();
        let held = taken.recv().unwrap();
        first.signal("CONT");
        // It believes nothing, and queues again.
        wait_for_queue(&server, 1);
        assert!(held.is_held());
        held.unlock().unwrap();
    });
    first.expect("locked");
    first.wait();
    drop(a);
    server.assert_clean();
}

/// The waiter was suspended past its deadline, and finds the lock free with others in the queue.
#[test]
fn a_waiter_that_was_removed_goes_back_to_the_front() {
    let server = Server::start();
    let a = client(&server, ms(4000));
    let guard = a.fair("t").lock().unwrap();
    std::thread::scope(|s| {
        let swept = s.spawn(|| a.fair("t").lock().unwrap().fencing_token().unwrap());
        wait_for_queue(&server, 1);
        server.cmd::<()>(&["DEL", QUEUE, DEADLINES]);
        // A Redisson waiter with a deadline in some hours, which never acquires.
        let java = format!("{REDISSON}:1");
        let late = (server_millis(&server) + 36_000_000).to_string();
        server.cmd::<()>(&["ZADD", DEADLINES, &late, &java]);
        server.cmd::<()>(&["RPUSH", QUEUE, &java]);
        guard.unlock().unwrap();
        swept.join().unwrap();
        assert_eq!(queue(&server).concat(), java);
        // Behind Redisson it queues up, and the queue gets a TTL. When it leaves and only Redisson
        // waiters remain, the TTL is removed.
        let behind = s.spawn(|| a.fair("t").try_lock_for(ms(4000)).unwrap().is_some());
        wait_for_queue(&server, 2);
        assert!(server.pttl(QUEUE) > 0);
        let last = format!("{REDISSON}:2");
        server.cmd::<()>(&["ZADD", DEADLINES, &late, &last]);
        server.cmd::<()>(&["RPUSH", QUEUE, &last]);
        assert!(!behind.join().unwrap());
        assert_eq!(queue(&server), [java, last]);
        assert_eq!(server.pttl(QUEUE), -1, "Redisson's queues have no TTL");
        server.cmd::<()>(&["DEL", QUEUE, DEADLINES]);
    });
    drop(a);
    server.assert_clean();
}

/// When its turn comes, a Redisson waiter subtracts its 300 s from every deadline behind it.
#[test]
fn a_waiter_behind_redisson_survives_what_redisson_does_to_its_deadline() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let guard = a.fair("t").lock().unwrap();
    let java = format!("{REDISSON}:1");
    let now = server_millis(&server);
    redisson_queues(&server, &java, 300_000);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.fair("t").lock().unwrap().unlock());
        wait_for_queue(&server, 2);
        let mine = queue(&server)[1].clone();
        // Its own 5 s and Redisson's 300 s, and not earlier than Redisson's deadline plus its own 5
        // s.
        let deadline = deadlines(&server)[&mine];
        assert!((now + 334_000..now + 345_000).contains(&deadline), "{}", deadline - now);
        wait_until("it is subscribed", || server.channels().len() == 1);
        guard.unlock().unwrap();
        redisson_acquires(&server, &java, 300_000);
        assert!(a.fair("t").try_lock().unwrap().is_none(), "an attempt removes dead waiters");
        assert_eq!(queue(&server).concat(), mine);
        // Redisson's release.
        server.cmd::<()>(&["DEL", "t"]);
        let receivers: u32 =
            server.cmd(&["PUBLISH", &format!("redisson_lock__channel:{{t}}:{mine}"), "0"]);
        assert_eq!(receivers, 1);
        waiter.join().unwrap().unwrap();
    });
    drop((a, b));
    server.assert_clean();
}

/// All deadlines passed while the server was suspended: the first waiter that asks must not
/// consider the others dead.
#[test]
fn a_suspended_server_does_not_reverse_the_queue() {
    let server = Server::start();
    let clients: Vec<_> = (0..3)
        .map(|_| server.builder().waiter_timeout(ms(2000)).outage_timeout(PROMPT).build().unwrap())
        .collect();
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
        std::thread::sleep(ms(4000));
        server.resume();
        let now = || server.cmd::<(u64, u64)>(&["TIME"]).0 as f64 * 1000.0;
        wait_until("all have asked again", || {
            let live: u32 =
                server.cmd(&["ZCOUNT", "redisson_lock_timeout:{t}", &now().to_string(), "+inf"]);
            live == 9
        });
        assert_eq!(queue(), before);
        guard.unlock().unwrap();
    });
}
