//! What each kind of primitive does beyond what all exclusive ones have in common: once for each
//! store that has all of them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use leasehold::{ErrorKind, LockClient, SetPermits};
use parking_lot::Mutex;

use super::case::Case;
use super::{LONG, SOON};
use crate::rig::{CAP, ms, wait_until};
use crate::turns::in_a_passed_turn_of;

/// Clients with leases that outlast the test.
fn clients<const COUNT: usize>(case: &Case) -> [LockClient; COUNT] {
    std::array::from_fn(|_| case.client(|builder| builder.lease(LONG)))
}

#[track_caller]
fn wait_for_waits(client: &LockClient, count: usize) {
    wait_until(&format!("{count} wait"), || client.snapshot().waits().len() == count);
    // They fall asleep shortly after the snapshot shows them.
    std::thread::sleep(ms(50));
}

/// What a call returns on another thread.
fn elsewhere<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| s.spawn(call).join().unwrap())
}

pub(super) fn a_mutex_is_reentrant_and_its_guards_drop_in_any_order(case: &mut Case) {
    let [a, b] = clients(case);
    let first = a.lock("job").unwrap();
    let second = a.try_lock("job").unwrap().unwrap();
    let third = a.try_lock_for("job", ms(10)).unwrap().unwrap();
    assert_eq!((first.name(), first.hold_count(), third.hold_count()), ("job", 3, 3));
    let token = first.fencing_token().unwrap();
    assert_eq!(third.fencing_token().unwrap(), token);
    let counted = b.mutex("job").holder().unwrap().unwrap().hold_count();
    assert!(counted == 3 || case.is_over_zookeeper(), "only the client knows the count there");
    first.unlock().unwrap();
    drop(third);
    assert!(second.is_held() && b.try_lock("job").unwrap().is_none());
    assert!(b.try_lock("other").unwrap().is_some());
    second.unlock().unwrap();
    let next = b.try_lock("job").unwrap().unwrap();
    assert!(next.fencing_token().unwrap() > token);
}

pub(super) fn operators_see_and_free(case: &mut Case) {
    let [client, operator] = clients(case);
    let mutex = operator.mutex("job");
    assert!(!mutex.is_locked().unwrap());
    assert!(mutex.holder().unwrap().is_none() && !mutex.force_unlock().unwrap());
    let guard = client.lock("job").unwrap();
    let holder = mutex.holder().unwrap().unwrap();
    assert!(holder.id().starts_with(client.id()) && !holder.is_this_client(), "{holder:?}");
    // A session has no end that the store could tell.
    let left = holder.remaining();
    assert!(left.is_some_and(|left| left > LONG / 2) || case.is_over_zookeeper(), "{left:?}");
    assert!(client.mutex("job").holder().unwrap().unwrap().is_this_client());
    assert!(mutex.is_locked().unwrap() && mutex.force_unlock().unwrap());
    assert!(!mutex.is_locked().unwrap() && !mutex.force_unlock().unwrap());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    let own = client.lock("job").unwrap();
    assert!(client.mutex("job").force_unlock().unwrap());
    assert!(!own.is_held(), "a hold of the same client is notified at once");
}

/// Neither of two clients, whose threads all want the lock all the time, keeps it for itself.
pub(super) fn clients_share_a_mutex(case: &mut Case) {
    let clients: [_; 2] = clients(case);
    let (over, counts) = (AtomicBool::new(false), [const { AtomicU32::new(0) }; 2]);
    std::thread::scope(|s| {
        for n in 0..8 {
            let (client, count, over) = (&clients[n % 2], &counts[n % 2], &over);
            s.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    client.lock("job").unwrap().unlock().unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let each = || counts.iter().map(|count| count.load(Ordering::SeqCst)).min().unwrap();
        // In turn: a few grants of one client would happen by chance.
        for turn in 1..=10 {
            wait_until("both get it", || each() > turn * 20);
        }
        over.store(true, Ordering::SeqCst);
    });
}

/// The hold was passed to its thread by another one of the client, without a request.
pub(super) fn a_turn_whose_hold_is_lost_learns_of_it(case: &mut Case) {
    if case.is_over_zookeeper() {
        // Each thread that waits has a place in the queue, so no hold is passed on.
        return;
    }
    let client = case.client(|builder| builder.lease(ms(3000)).io_timeout(ms(2500)));
    let [other] = clients(case);
    let name = &*case.name;
    for by_force in [true, false] {
        let errors = in_a_passed_turn_of(&client, name, |guard| {
            if by_force {
                assert!(other.mutex(name).force_unlock().unwrap());
            } else {
                case.forget(false);
            }
            let next = other.try_lock(name).unwrap();
            assert!(guard.wait_lost(CAP).is_lost() && !guard.is_held(), "by its renewal");
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
            drop(next);
        });
        assert!(errors.is_empty(), "{errors:?}");
    }
}

/// Tokens increase with every grant, so they show the order without a race.
pub(super) fn a_fair_lock_is_given_in_the_order_of_arrival(case: &mut Case) {
    let clients: [_; 3] = clients(case);
    let guard = clients[0].fair("job").lock().unwrap();
    let mut tokens = vec![guard.fencing_token().unwrap()];
    std::thread::scope(|s| {
        let mut waiters = Vec::new();
        for n in 0..12 {
            let fair = clients[n % 3].fair("job");
            waiters.push(s.spawn(move || match n % 2 {
                0 => fair.lock().unwrap().fencing_token().unwrap(),
                _ => fair.lock_owned().unwrap().fencing_token().unwrap(),
            }));
            let queue_len = || clients[n % 3].fair("job").queue_len().unwrap();
            wait_until("it waits", || queue_len() == n + 1);
        }
        // The first of its client, which has two clients before it.
        assert_eq!(clients[2].fair("job").position().unwrap(), Some(2));
        assert!(clients[0].fair("job").try_lock_owned().unwrap().is_none(), "nobody overtakes");
        guard.unlock().unwrap();
        tokens.extend(waiters.into_iter().map(|waiter| waiter.join().unwrap()));
    });
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

pub(super) fn readers_share_and_a_writer_is_alone(case: &mut Case) {
    let [a, b] = clients(case);
    let (one, other) = (a.rw_lock("data").read().unwrap(), b.rw_lock("data").read().unwrap());
    assert!(one.is_held() && other.is_held());
    assert_eq!(a.rw_lock("data").holders().unwrap().len(), 2);
    assert!(a.rw_lock("data").try_write_until(Instant::now()).is_err(), "this thread reads");
    one.unlock().unwrap();
    assert!(a.rw_lock("data").try_write().unwrap().is_none());
    let reads = || elsewhere(|| b.rw_lock("data").try_read().unwrap().is_some());
    wait_until("the try leaves", reads);
    std::thread::scope(|s| {
        let writer = s.spawn(|| a.rw_lock("data").write().unwrap().unlock().unwrap());
        // Its marker reaches the store a moment after it has begun to wait.
        wait_until("a waiting writer goes first", || !reads());
        other.unlock().unwrap();
        writer.join().unwrap();
    });
    let write = a.rw_lock("data").write().unwrap();
    assert!(write.fencing_token().is_ok());
    assert!(b.rw_lock("data").try_read().unwrap().is_none());
    assert!(b.rw_lock("data").try_write_for(ms(20)).unwrap().is_none());
    std::thread::scope(|s| {
        let reader = s.spawn(|| b.rw_lock("data").read_owned().unwrap());
        wait_for_waits(&b, 1);
        write.unlock().unwrap();
        let reader = reader.join().unwrap();
        s.spawn(move || reader.unlock().unwrap());
    });
}

pub(super) fn a_writer_reads_and_downgrades(case: &mut Case) {
    let [a, b] = clients(case);
    let reads = || elsewhere(|| b.rw_lock("data").try_read().unwrap().is_some());
    let writes = || elsewhere(|| b.rw_lock("data").try_write().unwrap().is_some());
    let write = a.rw_lock("data").write().unwrap();
    let inside = a.rw_lock("data").read().unwrap();
    drop(inside);
    assert!(!reads());
    let read = write.downgrade().unwrap();
    assert!(reads() && !writes());
    read.unlock().unwrap();
    wait_until("nobody reads", writes);
}

/// A thread that waits to read, and one of the same client that waits to write after it: neither
/// waits for the other.
pub(super) fn readers_and_writers_of_each_client_get_in(case: &mut Case) {
    let clients: [_; 2] = clients(case);
    let inside = AtomicU32::new(0);
    std::thread::scope(|s| {
        for n in 0..8 {
            let (lock, inside) = (clients[n % 2].rw_lock("data"), &inside);
            s.spawn(move || {
                for turn in 0..15 {
                    if (n + turn) % 3 == 0 {
                        let guard = lock.write().unwrap();
                        assert_eq!(inside.fetch_add(100, Ordering::SeqCst), 0, "a writer is alone");
                        inside.fetch_sub(100, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    } else {
                        let guard = lock.read().unwrap();
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 100, "no writer is inside");
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                }
            });
        }
    });
}

pub(super) fn several_locks_are_taken_as_one(case: &mut Case) {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let [a, b] = clients(case);
    let all = a.multi(["c", "b", "a"]);
    let are_free = || ["a", "c"].iter().all(|name| !b.mutex(*name).is_locked().unwrap());
    let one = b.lock("b").unwrap();
    assert!(all.try_lock().unwrap().is_none() && all.try_lock_for(ms(50)).unwrap().is_none());
    wait_until("a call that gives up leaves nothing", are_free);
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            let guard = all.lock().unwrap();
            assert!(NAMES.iter().all(|name| b.mutex(*name).is_locked().unwrap()));
            let tokens = NAMES.map(|name| guard.fencing_token(name).unwrap());
            guard.unlock().unwrap();
            tokens
        });
        wait_for_waits(&a, 1);
        let token = one.fencing_token().unwrap();
        one.unlock().unwrap();
        assert!(waits.join().unwrap()[1] > token);
    });
}

/// Two calls that share names do not wait for each other, whatever the order of their names. And a
/// thread that waits for one name alone does not block its own client.
pub(super) fn multi_locks_do_not_wait_for_each_other(case: &mut Case) {
    let clients: [_; 2] = clients(case);
    let inside = [const { AtomicU32::new(0) }; 6];
    std::thread::scope(|s| {
        for n in 0..6_usize {
            let (client, inside) = (&clients[n % 2], &inside);
            s.spawn(move || {
                for turn in 0..20 {
                    let first = (n * 7 + turn * 5) % 6;
                    let chosen = [first, (first + 1 + turn % 2) % 6, (first + 3) % 6];
                    let names = chosen.map(|name| format!("name-{name}"));
                    let be_alone = |with: &[usize]| {
                        for name in with {
                            assert_eq!(inside[*name].fetch_add(1, Ordering::SeqCst), 0, "alone");
                        }
                        for name in with {
                            inside[*name].fetch_sub(1, Ordering::SeqCst);
                        }
                    };
                    if turn % 4 == 3 {
                        let guard = client.lock(&names[0]).unwrap();
                        be_alone(&chosen[..1]);
                        guard.unlock().unwrap();
                    } else {
                        let guard = client.multi(&names).lock().unwrap();
                        be_alone(&chosen);
                        guard.unlock().unwrap();
                    }
                }
            });
        }
    });
}

pub(super) fn permits_are_counted(case: &mut Case) {
    let [a, b] = clients(case);
    let (one, other) = (a.semaphore("pool"), b.semaphore("pool"));
    assert_eq!(one.try_acquire().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(one.try_set_permits(3).unwrap(), SetPermits::New);
    assert_eq!(other.try_set_permits(5).unwrap(), SetPermits::Different { current: 3 });
    assert_eq!(other.try_set_permits(3).unwrap(), SetPermits::Same);
    let two = one.acquire_many(2).unwrap();
    assert_eq!(
        (two.permits(), other.available_permits().unwrap(), other.acquired_permits().unwrap()),
        (2, 1, 2)
    );
    assert!(other.try_acquire_many(2).unwrap().is_none(), "all or none");
    let third = other.try_acquire().unwrap().unwrap();
    assert!(one.try_acquire_for(ms(20)).unwrap().is_none());
    assert!(one.try_acquire_until(Instant::now() + ms(20)).unwrap().is_none());
    assert_eq!(one.try_acquire_many(4).unwrap_err().kind(), ErrorKind::Conflict, "never so many");
    std::thread::scope(|s| {
        let many = s.spawn(|| other.acquire_many(3).unwrap());
        wait_for_waits(&b, 1);
        drop(two);
        third.release().unwrap();
        let many = many.join().unwrap();
        assert!(many.is_held());
        std::thread::spawn(move || many.release().unwrap()).join().unwrap();
    });
    assert_eq!(one.add_permits(2).unwrap(), 5);
    let id = other.acquire().unwrap().forget();
    assert_eq!(one.acquired_permits().unwrap(), 1);
    let extended = one.extend(&id, LONG).map_err(|e| e.kind());
    let session = Err(ErrorKind::Unsupported);
    assert_eq!(extended, if case.is_over_zookeeper() { session } else { Ok(()) });
    assert_eq!(one.extend(&id, ms(1)).unwrap_err().kind(), ErrorKind::InvalidInput);
    one.release(&id).unwrap();
    assert_eq!(one.release(&id).unwrap_err().kind(), ErrorKind::Lost, "already returned");
    let gone = one.extend(&id, LONG).map_err(|e| e.kind());
    assert_eq!(gone, if case.is_over_zookeeper() { session } else { Err(ErrorKind::Lost) });
    let all = one.drain_permits().unwrap().unwrap();
    assert_eq!((all.permits(), other.available_permits().unwrap()), (5, 0));
    assert!(other.drain_permits().unwrap().is_none(), "none is free");
    assert_eq!(one.add_permits(-2).unwrap(), -2, "until two are back");
    assert_eq!((other.available_permits().unwrap(), other.acquired_permits().unwrap()), (-2, 5));
    all.release().unwrap();
    assert_eq!(other.available_permits().unwrap(), 3);
    let held = other.acquire().unwrap();
    assert!(one.delete().unwrap() && !other.delete().unwrap());
    assert_eq!(held.release().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(one.drain_permits().unwrap_err().kind(), ErrorKind::Conflict, "nobody has set them");
}

/// A call that meets others at its turn does not report that there is no permit.
pub(super) fn free_permits_are_had_by_all_who_try_at_once(case: &mut Case) {
    let clients: [_; 2] = clients(case);
    assert_eq!(clients[0].semaphore("pool").try_set_permits(12).unwrap(), SetPermits::New);
    let (start, held) = (Barrier::new(12), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        for n in 0..12 {
            let (pool, start, held) = (clients[n % 2].semaphore("pool"), &start, &held);
            s.spawn(move || {
                start.wait();
                let permit = pool.try_acquire().unwrap();
                held.lock().push(permit.expect("a permit is free").forget());
            });
        }
    });
    assert!(clients[0].semaphore("pool").try_acquire().unwrap().is_none());
    assert!(clients[0].semaphore("pool").delete().unwrap());
}

pub(super) fn counting_permits_are_counted(case: &mut Case) {
    let [a, b] = clients(case);
    let (one, other) = (a.counting_semaphore("count"), b.counting_semaphore("count"));
    if case.is_over_zookeeper() {
        assert_eq!(one.try_acquire().unwrap_err().kind(), ErrorKind::Unsupported);
        return;
    }
    assert_eq!(one.try_set_permits(0).unwrap(), SetPermits::New);
    std::thread::scope(|s| {
        // There are no permits yet: the call waits for the first ones.
        let waiter = s.spawn(|| other.acquire_many(2).unwrap());
        wait_for_waits(&b, 1);
        assert_eq!((one.add_permits(1).unwrap(), one.add_permits(1).unwrap()), (1, 2));
        let held = waiter.join().unwrap();
        assert_eq!((held.permits(), held.name()), (2, "count"));
        assert!(one.try_acquire().unwrap().is_none());
        assert!(one.try_acquire_for(ms(20)).unwrap().is_none());
        std::thread::spawn(move || held.release().unwrap()).join().unwrap();
    });
    assert_eq!(one.try_set_permits(3).unwrap(), SetPermits::SetBefore { free: 2 });
    let all = other.drain_permits().unwrap().unwrap();
    assert_eq!((all.permits(), one.available_permits().unwrap()), (2, 0));
    assert!(one.drain_permits().unwrap().is_none(), "none is free");
    all.release().unwrap();
    one.acquire().unwrap().forget();
    let last = one.acquire().unwrap();
    a.close(SOON).unwrap();
    assert_eq!(other.available_permits().unwrap(), 1, "closing returns permits without a lease");
    let error = last.release().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Closed, Some("count")));
    assert!(other.delete().unwrap());
}

pub(super) fn a_latch_opens_for_all(case: &mut Case) {
    let clients: [_; 3] = clients(case);
    let [latch, second, third] = clients.each_ref().map(|client| client.latch("start"));
    assert!(latch.try_wait().unwrap(), "an unset latch is open");
    assert_eq!(latch.count_down().unwrap(), 0);
    assert!(latch.try_set_count(2).unwrap() && !second.try_set_count(5).unwrap());
    assert_eq!(second.set_count(5).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(latch.count().unwrap(), 2);
    std::thread::scope(|s| {
        let waiters: Vec<_> = (0..9)
            .map(|n| {
                let latch = [&latch, &second, &third][n % 3];
                s.spawn(
                    move || if n % 2 == 0 { latch.wait() } else { latch.wait_for(LONG).map(drop) },
                )
            })
            .collect();
        for client in &clients {
            wait_for_waits(client, 3);
        }
        assert_eq!(third.count_down().unwrap(), 1);
        assert!(!latch.try_wait().unwrap() && !latch.wait_for(ms(20)).unwrap());
        assert!(!latch.wait_until(Instant::now() + ms(20)).unwrap());
        let start = Instant::now();
        assert_eq!(second.count_down().unwrap(), 0);
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
        assert!(start.elapsed() < SOON, "woken by a message: {:?}", start.elapsed());
    });
    assert_eq!((latch.count_down().unwrap(), latch.count().unwrap()), (0, 0), "it stays open");
    latch.set_count(1).unwrap();
    assert!(latch.delete().unwrap() && latch.try_wait().unwrap() && !latch.delete().unwrap());
}
