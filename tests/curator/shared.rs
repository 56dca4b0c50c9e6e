//! What several hold at a time, or nobody: readers, permits, counts, barriers.

use leasehold::{ErrorKind, LockClient};

use crate::driver::world;
use crate::rig::zookeeper::ZooKeeper;
use crate::rig::{ms, wait_until};

fn nodes(server: &ZooKeeper, path: &str) -> usize {
    server.children(path).len()
}

#[test]
fn readers_of_both_sides_share_and_keep_writers_out() {
    let world = world();
    let (client, java, writer) =
        (LockClient::open(&world.server.url()).unwrap(), world.jvm.thread(), world.jvm.thread());
    let lock = client.rw_lock("readers");
    let ours = lock.read_owned().unwrap();
    assert_eq!(java.call("read readers tryLock 2000"), "true");
    assert!(lock.try_write_owned().unwrap().is_none());
    writer.begin_waiting_until("write readers lock", || nodes(&world.server, "/readers") == 3);
    // Behind a waiting writer.
    assert!(client.rw_lock("readers").try_read_owned_for(ms(100)).unwrap().is_none());
    java.call("read readers unlock");
    assert!(writer.waits() && ours.is_held());
    ours.unlock().unwrap();
    writer.answer();
    std::thread::scope(|s| {
        let reads = s.spawn(|| lock.read_owned().unwrap());
        wait_until("the reader waits", || nodes(&world.server, "/readers") == 2);
        writer.call("write readers unlock");
        reads.join().unwrap().unlock().unwrap();
    });
    wait_until("all have left", || nodes(&world.server, "/readers") == 0);
}

#[test]
fn curator_reads_inside_its_write_and_keeps_reading() {
    let world = world();
    let (client, java) = (LockClient::open(&world.server.url()).unwrap(), world.jvm.thread());
    let (lock, name) = (client.rw_lock("nested-java"), "nested-java");
    java.call(&format!("write {name} lock"));
    std::thread::scope(|s| {
        // A waiter that watches only the write node would get in as soon as that is deleted.
        let writer = s.spawn(|| lock.write_owned().unwrap());
        wait_until("the writer waits", || nodes(&world.server, "/nested-java") == 2);
        java.call(&format!("read {name} lock"));
        assert_eq!(nodes(&world.server, "/nested-java"), 3);
        java.call(&format!("write {name} unlock"));
        wait_until("the write node is gone", || nodes(&world.server, "/nested-java") == 2);
        std::thread::sleep(ms(300));
        assert!(!writer.is_finished(), "a reader holds it, although it came later than the writer");
        java.call(&format!("read {name} unlock"));
        writer.join().unwrap().unlock().unwrap();
    });
}

#[test]
fn a_downgrade_of_curator_lets_our_readers_in() {
    let world = world();
    let (client, java) = (LockClient::open(&world.server.url()).unwrap(), world.jvm.thread());
    let lock = client.rw_lock("downgrade-java");
    java.call("write downgrade-java lock");
    java.call("read downgrade-java lock");
    std::thread::scope(|s| {
        let reader = s.spawn(|| lock.read_owned().unwrap());
        wait_until("the reader waits", || nodes(&world.server, "/downgrade-java") == 3);
        java.call("write downgrade-java unlock");
        let reader = reader.join().unwrap();
        assert!(lock.try_write_owned().unwrap().is_none());
        java.call("read downgrade-java unlock");
        reader.unlock().unwrap();
    });
    lock.write_owned().unwrap().unlock().unwrap();
}

#[test]
fn our_read_inside_a_write_outlives_it_for_curator() {
    let world = world();
    let (client, reads, writes) =
        (LockClient::open(&world.server.url()).unwrap(), world.jvm.thread(), world.jvm.thread());
    let lock = client.rw_lock("nested-ours");
    let write = lock.write().unwrap();
    let inner = lock.write().unwrap();
    let read = lock.read().unwrap();
    reads
        .begin_waiting_until("read nested-ours lock", || nodes(&world.server, "/nested-ours") == 2);
    writes.begin_waiting_until("write nested-ours lock", || {
        nodes(&world.server, "/nested-ours") == 3
    });
    inner.unlock().unwrap();
    assert!(reads.waits());
    write.unlock().unwrap();
    reads.answer();
    assert!(writes.waits() && read.is_held());
    reads.call("read nested-ours unlock");
    assert!(writes.waits());
    read.unlock().unwrap();
    writes.answer();
    writes.call("write nested-ours unlock");
}

#[test]
fn our_downgrade_lets_readers_of_curator_in() {
    let world = world();
    let (client, reads, writes) =
        (LockClient::open(&world.server.url()).unwrap(), world.jvm.thread(), world.jvm.thread());
    let write = client.rw_lock("downgrade-ours").write_owned().unwrap();
    let token = write.fencing_token().unwrap();
    reads.begin_waiting_until("read downgrade-ours lock", || {
        nodes(&world.server, "/downgrade-ours") == 2
    });
    writes.begin_waiting_until("write downgrade-ours lock", || {
        nodes(&world.server, "/downgrade-ours") == 3
    });
    let read = write.downgrade().unwrap();
    reads.answer();
    assert!(writes.waits() && read.is_held());
    read.unlock().unwrap();
    reads.call("read downgrade-ours unlock");
    writes.answer();
    writes.call("write downgrade-ours unlock");
    assert!(
        client.rw_lock("downgrade-ours").write_owned().unwrap().fencing_token().unwrap() > token
    );
}

/// The number of permits is a count of Curator's, so both sides use the same limit.
#[test]
fn a_semaphore_has_one_limit_for_both_sides() {
    let world = world();
    let (client, one, two) =
        (LockClient::open(&world.server.url()).unwrap(), world.jvm.thread(), world.jvm.thread());
    let semaphore = client.semaphore("permits");
    assert_eq!(semaphore.try_set_permits(3).unwrap(), leasehold::SetPermits::New);
    let lease = one.call("semaphore permits acquire");
    let ours = semaphore.acquire_many(2).unwrap();
    assert_eq!(semaphore.available_permits().unwrap(), 0);
    assert!(semaphore.try_acquire().unwrap().is_none());
    assert_eq!(two.call("semaphore permits acquire 100"), "none");
    two.begin_waiting_until("semaphore permits acquire", || {
        nodes(&world.server, "/permits/leases") == 4
    });
    ours.release().unwrap();
    let second = two.answer();
    let ours = semaphore.acquire().unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| semaphore.acquire().unwrap());
        // Our own permits are created when there is room for them.
        wait_until("we wait", || nodes(&world.server, "/permits/locks") == 1);
        one.call(&format!("semaphore permits release {lease}"));
        waits.join().unwrap().release().unwrap();
    });
    // One more for everybody.
    assert_eq!(semaphore.add_permits(1).unwrap(), 2);
    wait_until("Curator knows", || one.call("count permits/permits get") == "4");
    ours.release().unwrap();
    two.call(&format!("semaphore permits release {second}"));
    // Curator returns permits in the background.
    wait_until("all are free", || semaphore.available_permits().unwrap() == 4);
    // A Curator that was given the number at its start.
    let leases = [(); 2].map(|()| one.call("semaphore permits:2 acquire"));
    assert_eq!(one.call("semaphore permits:2 acquire 100"), "none");
    assert_eq!(semaphore.available_permits().unwrap(), 2);
    for lease in &leases {
        drop(one.call(&format!("semaphore permits:2 release {lease}")));
    }
    wait_until("all are free", || semaphore.available_permits().unwrap() == 4);
}

#[test]
fn a_semaphore_of_one_is_a_mutex_that_is_not_reentrant() {
    let world = world();
    let (client, java) = (LockClient::open(&world.server.url()).unwrap(), world.jvm.thread());
    let semaphore = client.semaphore("one");
    assert_eq!(semaphore.try_set_permits(1).unwrap(), leasehold::SetPermits::New);
    java.call("semaphore-mutex one lock");
    assert!(semaphore.try_acquire_for(ms(100)).unwrap().is_none());
    java.call("semaphore-mutex one unlock");
    let permit = semaphore.acquire().unwrap();
    assert_eq!(java.call("semaphore-mutex one tryLock 100"), "false");
    permit.release().unwrap();
    assert_eq!(java.call("semaphore-mutex one tryLock 2000"), "true");
    java.call("semaphore-mutex one unlock");
}

#[test]
fn a_latch_is_a_count_of_curator() {
    let world = world();
    let (client, java) = (LockClient::open(&world.server.url()).unwrap(), world.jvm.thread());
    let latch = client.latch("latch");
    assert!(latch.try_set_count(2).unwrap());
    wait_until("Curator sees it", || java.call("count latch get") == "2");
    assert_eq!(java.call("count latch trySet 1"), "true");
    assert_eq!(latch.count().unwrap(), 1);
    std::thread::scope(|s| {
        let waits = s.spawn(|| latch.wait().unwrap());
        wait_until("we wait", || world.server.watches().iter().any(|(_, path)| path == "/latch"));
        assert!(!waits.is_finished());
        java.call("count latch set 0");
        waits.join().unwrap();
    });
    java.call("count latch set 3");
    for left in [2, 1, 0] {
        assert_eq!(latch.count_down().unwrap(), left);
    }
    wait_until("Curator sees that it is open", || java.call("count latch get") == "0");
    assert!(latch.try_wait().unwrap());
}

/// A barrier of Curator is a node that exists, whatever its data: we do not wait for one, which is
/// documented, but a latch that is deleted opens a barrier.
#[test]
fn a_latch_that_is_deleted_opens_a_barrier_of_curator() {
    let world = world();
    let (client, java) = (LockClient::open(&world.server.url()).unwrap(), world.jvm.thread());
    let latch = client.latch("as-barrier");
    assert!(latch.try_set_count(1).unwrap());
    java.begin("barrier as-barrier wait");
    let hears = || world.server.watches().iter().any(|(_, path)| path == "/as-barrier");
    wait_until("it waits", hears);
    assert!(java.waits());
    latch.delete().unwrap();
    java.answer();
    java.call("barrier closed set");
    assert_eq!(client.latch("closed").try_wait().unwrap_err().kind(), ErrorKind::WrongType);
    java.call("barrier closed remove");
    assert!(client.latch("closed").try_wait().unwrap());
}
