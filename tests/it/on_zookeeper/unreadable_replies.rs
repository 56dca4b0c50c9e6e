//! A reply says that its request has run, and the rest of it cannot be read: what the request has
//! made is unknown, as after a lost reply, and nothing of it is left.

use leasehold::{ErrorKind, Result};

use super::cut_replies::Rig;
use super::{client_of, server};
use crate::rig::{CAP, Fault, ms, wait_until};

/// The bodies of the replies to one request have this many bytes more each time.
const STEP: usize = 9;

impl Rig {
    fn shorten(&self, word: &str, skip: u32, act: impl FnMut(&str) -> bool) {
        self.at_each(Fault::ShortBody, STEP, word, skip, 1, act);
    }
}

/// The result of the call, if its reply could be read.
#[track_caller]
fn unless_unread<T>(what: &str, outcome: Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(e) => {
            let kinds = [ErrorKind::Protocol, ErrorKind::Unreachable];
            assert!(kinds.contains(&e.kind()), "{what}: {e}");
            None
        }
    }
}

#[test]
fn to_a_create() {
    let rig = server!(Rig::start(&["/job"]));
    rig.shorten("create2 /job", 0, |what| {
        if let Some(won) = unless_unread(what, rig.client.try_lock("job")) {
            won.expect(what).unlock().unwrap();
        }
        true
    });
    rig.end();
}

#[test]
fn to_a_create_with_its_directory() {
    let rig = server!(Rig::start(&[]));
    let mut number = 0;
    rig.shorten("multi /fresh", 0, |what| {
        number += 1;
        if let Some(won) = unless_unread(what, rig.client.try_lock(format!("fresh-{number}"))) {
            won.expect(what).unlock().unwrap();
        }
        true
    });
    rig.end();
}

#[test]
fn to_a_hand_over() {
    let rig = server!(Rig::start(&["/job"]));
    let client = &rig.client;
    rig.shorten("multi /job", 0, |what| {
        let hits = rig.proxy.hits();
        // On a busy machine the fault meets what is left to undo of the time before.
        let Some(guard) = unless_unread(what, client.lock("job")) else { return false };
        std::thread::scope(|s| {
            let next = s.spawn(|| client.lock("job").map(|guard| guard.unlock()));
            // Nothing shows that it waits. If this was too short, the test tries again.
            std::thread::sleep(ms(10));
            let _ = unless_unread(what, guard.unlock());
            if let Some(unlocked) = unless_unread(what, next.join().unwrap()) {
                unlocked.expect(what);
            }
        });
        rig.proxy.hits() > hits
    });
    rig.end();
}

#[test]
fn to_a_downgrade() {
    let rig = server!(Rig::start(&["/data"]));
    rig.shorten("multi /data", 0, |what| {
        // On a busy machine the fault meets what is left to undo of the time before.
        let Some(guard) = unless_unread(what, rig.client.rw_lock("data").write()) else {
            return false;
        };
        if let Some(guard) = unless_unread(what, guard.downgrade()) {
            guard.unlock().unwrap();
        }
        true
    });
    rig.end();
}

#[test]
fn to_several_locks_as_one() {
    let rig = server!(Rig::start(&["/a", "/b"]));
    // They are queued in one transaction, and released in another.
    for skip in [0, 1] {
        rig.shorten("multi /a", skip, |what| {
            if let Some(won) = unless_unread(what, rig.client.multi(["b", "a"]).try_lock()) {
                let _ = unless_unread(what, won.expect(what).unlock());
            }
            true
        });
    }
    rig.end();
}

#[test]
fn to_permits() {
    let rig = server!(Rig::start(&["/pool", "/pool/locks", "/pool/leases"]));
    let pool = rig.client.semaphore("pool");
    assert_eq!(pool.try_set_permits(3).unwrap(), leasehold::SetPermits::New);
    rig.shorten("multi /pool/leases", 0, |what| {
        if let Some(won) = unless_unread(what, pool.try_acquire_many(2)) {
            drop(won.expect(what));
        }
        true
    });
    assert_eq!((pool.available_permits().unwrap(), pool.acquired_permits().unwrap()), (3, 0));
    assert!(pool.delete().unwrap());
    drop(pool);
    rig.end();
}

/// What comes behind it on the connection is sent again, and works.
#[test]
fn with_other_requests_behind_it() {
    let rig = server!(Rig::start(&["/first", "/job", "/well"]));
    let proxy = &rig.proxy;
    let client = client_of(&proxy.zookeeper_url(), |builder| builder.io_timeout(CAP));
    let well = client.mutex("well").lock_owned().unwrap();
    std::thread::scope(|s| {
        let is_next = |word: &str, fault: Fault| {
            let hits = proxy.hits();
            proxy.inject(word, fault);
            move || wait_until("it is under way", || proxy.hits() > hits)
        };
        // All replies wait for the first one.
        let wait = is_next("create2 /first", Fault::HoldReply);
        let first = s.spawn(|| client.try_lock("first").map(|won| won.is_some()));
        wait();
        let wait = is_next("create2 /job", Fault::ShortBody(0));
        let job = s.spawn(|| client.try_lock("job").map(|won| won.is_some()));
        wait();
        let wait = is_next("delete /well", Fault::Pass);
        let unlock = s.spawn(|| well.unlock());
        wait();
        proxy.release_held();
        assert_eq!(job.join().unwrap().unwrap_err().kind(), ErrorKind::Protocol);
        unlock.join().unwrap().unwrap();
        assert!(first.join().unwrap().unwrap());
    });
    drop(client);
    rig.end();
}
