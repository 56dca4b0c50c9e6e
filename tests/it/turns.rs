//! Turns: the hold of a plain lock is passed between the threads of a client without a request.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, ReentrantMutexGuard};

use crate::rig::{CAP, Child, Fault, Proxy, Server, ms, run_for_ever, wait_for, wait_until};
use crate::support::{Clients, ShortLease};

const NAME: &str = "job";
const THREADS: usize = 4;

/// Threads of one client take the lock in turn until one of them gets it in a turn that was passed
/// to it: `act` gets that guard while the others wait. The others end after one more turn each.
/// Returns their errors.
pub(crate) fn in_a_passed_turn(
    client: &LockClient,
    act: impl FnOnce(ReentrantMutexGuard) + Send,
) -> Vec<ErrorKind> {
    in_a_passed_turn_of(client, NAME, act)
}

pub(crate) fn in_a_passed_turn_of(
    client: &LockClient,
    name: &str,
    act: impl FnOnce(ReentrantMutexGuard) + Send,
) -> Vec<ErrorKind> {
    let (last, done) = (Mutex::new(String::new()), AtomicBool::new(false));
    let (act, errors) = (Mutex::new(Some(act)), Mutex::new(Vec::new()));
    let begin = Instant::now();
    let turns = || {
        while !done.load(Ordering::SeqCst) {
            assert!(begin.elapsed() < CAP, "no turn is passed on");
            let guard = match client.lock(name) {
                Ok(guard) => guard,
                Err(e) => {
                    errors.lock().unwrap().push(e.kind());
                    continue;
                }
            };
            let holder = client
                .mutex(name)
                .holder()
                .ok()
                .flatten()
                .map_or_else(String::new, |holder| holder.id().to_owned());
            let before = std::mem::replace(&mut *last.lock().unwrap(), holder.clone());
            if before == holder && !holder.is_empty() && !done.swap(true, Ordering::SeqCst) {
                let act = act.lock().unwrap().take().unwrap();
                act(guard);
            } else if let Err(e) = guard.unlock() {
                errors.lock().unwrap().push(e.kind());
            }
        }
    };
    std::thread::scope(|s| (0..THREADS).for_each(|_| drop(s.spawn(turns))));
    errors.into_inner().unwrap()
}

/// Threads of one client take the lock in turn until one of them has it with a token that
/// `is_inside` its block at the server, and not the last one: `act` gets that guard while the others
/// wait. Returns their errors.
pub(crate) fn in_the_middle_of_a_block(
    client: &LockClient,
    is_inside: impl Fn(i64) -> bool + Sync,
    act: impl FnOnce(ReentrantMutexGuard) + Send,
) -> Vec<ErrorKind> {
    let (act, done, errors) =
        (Mutex::new(Some(act)), AtomicBool::new(false), Mutex::new(Vec::new()));
    let begin = Instant::now();
    let turns = || {
        for turn in 0_u32.. {
            if done.load(Ordering::SeqCst) {
                return;
            }
            assert!(begin.elapsed() < CAP, "no turn has a token in the middle of a block");
            let guard = match client.lock(NAME) {
                Ok(guard) => guard,
                Err(error) => {
                    errors.lock().unwrap().push(error.kind());
                    continue;
                }
            };
            // Rarely checked: a block is large only after a run of many turns.
            let looks = turn % 16 == 15;
            if looks
                && is_inside(guard.fencing_token().unwrap().as_i64())
                && !done.swap(true, Ordering::SeqCst)
            {
                let act = act.lock().unwrap().take().unwrap();
                act(guard);
            } else if let Err(error) = guard.unlock() {
                errors.lock().unwrap().push(error.kind());
            }
        }
    };
    std::thread::scope(|s| (0..THREADS).for_each(|_| drop(s.spawn(turns))));
    errors.into_inner().unwrap()
}

/// A client of a server, and one in memory.
fn for_both(point: impl Fn(&LockClient)) {
    let server = Server::start();
    let client = server.client();
    point(&client);
    drop(client);
    server.assert_clean();
    let client = LockClient::in_memory();
    point(&client);
    assert!(!client.mutex(NAME).is_locked().unwrap());
}

#[test]
fn tokens_grow_over_all_turns_of_all_clients() {
    const TURNS: u32 = 300;
    let server = Server::start();
    let clients = [server.client(), server.client()];
    let (tokens, java) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    std::thread::scope(|s| {
        for n in 0..2 * THREADS {
            let (client, tokens, java, server) = (&clients[n % 2], &tokens, &java, &server);
            s.spawn(move || {
                for turn in 0..TURNS {
                    let guard = client.lock(NAME).unwrap();
                    let token = guard.fencing_token().unwrap().get();
                    if turn % 100 == 0 {
                        let counter = server.cmd::<u64>(&["GET", "redisson_lock_token:{job}"]);
                        assert!(counter >= token, "what Java draws next must be higher");
                        java.fetch_max(counter, Ordering::SeqCst);
                    }
                    tokens.lock().unwrap().push(token);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens.is_sorted_by(|a, b| a < b));
    assert_eq!(tokens.len(), 2 * THREADS * TURNS as usize);
    // Redisson's fenced lock draws it in this way.
    let next = server.cmd::<u64>(&["INCR", "redisson_lock_token:{job}"]);
    assert!(next > *tokens.last().unwrap() && next > java.load(Ordering::SeqCst));
    let calls = server.call_count("hset");
    assert!(calls < tokens.len() as u64 / 2, "{calls} acquires for {} turns", tokens.len());
    drop(clients);
    server.assert_clean();
}

#[test]
fn a_turn_is_a_hold_like_any_other() {
    let server = Server::start();
    let client = server.client();
    let errors = in_a_passed_turn(&client, |guard| {
        assert!(
            guard.is_held() && guard.remaining() <= ms(30_000) && guard.remaining() > ms(20_000)
        );
        assert_eq!(guard.hold_count(), 1);
        let hash = server.hash(NAME);
        assert_eq!(hash.values().collect::<Vec<_>>(), ["1"], "in Redisson's format");
        assert!((20_000..=30_000).contains(&server.pttl(NAME)));
        // A re-entry is sent to the server, and only the last unlock releases the lock.
        let inner = client.lock(NAME).unwrap();
        assert_eq!(server.hash(NAME).values().collect::<Vec<_>>(), ["2"]);
        assert_eq!(inner.fencing_token().unwrap(), guard.fencing_token().unwrap());
        inner.unlock().unwrap();
        assert_eq!(server.hash(NAME), hash);
        let other = server.client();
        assert!(other.try_lock(NAME).unwrap().is_none() && guard.is_held());
        guard.extend(ms(60_000)).unwrap();
        assert!(guard.remaining() > ms(50_000));
        guard.unlock().unwrap();
    });
    assert!(errors.is_empty(), "{errors:?}");
    drop(client);
    server.assert_clean();
}

/// A lease that was extended belongs to the turn that extended it.
#[test]
fn an_extended_lease_does_not_pass_on() {
    for_both(|client| {
        let extended = AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    for turn in 0..50 {
                        let guard = client.lock(NAME).unwrap();
                        assert!(guard.remaining() < ms(31_000));
                        if turn % 7 == 0 {
                            guard.extend(ms(90_000)).unwrap();
                            extended.fetch_add(1, Ordering::SeqCst);
                        }
                        guard.unlock().unwrap();
                    }
                });
            }
        });
        assert!(extended.into_inner() > 0);
    });
}

#[test]
fn terms_that_differ_get_a_hold_of_their_own() {
    let server = Server::start();
    let client = server.client();
    let fixed = client.mutex(NAME).with_lease(ms(60_000));
    let kept = client.mutex(NAME).keep_token();
    let (stop, tokens) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let guard = client.lock(NAME).unwrap();
                    tokens.lock().unwrap().push(guard.fencing_token().unwrap());
                    guard.unlock().unwrap();
                }
            });
        }
        for _ in 0..100 {
            let guard = fixed.lock().unwrap();
            // The whole lease, as requested.
            assert!((40_000..=60_000).contains(&server.pttl(NAME)), "{}", server.pttl(NAME));
            assert!(guard.remaining() > ms(40_000) && guard.remaining() <= ms(60_000));
            tokens.lock().unwrap().push(guard.fencing_token().unwrap());
            guard.unlock().unwrap();
            // The value that Java reads there is the token of the holder.
            let guard = kept.lock().unwrap();
            let counter = server.cmd::<u64>(&["GET", "redisson_lock_token:{job}"]);
            assert_eq!(counter, guard.fencing_token().unwrap().get());
            tokens.lock().unwrap().push(guard.fencing_token().unwrap());
            guard.unlock().unwrap();
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert!(tokens.into_inner().unwrap().is_sorted_by(|a, b| a < b));
    drop((fixed, kept, client));
    server.assert_clean();
}

/// The longest hold counts from the turn's own beginning; settings of an earlier turn end with that
/// turn.
#[test]
fn max_hold_and_callbacks_are_the_turns_own() {
    let server = Server::start();
    let client = server.builder().short_lease(ms(3000)).max_hold(ms(4000)).build().unwrap();
    let called = AtomicU32::new(0);
    let (tell, told) = channel();
    in_a_passed_turn(&client, move |guard| {
        let begin = Instant::now();
        guard.on_lost(move |_| tell.send(()).unwrap());
        assert!(guard.wait_lost(CAP).is_lost());
        assert!(begin.elapsed() > ms(3600), "renewed up to its max_hold: {:?}", begin.elapsed());
        assert!(told.recv_timeout(CAP).is_ok());
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    });
    // The callbacks of turns that were passed on never run.
    let client = server.client();
    in_a_passed_turn(&client, |guard| {
        drop(guard);
        std::thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    for _ in 0..50 {
                        let guard = client.lock("callbacks").unwrap();
                        guard.on_lost(|_| panic!("it was unlocked while it was held"));
                        called.fetch_add(1, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                });
            }
        });
        let last = client.lock("callbacks").unwrap();
        assert!(server.client().mutex("callbacks").force_unlock().unwrap());
        drop(last);
    });
    assert_eq!(called.into_inner(), 50 * THREADS as u32);
}

#[test]
fn a_turn_that_its_own_client_forces_out_learns_of_it() {
    for_both(|client| {
        let errors = in_a_passed_turn(client, |guard| {
            assert!(client.mutex(NAME).force_unlock().unwrap());
            assert!(!guard.is_held(), "by its own client: at once");
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
        });
        assert!(errors.is_empty(), "the others have their own holds: {errors:?}");
    });
}

/// The store has granted the lock, and the reply is in transit, alone or behind the reply to
/// another thread's release. A thread of the same client forces the lock open, and another client
/// acquires it. The guard is notified at once, and not by its next renewal in ten seconds.
#[test]
fn a_forced_unlock_reaches_a_hold_whose_grant_is_on_its_way() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (client, other) = (LockClient::open(&proxy.url()).unwrap(), server.client());
    // A fixed lease is not passed on without a request.
    let lock = client.mutex(NAME).with_lease(ms(30_000));
    for behind_a_release in [false, true] {
        let held = behind_a_release.then(|| lock.lock_owned().unwrap());
        let before = server.hash(NAME);
        std::thread::scope(|s| {
            let stall = || proxy.inject(NAME, Fault::StallReply(ms(500)));
            if !behind_a_release {
                stall();
            }
            let late = s.spawn(|| {
                let guard = lock.lock().unwrap();
                assert!(guard.wait_lost(ms(3_000)).is_lost(), "it was forced out, but believes");
                assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
            });
            if let Some(held) = held {
                wait_until("the other thread waits", || client.snapshot().waits().len() == 1);
                // It falls asleep shortly after the snapshot shows it.
                std::thread::sleep(ms(50));
                stall();
                s.spawn(|| held.unlock().unwrap());
            }
            wait_until("it is granted", || {
                // It is briefly free, between the release and the acquire behind it.
                let now = server.hash(NAME);
                !now.is_empty() && now != before
            });
            assert!(client.mutex(NAME).force_unlock().unwrap());
            let next = other.try_lock(NAME).unwrap().expect("free");
            late.join().unwrap();
            next.unlock().unwrap();
        });
    }
    drop((lock, client, other, proxy));
    server.assert_clean();
}

/// It may be passed on, but then nobody believes in it for long.
#[test]
fn a_turn_that_is_unlocked_after_it_was_forced_out_passes_nothing_on_for_long() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    for _ in 0..10 {
        let forced = Mutex::new(None);
        let errors = in_a_passed_turn(&client, |guard| {
            assert!(other.mutex(NAME).force_unlock().unwrap());
            *forced.lock().unwrap() = Some(Instant::now());
            // Whether or not it is passed on: the run ends soon, and then its release finds
            // nothing.
            let _ = guard.unlock();
        });
        assert!(
            errors.iter().all(|kind| *kind == ErrorKind::Lost) && errors.len() <= 1,
            "{errors:?}"
        );
        assert!(!other.mutex(NAME).is_locked().unwrap());
    }
    drop((client, other));
    server.assert_clean();
}

#[test]
fn the_last_release_of_a_run_may_have_an_unknown_outcome() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = LockClient::builder().url(proxy.url()).io_timeout(ms(500)).build().unwrap();
    for _ in 0..5 {
        let errors = in_a_passed_turn(&client, |guard| {
            proxy.cut_all();
            drop(guard);
        });
        assert!(errors.iter().all(|kind| *kind == ErrorKind::Unreachable), "{errors:?}");
        wait_until("it is undone", || server.hash(NAME).is_empty());
        drop(server.client().try_lock(NAME).unwrap().expect("free"));
    }
    drop(client);
    drop(proxy);
    server.assert_clean();
}

#[test]
fn close_ends_all_turns_and_leaves_nothing() {
    for round in 0..10 {
        let server = Server::start();
        let client = server.client();
        let (turns, stopped) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            for _ in 0..2 * THREADS {
                s.spawn(|| {
                    loop {
                        match client.lock(NAME) {
                            Ok(guard) => {
                                turns.fetch_add(1, Ordering::SeqCst);
                                if let Err(e) = guard.unlock() {
                                    assert_eq!(e.kind(), ErrorKind::Closed);
                                }
                            }
                            Err(e) => {
                                assert_eq!(e.kind(), ErrorKind::Closed);
                                assert!(stopped.load(Ordering::SeqCst));
                                return;
                            }
                        }
                    }
                });
            }
            wait_until("they take turns", || turns.load(Ordering::SeqCst) > 100 + 37 * round);
            stopped.store(true, Ordering::SeqCst);
            client.close(CAP).unwrap();
            assert!(server.hash(NAME).is_empty());
        });
        server.assert_clean();
    }
}

/// A thread times out, panics or ends at the moment when the lock is passed to it.
#[test]
fn whoever_gives_up_in_the_middle_leaves_the_lock_to_the_next() {
    for_both(|client| {
        let (taken, late) = (AtomicU32::new(0), AtomicU32::new(0));
        let inside = AtomicU32::new(0);
        std::thread::scope(|s| {
            for n in 0..2 * THREADS as u64 {
                let (taken, late, inside) = (&taken, &late, &inside);
                s.spawn(move || {
                    for turn in 0..200_u64 {
                        let timeout = Duration::from_micros((turn * 31 + n * 57) % 400);
                        let Some(guard) = client.try_lock_for(NAME, timeout).unwrap() else {
                            late.fetch_add(1, Ordering::SeqCst);
                            continue;
                        };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        taken.fetch_add(1, Ordering::SeqCst);
                        match turn % 5 {
                            0 => {
                                let panicked = catch_unwind(AssertUnwindSafe(|| {
                                    let _guard = guard;
                                    inside.fetch_sub(1, Ordering::SeqCst);
                                    std::panic::resume_unwind(Box::new(()));
                                }));
                                assert!(panicked.is_err());
                            }
                            _ => {
                                inside.fetch_sub(1, Ordering::SeqCst);
                                guard.unlock().unwrap();
                            }
                        }
                    }
                });
            }
        });
        // On a busy machine most are late: there must be some of both.
        assert!(taken.into_inner() > 10, "{late:?} were late");
        drop(client.try_lock(NAME).unwrap().expect("free"));
    });
}

#[test]
fn threads_that_end_with_their_unlock_pass_it_on() {
    for_both(|client| {
        crate::rig::record_logs();
        let names: Vec<_> = (0..40).collect();
        let first = client.lock(NAME).unwrap();
        std::thread::scope(|s| {
            for _ in &names {
                s.spawn(|| client.lock(NAME).unwrap().unlock().unwrap());
            }
            first.unlock().unwrap();
        });
        drop(client.try_lock(NAME).unwrap().expect("free"));
    });
}

#[test]
fn owned_guards_pass_on_wherever_they_are_dropped() {
    for_both(|client| {
        let (give, take) = channel::<leasehold::OwnedMutexGuard>();
        let tokens = Mutex::new(BTreeSet::new());
        std::thread::scope(|s| {
            let dropper =
                s.spawn(move || take.into_iter().map(|guard| guard.unlock().unwrap()).count());
            for n in 0..THREADS {
                let (give, tokens) = (give.clone(), &tokens);
                s.spawn(move || {
                    for _ in 0..100 {
                        if n % 2 == 0 {
                            let guard = client.mutex(NAME).lock_owned().unwrap();
                            assert!(tokens.lock().unwrap().insert(guard.fencing_token().unwrap()));
                            give.send(guard).unwrap();
                        } else {
                            let guard = client.mutex(NAME).non_reentrant().lock().unwrap();
                            assert!(tokens.lock().unwrap().insert(guard.fencing_token().unwrap()));
                            let again = client.mutex(NAME).try_lock();
                            assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
                        }
                    }
                });
            }
            drop(give);
            assert_eq!(dropper.join().unwrap(), 100 * THREADS / 2);
        });
        assert_eq!(tokens.into_inner().unwrap().len(), 100 * THREADS);
    });
}

/// Takes turns forever, and appends the token of each to a list at the server.
#[test]
#[ignore = "a program for other tests"]
fn turning_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    // A call of a busy machine may take longer than a quarter of the lease.
    let builder = LockClient::builder().url(&url).short_lease(ms(600));
    let client = builder.io_timeout(ms(550)).build().unwrap();
    run_for_ever(2 * THREADS, "turning", || {
        client.lock(NAME).is_ok_and(|guard| guard.unlock().is_ok())
    });
}

#[test]
fn a_process_that_dies_or_stops_in_a_run_keeps_the_lock_for_a_lease() {
    let server = Server::start();
    let client = server.client();
    for stopped in [false, true] {
        let mut child =
            Child::spawn("turns::turning_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
        child.expect("turning");
        if stopped {
            child.signal("STOP");
        } else {
            child.kill();
        }
        let guard = client.try_lock_for(NAME, ms(600) + CAP / 2).unwrap().expect("its lease ended");
        let drawn = server.cmd::<u64>(&["GET", "redisson_lock_token:{job}"]);
        assert_eq!(
            guard.fencing_token().unwrap().get(),
            drawn,
            "larger than all that the run has drawn"
        );
        if stopped {
            child.signal("CONT");
            std::thread::sleep(ms(700));
            assert!(guard.is_held(), "late requests of the child affect only its own hold");
            let holders = client.mutex(NAME).holder().unwrap().expect("held");
            assert!(holders.is_this_client());
            guard.unlock().unwrap();
            wait_for(CAP, "it continues", || {
                client.mutex(NAME).holder().unwrap().is_some_and(|h| !h.is_this_client())
            });
            child.kill();
        }
    }
    wait_until("the last lease ends", || !client.mutex(NAME).is_locked().unwrap());
    drop(client);
    server.assert_clean();
}

/// Not only elapsed time: a failed renewal is enough.
#[cfg(feature = "testing")]
#[test]
fn a_hold_that_may_be_lost_does_not_pass_on() {
    use leasehold::testing::{Failure, Faults, Operation};
    let client = LockClient::in_memory();
    let faults = Faults::of(&client).unwrap();
    // Its lease ends while the others wait.
    let errors = in_a_passed_turn(&client, |guard| {
        faults.advance(ms(31_000));
        assert!(!guard.is_held());
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    });
    assert!(errors.is_empty(), "{errors:?}");
    // It is due for renewal, and the renewal fails: its release reveals the outcome.
    let errors = in_a_passed_turn(&client, |guard| {
        faults.fail_next(Operation::Renew, Failure::BeforeItRan);
        faults.advance(ms(11_000));
        let held = client.mutex(NAME).holder().unwrap().unwrap();
        guard.unlock().unwrap();
        let next = client.mutex(NAME).holder().unwrap();
        assert!(next.is_none_or(|next| next.id() != held.id()), "released, not passed on");
    });
    assert!(errors.is_empty(), "{errors:?}");
    // The release that ends a run is lost before or after it ran.
    for failure in [Failure::AfterItRan, Failure::BeforeItRan] {
        let errors = in_a_passed_turn(&client, |guard| {
            faults.fail_next(Operation::Release, failure);
            drop(guard);
        });
        assert!(
            errors.len() <= 1 && errors.iter().all(|kind| *kind == ErrorKind::Unreachable),
            "{errors:?}"
        );
        wait_until("it is undone", || faults.held().is_empty());
    }
}
