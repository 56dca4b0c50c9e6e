//! The latch, counted down by both libraries.

use crate::jvm::listeners;
use crate::rig::{CAP, Server, ms, wait_until};
use crate::world::{prompt, world};

fn waits(server: &Server, name: &str) -> bool {
    listeners(server, &format!("redisson_countdownlatch__channel__{{{name}}}")) > 0
}

#[test]
fn both_libraries_count_and_both_wait() {
    let world = world();
    let (client, java, counter) = (world.client(), world.jvm.thread(), world.jvm.thread());
    for (last, name) in [("ours", "l1"), ("Java", "l2")] {
        let latch = client.latch(name);
        if last == "ours" {
            assert!(latch.try_set_count(3).unwrap());
            assert_eq!(counter.call(&format!("latch {name} trySetCount 7")), "false");
        } else {
            assert_eq!(counter.call(&format!("latch {name} trySetCount 3")), "true");
            assert!(!latch.try_set_count(7).unwrap());
        }
        java.begin_waiting(&world.server, &format!("latch {name} await"), name, waits);
        std::thread::scope(|s| {
            let ours = s.spawn(|| latch.wait_for(CAP).unwrap());
            let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
            wait_until("both are subscribed", || listeners(&world.server, &channel) == 2);
            assert_eq!(latch.count_down().unwrap(), 2);
            counter.call(&format!("latch {name} countDown"));
            assert_eq!(
                (latch.count().unwrap(), counter.call(&format!("latch {name} getCount"))),
                (1, "1".to_owned())
            );
            assert!(java.waits() && !ours.is_finished());
            let open = || match last {
                "ours" => assert_eq!(latch.count_down().unwrap(), 0),
                _ => drop(counter.call(&format!("latch {name} countDown"))),
            };
            prompt(open, || {
                java.answer();
                assert!(ours.join().unwrap());
            });
        });
        assert_eq!(counter.call(&format!("latch {name} await 1")), "true");
        assert!(latch.try_wait().unwrap());
    }
}

#[test]
fn a_timed_wait_ends() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let latch = client.latch("l3");
    latch.try_set_count(1).unwrap();
    assert_eq!(java.call("latch l3 await 30"), "false");
    assert!(!latch.wait_for(ms(30)).unwrap());
    latch.count_down().unwrap();
}

/// Redisson's own `delete` leaves waiters asleep; leasehold's does not.
#[test]
fn leaseholds_delete_wakes_redissons_waiters() {
    let world = world();
    let (client, java) = (world.client(), world.jvm.thread());
    let latch = client.latch("l4");
    latch.try_set_count(2).unwrap();
    java.begin_waiting(&world.server, "latch l4 await", "l4", waits);
    prompt(|| assert!(latch.delete().unwrap()), || java.answer());
}
