//! Both sides renew, beside each other.

use std::time::Instant;

use crate::rig::ms;
use crate::world::World;

/// For several leases of each, with the other side trying all the time.
#[test]
fn both_watchdogs_renew_side_by_side() {
    let Some(world) = World::with(&["watchdog=2000"]) else { return };
    let client = world.server.builder().lease(ms(2000)).build().unwrap();
    let (java, tries) = (world.jvm.thread(), world.jvm.thread());
    let (ours, theirs) = (client.mutex("ours"), client.mutex("theirs"));
    let guard = ours.lock().unwrap();
    java.call("lock theirs lock");
    let start = Instant::now();
    while start.elapsed() < ms(7000) {
        assert_eq!(tries.call("lock ours tryLock 500"), "false", "after {:?}", start.elapsed());
        assert!(theirs.try_lock_for(ms(100)).unwrap().is_none(), "after {:?}", start.elapsed());
    }
    guard.unlock().unwrap();
    assert_eq!(tries.call("lock ours tryLock"), "true");
    assert_eq!(java.call("lock theirs unlock"), "ok");
    assert!(theirs.try_lock().unwrap().is_some());
}
