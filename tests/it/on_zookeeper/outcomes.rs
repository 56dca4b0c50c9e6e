//! Requests without a reply. `cut_replies` covers each reply cut at each byte.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::ErrorKind;

use super::{LONG, children, client, client_of, server};
use crate::rig::zookeeper::{Ensemble, EnsembleOptions, PERSISTENT, Pipe};
use crate::rig::{CAP, Fault, Proxy, ms, wait_until};

/// Bytes of another protocol, and a reply to a request that was never sent.
#[test]
fn garbage_is_a_protocol_error() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let client = client_of(&proxy.zookeeper_url(), |builder| builder);
    for fault in [
        Fault::Garbage,
        Fault::Stray(&[0, 0, 0, 16, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
        Fault::Stray(&[0xff, 0, 0, 0]),
    ] {
        proxy.inject("create2 /job", fault);
        assert_eq!(client.try_lock("job").unwrap_err().kind(), ErrorKind::Protocol, "{fault:?}");
        wait_until("it is free", || client.try_lock("job").is_ok_and(|won| won.is_some()));
    }
    drop((client, proxy));
    server.assert_clean();
}

/// The reply to the create of a waiter is lost: it finds its queue entry again, and keeps it.
#[test]
fn a_waiter_adopts_its_own_place() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let (client, other) = (client_of(&proxy.zookeeper_url(), |builder| builder), client(&server));
    let mut look = server.raw();
    let guard = other.lock("job").unwrap();
    // It has received the reply that the lock is busy, so it waits for the connection to come back.
    let behind = |n: usize| move |nodes: Vec<String>| nodes.len() == n;
    std::thread::scope(|s| {
        let first = s.spawn(|| {
            client.fair("job").try_lock_for(LONG).map(|won| won.unwrap().unlock().unwrap())
        });
        wait_until("it waits", || behind(2)(children(&mut look, "/job")));
        let connections = proxy.connections();
        let place = children(&mut look, "/job")
            .into_iter()
            .max_by_key(|node| node[40..].to_owned())
            .unwrap();
        proxy.cut_all();
        wait_until("it connects again", || proxy.connections() > connections);
        wait_until("it is back", || client.mutex("x").holder().is_ok());
        assert!(children(&mut look, "/job").contains(&place), "with its queue entry");
        guard.unlock().unwrap();
        first.join().unwrap().unwrap();
    });
    // The reply to its first create is lost: it finds its node over the next connection.
    let guard = other.lock("job").unwrap();
    // With a child in it the servers keep the directory: an empty one they delete at any time.
    let before = look.get("/job").unwrap().cversion;
    proxy.inject("create2 /job", Fault::CutAfterApplied);
    assert!(client.fair("job").try_lock_for(ms(300)).unwrap().is_none());
    wait_until("nothing of it is left", || behind(1)(children(&mut look, "/job")));
    assert_eq!(look.get("/job").unwrap().cversion - before, 2, "one node was made and deleted");
    guard.unlock().unwrap();
    look.close();
    drop((client, other, proxy));
    server.assert_clean();
}

/// A hand-over is one transaction: if its reply is lost, the next thread has the lock or is in the
/// queue, and the old node is deleted.
#[test]
fn a_lost_hand_over_is_settled() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let mut faults = vec![Fault::CutAfterApplied, Fault::CutBeforeSend, Fault::CutReplyAt(30)];
    let start = Instant::now();
    while let Some(fault) = faults.pop() {
        let client = client_of(&proxy.zookeeper_url(), |builder| builder);
        let guard = client.lock("job").unwrap();
        std::thread::scope(|s| {
            let next = s.spawn(|| {
                let guard = client.lock("job").unwrap();
                assert!(guard.is_held());
                guard.unlock()
            });
            wait_until("it waits", || client.snapshot().waits().len() == 1);
            // The snapshot lists it slightly before it is in the local queue, which nothing shows.
            // If this was too short, the test tries again.
            std::thread::sleep(ms(20));
            proxy.inject("multi", fault);
            if let Err(e) = guard.unlock() {
                assert_eq!(e.kind(), ErrorKind::Unreachable, "{fault:?}: {e}");
            }
            // The call has already waited, so it continues.
            next.join().unwrap().unwrap();
        });
        if proxy.disarm() {
            assert!(start.elapsed() < CAP, "{fault:?}: there was no hand-over in one transaction");
            faults.push(fault);
        }
        client.lock("job").unwrap().unlock().unwrap();
        drop(client);
        server.assert_clean();
    }
}

/// A count is changed once, even if the reply is lost.
#[test]
fn a_lost_count_counts_once() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let (client, other) =
        (client_of(&proxy.zookeeper_url(), |builder| builder.io_timeout(CAP)), client(&server));
    let latch = client.latch("start");
    latch.set_count(10).unwrap();
    for (n, fault) in
        [Fault::CutAfterApplied, Fault::CutBeforeSend, Fault::CutReplyAt(8)].into_iter().enumerate()
    {
        proxy.inject("multi", fault);
        assert_eq!(latch.count_down().unwrap(), 9 - u32::try_from(n).unwrap(), "{fault:?}");
    }
    let other_latch = other.latch("start");
    assert_eq!(other_latch.count().unwrap(), 7);
    // The answer is the count after this change, whatever others have changed since.
    proxy.refuse(true);
    proxy.inject("multi", Fault::CutAfterApplied);
    std::thread::scope(|s| {
        let counts = s.spawn(|| latch.count_down().unwrap());
        wait_until("it counts", || other_latch.count().unwrap() == 6);
        assert_eq!(other_latch.count_down().unwrap(), 5);
        proxy.refuse(false);
        assert_eq!(counts.join().unwrap(), 6);
    });
    assert!(latch.delete().unwrap());
    drop((latch, other_latch, client, other, proxy));
    server.assert_clean();
}

/// So it is if the answer to what is read behind the change is lost, or that of the look for what
/// became of it.
#[test]
fn a_count_whose_second_answer_is_lost_counts_once() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let (client, other) = (client_of(&proxy.zookeeper_url(), |builder| builder), client(&server));
    let pool = client.semaphore("job");
    pool.try_set_permits(2).unwrap();
    proxy.inject("getChildren /job/leases", Fault::CutAfterApplied);
    assert_eq!(pool.add_permits(1).unwrap(), 3);
    proxy.wait_hits(1);
    assert_eq!(other.semaphore("job").available_permits().unwrap(), 3);
    assert!(pool.delete().unwrap());
    let latch = client.latch("start");
    latch.set_count(10).unwrap();
    proxy.inject("multi /start", Fault::StallThenCut(ms(2000)));
    std::thread::scope(|s| {
        let counts = s.spawn(|| latch.count_down().unwrap());
        proxy.wait_hits(2);
        proxy.inject("getData /leasehold-sessions/once", Fault::CutAfterApplied);
        assert_eq!(counts.join().unwrap(), 9);
    });
    proxy.wait_hits(3);
    assert_eq!(other.latch("start").count().unwrap(), 9);
    assert!(latch.delete().unwrap());
    drop((pool, latch, client, other, proxy));
    server.assert_clean();
}

/// While nothing answers, another client sets the semaphore anew and takes a permit of it.
#[test]
fn a_lost_deletion_deletes_nothing_of_the_next_semaphore() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let far = client_of(&proxy.zookeeper_url(), |builder| builder.io_timeout(CAP));
    let (near, others) = (client(&server), client(&server).semaphore("job"));
    let pool = far.semaphore("job");
    pool.try_set_permits(2).unwrap();
    let (own, other) = (pool.acquire().unwrap(), others.acquire().unwrap());
    let before = server.children("/job/leases");
    proxy.refuse(true);
    proxy.inject("multi /job/permits", Fault::CutAfterApplied);
    let next = std::thread::scope(|s| {
        let deletes = s.spawn(|| pool.delete().unwrap());
        wait_until("it is deleted", || server.node("/job/permits").is_none());
        near.semaphore("job").try_set_permits(3).unwrap();
        let next = near.semaphore("job").acquire().unwrap();
        proxy.refuse(false);
        assert!(deletes.join().unwrap(), "there was one");
        next
    });
    let left = server.children("/job/leases");
    assert!(left.len() == 1 && !before.contains(&left[0]), "{left:?} of {before:?}");
    assert_eq!(others.available_permits().unwrap(), 2);
    assert!(next.is_held() && !own.is_held());
    next.release().unwrap();
    assert!(others.delete().unwrap());
    drop((own, other, pool, others, far, near, proxy));
    server.assert_clean();
}

/// The semaphore goes after an acquire has read its number and before it makes its permit, which
/// would be one of the next semaphore.
#[test]
fn a_permit_is_not_one_of_the_next_semaphore() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    let late = client_of(&proxy.zookeeper_url(), |builder| builder.io_timeout(CAP));
    let other = client(&server);
    let pool = other.semaphore("pool");
    pool.try_set_permits(1).unwrap();
    proxy.inject("getData /pool/permits", Fault::HoldReply);
    std::thread::scope(|s| {
        let acquire = s.spawn(|| late.semaphore("pool").try_acquire());
        proxy.wait_hits(1);
        assert!(pool.delete().unwrap());
        proxy.release_held();
        let won = acquire.join().unwrap();
        pool.try_set_permits(1).unwrap();
        assert_eq!(pool.available_permits().unwrap(), 1, "{won:?}");
    });
    assert!(pool.delete().unwrap());
    drop((late, pool, other, proxy));
    server.assert_clean();
}

/// One connection in a certain number of packets ends, with the reply swallowed or half the request
/// sent.
#[test]
fn a_network_that_breaks_all_the_time_lets_all_in_one_at_a_time() {
    let server = server!();
    let proxies = [(); 3].map(|()| Proxy::before_zookeeper(&server));
    let clients: Vec<_> = proxies
        .iter()
        .map(|proxy| client_of(&proxy.zookeeper_url(), |builder| builder.outage_timeout(LONG)))
        .collect();
    for proxy in &proxies {
        proxy.cut_one_in(60);
    }
    let (inside, last, turns, longest) =
        (AtomicU32::new(0), AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(0));
    let (end, freed) =
        (Instant::now() + Duration::from_secs(6), parking_lot::Mutex::new(Instant::now()));
    std::thread::scope(|s| {
        for n in 0..6_usize {
            let (client, inside, last, turns, longest, freed) =
                (&clients[n % 3], &inside, &last, &turns, &longest, &freed);
            s.spawn(move || {
                while Instant::now() < end {
                    let Ok(guard) = client.lock("job") else { continue };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    let token = guard.fencing_token().unwrap().get();
                    let before = last.swap(token, Ordering::SeqCst);
                    assert!(token > before, "{token} after {before}");
                    turns.fetch_add(1, Ordering::SeqCst);
                    let gap = freed.lock().elapsed().as_millis();
                    longest.fetch_max(u64::try_from(gap).unwrap(), Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    *freed.lock() = Instant::now();
                    let _ = guard.unlock();
                }
            });
        }
    });
    for proxy in &proxies {
        proxy.cut_one_in(0);
    }
    let turns = turns.into_inner();
    println!("{turns} turns, the longest gap {longest:?} ms");
    assert!(turns > 20, "{turns}");
    // A ghost would remain for as long as the session: two minutes.
    assert!(longest.into_inner() < 30_000);
    wait_until("nothing is left", || server.ephemerals().is_empty());
    drop((clients, proxies));
    server.assert_clean();
}

/// The create is in transit when its connection ends, and the next connection is to a server that
/// lags behind: it has received the create, but not yet its commit. Without the write before the
/// lookup the queue entry would not be found, and would block everybody.
#[test]
fn a_place_is_found_through_a_server_that_lags_behind() {
    // A lag on a busy machine must not cause an election.
    let options =
        EnsembleOptions { patience: Duration::from_secs(100), ..EnsembleOptions::default() };
    let ensemble = server!(Ensemble::start_with(options));
    ensemble.wait_for_all();
    let (leader, followers) = (ensemble.server(ensemble.leader()), ensemble.followers());
    let (quick, late) =
        (Proxy::before_zookeeper(leader), Proxy::before_zookeeper(ensemble.server(followers[0])));
    // Keeps the directory, so that the create is sent alone.
    leader.look(|session| session.create("/job", b"", PERSISTENT).unwrap());
    // It connects to the leader, whichever server it tries first.
    late.refuse(true);
    let hosts = format!("zookeeper://127.0.0.1:{},127.0.0.1:{}", quick.port(), late.port());
    let client = client_of(&hosts, |builder| builder.io_timeout(CAP * 2));
    let other = client_of(&leader.url(), |builder| builder);
    client.try_lock("other").unwrap().unwrap().unlock().unwrap();
    // One that is behind what the client has seen would refuse it.
    let changes =
        |server: &crate::rig::zookeeper::ZooKeeper| server.node("/other").map(|node| node.cversion);
    wait_until("the followers have caught up", || {
        followers.iter().all(|follower| changes(ensemble.server(*follower)) == changes(leader))
    });
    // A follower receives a change one lag after it was requested; if both are late, the leader
    // commits it then, and they learn of that another lag later.
    for follower in &followers {
        ensemble.lag(*follower, ms(1500));
    }
    quick.inject("create2 /job", Fault::CutRequestAt(usize::MAX));
    late.refuse(false);
    quick.refuse(true);
    // It looks for its queue entry there, and finds it.
    drop(client.try_lock("job").unwrap().expect("its own queue entry is the first"));
    quick.wait_hits(1);
    let guard =
        other.mutex("job").try_lock_for(CAP).unwrap().expect("nobody else is queued for long");
    guard.unlock().unwrap();
    // One queue entry for each of the two.
    assert_eq!(
        leader.node("/job").unwrap().cversion,
        4,
        "the create had arrived, and its node was deleted"
    );
    for follower in &followers {
        ensemble.lag(*follower, Duration::ZERO);
    }
    drop((client, other, quick, late));
    leader.look(|session| session.delete("/job").unwrap());
    ensemble.assert_clean();
}

/// Cut at the moment of the close: the session ends with its timeout, and the close returns an
/// error within its own.
#[test]
fn a_close_without_a_server_ends_in_time() {
    let server = server!();
    let pipe = Pipe::to(server.port());
    let url = format!("zookeeper://127.0.0.1:{}", pipe.port());
    let client = client_of(&url, |builder| {
        builder.client_name("closes").lease(ms(2000)).io_timeout(ms(400))
    });
    let guard = client.lock("job").unwrap();
    assert!(crate::rig::threads_named("lh-zk-closes") > 0);
    pipe.silence(true);
    let start = Instant::now();
    let closed = client.close(ms(800));
    assert!(
        closed.is_err() && start.elapsed() < Duration::from_secs(6),
        "{closed:?} after {:?}",
        start.elapsed()
    );
    assert!(!guard.is_held());
    drop((guard, client));
    wait_until("no thread is left", || crate::rig::threads_named("lh-zk-closes") == 0);
    drop(pipe);
    server.assert_clean();
}

/// The request that ends the session is lost with its connection: it is sent over the next one.
#[test]
fn a_close_is_repeated() {
    let server = server!();
    let proxy = Proxy::before_zookeeper(&server);
    for fault in [Fault::CutBeforeSend, Fault::CutAfterApplied] {
        let client = client_of(&proxy.zookeeper_url(), |builder| builder);
        let guard = client.lock("job").unwrap();
        let hits = proxy.hits();
        proxy.inject("closeSession", fault);
        client.close(LONG).unwrap();
        assert_eq!(proxy.hits(), hits + 1, "{fault:?}");
        assert!(!guard.is_held() && server.sessions().is_empty(), "{fault:?}");
    }
    drop(proxy);
    server.assert_clean();
}
