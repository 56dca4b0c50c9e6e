//! One shard hangs: what needs only the others goes on, beside multi-locks that need all.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient};

use super::faults::{LONG, patient};
use super::{builder, names_on_each_node};
use crate::rig::{CAP, Cluster, ms, wait_until};

const IO_TIMEOUT: Duration = Duration::from_millis(1000);

fn client(cluster: &Cluster, outage_timeout: Duration) -> LockClient {
    let settings = builder(cluster).lease(LONG).io_timeout(IO_TIMEOUT).announce_owner(false);
    settings.outage_timeout(outage_timeout).build().unwrap()
}

/// A name that a multi-lock asks for first, one that it asks for next, and the node of that one. So
/// a call that waits for the first has not asked the second node: otherwise it could have taken the
/// name there just before that node hangs.
fn first_and_next(cluster: &Cluster) -> ([String; 2], usize) {
    let names = names_on_each_node(cluster, 1);
    let mut two: Vec<(String, usize)> = names.into_iter().zip(0..).take(2).collect();
    two.sort();
    let next = two[1].1;
    (<[_; 2]>::try_from(two).expect("two").map(|(name, _)| name), next)
}

/// A multi-lock keeps what it has taken for one I/O timeout, until it knows that the other shard
/// hangs. If each attempt did that, and each led the queue of the healthy name meanwhile, nobody
/// else would get that name.
#[test]
fn a_shard_that_hangs_keeps_nobody_from_the_names_of_another() {
    let cluster = patient(false);
    let names = names_on_each_node(&cluster, 1);
    let (client, other) =
        (client(&cluster, 10 * CAP), builder(&cluster).lease(LONG).build().unwrap());
    let held = other.lock(&names[0]).unwrap();
    let (over, failed) = (AtomicBool::new(false), AtomicU32::new(0));
    let works = |client: &LockClient| client.lock(&names[0]).unwrap().unlock().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| client.multi(&names[..2]).lock().unwrap().unlock());
        let listens = || !super::channels(cluster.node(0)).is_empty();
        wait_until("it waits for the name on the healthy shard", listens);
        cluster.node(1).suspend();
        for _ in 0..5 {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let error = client.multi(&names[..2]).lock().err();
                    failed.fetch_add(u32::from(error.is_some()), Ordering::Relaxed);
                }
            });
        }
        drop(held);
        wait_until("it is known that the shard hangs", || failed.load(Ordering::Relaxed) > 0);
        let began = Instant::now();
        for _ in 0..20 {
            works(&client);
            works(&other);
        }
        let took = began.elapsed();
        over.store(true, Ordering::Relaxed);
        cluster.node(1).resume();
        waiter.join().unwrap().unwrap();
        // Every second turn would wait for an I/O timeout or two.
        assert!(took < 10 * IO_TIMEOUT, "{took:?}");
    });
    drop((client, other));
    cluster.assert_clean();
}

/// Between two failures at the shard that hangs, other calls find the healthy name taken. That is
/// no sign of the shard.
#[test]
fn the_outage_of_one_shard_is_counted_although_another_answers() {
    let cluster = patient(false);
    let (names, next) = first_and_next(&cluster);
    let client = client(&cluster, ms(1500));
    let other = builder(&cluster).lease(LONG).build().unwrap();
    let held = other.lock(&names[0]).unwrap();
    std::thread::scope(|s| {
        let ends = || {
            let error = client.multi(&names).lock().unwrap_err();
            (error, Instant::now())
        };
        let waiters: Vec<_> = (0..6).map(|_| s.spawn(ends)).collect();
        wait_until("all of them wait", || client.snapshot().waits().len() == 6);
        cluster.node(next).suspend();
        let began = Instant::now();
        held.unlock().unwrap();
        for waiter in waiters {
            let (error, at) = waiter.join().unwrap();
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
            assert!(error.to_string().contains("outage_timeout"), "{error}");
            // Each began to count when it could be known, and its last request took a while.
            assert!(at - began < ms(1500) + 8 * IO_TIMEOUT, "{:?}", at - began);
        }
    });
    cluster.node(next).resume();
    drop((client, other));
    wait_until("nothing is left", || (0..2).all(|node| cluster.node(node).lock_keys().is_empty()));
    cluster.assert_clean();
}

/// Also while it stands back.
#[test]
fn a_multi_lock_that_waits_for_a_shard_can_be_cancelled_and_closed() {
    let cluster = patient(false);
    let (names, next) = first_and_next(&cluster);
    let (client, other) =
        (client(&cluster, 10 * CAP), builder(&cluster).lease(LONG).build().unwrap());
    for closes in [false, true] {
        let held = other.lock(&names[0]).unwrap();
        let token = leasehold::CancelToken::new();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| client.multi(&names).with_cancel(&token).lock().unwrap_err());
            wait_until("it waits", || client.snapshot().waits().len() == 1);
            cluster.node(next).suspend();
            held.unlock().unwrap();
            wait_until("it has found the shard away", || client.try_lock(&names[1]).is_err());
            if closes {
                client.stop_waiting();
            } else {
                token.cancel();
            }
            let kind = waiter.join().unwrap().kind();
            assert_eq!(kind, if closes { ErrorKind::Closed } else { ErrorKind::Cancelled });
        });
        cluster.node(next).resume();
        wait_until("nothing is left", || {
            (0..2).all(|node| cluster.node(node).lock_keys().is_empty())
        });
    }
    drop((client, other));
    cluster.assert_clean();
}
