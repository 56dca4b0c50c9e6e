//! Permits of both kinds: those with leases together with `RPermitExpirableSemaphore`, plain counts
//! together with `RSemaphore`.

use leasehold::LockClient;

use crate::java::Jvm;
use crate::jvm::listeners;
use crate::rig::{CAP, Child, Server, ms, wait_until};
use crate::support::ShortLease;
use crate::world::{World, prompt, world};

fn waits(server: &Server, name: &str) -> bool {
    listeners(server, &format!("redisson_sc:{{{name}}}")) > 0
}

#[test]
fn permits_of_both_libraries_are_counted_together() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let semaphore = client.semaphore("s1");
    assert_eq!(java.call("permits s1 trySetPermits 4"), "true");
    assert_ne!(semaphore.try_set_permits(9).unwrap(), leasehold::SetPermits::New);
    let two = semaphore.acquire_many(2).unwrap();
    let theirs = java.call("permits s1 acquire");
    let last = semaphore.acquire().unwrap();
    assert_eq!(
        (semaphore.available_permits().unwrap(), semaphore.acquired_permits().unwrap()),
        (0, 4)
    );
    assert_eq!(java.call("permits s1 availablePermits"), "0");
    assert_eq!(java.call("permits s1 acquiredPermits"), "4");
    assert_eq!(java.call("permits s1 tryAcquire"), "null");
    assert!(semaphore.try_acquire_for(ms(30)).unwrap().is_none());

    java.begin_waiting(&world.server, "permits s1 acquire", "s1", waits);
    let again = prompt(|| last.release().unwrap(), || java.answer());
    assert_eq!(java.call(&format!("permits s1 release {again}")), "true");
    assert_eq!(java.call(&format!("permits s1 release {again}")), "false");

    let rest = semaphore.acquire().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| semaphore.try_acquire_for(CAP).unwrap().unwrap());
        wait_until("we wait", || waits(&world.server, "s1"));
        let release = || assert_eq!(java.call(&format!("permits s1 release {theirs}")), "true");
        prompt(release, || waiter.join().unwrap()).release().unwrap();
    });
    drop(rest);
    two.release().unwrap();
    assert_eq!(java.call("permits s1 availablePermits"), "4");
}

/// Redisson returns leasehold permits by their ids, but not the other way around: `release` accepts
/// leasehold permits only.
#[test]
fn redisson_returns_leasehold_permits() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let semaphore = client.semaphore("s2");
    semaphore.try_set_permits(3).unwrap();
    for id in semaphore.acquire_many(2).unwrap().forget().redisson_ids() {
        assert_eq!(java.call(&format!("permits s2 release {id}")), "true");
    }
    let taken = semaphore.acquire_many(2).unwrap().forget();
    assert_eq!(
        java.call(&format!("permits s2 release {}", taken.redisson_ids().join(" "))),
        "true"
    );
    assert!(semaphore.release(&taken).is_err());
    assert_eq!(
        (semaphore.available_permits().unwrap(), semaphore.acquired_permits().unwrap()),
        (3, 0)
    );
}

#[test]
fn several_permits_at_once_wait_for_all_of_them() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let semaphore = client.semaphore("s3");
    semaphore.try_set_permits(2).unwrap();
    let (one, two) = (semaphore.acquire().unwrap(), semaphore.acquire().unwrap());
    java.begin_waiting(&world.server, "permits s3 acquireMany 2", "s3", waits);
    one.release().unwrap();
    assert!(java.waits());
    let ids = prompt(|| two.release().unwrap(), || java.answer());
    std::thread::scope(|s| {
        let waiter = s.spawn(|| semaphore.try_acquire_many_for(2, CAP).unwrap().unwrap());
        wait_until("we wait", || waits(&world.server, "s3"));
        prompt(|| drop(java.call(&format!("permits s3 release {ids}"))), || waiter.join().unwrap())
            .release()
            .unwrap();
    });
    assert_eq!(semaphore.available_permits().unwrap(), 2);
}

#[test]
#[ignore = "a program for other tests"]
fn holding_process() {
    let client = LockClient::builder()
        .url(std::env::var("LEASEHOLD_TEST_URL").unwrap())
        .short_lease(ms(1500))
        .build()
        .unwrap();
    let _permit = client.semaphore("s4").acquire().unwrap();
    println!("@@has it");
    std::thread::park();
}

/// Leasehold permits are renewed while their process lives; Redisson permits last for the lease
/// with which they were acquired.
#[test]
fn permits_of_killed_processes_come_back_to_the_other_library() {
    let world = World::with(&[]);
    let doomed = Jvm::start(&world.server, &[]);
    let (client, java) = (world.client(), world.jvm.thread());
    let semaphore = client.semaphore("s4");
    semaphore.try_set_permits(1).unwrap();

    let mut child =
        Child::spawn("semaphores::holding_process", &[("LEASEHOLD_TEST_URL", &world.server.url())]);
    child.expect("has it");
    java.begin_waiting(&world.server, "permits s4 acquire", "s4", waits);
    child.kill();
    let id = java.answer();
    assert_eq!(java.call(&format!("permits s4 release {id}")), "true");

    doomed.thread().call("permits s4 acquire 2000");
    assert!(semaphore.try_acquire().unwrap().is_none());
    doomed.kill();
    let permit = semaphore.try_acquire_for(CAP).unwrap().expect("its lease has ended");
    assert_eq!(
        (semaphore.available_permits().unwrap(), semaphore.acquired_permits().unwrap()),
        (0, 1)
    );
    permit.release().unwrap();
    assert_eq!(java.call("permits s4 availablePermits"), "1");
}

#[test]
#[ignore = "a program for other tests"]
fn counting_process() {
    let client =
        LockClient::builder().url(std::env::var("LEASEHOLD_TEST_URL").unwrap()).build().unwrap();
    let _permits = client.counting_semaphore("c2").acquire_many(2).unwrap();
    println!("@@has them");
    std::thread::park();
}

/// A plain count has no leases: the permits of a killed process are lost, with either library,
/// until somebody adds them again.
#[test]
fn counts_of_killed_processes_are_gone_until_they_are_added_again() {
    let world = World::with(&[]);
    let doomed = Jvm::start(&world.server, &[]);
    let (client, java) = (world.client(), world.jvm.thread());
    let semaphore = client.counting_semaphore("c2");
    semaphore.try_set_permits(4).unwrap();
    let mut child = Child::spawn(
        "semaphores::counting_process",
        &[("LEASEHOLD_TEST_URL", &world.server.url())],
    );
    child.expect("has them");
    doomed.thread().call("counting c2 acquire 2");
    child.kill();
    doomed.kill();
    assert_eq!(
        (semaphore.available_permits().unwrap(), java.call("counting c2 tryAcquire 1 500")),
        (0, "false".into())
    );
    java.begin_waiting(&world.server, "counting c2 acquire 1", "c2", waits);
    prompt(|| assert_eq!(semaphore.add_permits(2).unwrap(), 2), || java.answer());
    std::thread::scope(|s| {
        // Leasehold has one permit left and Redisson adds its own: acquiring three at once needs
        // both.
        let waiter = s.spawn(|| semaphore.try_acquire_many_for(3, CAP).unwrap().unwrap());
        wait_until("we wait", || waits(&world.server, "c2"));
        prompt(|| drop(java.call("counting c2 addPermits 2")), || waiter.join().unwrap())
            .release()
            .unwrap();
    });
    java.call("counting c2 release 1");
    assert_eq!(semaphore.available_permits().unwrap(), 4);
}

#[test]
fn both_libraries_share_one_count() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let semaphore = client.counting_semaphore("c1");
    assert!(semaphore.try_set_permits(3).unwrap().is_new());
    assert_eq!(java.call("counting c1 trySetPermits 9"), "false");
    java.call("counting c1 acquire 2");
    let one = semaphore.acquire().unwrap();
    assert_eq!(
        (semaphore.available_permits().unwrap(), java.call("counting c1 availablePermits")),
        (0, "0".to_owned())
    );
    assert_eq!(java.call("counting c1 tryAcquire 1"), "false");
    assert!(semaphore.try_acquire_for(ms(30)).unwrap().is_none());

    java.begin_waiting(&world.server, "counting c1 acquire 1", "c1", waits);
    prompt(|| one.release().unwrap(), || java.answer());
    std::thread::scope(|s| {
        let waiter = s.spawn(|| semaphore.try_acquire_many_for(3, CAP).unwrap().unwrap());
        wait_until("we wait", || waits(&world.server, "c1"));
        java.call("counting c1 release 1");
        assert!(!waiter.is_finished());
        prompt(|| drop(java.call("counting c1 release 2")), || waiter.join().unwrap())
            .release()
            .unwrap();
    });
    java.call("counting c1 addPermits 2");
    assert_eq!(semaphore.add_permits(-1).unwrap(), 4);
    assert_eq!(java.call("counting c1 drainPermits"), "4");
    assert!(semaphore.try_acquire().unwrap().is_none());
}
