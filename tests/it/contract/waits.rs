//! Waits that are ended: by the token of the call, or because the client stops waiting.

use leasehold::{CancelToken, ErrorKind, Result};

use super::case::Case;
use super::{LONG, SOON};
use crate::rig::{CAP, ms, wait_until};

/// Why the call failed. A guard is dropped on the thread that acquired it.
fn ended<G>(outcome: Result<G>) -> Option<ErrorKind> {
    outcome.err().map(|e| e.kind())
}

pub(super) fn a_cancelled_wait_leaves_nothing_and_who_is_behind_moves_up(case: &mut Case) {
    let label = case.primitive.label;
    let (holder, waiting) = (case.open(), case.open());
    let token = CancelToken::new();
    let cancellable = waiting.with_cancel(&token.child());
    let guard = holder.lock().unwrap();
    let before = case.keys();
    std::thread::scope(|s| {
        let leader = s.spawn(|| ended(cancellable.lock()));
        case.wait_for_a_waiter();
        let behind = s.spawn(|| ended(cancellable.try_lock_for(LONG)));
        std::thread::sleep(ms(20));
        token.cancel();
        wait_until(&format!("{label}: both have ended"), || {
            leader.is_finished() && behind.is_finished()
        });
        let both = [leader.join().unwrap(), behind.join().unwrap()];
        assert_eq!(both, [Some(ErrorKind::Cancelled); 2], "{label}");
        wait_until(&format!("{label}: no queue entry and no marker is left"), || {
            case.keys() == before
        });
    });
    assert_eq!(
        ended(cancellable.try_lock()),
        Some(ErrorKind::Cancelled),
        "{label}: before the call"
    );
    assert_eq!(ended(cancellable.lock()), Some(ErrorKind::Cancelled), "{label}: before the call");
    let other = CancelToken::new();
    let cancellable = waiting.with_cancel(&other);
    std::thread::scope(|s| {
        let leader = s.spawn(|| ended(cancellable.lock()));
        case.wait_for_a_waiter();
        let behind = s.spawn(|| ended(waiting.try_lock_for(SOON)));
        std::thread::sleep(ms(20));
        other.cancel();
        wait_until(&format!("{label}: it has ended"), || leader.is_finished());
        assert_eq!(leader.join().unwrap(), Some(ErrorKind::Cancelled), "{label}");
        // The call behind it leads now. Cancelling another one behind that does not disturb it.
        let last = CancelToken::new();
        let cancellable = waiting.with_cancel(&last);
        let leaves = s.spawn(move || ended(cancellable.lock()));
        std::thread::sleep(ms(20));
        last.cancel();
        wait_until(&format!("{label}: it has ended behind a leader"), || leaves.is_finished());
        assert_eq!(leaves.join().unwrap(), Some(ErrorKind::Cancelled), "{label}");
        assert!(!behind.is_finished(), "{label}");
        guard.unlock().unwrap();
        assert_eq!(behind.join().unwrap(), None, "{label}: the call behind it gets the lock");
    });
    // A request that was in transit at the cancel is undone in the background.
    wait_until(&format!("{label}: no queue entry is left"), || case.keys().is_empty());
    case.assert_free("all have released it");
}

pub(super) fn a_wait_for_a_loss_can_be_cancelled(case: &mut Case) {
    let label = case.primitive.label;
    let guard = case.open().lock().unwrap();
    let (token, held) = (CancelToken::new(), &*guard);
    assert!(
        held.wait_lost_or_cancelled(ms(1), &token).unwrap().is_still_held(),
        "{label}: it is held"
    );
    std::thread::scope(|s| {
        let child = token.child();
        let waiter = s.spawn(move || held.wait_lost_or_cancelled(LONG, &child));
        token.cancel();
        wait_until(&format!("{label}: it has ended"), || waiter.is_finished());
        let error = waiter.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{label}: {error}");
        assert!(error.name().is_some_and(|name| name.contains(&case.name)), "{label}: {error}");
    });
    assert!(guard.is_held(), "{label}");
    guard.unlock().unwrap();
}

pub(super) fn a_client_that_waits_no_more_keeps_what_it_holds(case: &mut Case) {
    let label = case.primitive.label;
    let (stopped, other) = (case.open(), case.open());
    let guard = stopped.lock().unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| ended(stopped.lock()));
        std::thread::sleep(ms(20));
        stopped.stop_waiting();
        stopped.stop_waiting();
        wait_until(&format!("{label}: the waiter has ended"), || waiter.is_finished());
        assert_eq!(waiter.join().unwrap(), Some(ErrorKind::Closed), "{label}");
        let later = s.spawn(|| [ended(stopped.try_lock()), ended(stopped.try_lock_for(LONG))]);
        assert_eq!(later.join().unwrap(), [Some(ErrorKind::Closed); 2], "{label}");
    });
    assert!(guard.is_held(), "{label}");
    guard.extend(LONG).unwrap();
    if matches!(label, "plain" | "fair" | "write" | "multi") {
        stopped.lock().unwrap().unlock().unwrap();
    }
    assert!(other.try_lock().unwrap().is_none(), "{label}: it is held");
    guard.unlock().unwrap();
    assert_eq!(ended(other.try_lock_for(SOON)), None, "{label}: it is free");
    stopped.close(CAP).unwrap();
}

pub(super) fn a_client_that_waits_no_more_leaves_its_places_at_once(case: &mut Case) {
    let label = case.primitive.label;
    let (holder, stopped) = (case.open(), case.open());
    let guard = holder.lock().unwrap();
    let before = case.keys();
    std::thread::scope(|s| {
        let waiters = [s.spawn(|| ended(stopped.lock())), s.spawn(|| ended(stopped.lock()))];
        case.wait_for_a_waiter();
        stopped.stop_waiting();
        wait_until(&format!("{label}: the waiters have ended"), || {
            waiters.iter().all(|one| one.is_finished())
        });
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Some(ErrorKind::Closed), "{label}");
        }
        wait_until(&format!("{label}: no queue entry and no marker is left"), || {
            case.keys() == before
        });
    });
    guard.unlock().unwrap();
    stopped.close(CAP).unwrap();
    case.assert_free("nobody waits");
}
