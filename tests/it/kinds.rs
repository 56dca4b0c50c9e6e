//! One name, several kinds of primitives: each call reports what belongs to another kind, and does
//! not change it.

use std::time::Duration;

use leasehold::fencing::FencingToken;
use leasehold::{ErrorKind, LockClient};

use crate::rig::{CAP, Server, ms};
use crate::support::Clients;

#[track_caller]
fn refused<T: std::fmt::Debug>(result: leasehold::Result<T>, kind: ErrorKind) {
    assert_eq!(result.unwrap_err().kind(), kind);
}

#[test]
fn keys_of_ours_are_no_names() {
    let server = Server::start();
    let client = server.client();
    let before = server.call_count("evalsha");
    let keys = [
        "leasehold:node",
        "leasehold:probe",
        "redisson_lock_token:{x}",
        "leasehold_writer:{x}",
        "leasehold_data:{x}",
        "{x}:timeout",
    ];
    for key in keys {
        let kind = ErrorKind::InvalidInput;
        refused(client.lock(key), kind);
        refused(client.fair(key).try_lock(), kind);
        refused(client.election(key).leader(), kind);
        refused(client.rw_lock(key).read(), kind);
        refused(client.multi(["a", key]).lock(), kind);
        refused(client.semaphore(key).try_set_permits(1), kind);
        refused(client.latch(key).count_down(), kind);
        refused(client.fenced_value(key).claim(FencingToken::new(1)), kind);
        let error = client.lock(key).unwrap_err();
        assert_eq!(error.name(), Some(key));
        assert!(error.to_string().contains("use another name"), "{error}");
        // The key is what clashes: a client's prefix can turn a valid name into a reserved key, or
        // the reverse.
        let (prefix, name) = key.split_at(5);
        let mapped = server.builder().key_prefix(prefix).build().unwrap();
        refused(mapped.lock(name), kind);
        refused(mapped.fenced_value(name).claim(FencingToken::new(1)), kind);
    }
    let prefixed = server.builder().key_prefix("app:").build().unwrap();
    drop(prefixed.lock("leasehold:node").unwrap());
    drop(client.lock("redisson_lock_token:x").unwrap());
    refused(prefixed.fenced_value("").claim(FencingToken::new(1)), ErrorKind::InvalidInput);
    // The locks that were acquired, and the probe of each client.
    assert!(server.call_count("evalsha") - before <= 4 + 1 + keys.len() as u64);
}

/// Every way to acquire a lock under the name of a fenced value.
fn locks_refuse(client: &LockClient, name: &str) {
    let kind = ErrorKind::WrongType;
    refused(client.try_lock(name), kind);
    refused(client.lock(name), kind);
    refused(client.mutex(name).try_lock_owned(), kind);
    refused(client.mutex(name).is_locked(), kind);
    refused(client.mutex(name).holder(), kind);
    refused(client.mutex(name).force_unlock(), kind);
    refused(client.fair(name).try_lock(), kind);
    refused(client.fair(name).lock(), kind);
    refused(client.fair(name).force_unlock(), kind);
    refused(client.rw_lock(name).read(), kind);
    refused(client.rw_lock(name).write(), kind);
    refused(client.rw_lock(name).force_unlock(), kind);
    refused(client.multi(["a", name]).lock(), kind);
}

#[test]
fn a_fenced_value_and_a_lock_do_not_share_a_key() {
    let server = Server::start();
    let client = server.client();
    // The value comes first.
    let claim = client.fenced_value("x").claim(FencingToken::new(7)).unwrap();
    locks_refuse(&client, "x");
    claim.write("kept").unwrap();
    locks_refuse(&client, "x");
    let fields = [("token", "7"), ("value", "kept")]
        .map(|(field, text)| (field.to_owned(), text.to_owned()));
    assert_eq!(server.hash("x"), fields.into());
    assert_eq!(server.pttl("x"), -1);
    server.cmd::<()>(&["DEL", "x"]);
    drop(claim);

    // The lock comes first.
    let guard = client.lock("x").unwrap();
    let fair = client.fair("f").lock().unwrap();
    let read = client.rw_lock("rw").read().unwrap();
    let token = guard.fencing_token().unwrap();
    for name in ["x", "f", "rw"] {
        let before = server.hash(name);
        refused(client.fenced_value(name).claim(token), ErrorKind::WrongType);
        assert_eq!(server.hash(name), before);
    }
    guard.unlock().unwrap();
    fair.unlock().unwrap();
    read.unlock().unwrap();

    // An unconditional write makes a lock out of it behind a claim.
    let claim = client.fenced_value("x").claim(token).unwrap();
    server.cmd::<()>(&["DEL", "x"]);
    let guard = client.lock("x").unwrap();
    refused(claim.write("lost"), ErrorKind::WrongType);
    guard.unlock().unwrap();
    drop((claim, client));
    server.assert_clean();
}

/// The check that separates values from locks costs waiters for a lock nothing.
#[test]
fn whoever_finds_a_lock_taken_does_not_look_twice() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let guard = a.mutex("x").with_lease(Duration::from_secs(30)).lock().unwrap();
    assert!(b.try_lock("x").unwrap().is_none());
    let before = server.call_count("hexists");
    assert!(b.try_lock("x").unwrap().is_none());
    assert_eq!(
        server.call_count("hexists") - before,
        2,
        "one for our own hold, one for a read-write lock"
    );
    assert!(b.try_lock_for("x", ms(5)).unwrap().is_none());
    guard.unlock().unwrap();
}

/// All three are a number under the name, which Redis cannot distinguish. A client that knows more
/// reports it.
#[test]
fn a_latch_and_semaphores_of_one_client_do_not_share_a_name() {
    let server = Server::start();
    let client = server.client();
    let (latch, leased, counting) =
        (client.latch("n"), client.semaphore("n"), client.counting_semaphore("n"));
    let kind = ErrorKind::WrongType;
    let leased_refuses = || {
        refused(leased.acquire(), kind);
        refused(leased.try_set_permits(2), kind);
        refused(leased.add_permits(1), kind);
        refused(leased.available_permits(), kind);
        refused(leased.delete(), kind);
    };
    let counting_refuses = || {
        refused(counting.acquire(), kind);
        refused(counting.try_set_permits(2), kind);
        refused(counting.add_permits(1), kind);
        refused(counting.delete(), kind);
    };
    let latch_refuses = || {
        refused(latch.try_set_count(2), kind);
        refused(latch.count_down(), kind);
        refused(latch.wait_for(ms(10)), kind);
        refused(latch.count(), kind);
        refused(latch.delete(), kind);
    };
    latch.set_count(1).unwrap();
    leased_refuses();
    counting_refuses();
    assert_eq!(latch.count().unwrap(), 1, "it is still closed");
    let error = leased.acquire().unwrap_err();
    assert!(error.to_string().contains("another name"), "{error}");
    latch.count_down().unwrap();

    // It is over: the name can be reused for another kind.
    assert_eq!(leased.try_set_permits(1).unwrap(), leasehold::SetPermits::New);
    let permit = leased.acquire().unwrap();
    latch_refuses();
    counting_refuses();
    permit.release().unwrap();
    assert!(leased.delete().unwrap());
    assert!(counting.try_set_permits(1).unwrap().is_new());
    counting.acquire().unwrap().forget();
    latch_refuses();
    leased_refuses();
    assert_eq!(counting.add_permits(1).unwrap(), 1);

    // Even if another client ended it.
    assert!(server.client().counting_semaphore("n").delete().unwrap());
    latch.set_count(2).unwrap();
    server.cmd::<()>(&["DEL", "n"]);
    assert_eq!(leased.try_set_permits(1).unwrap(), leasehold::SetPermits::New);
    assert!(leased.delete().unwrap());
    drop((latch, leased, counting, client));
    server.assert_clean();
}

/// Who has looked at a name that nobody used has not used it.
#[test]
fn a_look_at_nothing_makes_a_name_of_no_kind() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    assert_eq!(client.semaphore("a").available_permits().unwrap(), 0);
    assert_eq!(client.counting_semaphore("b").available_permits().unwrap(), 0);
    for name in ["a", "b"] {
        other.latch(name).set_count(2).unwrap();
        assert_eq!(client.latch(name).count().unwrap(), 2);
        assert!(other.latch(name).delete().unwrap());
    }
    drop((client, other));
    server.assert_clean();
}

/// A thread finds that another one of its client has the name as another kind: it does not wait.
#[test]
fn another_kind_is_no_reason_to_wait_within_a_client() {
    let server = Server::start();
    for client in [server.client(), LockClient::in_memory()] {
        let (mutex, fair, rw) = (client.mutex("a"), client.fair("a"), client.rw_lock("a"));
        let of_rw = |held: &str| {
            std::thread::scope(|s| {
                s.spawn(|| {
                    refused(rw.try_read_for(CAP), ErrorKind::WrongType);
                    refused(rw.try_write_for(CAP), ErrorKind::WrongType);
                })
                .join()
                .unwrap_or_else(|_| panic!("held as {held}"));
            });
        };
        let of_one = |held: &str| {
            std::thread::scope(|s| {
                s.spawn(|| {
                    refused(mutex.try_lock_for(CAP), ErrorKind::WrongType);
                    refused(fair.try_lock_for(CAP), ErrorKind::WrongType);
                    refused(client.multi(["a", "b"]).try_lock_for(CAP), ErrorKind::WrongType);
                })
                .join()
                .unwrap_or_else(|_| panic!("held as {held}"));
            });
        };
        let guard = mutex.lock().unwrap();
        of_rw("mutex");
        guard.unlock().unwrap();
        let guard = fair.lock().unwrap();
        of_rw("fair");
        guard.unlock().unwrap();
        let guard = rw.read().unwrap();
        of_one("read");
        guard.unlock().unwrap();
        let guard = rw.write().unwrap();
        of_one("write");
        guard.unlock().unwrap();
    }
}

/// An owned call without a timeout does not wait for a guard that only its own thread can drop.
#[test]
fn an_owned_call_does_not_wait_for_its_own_thread() {
    let server = Server::start();
    let client = server.client();
    let (mutex, fair, rw) = (client.mutex("m"), client.fair("f"), client.rw_lock("rw"));
    let bound = (mutex.lock().unwrap(), fair.lock().unwrap(), rw.write().unwrap());
    refused(mutex.lock_owned(), ErrorKind::Conflict);
    refused(fair.lock_owned(), ErrorKind::Conflict);
    refused(rw.read_owned(), ErrorKind::Conflict);
    refused(rw.write_owned(), ErrorKind::Conflict);
    refused(client.multi(["a", "m"]).lock_owned(), ErrorKind::Conflict);
    // Nor for one that is the same lock by another kind.
    refused(client.mutex("f").lock_owned(), ErrorKind::Conflict);
    refused(client.fair("m").lock_owned(), ErrorKind::Conflict);
    refused(client.multi(["a", "f"]).lock_owned(), ErrorKind::Conflict);
    refused(client.mutex("rw").lock_owned(), ErrorKind::WrongType);
    refused(client.rw_lock("m").read_owned(), ErrorKind::WrongType);
    // With a timeout the lock is simply taken.
    assert!(
        mutex.try_lock_owned().unwrap().is_none()
            && mutex.try_lock_owned_for(ms(5)).unwrap().is_none()
    );
    assert!(client.multi(["a", "m"]).try_lock_owned_for(ms(5)).unwrap().is_none());
    assert!(rw.try_read_owned_for(ms(5)).unwrap().is_none());
    // Another thread does wait for this one, which can drop its guard.
    std::thread::scope(|s| {
        let waiter = s.spawn(|| mutex.lock_owned().unwrap().unlock());
        drop(bound);
        waiter.join().unwrap().unwrap();
    });
    // It does wait for a lease that ends by itself; readers do not exclude each other.
    let short = mutex.clone().with_lease(ms(2000)).lock().unwrap();
    mutex.lock_owned().unwrap().unlock().unwrap();
    assert!(!short.is_held());
    let _read = rw.read().unwrap();
    drop(rw.read_owned().unwrap());
}
