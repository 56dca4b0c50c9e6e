//! Together with `RedissonRedLock`.

use std::time::Instant;

use crate::rig::{CAP, ms, wait_until};
use crate::support::Masters;

/// `RedissonRedLock` uses a different id on each master. A waiter for such a lock sleeps, and
/// operators see that it is held.
#[test]
fn a_hold_with_another_id_on_each_master_is_one_hold() {
    let masters = Masters::fresh(3);
    let client = masters.client();
    for (n, server) in masters.0.iter().enumerate() {
        server.cmd::<()>(&[
            "HSET",
            "l",
            &format!("a8a5ef81-b5b7-4d39-a987-611a1db5d2f{n}:30"),
            "1",
        ]);
        server.cmd::<()>(&["PEXPIRE", "l", "30000"]);
    }
    let holder = client.mutex("l").holder().unwrap().expect("it is held");
    assert!(!holder.is_this_client() && holder.remaining().is_some_and(|left| left > ms(10_000)));
    assert!(client.mutex("l").is_locked().unwrap());
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.try_lock_for("l", CAP).map(|got| got.is_some()));
        wait_until("it is subscribed", || {
            masters.0.iter().all(|server| !server.channels().is_empty())
        });
        masters.0[1].cmd::<()>(&["CONFIG", "RESETSTAT"]);
        let start = Instant::now();
        std::thread::sleep(ms(1000));
        let calls = masters.0[1].call_count("evalsha") + masters.0[1].call_count("eval");
        let took = start.elapsed();
        assert!(u128::from(calls) <= took.as_millis() / 250, "{calls} scripts in {took:?}");
        for server in &masters.0 {
            server.cmd::<()>(&["DEL", "l"]);
            server.cmd::<()>(&["PUBLISH", "redisson_lock__channel:{l}", "0"]);
        }
        assert!(waiter.join().unwrap().unwrap());
    });
    // Several threads, none of which has a majority.
    for (n, server) in masters.0.iter().enumerate() {
        server.cmd::<()>(&[
            "HSET",
            "m",
            &format!("a8a5ef81-b5b7-4d39-a987-611a1db5d2f{n}:{n}"),
            "1",
        ]);
    }
    assert!(!client.mutex("m").is_locked().unwrap());
    assert!(client.try_lock("m").unwrap().is_none());
}

/// Redisson waits for one master after another, even for the third when it has two. A leasehold
/// acquire that blocked it is undone with a message that leasehold clients ignore: a message that
/// wakes them would make them try again endlessly.
#[test]
fn an_acquire_that_is_undone_beside_redisson_notifies_redisson_alone() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    for (n, server) in masters.0[..2].iter().enumerate() {
        server.cmd::<()>(&[
            "HSET",
            "l",
            &format!("a8a5ef81-b5b7-4d39-a987-611a1db5d2f{n}:30"),
            "1",
        ]);
    }
    let mut java = masters.0[2].connect();
    let mut java = java.as_pubsub();
    java.set_read_timeout(Some(CAP)).unwrap();
    java.subscribe("redisson_lock__channel:{l}").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.try_lock_for("l", CAP).map(|got| got.is_some()));
        wait_until("it is subscribed", || {
            masters.0.iter().all(|server| !server.channels().is_empty())
        });
        masters.0[1].cmd::<()>(&["CONFIG", "RESETSTAT"]);
        for _ in 0..50 {
            assert!(a.try_lock("l").unwrap().is_none());
            // Redisson parses the message as a number, which is 0.
            assert_eq!(java.get_message().unwrap().get_payload::<String>().unwrap(), "00");
        }
        let calls = masters.0[1].call_count("evalsha");
        assert!(calls < 75, "{calls} scripts, 50 of them by the other client");
        assert!(a.mutex("l").force_unlock().unwrap());
        assert!(waiter.join().unwrap().unwrap());
    });
}
