//! What all exclusive locks have in common with their counterparts: exclusion, prompt wake-ups,
//! hold counts, leases, `force_unlock`.

use std::time::Duration;

use leasehold::LockClient;

use crate::jvm::{Waits, listeners};
use crate::rig::{Server, ms, wait_until};
use crate::world::{prompt, world};

/// Whether there is a waiter for this name, where this kind of lock shows it.
fn on_channel(server: &Server, name: &str) -> bool {
    listeners(server, &format!("redisson_lock__channel:{{{name}}}")) > 0
}

fn on_rw_channel(server: &Server, name: &str) -> bool {
    listeners(server, &format!("redisson_rwlock:{{{name}}}")) > 0
}

fn in_queue(server: &Server, name: &str) -> bool {
    server.cmd::<u32>(&["LLEN", &format!("redisson_lock_queue:{{{name}}}")]) > 0
}

macro_rules! turns {
    ($kind:ident, $java:literal, $make:expr, $waits:ident) => {
        turns!($kind, $java, $make, $waits, [lock, try_lock, try_lock_for, lock_owned]);
    };
    ($kind:ident, $java:literal, $make:expr, $waits:ident, [$lock:ident, $try:ident, $try_for:ident, $owned:ident]) => {
        mod $kind {
            use super::*;

            const WAITS: Waits = $waits;

            fn command(name: &str, method: &str) -> String {
                format!(concat!($java, " {} {}"), name, method)
            }

            /// The hold count of the only holder, as on the server.
            fn levels(server: &Server, name: &str) -> String {
                let fields = server.hash(name);
                let counts: Vec<_> =
                    fields.into_iter().filter(|(field, _)| field != "mode").collect();
                assert_eq!(counts.len(), 1, "{counts:?}");
                counts[0].1.clone()
            }

            #[test]
            fn leasehold_holds_and_redisson_waits() {
                let world = world();
                let (client, java) = (world.client(), world.jvm.thread());
                let name = concat!($java, "-1");
                let ours = $make(&client, name);
                let (outer, inner) = (ours.$lock().unwrap(), ours.$lock().unwrap());
                assert_eq!(levels(&world.server, name), "2");
                assert_eq!(java.call(&command(name, "isLocked")), "true");
                assert_eq!(java.call(&command(name, "isHeld")), "false");
                assert_eq!(java.call(&command(name, "tryLock")), "false");
                assert_eq!(java.call(&command(name, "tryLock 700")), "false");
                assert!(java.fail(&command(name, "unlock")).contains("IllegalMonitorState"));
                // The previous attempt has left: Redisson unsubscribes after it has returned.
                wait_until("nobody waits", || !WAITS(&world.server, name));
                java.begin_waiting(&world.server, &command(name, "lock"), name, WAITS);
                inner.unlock().unwrap();
                assert!(java.waits() && outer.is_held(), "one level is left");
                prompt(|| outer.unlock().unwrap(), || java.answer());
                assert!(ours.$try().unwrap().is_none());
                assert_eq!(java.call(&command(name, "unlock")), "ok");
                assert!(!ours.is_locked().unwrap());
            }

            #[test]
            fn redisson_holds_and_leasehold_waits() {
                let world = world();
                let (client, java) = (world.client(), world.jvm.thread());
                let name = concat!($java, "-2");
                let ours = $make(&client, name);
                for _ in 0..2 {
                    java.call(&command(name, "lock"));
                }
                assert!(ours.$try().unwrap().is_none());
                assert!(ours.$try_for(ms(50)).unwrap().is_none());
                assert_eq!(java.call(&command(name, "holdCount")), "2");
                assert_eq!(levels(&world.server, name), "2");
                std::thread::scope(|s| {
                    let waiter = s.spawn(|| ours.$owned().unwrap());
                    wait_until("we wait", || WAITS(&world.server, name));
                    java.call(&command(name, "unlock"));
                    assert!(!waiter.is_finished(), "one level is left");
                    let guard = prompt(
                        || drop(java.call(&command(name, "unlock"))),
                        || waiter.join().unwrap(),
                    );
                    assert_eq!(java.call(&command(name, "tryLock")), "false");
                    guard.unlock().unwrap();
                });
                assert_eq!(java.call(&command(name, "tryLock")), "true");
                java.call(&command(name, "unlock"));
            }

            #[test]
            fn timed_tries_are_woken() {
                let world = world();
                let (client, java) = (world.client(), world.jvm.thread());
                let name = concat!($java, "-3");
                let ours = $make(&client, name);
                let guard = ours.$lock().unwrap();
                java.begin_waiting(&world.server, &command(name, "tryLock 60000"), name, WAITS);
                assert_eq!(prompt(|| drop(guard), || java.answer()), "true");
                std::thread::scope(|s| {
                    let waiter =
                        s.spawn(|| ours.$try_for(Duration::from_secs(60)).unwrap().is_some());
                    wait_until("we wait", || WAITS(&world.server, name));
                    assert!(prompt(
                        || drop(java.call(&command(name, "unlock"))),
                        || waiter.join().unwrap()
                    ));
                });
            }

            #[test]
            fn leases_end() {
                let world = world();
                let (client, java) = (world.client(), world.jvm.thread());
                let name = concat!($java, "-4");
                // Another thread of the Java process: an explicit lease is kept by the lock object,
                // also for the thread's next hold.
                world.jvm.thread().call(&command(name, "lock 300"));
                let ours = $make(&client, name).with_lease(ms(400)).max_hold(ms(400));
                let guard = ours.$lock().unwrap();
                assert_eq!(
                    java.call(&command(name, "tryLock 10000 60000")),
                    "true",
                    "it is free without a release"
                );
                assert!(guard.wait_lost(Duration::from_secs(5)).is_lost());
                assert!(guard.unlock().is_err());
                assert_eq!(
                    java.call(&command(name, "holdCount")),
                    "1",
                    "Java's new hold is not affected"
                );
                java.call(&command(name, "unlock"));
            }

            #[test]
            fn each_can_force_the_other_out() {
                let world = world();
                let (client, java, operator) =
                    (world.client(), world.jvm.thread(), world.jvm.thread());
                let name = concat!($java, "-5");
                let ours = $make(&client, name);
                let guard = ours.$lock().unwrap();
                java.begin_waiting(&world.server, &command(name, "lock"), name, WAITS);
                let force = || assert_eq!(operator.call(&command(name, "forceUnlock")), "true");
                prompt(force, || java.answer());
                assert!(guard.unlock().is_err());
                std::thread::scope(|s| {
                    let waiter = s.spawn(|| ours.$owned().unwrap());
                    wait_until("we wait", || WAITS(&world.server, name));
                    let force = || assert!($make(&client, name).force_unlock().unwrap());
                    let guard = prompt(force, || waiter.join().unwrap());
                    assert!(java.fail(&command(name, "unlock")).contains("IllegalMonitorState"));
                    guard.unlock().unwrap();
                });
                assert_eq!(
                    operator.call(&command(name, "forceUnlock")),
                    "false",
                    "nobody holds it"
                );
            }
        }
    };
}

turns!(plain, "lock", |c: &LockClient, n| c.mutex(n), on_channel);
turns!(fenced, "fenced", |c: &LockClient, n| c.mutex(n).keep_token(), on_channel);
turns!(fair, "fair", |c: &LockClient, n| c.fair(n), in_queue);
turns!(
    write,
    "write",
    |c: &LockClient, n| c.rw_lock(n),
    on_rw_channel,
    [write, try_write, try_write_for, write_owned]
);
