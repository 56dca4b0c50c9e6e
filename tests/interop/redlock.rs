//! Leasehold's Redlock together with `RedissonRedLock`, on three masters.
//!
//! To Redisson these are three plain locks, one on each master, which it acquires one after
//! another. With a wait time, it waits for each of them on its own channel, for a third of that
//! time (`lock()`: rounds of 4.5 s with 1.5 s for each); two are enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::LockClient;

use crate::java::{Javas, Jvm, Mode, judge, play_for_a_while, set_up};
use crate::jvm::listeners;
use crate::rig::{CAP, Server, Shared, ms, wait_until};
use crate::support::{Masters, wait_for_votes};
use crate::world::prompt;

struct Trio {
    /// Dropped before its servers.
    jvm: Jvm,
    masters: Masters,
}

impl Trio {
    fn with(settings: &[&str]) -> Self {
        let masters = Masters((0..3).map(|_| Server::start_tcp(&[])).collect());
        wait_for_votes(&masters.admitted().build().unwrap(), 3);
        Self { jvm: Jvm::start_on(&masters.0, settings), masters }
    }

    fn client(&self) -> LockClient {
        self.masters.client()
    }

    /// Waits until no live master stores anything for the lock.
    #[track_caller]
    fn assert_free(&self, name: &str) {
        // Redisson marks an unlock with a key that expires after a while; before version 4 nothing
        // deletes it earlier.
        let left = |key: &String| key.contains(name) && !key.starts_with("redisson_unlock_latch:");
        wait_until(&format!("{name} is free everywhere"), || {
            self.masters
                .0
                .iter()
                .filter(|server| server.try_connect().is_some())
                .all(|server| !server.lock_keys().iter().any(left))
        });
    }
}

/// Shared by tests that break nothing.
fn trio() -> Arc<Trio> {
    static SHARED: Shared<Trio> = Shared::new();
    SHARED.get(|| Trio::with(&[]))
}

fn waits(server: &Server, name: &str) -> bool {
    listeners(server, &format!("redisson_lock__channel:{{{name}}}")) > 0
}

#[test]
fn each_keeps_the_other_out() {
    let trio = trio();
    let (client, java) = (trio.client(), trio.jvm.thread());
    let mutex = client.mutex("tries");
    let guard = mutex.lock().unwrap();
    assert_eq!(java.call("redlock tries tryLock"), "false");
    assert_eq!(java.call("redlock tries tryLock 300"), "false");
    assert_eq!(java.call("redlock tries tryLock 300 20000"), "false");
    guard.unlock().unwrap();
    assert_eq!(java.call("redlock tries tryLock"), "true");
    assert_eq!(java.call("redlock tries tryLock"), "true", "re-entered by the same thread");
    for _ in 0..2 {
        assert!(mutex.try_lock().unwrap().is_none());
        assert!(mutex.try_lock_for(ms(300)).unwrap().is_none());
        // Redisson uses a different id on each master.
        let holder = mutex.holder().unwrap().expect("it is held");
        assert!(!holder.is_this_client() && holder.remaining().is_some());
        if holder.hold_count() == 2 {
            java.call("redlock tries unlock");
        }
    }
    assert_eq!(mutex.holder().unwrap().unwrap().hold_count(), 1);
    java.call("redlock tries unlock");
    mutex.try_lock().unwrap().expect("it is free").unlock().unwrap();
    for wait in ["tryLock 20000", "tryLock 20000 20000", "lock", "lock 20000"] {
        java.call(&format!("redlock tries {wait}"));
        assert!(mutex.try_lock().unwrap().is_none(), "{wait}");
        java.call("redlock tries unlock");
        mutex.try_lock().unwrap().expect(wait).unlock().unwrap();
    }
    trio.assert_free("tries");
}

#[test]
fn a_waiter_is_woken_by_the_release() {
    let trio = trio();
    let (client, java) = (trio.client(), trio.jvm.thread());
    for wait in ["tryLock 60000", "tryLock 60000 20000"] {
        let guard = client.lock("woken").unwrap();
        // Redisson waits 20 s for the first master: with `lock()` it would try again so soon that
        // it would need no message.
        java.begin_waiting(&trio.masters.0[0], &format!("redlock woken {wait}"), "woken", waits);
        assert_eq!(prompt(|| guard.unlock().unwrap(), || java.answer()), "true");
        std::thread::scope(|s| {
            let waiter =
                s.spawn(|| client.mutex("woken").try_lock_owned_for(CAP).unwrap().unwrap());
            wait_until("we wait", || trio.masters.0.iter().all(|server| waits(server, "woken")));
            prompt(|| drop(java.call("redlock woken unlock")), || waiter.join().unwrap())
                .unlock()
                .unwrap();
        });
    }
    trio.assert_free("woken");
}

/// Each of many clients that compete for the lock briefly holds some masters. A Redisson thread
/// that waits for a master held in this way must not keep sleeping afterwards: it would sleep for a
/// third of its 60 s while it holds the two other masters.
#[test]
fn a_redisson_waiter_does_not_sleep_after_an_acquire_that_is_undone() {
    let trio = trio();
    let (java, done) = (trio.jvm.thread(), AtomicBool::new(false));
    let clients: Vec<LockClient> = (0..3).map(|_| trio.client()).collect();
    std::thread::scope(|s| {
        for client in &clients {
            s.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let guard = client.try_lock_for("votes", CAP).unwrap().unwrap();
                    std::thread::sleep(ms(3));
                    guard.unlock().unwrap();
                    std::thread::sleep(ms(3));
                }
            });
        }
        let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..40 {
                assert_eq!(
                    prompt(|| java.begin("redlock votes tryLock 60000"), || java.answer()),
                    "true"
                );
                java.call("redlock votes unlock");
            }
        }));
        done.store(true, Ordering::SeqCst);
        got.unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
    trio.assert_free("votes");
}

/// A fixed lease is not renewed, and a late release takes nothing from the next holder.
#[test]
fn fixed_leases_end_for_the_other_library() {
    let trio = trio();
    let (client, java) = (trio.client(), trio.jvm.thread());
    let mutex = client.mutex("leases");
    let guard = client.mutex("leases").with_lease(ms(2000)).lock_owned().unwrap();
    let refused = java.call("redlock leases tryLock") == "false";
    assert!(refused || !guard.is_held());
    // The lease is 8 s at first, and 4 s from then on. A busy machine can use up a shorter one
    // before Redisson has all three masters, and then Redisson applies its lease to *leasehold's*
    // hold.
    assert_eq!(java.call("redlock leases tryLock 14000 4000"), "true");
    assert!(!guard.is_held());
    let _ = guard.unlock().unwrap_err();
    let next = mutex.try_lock_for(CAP).unwrap().expect("Java's lease ends");
    assert_eq!(java.call("redlock leases unlock"), "ok");
    wait_until("all have our hold", || trio.masters.holding("leases") == 3);
    assert!(next.is_held());
    next.unlock().unwrap();

    java.call("redlock leases lock 4000");
    let next = mutex.try_lock_for(CAP).unwrap().expect("Java's lease ends");
    java.call("redlock leases unlock");
    assert_eq!(java.call("redlock leases tryLock"), "false");
    next.unlock().unwrap();
    trio.assert_free("leases");
}

/// The test lasts for two leases of each library, which are long, because Redisson has a timer for
/// each master and the machine may be busy. Then one of the holders is killed.
#[test]
fn both_watchdogs_renew_on_all_masters() {
    let trio = Trio::with(&["watchdog=5000"]);
    let client = trio.masters.builder().lease(ms(5000)).io_timeout(ms(2500)).build().unwrap();
    let (ours, theirs) = (client.mutex("ours"), client.mutex("theirs"));
    let guard = ours.lock().unwrap();
    {
        let (java, tries) = (trio.jvm.thread(), trio.jvm.thread());
        java.call("redlock theirs lock");
        let start = std::time::Instant::now();
        while start.elapsed() < ms(11_000) {
            assert_eq!(
                tries.call("redlock ours tryLock 500"),
                "false",
                "after {:?}",
                start.elapsed()
            );
            assert!(theirs.try_lock_for(ms(100)).unwrap().is_none(), "after {:?}", start.elapsed());
        }
        assert!(guard.is_held());
        assert_eq!(trio.masters.holding("ours") + trio.masters.holding("theirs"), 6);
        guard.unlock().unwrap();
        assert_eq!(tries.call("redlock ours tryLock"), "true");
    }
    trio.jvm.kill();
    for name in ["ours", "theirs"] {
        client.mutex(name).try_lock_for(CAP).unwrap().expect(name).unlock().unwrap();
        trio.assert_free(name);
    }
}

/// Any of the masters may be dead. Redisson asks the dead one too, each time, until it gives up: so
/// it tries only once here (by default that takes 5 s, and a `lock()` whose first or second master
/// is dead hardly ever succeeds, because its rounds end earlier).
#[test]
fn one_dead_master_of_three_stops_neither_library() {
    for dead in 0..3 {
        let mut trio = Trio::with(&["retries=0"]);
        let client = trio.client();
        trio.masters.0[dead].kill();
        let alive = trio.masters.0.iter().enumerate().find(|(at, _)| *at != dead).unwrap().1;
        let java = trio.jvm.thread();

        let guard = client.lock("l").unwrap();
        assert_eq!(java.call("redlock l tryLock"), "false", "{dead} dead");
        java.begin_waiting(alive, "redlock l tryLock 60000", "l", waits);
        assert_eq!(prompt(|| guard.unlock().unwrap(), || java.answer()), "true", "{dead} dead");
        assert_eq!(holders(&trio, dead), 2);

        assert!(client.try_lock("l").unwrap().is_none(), "{dead} dead");
        assert!(client.mutex("l").is_locked().unwrap());
        let next = std::thread::scope(|s| {
            let waiter = s.spawn(|| client.mutex("l").try_lock_owned_for(CAP).unwrap().unwrap());
            wait_until("we wait", || waits(alive, "l"));
            prompt(|| drop(java.call("redlock l unlock")), || waiter.join().unwrap())
        });
        assert_eq!(java.call("redlock l tryLock"), "false", "{dead} dead");
        next.unlock().unwrap();
        assert_eq!(java.call("redlock l tryLock"), "true", "{dead} dead");
        java.call("redlock l unlock");
        trio.assert_free("l");
    }
}

fn holders(trio: &Trio, dead: usize) -> usize {
    let alive = trio.masters.0.iter().enumerate().filter(|(at, _)| *at != dead);
    alive.filter(|(_, server)| !server.hash("l").is_empty()).count()
}

/// As long as no master loses its data, and none is so slow that a lease ends meanwhile.
#[test]
fn never_two_inside_on_three_masters() {
    let trio = Trio::with(&[]);
    let client = trio.masters.builder().lease(ms(30_000)).build().unwrap();
    let (path, counter) = set_up(trio.masters.0[0].dir(), &client, "redlock");
    let javas = Javas::begin(&trio.jvm, "redlock", &path, Mode::Count, 4);
    let ours = play_for_a_while(&client, "redlock", &path, &counter);
    let theirs = javas.tally();
    judge("redlock", &counter, ours, theirs);
    assert!(theirs.turns > 0);
    trio.assert_free("stress");
}
