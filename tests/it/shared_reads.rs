//! Threads of one client that read at the same time share one hold in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, OwnedRwLockReadGuard, RwLock};

use crate::rig::{CAP, Child, Fault, Proxy, Server, ms, run_for_ever, wait_until};
use crate::support::{Clients, ShortLease};

const NAME: &str = "config";
const READERS: usize = 6;

/// The ids of the readers in Redis.
fn holders(server: &Server) -> Vec<String> {
    server.hash(NAME).into_keys().filter(|field| field != "mode").collect()
}

/// Guards that share one hold: retries until they begin close enough together.
fn shared(lock: &RwLock, server: &Server) -> Vec<OwnedRwLockReadGuard> {
    let mut guards = Vec::new();
    wait_until("all of them have one hold", || {
        guards.clear();
        guards.extend((0..READERS).map(|_| lock.read_owned().unwrap()));
        holders(server).len() == 1
    });
    guards
}

fn give_up(guards: Vec<OwnedRwLockReadGuard>) {
    for guard in guards {
        guard.unlock().unwrap();
    }
}

#[test]
fn the_last_to_leave_frees_it() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let lock = client.rw_lock(NAME);
    let mut guards = shared(&lock, &server);
    assert!(guards.iter().all(|guard| guard.is_held() && guard.hold_count() == 1));
    assert_eq!(lock.holders().unwrap().len(), 1);
    // The one that acquired the hold leaves first.
    while guards.len() > 1 {
        let before = server.hash(NAME);
        guards.remove(0).unlock().unwrap();
        assert_eq!(server.hash(NAME), before);
        assert!(guards.iter().all(OwnedRwLockReadGuard::is_held));
        assert!(other.rw_lock(NAME).try_write().unwrap().is_none());
    }
    // The last one to leave notifies the waiting writer.
    std::thread::scope(|s| {
        let writer = s.spawn(|| other.rw_lock(NAME).write().unwrap().unlock());
        wait_until("the writer waits", || !server.channels().is_empty());
        give_up(guards);
        writer.join().unwrap().unwrap();
    });
    drop((lock, client, other));
    server.assert_clean();
}

/// One acquire serves all waiting readers.
#[test]
fn readers_that_wait_behind_a_writer_get_in_together() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let (inside, done) = (AtomicU32::new(0), AtomicBool::new(false));
    drop(client.rw_lock(NAME).read().unwrap());
    let write = other.rw_lock(NAME).write().unwrap();
    std::thread::scope(|s| {
        for _ in 0..READERS {
            s.spawn(|| {
                let guard = client.rw_lock(NAME).read().unwrap();
                inside.fetch_add(1, Ordering::SeqCst);
                wait_until("all have been in", || done.load(Ordering::SeqCst));
                guard.unlock().unwrap();
            });
        }
        wait_until("they wait", || !server.channels().is_empty());
        std::thread::sleep(ms(100));
        write.unlock().unwrap();
        wait_until("all are in", || inside.load(Ordering::SeqCst) == READERS as u32);
        // A thread that queued late may have its own hold.
        assert!(holders(&server).len() < READERS, "{:?}", holders(&server));
        done.store(true, Ordering::SeqCst);
    });
    assert!(holders(&server).is_empty());
    drop((client, other));
    server.assert_clean();
}

/// Against readers that never pause, in its own process and in another one.
#[test]
fn a_writer_gets_in_between_readers_that_join_for_ever() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let (reads, done, writing) =
        (AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|s| {
        for _ in 0..READERS {
            s.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let guard = client.rw_lock(NAME).read().unwrap();
                    assert!(
                        !writing.load(Ordering::SeqCst),
                        "a reader and a writer at the same time"
                    );
                    reads.fetch_add(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
        wait_until("they read", || reads.load(Ordering::SeqCst) > 1_000);
        for writer in [&client, &other] {
            for _ in 0..50 {
                let guard =
                    writer.rw_lock(NAME).try_write_for(CAP).unwrap().expect("it gets a turn");
                writing.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                writing.store(false, Ordering::SeqCst);
                guard.unlock().unwrap();
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    drop((client, other));
    server.assert_clean();
}

#[test]
fn all_of_them_learn_of_a_loss() {
    let server = Server::start();
    let (client, other) =
        (server.builder().lease(ms(3_000)).io_timeout(ms(2_500)).build().unwrap(), server.client());
    let lock = client.rw_lock(NAME);
    let forced: [&dyn Fn(); 3] = [
        &|| assert!(other.rw_lock(NAME).force_unlock().unwrap()),
        &|| server.cmd::<()>(&["FLUSHALL"]),
        &|| {
            lock.force_unlock().unwrap();
        },
    ];
    for force in forced {
        let guards = shared(&lock, &server);
        let (tell, told) = channel();
        for guard in &guards {
            let tell = tell.clone();
            guard.on_lost(move |_| tell.send(()).unwrap());
        }
        force();
        let write = other.rw_lock(NAME).try_write().unwrap().expect("free");
        assert!(guards.iter().all(|guard| guard.wait_lost(CAP).is_lost()), "by the next check");
        for _ in &guards {
            told.recv_timeout(CAP).unwrap();
        }
        assert!(lock.try_read().unwrap().is_none(), "nobody joins the lost hold");
        assert!(
            guards.into_iter().all(|guard| guard.unlock().unwrap_err().kind() == ErrorKind::Lost)
        );
        wait_until("what was lost is undone, and not the writer", || holders(&server).len() == 1);
        write.unlock().unwrap();
    }
    drop((lock, client));
    drop(other);
    server.assert_clean();
}

/// A longest hold and the levels belong to the guard that set them. A longer lease belongs to the
/// hold.
#[test]
fn terms_and_levels_are_the_guards_own() {
    let server = Server::start();
    let client = server.builder().short_lease(ms(3_000)).build().unwrap();
    let lock = client.rw_lock(NAME);
    let limited = client.rw_lock(NAME).max_hold(ms(300));
    let (mut short, mut long) = (None, None);
    wait_until("both have one hold", || {
        // Released before the next pair is acquired.
        drop((short.take(), long.take()));
        short = Some(limited.read_owned().unwrap());
        long = Some(lock.read_owned().unwrap());
        holders(&server).len() == 1
    });
    let (short, long) = (short.unwrap(), long.unwrap());
    assert!(short.wait_lost(CAP).is_lost() && long.is_held());
    assert_eq!(short.unlock().unwrap_err().kind(), ErrorKind::Lost);
    std::thread::sleep(ms(3_500));
    assert!(long.is_held(), "nothing was undone under it");
    assert!(server.client().rw_lock(NAME).try_write().unwrap().is_none());
    long.unlock().unwrap();
    assert!(holders(&server).is_empty());

    let guards = shared(&lock, &server);
    guards[0].extend(ms(60_000)).unwrap();
    assert!(guards.iter().all(|guard| guard.remaining() > ms(50_000)));
    give_up(guards);
    assert!(holders(&server).is_empty());

    // A lease of its own requires a hold of its own.
    let first = lock.read_owned().unwrap();
    let fixed = client.rw_lock(NAME).with_lease(ms(5_000)).read_owned().unwrap();
    assert_eq!(holders(&server).len(), 2);
    fixed.unlock().unwrap();
    first.unlock().unwrap();

    // It has more levels than the others.
    let mut rounds = 0;
    wait_until("a thread with several levels shares it", || {
        rounds += 1;
        let first = lock.read_owned().unwrap();
        let levels: Vec<_> = (0..3).map(|_| lock.read().unwrap()).collect();
        let one = holders(&server).len() == 1;
        if rounds % 2 == 0 {
            drop(levels);
            first.unlock().unwrap();
        } else {
            first.unlock().unwrap();
            assert!(levels.iter().all(|level| level.is_held() && level.hold_count() == 3));
            drop(levels);
        }
        assert!(server.lock_keys().is_empty(), "{:?}", server.lock_keys());
        one && rounds > 2
    });
    drop((lock, limited, client));
    server.assert_clean();
}

/// The reply to an acquire or to a last release is lost.
#[test]
fn unknown_outcomes_leave_nothing() {
    for fault in
        [Fault::CutAfterApplied, Fault::CutBeforeSend, Fault::CutReplyAt(1), Fault::BlackHoleReply]
    {
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let client = LockClient::builder().url(proxy.url()).io_timeout(ms(1_500)).build().unwrap();
        let lock = client.rw_lock(NAME);
        let mut guards = shared(&lock, &server);
        let last = guards.pop().unwrap();
        give_up(guards);
        proxy.inject(NAME, fault);
        if let Err(e) = last.unlock() {
            assert!(
                matches!(e.kind(), ErrorKind::Unreachable | ErrorKind::Protocol),
                "{fault:?}: {e}"
            );
        }
        wait_until("it is undone", || holders(&server).is_empty());
        proxy.disarm();

        let write = server.client().rw_lock(NAME).write().unwrap();
        std::thread::scope(|s| {
            for _ in 0..READERS {
                s.spawn(|| {
                    let read = client
                        .rw_lock(NAME)
                        .try_read_for(CAP)
                        .unwrap()
                        .expect("in spite of the fault");
                    assert!(read.is_held());
                    read.unlock().unwrap();
                });
            }
            wait_until("they wait", || !server.channels().is_empty());
            proxy.inject(NAME, fault);
            write.unlock().unwrap();
        });
        wait_until("nobody reads", || holders(&server).is_empty());
        drop((lock, client));
        drop(proxy);
        server.assert_clean();
    }
}

#[test]
fn close_ends_them_all() {
    for _ in 0..5 {
        let server = Server::start();
        let client = server.client();
        let lock = client.rw_lock(NAME);
        let guards = shared(&lock, &server);
        let (tell, told) = channel();
        for guard in &guards {
            let tell = tell.clone();
            guard.on_lost(move |_| tell.send(()).unwrap());
        }
        let reads = AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..READERS {
                s.spawn(|| {
                    while let Ok(guard) = client.rw_lock(NAME).read() {
                        reads.fetch_add(1, Ordering::SeqCst);
                        let _ = guard.unlock();
                    }
                });
            }
            wait_until("others read", || reads.load(Ordering::SeqCst) > 200);
            client.close(CAP).unwrap();
            assert!(holders(&server).is_empty());
        });
        for _ in &guards {
            told.recv_timeout(CAP).unwrap();
        }
        assert!(
            guards.into_iter().all(|guard| guard.unlock().unwrap_err().kind() == ErrorKind::Closed)
        );
        server.assert_clean();
    }
}

/// A thread that ends with a guard removes only its own share, and a guard may be dropped on
/// another thread.
#[test]
fn threads_that_end_leave_it_to_the_others() {
    let server = Server::start();
    let client = Arc::new(server.client());
    let lock = client.rw_lock(NAME);
    for _ in 0..10 {
        let kept = lock.read_owned().unwrap();
        let forgets = client.clone();
        std::thread::spawn(move || std::mem::forget(forgets.rw_lock(NAME).read().unwrap()))
            .join()
            .unwrap();
        std::thread::sleep(ms(20));
        assert!(kept.is_held());
        assert!(server.client().rw_lock(NAME).try_write().unwrap().is_none());
        std::thread::spawn(move || kept.unlock()).join().unwrap().unwrap();
        wait_until("the forgotten guard's share is released", || holders(&server).is_empty());
    }
    // Forgotten guards keep the client alive.
    client.close(CAP).unwrap();
    server.assert_clean();
}

/// Reads in several threads forever.
#[test]
#[ignore = "a program for other tests"]
fn reading_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    // A call of a busy machine may take longer than a quarter of the lease.
    let builder = LockClient::builder().url(&url).short_lease(ms(600));
    let client = builder.io_timeout(ms(550)).build().unwrap();
    run_for_ever(READERS, "reading", || {
        client.rw_lock(NAME).read().is_ok_and(|guard| guard.unlock().is_ok())
    });
}

#[test]
fn a_process_that_dies_or_stops_keeps_writers_out_for_a_lease() {
    let server = Server::start();
    let client = server.client();
    let lock = client.rw_lock(NAME);
    for stopped in [false, true] {
        let mut child =
            Child::spawn("shared_reads::reading_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
        child.expect("reading");
        if stopped {
            child.signal("STOP");
        } else {
            child.kill();
        }
        let guard = lock.try_write_for(ms(600) + CAP / 2).unwrap().expect("its leases ended");
        if stopped {
            child.signal("CONT");
            std::thread::sleep(ms(700));
            assert!(guard.is_held(), "late requests of the child affect only its own holds");
            assert_eq!(holders(&server).len(), 1, "and nobody joins them");
            guard.unlock().unwrap();
            wait_until("it continues", || {
                lock.holders().unwrap().iter().any(|holder| !holder.is_this_client())
            });
            child.kill();
        }
    }
    wait_until("the last lease ends", || !lock.is_locked().unwrap());
    drop((lock, client));
    server.assert_clean();
}

/// A reader that joins has only the lease that the store has confirmed.
#[test]
fn nobody_joins_a_hold_whose_lease_is_over() {
    let server = Server::start();
    let client = server.builder().lease(ms(2_000)).io_timeout(ms(1_500)).build().unwrap();
    let lock = client.rw_lock(NAME);
    let guards = shared(&lock, &server);
    let until = Instant::now() + ms(2_000);
    server.suspend();
    assert!(guards.iter().all(|guard| guard.wait_lost(CAP).is_lost()));
    assert!(
        Instant::now() < until + CAP
            && guards.iter().all(|guard| guard.remaining() == Duration::ZERO)
    );
    assert_eq!(lock.try_read().unwrap_err().kind(), ErrorKind::Unreachable);
    server.resume();
    for guard in guards {
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    }
    wait_until("it is undone", || holders(&server).is_empty());
    drop((lock, client));
    server.assert_clean();
}
