//! Several names at once, together with `RMultiLock`, which acquires them one after another.

use crate::jvm::listeners;
use crate::rig::{CAP, Server, wait_until};
use crate::world::{prompt, world};

fn waits(server: &Server, name: &str) -> bool {
    listeners(server, &format!("redisson_lock__channel:{{{name}}}")) > 0
}

#[test]
fn a_leasehold_multi_lock_keeps_redissons_out() {
    let world = world();
    let (client, java, single) = (world.client(), world.jvm.thread(), world.jvm.thread());
    let guard = client.multi(["m1", "m2", "m3"]).lock_owned().unwrap();
    for name in ["m1", "m2", "m3"] {
        assert_eq!(single.call(&format!("lock {name} tryLock")), "false");
    }
    assert_eq!(java.call("multi m3,m0 tryLock"), "false");
    assert_eq!(single.call("lock m0 isLocked"), "false", "it released what it had acquired");
    java.begin_waiting(&world.server, "multi m1,m2,m3 lock", "m1", waits);
    prompt(|| guard.unlock().unwrap(), || java.answer());
    assert!(client.multi(["m3", "m4"]).try_lock_owned().unwrap().is_none());
    assert!(!client.mutex("m4").is_locked().unwrap());
    java.call("multi m1,m2,m3 unlock");
    client
        .multi(["m1", "m2", "m3", "m4"])
        .try_lock_owned()
        .unwrap()
        .expect("all are free")
        .unlock()
        .unwrap();
}

#[test]
fn leasehold_waits_for_every_name_of_redissons_multi_lock() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    java.call("multi n1,n2 lock");
    std::thread::scope(|s| {
        let waiter =
            s.spawn(|| client.multi(["n0", "n1", "n2"]).try_lock_owned_for(CAP).unwrap().unwrap());
        wait_until("we wait", || waits(&world.server, "n1") || waits(&world.server, "n2"));
        assert!(!client.mutex("n0").is_locked().unwrap(), "nothing is held while one is missing");
        prompt(|| drop(java.call("multi n1,n2 unlock")), || waiter.join().unwrap())
            .unlock()
            .unwrap();
    });
}
