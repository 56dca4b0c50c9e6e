//! The fair lock compared with Redisson's.

use redis::Value;

use super::{A, B, C, FAIR_CHANNEL, FAIR_KEYS, FOREIGN_WAIT, J, K, SLACK, assert_near, messages};
use crate::lua::Bench;
use crate::rig::Server;

/// The last six hexadecimal digits of a leasehold client id are the timeout of its waiters in ms:
/// 15 s for the others, 5 minutes here.
const D: &str = "dddddddd-dddd-8ddd-8ddd-dddddd0493e0:1";

/// The release has given the lock to this waiter, without a fencing token.
fn given_to(first: &str) -> Value {
    let first = Value::BulkString(first.into());
    Value::Array(vec![Value::Int(2), Value::Int(1), first, Value::Int(0)])
}

#[test]
fn a_fair_lock_follows_the_vectors() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);

    // Vector: A holds; B; C; C again: 30 000; 330 000; 30 000. A leasehold waiter gets a third of
    // its own timeout, because it must ask again to keep its queue entry.
    assert_eq!(bench.fair(A), (1, 0));
    assert_near(bench.pttl("F"), 30_000);
    let now = bench.now();
    for who in [B, C, C] {
        assert_eq!(bench.fair(who), (0, 5_000));
    }
    assert_eq!(bench.queue(), [B, C]);
    // Vector: scores now + 330 000, now + 630 000. A leasehold waiter gets only its own timeout: no
    // leasehold client subtracts anything.
    for who in [B, C] {
        let left = bench.deadline(who) - now;
        assert_near(left, 15_000);
    }
    assert!(bench.published().is_empty());

    // Vector: fair release A: 1, and a message on the channel of B only. B is a leasehold waiter, so
    // it has the lock from now on, for as long as its place lasts.
    let deadline = bench.deadline(C);
    assert_eq!(bench.fair_release(A), given_to(B));
    assert_eq!(bench.published(), messages(&[(&format!("{FAIR_CHANNEL}:{B}"), "grant:0")]));
    assert_eq!((bench.queue(), bench.deadline(C)), (vec![C.to_owned()], deadline));
    assert_near(bench.pttl("F"), 15_000);

    // Vector: B silent, C tries repeatedly: 0, 0, 0 …, queue unchanged. Redisson spins on the 0; a
    // leasehold waiter is informed when to ask again, and only its own deadline moves.
    for _ in 0..3 {
        assert_eq!(bench.fair(C), (0, 5_000));
    }
    assert_eq!(bench.queue(), vec![C.to_owned()]);

    // Vector: B acquires: nil, and C's score is lowered by 300 000. Leasehold leaves it as it is.
    let deadline = bench.deadline(C);
    assert_eq!(bench.fair(B), (1, 0));
    assert_eq!((bench.queue(), bench.deadline(C)), (vec![C.to_owned()], deadline));
    assert_near(bench.pttl("F"), 30_000);

    // Vector: lock expired, queue B, C: C tries, B tries: 0; nil.
    bench.cmd::<()>(&["FLUSHALL"]);
    let now = bench.now();
    bench.redisson_queues(B, now + 15_000);
    bench.redisson_queues(C, now + 15_000);
    assert_eq!(bench.fair(C), (0, 5_000));
    assert_eq!(bench.fair(B), (1, 0));

    // Vector: empty zset, head B in list, new E: −2, then 0, forever. Leasehold considers a waiter
    // without a deadline dead.
    bench.cmd::<()>(&["FLUSHALL"]);
    bench.cmd::<()>(&["RPUSH", FAIR_KEYS[1], K]);
    assert_eq!(bench.fair(A), (1, 0));
    assert!(bench.queue().is_empty());
    // A waiter that is removed is notified, because it may be alive.
    assert_eq!(bench.published(), messages(&[(&format!("{FAIR_CHANNEL}:{K}"), "0")]));
}

/// What Redisson does to the deadlines behind it, and how it treats those of leasehold.
#[test]
fn a_fair_waiter_outlives_redisson_ahead_of_it() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    // A new Redisson waiter, and one that has waited for almost all of its timeout.
    for (left, wanted) in [(330_000, 345_000), (20_000, 315_000)] {
        bench.cmd::<()>(&["FLUSHALL"]);
        bench.cmd::<()>(&["HSET", "F", J, "1"]);
        bench.cmd::<()>(&["PEXPIRE", "F", "30000"]);
        let now = bench.now();
        bench.redisson_queues(K, now + left);
        assert_eq!(bench.fair(B), (0, 5_000));
        let deadline = bench.deadline(B);
        assert_near(deadline - now, wanted);
        // Another leasehold waiter behind it adds nothing; a Redisson waiter adds its own timeout.
        assert_eq!(bench.fair(C), (0, 5_000));
        assert_near(bench.deadline(C) - now, wanted);
        let last = bench.deadline(C);
        bench.redisson_queues(J, last + FOREIGN_WAIT);

        // Trace: after Redisson in front has acquired, the deadline is 300 000 lower, and still in
        // the future.
        bench.redisson_acquires(K);
        assert_eq!(bench.deadline(B), deadline - FOREIGN_WAIT);
        assert!(bench.deadline(B) > bench.now());
        // Its next attempt corrects the deadline: no Redisson waiter is before it now.
        assert_eq!(bench.fair(B), (0, 5_000));
        assert_near(bench.deadline(B) - now, 15_000);

        // The waiter gives up. Trace: Redisson subtracts its own timeout from those behind;
        // leasehold leaves them unchanged.
        let behind = [bench.deadline(C), bench.deadline(J)];
        assert_eq!(bench.fair_release(B), Value::Array(vec![Value::Int(0), Value::Int(0)]));
        assert_eq!(bench.queue(), [C, J]);
        assert_eq!([bench.deadline(C), bench.deadline(J)], behind);
        assert!(bench.published().is_empty(), "the lock is held");
        // Redisson's queues have no TTL. This one had a TTL while only leasehold waiters were in
        // it.
        // in it.
        assert_eq!([bench.pttl(FAIR_KEYS[1]), bench.pttl(FAIR_KEYS[2])], [-1, -1]);
    }
}

/// Redisson counts from the waiter in front of it and subtracts its own timeout when it leaves. A
/// leasehold waiter counts from the Redisson waiter in front; when it leaves, the part of its
/// deadline beyond the lock's TTL is subtracted.
#[test]
fn deadlines_do_not_grow_while_leasehold_and_redisson_alternate() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    bench.cmd::<()>(&["HSET", "F", J, "1"]);
    bench.cmd::<()>(&["PEXPIRE", "F", "30000"]);
    assert_eq!(bench.fair(B), (0, 5_000));
    let (mut first, mut last) = (B, C);
    for _ in 0..50 {
        // A leasehold waiter, a Redisson waiter, a leasehold waiter: the queue is never empty.
        let deadline = bench.deadline(first);
        bench.redisson_queues(K, deadline + FOREIGN_WAIT);
        assert_eq!(bench.fair(last), (0, 5_000));
        let now = bench.now();
        let ahead = bench.deadline(last) - now;
        assert!(ahead <= 30_000 + FOREIGN_WAIT + 2 * 15_000, "{ahead}");
        bench.cmd::<()>(&["DEL", "F"]);
        assert_eq!(bench.fair(first), (1, 0));
        bench.redisson_acquires(K);
        (first, last) = (last, first);
    }
}

/// The timeout of a Redisson waiter in front remains in the deadlines behind it after it has left,
/// especially if its own timeout was shorter than the one that was allowed for. A dead leasehold
/// waiter behind it would block the queue for that long.
#[test]
fn a_dead_waiter_blocks_for_its_own_timeout_once_redisson_has_left() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    for (wait, left_in_it) in [(FOREIGN_WAIT, 45_000), (20_000, 295_000)] {
        bench.cmd::<()>(&["FLUSHALL"]);
        bench.cmd::<()>(&["HSET", "F", J, "1"]);
        bench.cmd::<()>(&["PEXPIRE", "F", "30000"]);
        let now = bench.now();
        bench.redisson_queues(K, now + 30_000 + wait);
        assert_eq!(bench.fair(B), (0, 5_000));
        let patient = [D, "30000", "0", "-1", "300000", "0", "300000", FAIR_CHANNEL, "0", "0"];
        assert_eq!(bench.pair("fair_acquire", &FAIR_KEYS, &patient).0, 0);
        assert_eq!(bench.fair(C), (0, 5_000));
        let last = bench.deadline(C);
        bench.redisson_queues(J, last + FOREIGN_WAIT);
        assert_eq!(bench.fair(A), (0, 5_000));
        bench.redisson_acquires_with(K, wait);
        assert_near(bench.deadline(B) - now, left_in_it);
        assert!(bench.deadline(D) - now > 300_000 + 2 * SLACK);

        // B is dead. The next leasehold client that asks corrects its deadline, wherever either of
        // them is in the queue.
        assert_eq!(bench.fair(A), (0, 5_000));
        assert_near(bench.deadline(B) - now, 15_000);
        assert_near(bench.deadline(C) - now, 15_000);
        // D keeps the timeout in its id: it is alive and will not ask again sooner.
        assert_near(bench.deadline(D) - now, 300_000);
        // The Redisson waiter, and the leasehold waiter behind it, have the deadlines that they
        // would get now.
        assert_near(bench.deadline(J) - now, 330_000);
        assert_near(bench.deadline(A) - now, 345_000);
        let order = [B, D, C, J, A].map(str::to_owned);
        assert_eq!(bench.queue(), order);

        // An attempt that does not wait has the same effect.
        for (who, behind) in [(B, 315_000), (J, 615_000)] {
            bench.cmd::<()>(&["ZADD", FAIR_KEYS[2], &(now + behind).to_string(), who]);
        }
        let tries =
            ["aaaaaaaa-aaaa-8aaa-8aaa-aaaaaa003a98:2", "30000", "0", "-1", "0", "0", "300000"];
        let (busy, _) = bench.pair(
            "fair_acquire",
            &FAIR_KEYS,
            &[&tries[..], &[FAIR_CHANNEL, "0", "0"]].concat(),
        );
        assert_eq!((busy, bench.queue()), (0, order.to_vec()));
        assert_near(bench.deadline(B) - now, 15_000);
        assert_near(bench.deadline(J) - now, 330_000);

        // So does the first waiter itself, when it is the first that asks.
        for (who, behind) in [(B, 315_000), (J, 615_000)] {
            bench.cmd::<()>(&["ZADD", FAIR_KEYS[2], &(now + behind).to_string(), who]);
        }
        assert_eq!(bench.fair(B), (0, 5_000));
        assert_near(bench.deadline(B) - now, 15_000);
        assert_near(bench.deadline(J) - now, 330_000);
        assert!(bench.published().is_empty());
    }
}

/// Redisson's `tryLock` subtracts its own timeout from the others, which may be longer than the one
/// that was allowed for.
#[test]
fn a_patient_redisson_waiter_costs_nobody_behind_it_its_place() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let reported = ["30000", "0", "-1", "15000", "0", "5000", FAIR_CHANNEL, "0", "0"];
    let attempt = |bench: &mut Bench<'_>| {
        bench.pair("fair_acquire", &FAIR_KEYS, &[&[B], &reported[..]].concat())
    };
    bench.cmd::<()>(&["HSET", "F", J, "1"]);
    bench.cmd::<()>(&["PEXPIRE", "F", "30000"]);
    let (now, patience) = (bench.now(), 2 * FOREIGN_WAIT);
    bench.redisson_queues(K, now + 30_000 + patience);
    assert_eq!(attempt(&mut bench), (0, 5_000));
    assert_near(bench.deadline(B) - now, 30_000 + patience + 15_000);
    let last = bench.deadline(B);
    bench.redisson_queues(J, last + FOREIGN_WAIT);
    // The patient waiter gets its turn.
    bench.redisson_acquires(K);
    for _ in 1..patience / FOREIGN_WAIT {
        for behind in [B, J] {
            bench.cmd::<()>(&["ZINCRBY", FAIR_KEYS[2], &(-FOREIGN_WAIT).to_string(), behind]);
        }
    }
    assert!(bench.deadline(B) > bench.now() && bench.deadline(J) > bench.now() + FOREIGN_WAIT);
    // Next is the leasehold waiter, whose deadline was 15 s ahead of the one that the Redisson
    // waiter behind it may have.
    bench.cmd::<()>(&["DEL", "F"]);
    assert_eq!(attempt(&mut bench), (1, 0));
    assert_near(bench.deadline(J) - bench.now(), 30_000 + FOREIGN_WAIT);
    assert_eq!(bench.queue(), [J]);
}
