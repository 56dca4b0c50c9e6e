//! `stop_waiting`: which calls it ends, what continues, and what is left. `ended_waits` covers what
//! holds for tokens as well, `contract::waits` what holds for all primitives and stores.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{CancelToken, ErrorKind, LockClient};

use crate::ended_waits::{LONG, client, ended};
use crate::rig::{CAP, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};

const CLOSED: Option<ErrorKind> = Some(ErrorKind::Closed);

#[test]
fn holds_live_on_until_the_close() {
    let server = Server::start();
    let client = server.builder().short_lease(ms(3000)).build().unwrap();
    assert_eq!(client.semaphore("s").try_set_permits(3).unwrap(), leasehold::SetPermits::New);
    client.latch("l").set_count(2).unwrap();
    let job = client.lock("job").unwrap();
    let rw = client.rw_lock("rw").write().unwrap();
    let (reads, permit) =
        (client.rw_lock("r").read_owned().unwrap(), client.semaphore("s").acquire().unwrap());
    let both = client.multi(["a", "b"]).lock().unwrap();
    let fixed = client.mutex("fixed").with_lease(ms(5000)).lock().unwrap();
    client.stop_waiting();
    fixed.extend(LONG).unwrap();
    // Longer than each lease.
    assert!(job.wait_lost(ms(7000)).is_still_held(), "it is renewed");
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
