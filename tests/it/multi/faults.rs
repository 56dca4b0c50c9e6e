//! Faults of several locks acquired as one: lost replies, lost holds, a full server, `close`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use leasehold::{ErrorKind, LockClient};

use super::{LONG, SOON, give_up, hold, listens, patient, refused};
use crate::rig::{CAP, Fault, Proxy, Server, ms, wait_until};
use crate::support::Clients;

const FAULTS: [Fault; 8] = [
    Fault::CutBeforeSend,
    Fault::CutRequestAt(1),
    Fault::CutRequestAt(200),
    Fault::CutAfterApplied,
    Fault::CutReplyAt(1),
    Fault::CutReplyAt(6),
    Fault::BlackHoleReply,
    Fault::Garbage,
];

fn client(proxy: &Proxy) -> LockClient {
    LockClient::builder().url(proxy.url()).lease(LONG).io_timeout(ms(2500)).build().unwrap()
}

#[track_caller]
fn assert_unasked(what: &str, error: &leasehold::Error) {
    assert!(
        matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
        "{what}: {error:?}"
    );
}

#[test]
fn a_lost_acquire_or_release_leaves_none_of_them() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let direct = patient(&server);
    let all = ["m1", "m2", "m3"];
    for (round, fault) in FAULTS.into_iter().enumerate() {
        let client = client(&proxy);
        proxy.inject("m2", fault);
        match client.multi(all).try_lock() {
            Err(e) => assert_unasked(&format!("{fault:?}"), &e),
            // The client assumed that the connection had ended while idle, replaced it, and
            // repeated the request.
            Ok(Some(guard)) => guard.unlock().unwrap(),
            Ok(None) => panic!("{fault:?}: no other client has it"),
        }
        wait_until(&format!("{fault:?} leaves no lock"), || server.lock_keys().is_empty());
        let guard = client.multi(all).lock().unwrap();
        proxy.inject("m2", fault);
        if let Err(e) = guard.unlock() {
            assert_unasked(&format!("{fault:?}"), &e);
        }
        wait_until(&format!("{fault:?} frees all"), || server.lock_keys().is_empty());
        proxy.wait_hits(2 * u32::try_from(round).unwrap() + 2);
        direct.multi(all).try_lock().unwrap().expect("all are free").unlock().unwrap();
    }
}

/// A hold of this thread continues, whatever happens to the call that re-enters it.
#[test]
fn a_lost_reply_leaves_the_holds_that_were_there() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    for fault in FAULTS {
        let client = client(&proxy);
        let outer = client.lock("m2").unwrap();
        for release in [false, true] {
            let guard =
                if release { Some(client.multi(["m1", "m2", "m3"]).lock().unwrap()) } else { None };
            proxy.inject("m2", fault);
            let outcome = match guard {
                Some(guard) => guard.unlock(),
                None => client.multi(["m1", "m2", "m3"]).lock().and_then(|guard| guard.unlock()),
            };
            if let Err(e) = outcome {
                assert_unasked(&format!("{fault:?}"), &e);
            }
            wait_until(&format!("{fault:?} leaves the outer hold"), || {
                server.lock_keys() == ["m2"]
            });
            assert!(outer.is_held() && outer.hold_count() == 1, "{fault:?}");
        }
        outer.unlock().unwrap();
        wait_until(&format!("{fault:?}: free"), || server.lock_keys().is_empty());
    }
}

/// A waiting call survives a lost reply and keeps its holder id, which may hold the lock already.
#[test]
fn a_waiter_that_loses_a_reply_gets_in_all_the_same() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    for fault in [Fault::CutAfterApplied, Fault::CutBeforeSend, Fault::CutReplyAt(3)] {
        let client = client(&proxy);
        hold(&server, "m2");
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                let guard = client.multi(["m1", "m2", "m3"]).lock().unwrap();
                (server.lock_keys().len(), guard.unlock())
            });
            wait_until("it waits", || listens(&server, "m2"));
            // The second attempt may not have been sent yet: then the fault affects that one, and a
            // third one succeeds.
            proxy.inject("m1", fault);
            give_up(&server, "m2");
            let (stand, unlocked) = waiter.join().unwrap();
            assert_eq!(stand, 3, "{fault:?}");
            unlocked.unwrap();
        });
        wait_until(&format!("{fault:?} leaves nothing"), || server.lock_keys().is_empty());
    }
}

/// One of three locks is gone: all four ways report it, and unlocking releases the others.
#[test]
fn the_loss_of_one_is_the_loss_of_all() {
    let server = Server::start();
    let client = server.builder().lease(ms(3000)).io_timeout(ms(2700)).build().unwrap();
    for owned in [false, true] {
        let multi = client.multi(["a", "b", "c"]);
        let reported = Arc::new(AtomicU32::new(0));
        let count = reported.clone();
        let callback = move |_: &leasehold::Loss| {
            count.fetch_add(1, Ordering::SeqCst);
        };
        macro_rules! lose {
            ($guard:expr) => {{
                let guard = $guard;
                guard.on_lost(callback);
                assert!(guard.wait_lost(ms(1)).is_still_held() && guard.is_held());
                server.cmd::<u32>(&["DEL", "b"]);
                assert!(guard.wait_lost(CAP).is_lost());
                assert!(!guard.is_held() && guard.remaining().is_zero());
                refused(guard.ensure_held(), ErrorKind::Lost, Some("b"));
                refused(guard.extend(LONG), ErrorKind::Lost, Some("b"));
                let left: BTreeSet<String> = server.lock_keys().into_iter().collect();
                assert_eq!(
                    left,
                    BTreeSet::from(["a", "c"].map(str::to_owned)),
                    "renewed until they are released"
                );
                refused(guard.unlock(), ErrorKind::Lost, Some("b"));
            }};
        }
        if owned {
            lose!(multi.lock_owned().unwrap());
        } else {
            lose!(multi.lock().unwrap());
        }
        wait_until("the others are free", || server.lock_keys().is_empty());
        wait_until("the callback has run", || reported.load(Ordering::SeqCst) == 1);
        // All locks are lost at once: reported once.
        let guard = multi.lock_owned().unwrap();
        let count = reported.clone();
        guard.on_lost(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        server.cmd::<()>(&["FLUSHALL"]);
        assert!(guard.wait_lost(CAP).is_lost());
        wait_until("the callback has run", || reported.load(Ordering::SeqCst) == 2);
        refused(guard.unlock(), ErrorKind::Lost, Some("a"));
        let guard = multi.lock().unwrap();
        assert_eq!(reported.load(Ordering::SeqCst), 2);
        guard.unlock().unwrap();
    }
    drop(client);
    server.assert_clean();
}

#[test]
fn closing_the_client_is_reported_like_a_loss() {
    let server = Server::start();
    let client = patient(&server);
    let guard = client.multi(["a", "b"]).lock_owned().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| guard.wait_lost(LONG).is_lost());
        client.close(SOON).unwrap();
        let start = Instant::now();
        assert!(waiter.join().unwrap(), "a thread that waits for a loss");
        assert!(start.elapsed() < SOON);
    });
    refused(guard.ensure_held(), ErrorKind::Closed, Some("a"));
    refused(guard.unlock(), ErrorKind::Closed, Some("a"));
    refused(client.multi(["a", "b"]).lock(), ErrorKind::Closed, Some("a, b"));
    server.assert_clean();
}

#[test]
fn a_thread_that_ends_gives_up_all() {
    let server = Server::start();
    let client = patient(&server);
    std::thread::scope(|s| {
        s.spawn(|| std::mem::forget(client.multi(["a", "b"]).lock().unwrap()));
    });
    wait_until("both are free", || server.lock_keys().is_empty());
}

#[test]
fn a_full_server_takes_none_of_them() {
    let server = Server::start();
    let client = patient(&server);
    let without = server.builder().lease(LONG).fencing(false).build().unwrap();
    // The scripts are loaded earlier, because that takes memory too.
    for client in [&client, &without] {
        client.multi(["x", "y"]).lock().unwrap().unlock().unwrap();
    }
    let held = client.multi(["h", "i"]).lock().unwrap();
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    for client in [&client, &without] {
        let e = client.multi(["a", "b"]).try_lock().unwrap_err();
        assert_eq!((e.kind(), e.name()), (ErrorKind::Full, Some("a, b")), "{e:?}");
        // The reply that a lock is taken needs no memory.
        assert!(client.multi(["a", "h"]).try_lock_owned().unwrap().is_none());
    }
    held.extend(LONG * 2).unwrap();
    assert_eq!(server.lock_keys().len(), 2);
    held.unlock().unwrap();
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_until("nothing is left", || server.lock_keys().is_empty());
    drop(client.multi(["a", "b"]).try_lock().unwrap().expect("it works again"));
}

/// A user who may write hashes but not set a TTL: the lock that was already written is deleted
/// again.
#[test]
fn a_write_that_is_refused_takes_back_what_was_written() {
    let server = Server::start();
    let client = patient(&server);
    let multi = client.multi(["a", "b"]);
    let outer = client.lock("b").unwrap();
    multi.lock().unwrap().unlock().unwrap();
    server.cmd::<()>(&["ACL", "SETUSER", "default", "-pexpire"]);
    let e = multi.try_lock().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e:?}");
    server.cmd::<()>(&["ACL", "SETUSER", "default", "+@all"]);
    assert_eq!(server.lock_keys(), ["b"]);
    assert!(outer.is_held());
    multi.try_lock().unwrap().expect("it works again").unlock().unwrap();
    outer.unlock().unwrap();
    assert!(server.lock_keys().is_empty());
}

/// The first run was granted and its reply lost; then one name was forced open and acquired by
/// another client. The repeat is refused and releases the others.
#[test]
fn a_repeat_leaves_no_half_after_one_was_forced_open() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = client(&proxy);
    let all = client.multi(["m1", "m2", "m3"]);
    all.lock().unwrap().unlock().unwrap();
    hold(&server, "m2");
    server.cmd::<()>(&["CONFIG", "RESETSTAT"]);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| all.try_lock_for(ms(6000)).map(|won| won.is_none()));
        // One attempt comes before the subscription and one after it: the next one follows the
        // release.
        wait_until("it has tried twice", || {
            listens(&server, "m2") && server.call_count("evalsha") >= 2
        });
        // No new connection is opened after the grant, so the waiting call continues through the
        // fault.
        proxy.inject("m1", Fault::CutAfterApplied);
        proxy.refuse(true);
        give_up(&server, "m2");
        wait_until("it is granted unheard", || server.lock_keys().len() == 3);
        give_up(&server, "m3");
        hold(&server, "m3");
        proxy.refuse(false);
        assert!(waiter.join().unwrap().unwrap());
    });
    assert_eq!(server.lock_keys(), ["m3"]);
    server.cmd::<u32>(&["DEL", "m3"]);
}
