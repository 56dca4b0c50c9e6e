//! Locks on a majority of several masters.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, NodeState};

use crate::rig::{Masters, wait_for_votes, wait_until};

#[test]
fn a_lock_is_held_on_all_and_given_back_on_all() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    let mut last = 0;
    for _ in 0..3 {
        let guard = a.lock("l").unwrap();
        wait_until("all have it", || masters.holding("l") == 3);
        assert!(guard.is_held() && b.try_lock("l").unwrap().is_none());
        let token = guard.fencing_token().unwrap().get();
        assert!(token > last);
        last = token;
        {
            let again = a.lock("l").unwrap();
            assert_eq!((again.hold_count(), again.fencing_token()), (2, guard.fencing_token()));
        }
        assert!(b.mutex("l").is_locked().unwrap());
        assert!(a.mutex("l").holder().unwrap().unwrap().is_this_client());
        guard.unlock().unwrap();
        assert!(!a.mutex("l").is_locked().unwrap());
        assert!(b.try_lock("l").unwrap().unwrap().fencing_token().unwrap().get() > last);
    }
    assert_eq!(a.nodes().len(), 3);
    drop((a, b));
    masters.assert_clean();
}

#[test]
fn a_waiter_is_woken_by_the_release() {
    let masters = Masters::fresh(3);
    let (a, b) = (masters.client(), masters.client());
    for _ in 0..3 {
        let guard = a.lock("l").unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| b.lock("l").map(|guard| guard.is_held()));
            wait_until("it listens", || masters.0.iter().all(|server| !server.channels().is_empty()));
            let start = Instant::now();
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap().unwrap());
            // Far below the lease, after which it would have looked.
            assert!(start.elapsed() < Duration::from_secs(10));
        });
    }
    drop((a, b));
    masters.assert_clean();
}

#[test]
fn a_minority_may_be_dead_from_the_start_and_a_majority_not() {
    for (count, dead) in [(3, 1), (5, 2)] {
        let mut masters = Masters::start(count);
        for server in &mut masters.0[..dead] {
            server.kill();
        }
        let client = masters.builder().admit_fresh_nodes().build().unwrap();
        wait_for_votes(&client, count - dead);
        let guard = client.lock("l").unwrap();
        assert!(guard.is_held());
        guard.unlock().unwrap();
        let down = client.nodes().iter().filter(|node| node.state() == NodeState::Down).count();
        assert_eq!(down, dead);
        assert!(client.nodes()[0].last_error().is_some());
        // They come back, and vote.
        for server in &mut masters.0[..dead] {
            server.start_again();
        }
        wait_for_votes(&client, count);
        let guard = client.lock("l").unwrap();
        wait_until("all have it", || masters.holding("l") == count);
        guard.unlock().unwrap();
        masters.0[0].kill();
        masters.0[1].kill();
        if count == 5 {
            masters.0[2].kill();
        }
        let error = client.try_lock("l").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoQuorum);
        assert!(error.to_string().matches("lh-").count() >= count, "{error}");
    }
}

#[test]
fn contenders_do_not_split_the_vote_for_ever() {
    let masters = Masters::fresh(3);
    let clients: Vec<LockClient> = (0..4).map(|_| masters.client()).collect();
    let mut count = 0;
    let counter = std::sync::Mutex::new(&mut count);
    let inside = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|s| {
        for client in &clients {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..20 {
                        let guard = client.lock("l").unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        **counter.lock().unwrap() += 1;
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(count, 160);
    drop(clients);
    masters.assert_clean();
}
