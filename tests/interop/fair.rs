//! One queue with waiters of both libraries.

use std::time::Duration;

use leasehold::{Builder, LockClient, Redis};

use crate::java::Jvm;
use crate::rig::{CAP, Child, Server, ms, wait_until};
use crate::world::{World, prompt, world};

#[track_caller]
fn wait_for_queue(server: &Server, name: &str, length: usize) {
    let queue = format!("redisson_lock_queue:{{{name}}}");
    wait_until(&format!("{length} in the queue"), || {
        server.cmd::<usize>(&["LLEN", &queue]) == length
    });
}

#[test]
fn turns_are_in_the_order_of_the_queue() {
    let world = world();
    let client = world.client();
    let javas: Vec<_> = (0..4).map(|_| world.jvm.thread()).collect();
    let (got, order) = crossbeam_channel::unbounded();
    let guard = client.fair("order").lock_owned().unwrap();
    std::thread::scope(|s| {
        for (n, java) in javas.iter().enumerate() {
            java.begin("fair order lock");
            wait_for_queue(&world.server, "order", 2 * n + 1);
            let (fair, got) = (client.fair("order"), got.clone());
            s.spawn(move || got.send((n, fair.try_lock_owned_for(CAP).unwrap().unwrap())).unwrap());
            wait_for_queue(&world.server, "order", 2 * n + 2);
        }
        guard.unlock().unwrap();
        for (n, java) in javas.iter().enumerate() {
            java.answer();
            assert!(order.is_empty(), "our waiter behind Java's number {n} is early");
            java.call("fair order unlock");
            let (ours, guard) = order.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(ours, n);
            assert!(
                javas[n + 1..].iter().all(|java| java.waits()),
                "Java behind ours number {n} is early"
            );
            guard.unlock().unwrap();
        }
    });
    wait_for_queue(&world.server, "order", 0);
}

#[test]
fn a_waiter_that_gives_up_leaves_the_queue_to_the_others() {
    let world = world();
    let (client, java, patient) = (world.client(), world.jvm.thread(), world.jvm.thread());
    let fair = client.fair("leave");
    let guard = fair.lock_owned().unwrap();
    // Long enough that a busy machine sees both in the queue.
    java.begin("fair leave tryLock 6000");
    wait_for_queue(&world.server, "leave", 1);
    std::thread::scope(|s| {
        let ours = s.spawn(|| fair.try_lock_owned_for(ms(6000)).unwrap().is_some());
        wait_for_queue(&world.server, "leave", 2);
        patient.begin("fair leave lock");
        wait_for_queue(&world.server, "leave", 3);
        assert_eq!(java.answer(), "false");
        assert!(!ours.join().unwrap());
    });
    wait_for_queue(&world.server, "leave", 1);
    guard.unlock().unwrap();
    patient.answer();
    patient.call("fair leave unlock");
}

fn impatient(url: String) -> Builder {
    let server = Redis::new(url).java_waiter_timeout(ms(3000));
    LockClient::builder().redis(server).waiter_timeout(ms(4000))
}

#[test]
#[ignore = "a program for other tests"]
fn waiting_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = impatient(url).build().unwrap();
    println!("@@id {}", client.id());
    drop(client.fair("killed").lock().unwrap());
}

/// A dead process of each library is in front of the live waiters, in either order. The deadline of
/// a Redisson waiter is that of its predecessor plus its own timeout, which is short here but
/// minutes in a service.
#[test]
fn killed_waiters_hold_up_the_others_only_for_a_while() {
    let world = World::with(&["fairWait=3000"]);
    for first in ["ours", "Java"] {
        let doomed = Jvm::start(&world.server, &["fairWait=3000"]);
        let client = impatient(world.server.url()).lease(ms(3000)).build().unwrap();
        let java = world.jvm.thread();
        let guard = client.fair("killed").lock_owned().unwrap();
        let queue = |ours: bool| {
            if !ours {
                doomed.thread().begin("fair killed lock");
                return None;
            }
            let mut child = Child::spawn(
                "fair::waiting_process",
                &[("LEASEHOLD_TEST_URL", &world.server.url())],
            );
            child.expect("id");
            Some(child)
        };
        let before = queue(first == "ours");
        wait_for_queue(&world.server, "killed", 1);
        let behind = queue(first != "ours");
        wait_for_queue(&world.server, "killed", 2);
        std::thread::scope(|s| {
            let ours = s.spawn(|| {
                client.fair("killed").try_lock_owned_for(CAP).unwrap().expect("it gets its turn")
            });
            wait_for_queue(&world.server, "killed", 3);
            java.begin("fair killed lock");
            wait_for_queue(&world.server, "killed", 4);
            before.or(behind).unwrap().kill();
            doomed.kill();
            guard.unlock().unwrap();
            let guard = ours.join().unwrap();
            assert!(java.waits(), "the order of the live waiters is kept");
            prompt(|| guard.unlock().unwrap(), || java.answer());
            java.call("fair killed unlock");
        });
    }
}

/// The timeout of a Redisson waiter in front remains in the deadlines behind it after it has left:
/// a dead leasehold waiter there would block the free lock for as long as Redisson's lease and
/// longer. A Redisson waiter behind it is notified when its turn has come.
#[test]
fn a_leasehold_waiter_that_died_behind_redisson_blocks_no_longer_once_redisson_has_left() {
    let world = world();
    let client = impatient(world.server.url()).build().unwrap();
    let (java, last) = (world.jvm.thread(), world.jvm.thread());
    let guard = client.fair("killed").lock_owned().unwrap();
    java.begin("fair killed tryLock 20000");
    wait_for_queue(&world.server, "killed", 1);
    let mut dead =
        Child::spawn("fair::waiting_process", &[("LEASEHOLD_TEST_URL", &world.server.url())]);
    dead.expect("id");
    wait_for_queue(&world.server, "killed", 2);
    last.begin("fair killed lock");
    wait_for_queue(&world.server, "killed", 3);
    std::thread::scope(|s| {
        let ours = s.spawn(|| {
            client.fair("killed").try_lock_owned_for(CAP).unwrap().expect("it gets its turn")
        });
        wait_for_queue(&world.server, "killed", 4);
        dead.kill();
        guard.unlock().unwrap();
        assert_eq!(java.answer(), "true");
        java.call("fair killed unlock");
        last.answer();
        last.call("fair killed unlock");
        ours.join().unwrap().unlock().unwrap();
    });
}
