//! One holder at a time, in every form of the call, and what a release does.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Builder, ErrorKind};

use super::case::Case;
use super::primitives::{Exclusive, Guard};
use super::{LONG, SOON, count_losses};
use crate::rig::{CAP, ms, wait_until};

pub(super) fn one_holder_at_a_time_between_clients_and_between_threads(case: &mut Case) {
    let primitive = case.primitive.label;
    let (mut a, mut b) = (case.open(), case.open());
    let mut last = None;
    for _ in 0..3 {
        let guard = a.lock().unwrap();
        assert!(guard.is_held() && guard.ensure_held().is_ok(), "{primitive}: held");
        assert!(
            guard.remaining() > LONG / 2 && guard.remaining() <= LONG,
            "{primitive}: {:?}",
            guard.remaining()
        );
        assert!(b.try_lock().unwrap().is_none(), "{primitive}: another client");
        let thread =
            std::thread::scope(|s| s.spawn(|| a.try_lock().unwrap().is_none()).join().unwrap());
        assert!(thread, "{primitive}: another thread of the same client");
        assert_eq!(guard.token().is_some(), case.primitive.has_token, "{primitive}: token");
        assert!(
            guard.token() > last || !case.primitive.has_token,
            "{primitive}: {:?} after {last:?}",
            guard.token()
        );
        last = guard.token();
        guard.unlock().unwrap();
        std::mem::swap(&mut a, &mut b);
    }
}

pub(super) fn threads_of_two_clients_never_overlap_and_all_get_in(case: &mut Case) {
    let primitive = case.primitive.label;
    let clients = [case.open(), case.open()];
    let (inside, turns, last) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        for n in 0..6 {
            let (client, inside, turns, last) = (&clients[n % 2], &inside, &turns, &last);
            s.spawn(move || {
                for turn in 0..5 {
                    let guard = match (n + turn) % 3 {
                        0 => client.lock().unwrap(),
                        1 => client.try_lock_for(LONG).unwrap().expect("it becomes free"),
                        _ => client
                            .try_lock_until(Instant::now() + LONG)
                            .unwrap()
                            .expect("it becomes free"),
                    };
                    assert_eq!(
                        inside.fetch_add(1, Ordering::SeqCst),
                        0,
                        "{primitive}: two holders"
                    );
                    if let Some(token) = guard.token() {
                        let before = last.swap(token, Ordering::SeqCst);
                        assert!(token > before, "{primitive}: token {token} after {before}");
                    }
                    std::thread::yield_now();
                    assert_eq!(
                        inside.fetch_sub(1, Ordering::SeqCst),
                        1,
                        "{primitive}: two holders"
                    );
                    turns.fetch_add(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(turns.load(Ordering::SeqCst), 30, "{primitive}");
}

pub(super) fn all_four_forms_take_what_is_free(case: &mut Case) {
    let primitive = case.primitive.label;
    let client = case.open();
    let some = |form: &str, won: Option<Guard>| {
        won.unwrap_or_else(|| panic!("{primitive}: {form}")).unlock().unwrap();
        case.assert_keys(&[], form);
    };
    client.lock().unwrap().unlock().unwrap();
    some("try", client.try_lock().unwrap());
    some("for", client.try_lock_for(LONG).unwrap());
    some("for no time", client.try_lock_for(Duration::ZERO).unwrap());
    some("forever", client.try_lock_for(Duration::MAX).unwrap());
    some("until", client.try_lock_until(Instant::now() + LONG).unwrap());
    some("until now", client.try_lock_until(Instant::now()).unwrap());
}

pub(super) fn timed_forms_give_up_in_time_and_leave_nothing(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open(), case.open());
    let guard = a.lock().unwrap();
    let before = case.keys();
    let give_up = |who: &dyn Exclusive, wait: u64| {
        for until in [false, true] {
            let start = Instant::now();
            let won = if until {
                who.try_lock_until(start + ms(wait)).unwrap()
            } else {
                who.try_lock_for(ms(wait)).unwrap()
            };
            let took = start.elapsed();
            assert!(won.is_none(), "{primitive}: {wait} ms");
            assert!(
                took >= ms(wait) && took < ms(wait) + SOON,
                "{primitive}: {wait} ms took {took:?}"
            );
            // Such as an entry in a queue, or the marker of a waiting writer.
            case.assert_keys(&before, &format!("{wait} ms left something"));
        }
    };
    for wait in [0, 1, 30, 100] {
        give_up(&*b, wait);
        // On another thread, because on this one a re-entrant lock would be re-entered.
        std::thread::scope(|s| s.spawn(|| give_up(&*a, wait)).join().unwrap());
    }
    assert!(guard.is_held(), "{primitive}: undisturbed");
    guard.unlock().unwrap();
    case.assert_free("a waiter that gave up blocks nobody");
}

pub(super) fn dropping_frees_also_in_a_panic(case: &mut Case) {
    let (a, b) = (case.open(), case.open());
    drop(a.lock().unwrap());
    case.assert_free("dropped");
    let panicked = std::thread::scope(|s| {
        let thread = s.spawn(|| {
            let _guard = a.lock().unwrap();
            panic!("on purpose");
        });
        thread.join().is_err()
    });
    assert!(panicked);
    case.assert_free("dropped in a panic");
    b.lock().unwrap().unlock().unwrap();
    a.lock().unwrap().unlock().unwrap();
}

pub(super) fn a_guard_that_moves_is_dropped_anywhere(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open(), case.open());
    let Some(guard) = a.lock_to_move() else { return };
    let guard = guard.unwrap();
    // An owned guard is never re-entered, so even its own thread finds the lock taken.
    assert!(a.try_lock().unwrap().is_none(), "{primitive}: its own thread");
    std::thread::spawn(move || drop(guard)).join().unwrap();
    case.assert_free("dropped on another thread");
    let guard = b.lock_to_move().unwrap().unwrap();
    let unlocked = std::thread::spawn(move || guard.unlock()).join().unwrap();
    assert!(unlocked.is_ok(), "{primitive}: {unlocked:?}");
    case.assert_free("unlocked on another thread");
}

/// A message or the client itself wakes the waiter: every timer that could wake it is too late for
/// this test.
pub(super) fn a_release_wakes_the_next_at_once(case: &mut Case) {
    let primitive = case.primitive.label;
    let patient = |builder: Builder| builder.lease(LONG).waiter_timeout(LONG);
    let other = case.open_with(patient);
    for form in 0..3 {
        let client = case.open_with(patient);
        for (holder, local) in [(&other, false), (&client, true)] {
            let guard = holder.lock().unwrap();
            std::thread::scope(|s| {
                let waiter = s.spawn(|| {
                    let won = match form {
                        0 => client.lock().map(Some),
                        1 => client.try_lock_for(LONG),
                        _ => client.try_lock_until(Instant::now() + LONG),
                    };
                    (won.unwrap().is_some_and(|guard| guard.is_held()), Instant::now())
                });
                if local {
                    // Nothing on the server shows that this thread waits. If it does not wait yet,
                    // it finds the lock free.
                    std::thread::sleep(ms(20));
                } else {
                    case.wait_for_a_waiter();
                }
                case.servers
                    .0
                    .iter()
                    .take(1)
                    .for_each(|server| server.cmd(&["CONFIG", "RESETSTAT"]));
                let start = Instant::now();
                guard.unlock().unwrap();
                let (held, woken) = waiter.join().unwrap();
                assert!(held, "{primitive}: form {form}");
                assert!(woken - start < SOON, "{primitive}: form {form} took {:?}", woken - start);
            });
            // Two releases, and the attempt after the wake-up. At most one other attempt was
            // already in transit.
            let calls = case.servers.0.first().map_or(0, |server| server.call_count("evalsha"));
            assert!(calls <= 5, "{primitive}: form {form} took {calls} scripts");
        }
    }
}

pub(super) fn closing_releases_what_is_held_and_wakes_waiters(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open(), case.open());
    let guard = a.lock().unwrap();
    let reported = count_losses(&*guard);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| b.lock().map(|guard| guard.is_held()));
        case.wait_for_a_waiter();
        b.close(SOON).unwrap();
        assert_eq!(
            waiter.join().unwrap().unwrap_err().kind(),
            ErrorKind::Closed,
            "{primitive}: the waiter"
        );
    });
    assert!(guard.is_held(), "{primitive}: another client's hold");
    a.close(SOON).unwrap();
    assert!(
        !guard.is_held() && guard.wait_lost(CAP).is_lost(),
        "{primitive}: freed under its holder, who is notified"
    );
    case.assert_free("closed");
    assert_eq!(
        guard.ensure_held().unwrap_err().kind(),
        ErrorKind::Closed,
        "{primitive}: ensure_held"
    );
    wait_until(&format!("{primitive}: the callback has run"), || {
        reported.load(Ordering::SeqCst) == 1
    });
    let error = guard.unlock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{primitive}: another client may have held it");
    assert!(error.name().is_some(), "{primitive}: {error}");
    assert_eq!(
        a.lock().err().map(|e| e.kind()),
        Some(ErrorKind::Closed),
        "{primitive}: no method works"
    );
    assert_eq!(reported.load(Ordering::SeqCst), 1, "{primitive}: reported once");
}
