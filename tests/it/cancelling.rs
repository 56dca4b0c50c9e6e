//! A token ends waits: at each point of a wait, and what is left afterwards. `ended_waits` covers
//! what holds for `stop_waiting` as well, `contract::waits` what holds for all primitives and
//! stores.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{CancelToken, ErrorKind, LockClient};

use crate::ended_waits::{LONG, client, ended};
use crate::rig::{Fault, PROMPT, Proxy, Server, ms, wait_until};

const CANCELLED: Option<ErrorKind> = Some(ErrorKind::Cancelled);

/// Every call that acquires or waits.
fn calls(client: &LockClient, token: &CancelToken) -> Vec<(&'static str, Option<ErrorKind>)> {
    let mutex = client.mutex("mutex").with_cancel(token);
    let fair = client.fair("fair").with_cancel(token);
    let rw = client.rw_lock("rw").with_cancel(token);
    let multi = client.multi(["a", "b"]).with_cancel(token);
    let semaphore = client.semaphore("semaphore").with_cancel(token);
    let counting = client.counting_semaphore("counting").with_cancel(token);
    let latch = client.latch("latch").with_cancel(token);
    vec![
        ("lock", ended(mutex.lock())),
        ("try_lock", ended(mutex.try_lock())),
        ("try_lock_for", ended(mutex.try_lock_for(LONG))),
        ("lock_owned", ended(mutex.lock_owned())),
        ("fair lock", ended(fair.lock())),
        ("fair lock_owned", ended(fair.lock_owned())),
        ("read", ended(rw.read())),
        ("write", ended(rw.write())),
        ("read_owned", ended(rw.read_owned())),
        ("write_owned", ended(rw.write_owned())),
        ("multi lock", ended(multi.lock())),
        ("multi lock_owned", ended(multi.lock_owned())),
        ("acquire", ended(semaphore.acquire())),
        ("acquire_many", ended(semaphore.acquire_many(2))),
        ("counting acquire", ended(counting.acquire())),
        ("counting acquire_many", ended(counting.acquire_many(2))),
        ("wait", ended(latch.wait())),
        ("try_wait", ended(latch.try_wait())),
        ("wait_for", ended(latch.wait_for(LONG))),
    ]
}

#[test]
fn a_call_with_a_cancelled_token_sends_nothing() {
    let server = Server::start();
    let client = client(server.url());
    let parent = CancelToken::new();
    let token = parent.child();
    parent.cancel();
    let before = server.calls();
    let sent = |before: &std::collections::HashMap<String, u64>| {
        let of = |calls: &std::collections::HashMap<String, u64>| {
            calls.get("evalsha").copied().unwrap_or(0)
        };
        of(&server.calls()) - of(before)
    };
    for (call, outcome) in calls(&client, &token) {
        assert_eq!(outcome, CANCELLED, "{call}");
    }
    assert_eq!(sent(&before), 0);
    let error = client.mutex("job").with_cancel(&token).lock().unwrap_err();
    assert_eq!(error.name(), Some("job"));
    // Calls that do not wait still work.
    let latch = client.latch("latch").with_cancel(&token);
    assert!(latch.try_set_count(1).unwrap());
    assert_eq!(latch.count_down().unwrap(), 0);
    let outer = client.lock("job").unwrap();
    let inner = client.mutex("job").with_cancel(&token).lock().unwrap();
    assert_eq!(inner.hold_count(), 2);
    drop((inner, outer, client, latch));
    server.assert_clean();
}

/// Every call blocks on a thread of its own, and one cancel ends all of them.
#[test]
fn one_cancel_ends_the_waits_of_every_primitive() {
    let server = Server::start();
    let (holder, waiting) = (client(server.url()), client(server.url()));
    assert_eq!(
        holder.semaphore("semaphore").try_set_permits(2).unwrap(),
        leasehold::SetPermits::New
    );
    assert!(holder.counting_semaphore("counting").try_set_permits(0).unwrap().is_new());
    holder.latch("latch").set_count(1).unwrap();
    let held = (
        holder.lock("mutex").unwrap(),
        holder.fair("fair").lock().unwrap(),
        holder.rw_lock("rw").write().unwrap(),
        holder.lock("b").unwrap(),
        holder.semaphore("semaphore").acquire_many(2).unwrap(),
    );
    let token = CancelToken::new();
    let mutex = waiting.mutex("mutex").with_cancel(&token);
    let fair = waiting.fair("fair").with_cancel(&token);
    let rw = waiting.rw_lock("rw").with_cancel(&token);
    let multi = waiting.multi(["a", "b"]).with_cancel(&token);
    let semaphore = waiting.semaphore("semaphore").with_cancel(&token);
    let counting = waiting.counting_semaphore("counting").with_cancel(&token);
    let latch = waiting.latch("latch").with_cancel(&token);
    let keys = || {
        let mut keys = server.lock_keys();
        keys.sort();
        keys
    };
    let before = keys();
    let calls: [Box<dyn Fn() -> Option<ErrorKind> + Send + Sync>; 14] = [
        Box::new(|| ended(mutex.lock())),
        Box::new(|| ended(mutex.lock_owned())),
        Box::new(|| ended(mutex.try_lock_for(LONG))),
        Box::new(|| ended(fair.lock())),
        Box::new(|| ended(fair.lock_owned())),
        Box::new(|| ended(rw.read())),
        Box::new(|| ended(rw.read_owned())),
        Box::new(|| ended(rw.write())),
        Box::new(|| ended(rw.write_owned())),
        Box::new(|| ended(multi.lock())),
        Box::new(|| ended(semaphore.acquire_many(2))),
        Box::new(|| ended(counting.acquire())),
        Box::new(|| ended(latch.wait())),
        Box::new(|| ended(latch.wait_for(LONG))),
    ];
    std::thread::scope(|s| {
        let waiters: Vec<_> = calls.iter().map(|call| s.spawn(call)).collect();
        wait_until("the fair ones queue", || holder.fair("fair").queue_len().unwrap() == 2);
        // The mutex, the read-write lock, `b`, both semaphores, the latch.
        wait_until("all have subscribed", || server.channels().len() >= 6);
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        token.cancel();
        wait_until("all have ended", || waiters.iter().all(|waiter| waiter.is_finished()));
        for (at, waiter) in waiters.into_iter().enumerate() {
            assert_eq!(waiter.join().unwrap(), CANCELLED, "call {at}");
        }
    });
    wait_until("no queue entry and no marker is left", || keys() == before);
    drop((
        held,
        holder.latch("latch").delete().unwrap(),
        holder.semaphore("semaphore").delete().unwrap(),
    ));
    assert!(holder.counting_semaphore("counting").delete().unwrap());
    drop(calls);
    drop((mutex, fair, rw, multi, semaphore, counting, latch, holder, waiting));
    server.assert_clean();
}

/// The middle one leaves: its queue entry is removed at once, and the order of the others is kept.
#[test]
fn the_place_of_a_cancelled_fair_waiter_goes_at_once() {
    let server = Server::start();
    let (holder, waiting) = (client(server.url()), client(server.url()));
    let guard = holder.fair("t").lock().unwrap();
    let (token, served) = (CancelToken::new(), AtomicU32::new(0));
    let fair = waiting.fair("t");
    let wait_for = |length| wait_until("it queues", || fair.queue_len().unwrap() == length);
    std::thread::scope(|s| {
        let first = s.spawn(|| {
            let _held = fair.lock().unwrap();
            served.fetch_add(1, Ordering::SeqCst)
        });
        wait_for(1);
        let middle = s.spawn(|| ended(waiting.fair("t").with_cancel(&token).lock()));
        wait_for(2);
        let last = s.spawn(|| {
            let _held = fair.lock().unwrap();
            served.fetch_add(1, Ordering::SeqCst)
        });
        wait_for(3);
        token.cancel();
        assert_eq!(middle.join().unwrap(), CANCELLED);
        wait_for(2);
        guard.unlock().unwrap();
        assert_eq!((first.join().unwrap(), last.join().unwrap()), (0, 1));
    });
    drop((holder, waiting, fair));
    server.assert_clean();
}

/// The holder reads, and a waiting writer keeps new readers out until it is cancelled.
#[test]
fn the_marker_of_a_cancelled_writer_goes_at_once() {
    let server = Server::start();
    let (holder, waiting) = (client(server.url()), client(server.url()));
    let reads = holder.rw_lock("w").read_owned().unwrap();
    let token = CancelToken::new();
    std::thread::scope(|s| {
        let writer = s.spawn(|| ended(waiting.rw_lock("w").with_cancel(&token).write()));
        let marks = || server.cmd::<u32>(&["EXISTS", "leasehold_writer:{w}"]) == 1;
        wait_until("the writer's marker", marks);
        token.cancel();
        assert_eq!(writer.join().unwrap(), CANCELLED);
        wait_until("it goes", || !marks());
    });
    drop(waiting.rw_lock("w").try_read_for(PROMPT).unwrap().expect("no writer waits"));
    drop((reads, holder, waiting));
    server.assert_clean();
}

#[test]
fn a_refusal_that_is_on_its_way_ends_the_call() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (holder, client) = (client(server.url()), client(proxy.url()));
    let guard = holder.lock("job").unwrap();
    let token = CancelToken::new();
    proxy.inject("job", Fault::StallReply(ms(300)));
    std::thread::scope(|s| {
        let call = s.spawn(|| ended(client.mutex("job").with_cancel(&token).lock_owned()));
        proxy.wait_hits(1);
        token.cancel();
        assert_eq!(call.join().unwrap(), CANCELLED);
    });
    drop((guard, holder, client));
    server.assert_clean();
}

/// Threads take the lock in turn while others are cancelled at any moment: nothing is lost, no
/// thread is left waiting, and there are never two holders.
#[test]
fn the_hold_passes_on_beside_cancels() {
    const THREADS: u32 = 6;
    const ROUNDS: u32 = 300;
    let server = Server::start();
    let clients = [client(server.url()), client(server.url()), LockClient::in_memory()];
    for client in [&clients[..2], &clients[2..]] {
        let (inside, taken, cancelled) =
            (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
        let root = CancelToken::new();
        let one_round = |client: &LockClient, n: u32| {
            let token = root.child();
            std::thread::scope(|s| {
                if !n.is_multiple_of(3) {
                    let token = &token;
                    s.spawn(move || {
                        std::thread::sleep(Duration::from_micros(u64::from(n % 7) * 60));
                        token.cancel();
                    });
                }
                let outcome = match n % 2 {
                    0 => client.mutex("job").with_cancel(&token).lock_owned(),
                    _ => client
                        .mutex("job")
                        .with_cancel(&token)
                        .try_lock_owned_for(LONG)
                        .map(Option::unwrap),
                };
                match outcome {
                    Ok(guard) => {
                        assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
                        std::thread::sleep(Duration::from_micros(50));
                        inside.store(false, Ordering::SeqCst);
                        guard.unlock().unwrap();
                        taken.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
                        cancelled.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        };
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let (client, one_round) = (&client[thread as usize % client.len()], &one_round);
                s.spawn(move || {
                    for round in 0..ROUNDS {
                        one_round(client, round * THREADS + thread);
                    }
                });
            }
        });
        let (taken, cancelled) = (taken.into_inner(), cancelled.into_inner());
        assert_eq!(taken + cancelled, THREADS * ROUNDS);
        assert!(
            taken >= THREADS * ROUNDS / 3 && cancelled > 0,
            "{taken} taken, {cancelled} cancelled"
        );
        assert!(!client[0].mutex("job").is_locked().unwrap());
    }
    drop(clients);
    server.assert_clean();
}

/// Readers join a hold of their client, writers wait with a marker, and any of them may be
/// cancelled at any moment.
#[test]
fn readers_and_writers_are_cancelled_at_every_moment() {
    let server = Server::start();
    let clients = [client(server.url()), client(server.url())];
    let (readers, writers) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        for thread in 0..6_u32 {
            let (client, readers, writers) = (&clients[thread as usize % 2], &readers, &writers);
            s.spawn(move || {
                for round in 0..150_u32 {
                    let token = CancelToken::new();
                    std::thread::scope(|s| {
                        s.spawn(|| {
                            std::thread::sleep(Duration::from_micros(
                                u64::from((round * 7 + thread) % 11) * 100,
                            ));
                            token.cancel();
                        });
                        let rw = client.rw_lock("rw").with_cancel(&token);
                        if (round + thread).is_multiple_of(4) {
                            if let Ok(_guard) = rw.write_owned() {
                                assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                                assert_eq!(readers.load(Ordering::SeqCst), 0);
                                writers.fetch_sub(1, Ordering::SeqCst);
                            }
                        } else if let Ok(_guard) = rw.read_owned() {
                            readers.fetch_add(1, Ordering::SeqCst);
                            assert_eq!(writers.load(Ordering::SeqCst), 0);
                            readers.fetch_sub(1, Ordering::SeqCst);
                        }
                    });
                }
            });
        }
    });
    // Nothing blocks other clients now.
    drop(clients[0].rw_lock("rw").try_read_for(PROMPT).unwrap().expect("no marker"));
    drop(clients[1].rw_lock("rw").try_write_for(PROMPT).unwrap().expect("no reader"));
    drop(clients);
    server.assert_clean();
}

#[test]
fn a_token_ends_waits_of_several_clients_and_a_child_only_its_own() {
    let server = Server::start();
    let holder = client(server.url());
    let clients = [client(server.url()), LockClient::in_memory()];
    let held = (holder.lock("job").unwrap(), LockClient::in_memory_shared(&clients[1]).unwrap());
    let also = held.1.lock("job").unwrap();
    let program = CancelToken::new();
    let (one, other) = (program.child(), program.child());
    std::thread::scope(|s| {
        let first = s.spawn(|| ended(clients[0].mutex("job").with_cancel(&one).lock()));
        let second = s.spawn(|| ended(clients[1].mutex("job").with_cancel(&other).lock()));
        std::thread::sleep(ms(50));
        one.cancel();
        assert_eq!(first.join().unwrap(), CANCELLED);
        assert!(!second.is_finished() && !program.is_cancelled());
        program.cancel();
        assert_eq!(second.join().unwrap(), CANCELLED);
    });
    drop((held.0, also, clients, holder));
    server.assert_clean();
}

#[test]
fn a_loss_counts_before_the_cancel() {
    let server = Server::start();
    let client = client(server.url());
    let (guard, both) = (client.lock("job").unwrap(), client.multi(["a", "b"]).lock().unwrap());
    let token = CancelToken::new();
    assert!(
        client.mutex("job").force_unlock().unwrap() && client.mutex("b").force_unlock().unwrap()
    );
    token.cancel();
    assert!(guard.wait_lost_or_cancelled(LONG, &token).unwrap().is_lost());
    assert!(both.wait_lost_or_cancelled(LONG, &token).unwrap().is_lost());
    let held = client.lock("held").unwrap();
    assert_eq!(ended(held.wait_lost_or_cancelled(LONG, &token)), CANCELLED);
    drop((guard, both, held, client));
    server.assert_clean();
}
