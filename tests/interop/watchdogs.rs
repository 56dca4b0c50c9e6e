//! Both libraries renew at the same time.

use std::time::Instant;

use crate::rig::ms;
use crate::support::Clients;
use crate::world::World;

/// Every primitive with leases is held for more than two leases of each library, while the other
/// library keeps trying.
#[test]
fn both_watchdogs_renew_side_by_side() {
    let world = World::with(&["watchdog=5000"]);
    let client = world.server.builder().lease(ms(5000)).io_timeout(ms(2500)).build().unwrap();
    let (java, tries) = (world.jvm.thread(), world.jvm.thread());

    let (rw, semaphore) = (client.rw_lock("ours-write"), client.semaphore("ours-permits"));
    semaphore.try_set_permits(1).unwrap();
    let lock = client.lock("ours-lock").unwrap();
    let fenced = client.mutex("ours-fenced").keep_token().lock_owned().unwrap();
    let fair = client.fair("ours-fair").lock_owned().unwrap();
    let write = rw.write_owned().unwrap();
    let reading = client.rw_lock("ours-read");
    let read = reading.read_owned().unwrap();
    let multi = client.multi(["ours-multi", "ours-multi-2"]).lock_owned().unwrap();
    let permit = semaphore.acquire().unwrap();
    let are_held = || {
        lock.is_held()
            && fenced.is_held()
            && fair.is_held()
            && write.is_held()
            && read.is_held()
            && multi.is_held()
            && permit.is_held()
    };
    for primitive in ["lock", "fenced", "fair", "write", "read"] {
        java.call(&format!("{primitive} theirs-{primitive} lock"));
    }
    java.call("multi theirs-multi,theirs-multi-2 lock");

    let start = Instant::now();
    while start.elapsed() < ms(11_000) {
        let after = || format!("after {:?}", start.elapsed());
        for primitive in ["lock", "fenced", "fair", "write"] {
            assert_eq!(
                tries.call(&format!("{primitive} ours-{primitive} tryLock")),
                "false",
                "{primitive} {}",
                after()
            );
        }
        assert_eq!(tries.call("write ours-read tryLock"), "false", "{}", after());
        assert_eq!(tries.call("multi ours-multi-2,ours-multi tryLock"), "false", "{}", after());
        assert_eq!(tries.call("permits ours-permits tryAcquire"), "null", "{}", after());
        assert!(are_held(), "{}", after());
        assert!(client.mutex("theirs-lock").try_lock_for(ms(30)).unwrap().is_none(), "{}", after());
        assert!(client.mutex("theirs-fenced").try_lock().unwrap().is_none(), "{}", after());
        assert!(client.fair("theirs-fair").try_lock_for(ms(30)).unwrap().is_none(), "{}", after());
        assert!(
            client.rw_lock("theirs-write").try_read_for(ms(30)).unwrap().is_none(),
            "{}",
            after()
        );
        assert!(
            client.rw_lock("theirs-read").try_write_for(ms(30)).unwrap().is_none(),
            "{}",
            after()
        );
        assert!(
            client.multi(["theirs-multi-2", "free"]).try_lock().unwrap().is_none(),
            "{}",
            after()
        );
    }

    lock.unlock().unwrap();
    fenced.unlock().unwrap();
    fair.unlock().unwrap();
    write.unlock().unwrap();
    read.unlock().unwrap();
    multi.unlock().unwrap();
    permit.release().unwrap();
    for primitive in ["lock", "fenced", "fair", "write", "read"] {
        assert_eq!(
            tries.call(&format!("{primitive} ours-{primitive} tryLock")),
            "true",
            "{primitive}"
        );
        assert_eq!(
            java.call(&format!("{primitive} theirs-{primitive} unlock")),
            "ok",
            "{primitive}"
        );
    }
    java.call("multi theirs-multi,theirs-multi-2 unlock");
    assert!(
        client
            .multi(["theirs-multi", "theirs-multi-2", "theirs-lock"])
            .try_lock()
            .unwrap()
            .is_some()
    );
    assert!(client.fair("theirs-fair").try_lock().unwrap().is_some());
    assert!(client.rw_lock("theirs-read").try_write().unwrap().is_some());
    assert!(client.rw_lock("theirs-write").try_write().unwrap().is_some());
}
