//! The plain lock, in turns with `RLock`.

use std::time::Duration;

use crate::jvm::listeners;
use crate::rig::{ms, wait_until};
use crate::world::{World, prompt, world};

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

#[test]
fn we_hold_and_java_waits() {
    let Some(world) = world() else { return };
    let (client, java) = (world.client(), world.jvm.thread());
    let mutex = client.mutex("p1");
    let outer = mutex.lock().unwrap();
    let inner = mutex.lock().unwrap();
    assert_eq!(java.call("lock p1 isLocked"), "true");
    assert_eq!(java.call("lock p1 tryLock"), "false");
    assert_eq!(java.call("lock p1 tryLock 50"), "false");
    assert!(java.fail("lock p1 unlock").contains("IllegalMonitorState"), "it is not Java's to unlock");
    java.begin_waiting(&world.server, "lock p1 lock", &channel("p1"));
    inner.unlock().unwrap();
    assert!(java.waits() && outer.is_held(), "one level is left");
    prompt(|| outer.unlock().unwrap(), || java.answer());
    assert!(mutex.try_lock().unwrap().is_none());
    assert_eq!(java.call("lock p1 unlock"), "ok");
    assert!(!mutex.is_locked().unwrap());
}

#[test]
fn java_holds_and_we_wait() {
    let Some(world) = world() else { return };
    let (client, java) = (world.client(), world.jvm.thread());
    let mutex = client.mutex("p2");
    java.call("lock p2 lock");
    java.call("lock p2 lock");
    assert!(mutex.try_lock().unwrap().is_none());
    assert!(mutex.try_lock_for(ms(50)).unwrap().is_none());
    assert_eq!(mutex.holder().unwrap().unwrap().hold_count(), 2);
    assert_eq!(java.call("lock p2 holdCount"), "2");
    std::thread::scope(|s| {
        let waiter = s.spawn(|| mutex.lock_owned().unwrap());
        wait_until("we listen", || listeners(&world.server, &channel("p2")) > 0);
        java.call("lock p2 unlock");
        assert!(!waiter.is_finished(), "one level is left");
        let guard = prompt(|| drop(java.call("lock p2 unlock")), || waiter.join().unwrap());
        assert_eq!(java.call("lock p2 tryLock"), "false");
        guard.unlock().unwrap();
    });
    assert_eq!(java.call("lock p2 tryLock"), "true");
    java.call("lock p2 unlock");
}

#[test]
fn timed_tries_of_both_sides_are_woken() {
    let Some(world) = world() else { return };
    let (client, java) = (world.client(), world.jvm.thread());
    let mutex = client.mutex("p3");
    let guard = mutex.lock().unwrap();
    java.begin_waiting(&world.server, "lock p3 tryLock 60000", &channel("p3"));
    assert_eq!(prompt(|| drop(guard), || java.answer()), "true");
    std::thread::scope(|s| {
        let waiter = s.spawn(|| mutex.try_lock_for(Duration::from_secs(60)).unwrap().is_some());
        wait_until("we listen", || listeners(&world.server, &channel("p3")) > 0);
        assert!(prompt(|| drop(java.call("lock p3 unlock")), || waiter.join().unwrap()));
    });
}

#[test]
fn leases_of_both_sides_end() {
    let Some(world) = world() else { return };
    let (client, java) = (world.client(), world.jvm.thread());
    let mutex = client.mutex("p4");
    java.call("lock p4 lock 300");
    let guard = mutex.with_lease(ms(300)).max_hold(ms(300)).lock().unwrap();
    assert_eq!(java.call("lock p4 tryLock 10000"), "true", "it comes free without a release");
    assert!(guard.wait_lost(Duration::from_secs(5)));
    assert!(guard.unlock().is_err());
    assert_eq!(java.call("lock p4 holdCount"), "1", "what is Java's by now stayed Java's");
    java.call("lock p4 unlock");
}

#[test]
fn both_sides_can_force_the_other_out() {
    let Some(world) = world() else { return };
    let (client, java, other) = (world.client(), world.jvm.thread(), world.jvm.thread());
    let mutex = client.mutex("p5");
    let guard = mutex.lock().unwrap();
    java.begin_waiting(&world.server, "lock p5 lock", &channel("p5"));
    assert_eq!(prompt(|| assert_eq!(other.call("lock p5 forceUnlock"), "true"), || java.answer()), "ok");
    assert!(guard.unlock().is_err());
    std::thread::scope(|s| {
        let waiter = s.spawn(|| mutex.lock().unwrap().unlock().unwrap());
        wait_until("we listen", || listeners(&world.server, &channel("p5")) > 0);
        prompt(|| assert!(client.mutex("p5").force_unlock().unwrap()), || waiter.join().unwrap());
    });
    assert!(java.fail("lock p5 unlock").contains("IllegalMonitorState"));
    assert_eq!(other.call("lock p5 forceUnlock"), "false", "nobody has it");
}

/// For several leases of each, with the other side trying all the time.
#[test]
fn both_watchdogs_renew_side_by_side() {
    let Some(world) = World::with(&["watchdog=2000"]) else { return };
    let client = world.server.builder().lease(ms(2000)).build().unwrap();
    let (java, tries) = (world.jvm.thread(), world.jvm.thread());
    let (ours, theirs) = (client.mutex("ours"), client.mutex("theirs"));
    let guard = ours.lock().unwrap();
    java.call("lock theirs lock");
    let start = std::time::Instant::now();
    while start.elapsed() < ms(7000) {
        assert_eq!(tries.call("lock ours tryLock 100"), "false", "after {:?}", start.elapsed());
        assert!(theirs.try_lock_for(ms(100)).unwrap().is_none(), "after {:?}", start.elapsed());
    }
    guard.unlock().unwrap();
    assert_eq!(tries.call("lock ours tryLock"), "true");
    assert_eq!(java.call("lock theirs unlock"), "ok");
    assert!(theirs.try_lock().unwrap().is_some());
}
