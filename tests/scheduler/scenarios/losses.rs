//! Holds that end before their guards do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::os::thread::sleep;
use leasehold::{ErrorKind, LockClient, OwnedMutexGuard};

use crate::book::{As, pause};
use crate::stage::{Stage, choose, join_all, wait_until};

/// Far less than a third of a lease, after which renewal would report a loss anyway.
const TOLD: Duration = Duration::from_millis(50);

/// Takes the lock, and checks inside what its holder may believe.
fn believe(
    stage: &Stage,
    take: impl FnOnce() -> leasehold::Result<OwnedMutexGuard>,
    check: impl FnOnce(&Arc<OwnedMutexGuard>),
) {
    let guard = match take() {
        Ok(guard) => Arc::new(guard),
        // The clock jumped before the reply arrived.
        Err(e) => return assert_eq!(e.kind(), ErrorKind::Unreachable, "{e}"),
    };
    stage.book.believes(&guard);
    pause();
    check(&guard);
    stage.book.forget(&guard);
    wait_until("nobody else looks at it", || Arc::strong_count(&guard) == 1);
    let guard = Arc::into_inner(guard).expect("nobody else looks at it");
    let believed = guard.is_held();
    match guard.unlock() {
        Ok(()) => assert!(believed, "unlock reported that it was held to the end"),
        Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{e}"),
    }
}

/// No other guard believes while this one does.
fn alone(stage: &Stage, take: impl FnOnce() -> leasehold::Result<OwnedMutexGuard>) {
    believe(stage, take, |guard| stage.book.check_alone(guard));
}

fn owned(client: &LockClient) -> leasehold::Result<OwnedMutexGuard> {
    client.mutex("job").lock_owned()
}

/// The client frees by force a lock that its own threads hand over to each other. Once the call has
/// returned, none of them believes while another client has the lock. (Until then one may: the
/// store has freed it, and the client does not know yet.)
pub(crate) fn forced_by_its_client() {
    let stage = Stage::new();
    let works = |_: &Arc<OwnedMutexGuard>| sleep([Duration::ZERO, 2 * TOLD][choose(2)]);
    let threads = [(); 3].map(|()| {
        stage.spawn(move |stage| (0..2).for_each(|_| believe(&stage, || owned(&stage.one), works)))
    });
    pause();
    if stage.one.mutex("job").force_unlock().expect("the store answers")
        && let Some(guard) = stage.other.mutex("job").try_lock_owned().expect("the store answers")
    {
        let guard = Arc::new(guard);
        stage.book.believes(&guard);
        sleep(TOLD);
        stage.book.check_alone(&guard);
        stage.book.forget(&guard);
    }
    join_all(threads);
    stage.end();
}

/// Another client frees it by force: the holder's next renewal reports the loss, and nobody keeps
/// waiting.
pub(crate) fn forced_by_another() {
    let stage = Stage::new();
    let threads = [true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            match stage.client(is_one).lock("job").expect("it becomes free").unlock() {
                Ok(()) => {}
                Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{e}"),
            }
        })
    });
    pause();
    stage.other.mutex("job").force_unlock().expect("the store answers");
    join_all(threads);
    stage.end();
}

/// The clock jumps past all leases, as after a suspend of the machine: every hold that was granted
/// before, or whose grant was still in transit, is lost.
pub(crate) fn suspended() {
    let stage = Stage::new();
    let threads = [true, true, false].map(|is_one| {
        stage.spawn(move |stage| (0..2).for_each(|_| alone(&stage, || owned(stage.client(is_one)))))
    });
    pause();
    stage.faults.advance(Duration::from_secs(40));
    join_all(threads);
    stage.end();
}

/// Fixed leases that end at about the time when they are handed over.
pub(crate) fn fixed_leases() {
    leasehold::os::deadlines_race();
    let stage = Stage::new();
    let lease = Duration::from_millis(20);
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let mutex = stage.client(is_one).mutex("job").with_lease(lease);
            alone(&stage, || {
                let guard = mutex.lock_owned();
                sleep(Duration::from_millis([0, 19, 30][choose(3)]));
                guard
            });
        })
    }));
    stage.end();
}

/// Leases that are shorter than the section but renewed: nothing is lost.
pub(crate) fn renewed() {
    let stage = Stage::with(|builder| builder.lease(Duration::from_millis(300)));
    join_all([true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).lock("job").expect("it becomes free");
            stage.book.enter("job", As::Writer, None);
            sleep(Duration::from_millis(500));
            assert!(guard.is_held());
            stage.book.leave("job", As::Writer);
            guard.unlock().expect("it is held");
        })
    }));
    stage.end();
}

/// A hold is passed to another thread of its client during an outage of the store. That thread
/// believes no longer than the store has confirmed: right after that another client gets the lock.
pub(crate) fn passed_on_in_an_outage() {
    // Tokens are off: the first acquire draws none for a second turn.
    let stage = Stage::with(|builder| builder.lease(Duration::from_millis(300)).fencing(false));
    let first = owned(&stage.one).expect("it is free");
    let next = [true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let looks = |guard: &Arc<OwnedMutexGuard>| {
                for _ in 0..330 {
                    stage.book.check_alone(guard);
                    if !guard.is_held() {
                        break;
                    }
                    sleep(Duration::from_millis(1));
                }
            };
            if !is_one {
                sleep(Duration::from_millis(300));
            }
            believe(&stage, || owned(stage.client(is_one)), looks);
        })
    });
    sleep(Duration::from_millis(12));
    // The outage ends shortly before the lease ends in the store, so that the other client can
    // acquire.
    stage.faults.cut(Duration::from_millis(286));
    // The release continues in the background if nobody waits for the lock yet.
    let _ = first.unlock();
    join_all(next);
    stage.end();
}

/// The store loses the lock. The callback runs if and only if `unlock` reports the loss.
pub(crate) fn callbacks() {
    let stage = Stage::with(|builder| builder.lease(Duration::from_millis(300)));
    let told = Arc::new(AtomicU32::new(0));
    let guard = stage.one.lock("job").expect("it is free");
    guard.on_lost({
        let told = told.clone();
        move |_| {
            told.fetch_add(1, Ordering::SeqCst);
            if choose(2) == 0 {
                std::panic::panic_any(crate::stage::OnPurpose);
            }
        }
    });
    let next = stage.spawn(|stage| {
        // The loss lets it take the lock.
        match stage.other.lock("job").expect("it becomes free").unlock() {
            Ok(()) => {}
            // The store lost the lock later.
            Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{e}"),
        }
    });
    let was_lost = Arc::new(AtomicBool::new(false));
    let loses = stage.spawn({
        let was_lost = was_lost.clone();
        move |stage| was_lost.store(stage.faults.lose("job"), Ordering::SeqCst)
    });
    sleep(Duration::from_millis([0, 99, 101, 200][choose(4)]));
    let was_lost = was_lost.load(Ordering::SeqCst);
    let unlocked = guard.unlock();
    assert!(!was_lost || unlocked.is_err(), "`unlock` reported no loss");
    join_all([loses]);
    join_all([next]);
    stage.end();
    let expected = u32::from(unlocked.is_err_and(|e| e.kind() == ErrorKind::Lost));
    assert_eq!(told.load(Ordering::SeqCst), expected, "it runs when `unlock` reports the loss");
}

/// Readers of one client share a hold that the store loses.
pub(crate) fn lost_reads() {
    let stage = Stage::with(|builder| builder.lease(Duration::from_millis(300)));
    let readers = [(); 3].map(|()| {
        stage.spawn(|stage| {
            let guard = stage.one.rw_lock("job").read().expect("it becomes free");
            sleep(Duration::from_millis([0, 5, 150][choose(3)]));
            match guard.unlock() {
                Ok(()) => {}
                Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{e}"),
            }
        })
    });
    pause();
    let was_held = stage.faults.lose("job");
    if was_held
        && let Some(writer) = stage.other.rw_lock("job").try_write().expect("the store answers")
    {
        // After a third of the lease every earlier reader has been notified.
        sleep(Duration::from_millis(120));
        let snapshot = stage.one.snapshot();
        let believes = snapshot.holds().iter().any(leasehold::observe::HoldInfo::is_held);
        assert!(!(believes && writer.is_held()), "a reader believes beside a writer: {snapshot:?}");
        drop(writer);
    }
    join_all(readers);
    stage.end();
}

/// A guard that outlives its lost hold keeps nobody in its client from the lock.
pub(crate) fn its_guard_lives() {
    let stage = Stage::with(|builder| builder.lease(Duration::from_millis(300)));
    let guard = stage.one.lock("job").expect("it is free");
    let waits = [true, true, false].map(|is_one| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).lock("job").expect("it becomes free");
            stage.book.section("job", As::Writer, None, &guard);
            guard.unlock().expect("it is held");
        })
    });
    pause();
    assert!(stage.faults.lose("job"), "the guard holds it");
    join_all(waits);
    wait_until("the loss is noticed", || !guard.is_held());
    assert_eq!(guard.unlock().map_err(|e| e.kind()), Err(ErrorKind::Lost));
    stage.end();
}

/// Leases end during an outage, and nobody asks the guards: each loss is counted, whenever the
/// lease ends.
pub(crate) fn counted() {
    let stage = Stage::with(|builder| builder.lease(Duration::from_millis(300)));
    let guards = ["a", "b"].map(|name| stage.one.mutex(name).lock_owned().expect("it is free"));
    stage.faults.cut(Duration::from_secs(1));
    let time =
        stage.spawn(|stage| (0..40).for_each(|_| stage.faults.advance(Duration::from_millis(10))));
    wait_until("all are counted", || stage.one.stats().total().lost() == 2);
    join_all([time]);
    // The store answers again, and requests of unknown outcome are undone.
    sleep(Duration::from_secs(2));
    for guard in guards {
        assert_eq!(guard.unlock().map_err(|e| e.kind()), Err(ErrorKind::Lost));
    }
    stage.end();
}

/// A guard whose hold has ended with its `max_hold` lives on, because its user hangs: it keeps nobody in its client
/// from the lock. The `max_hold` ends while a renewal is under way, so the hold would last for longer.
pub(crate) fn its_max_hold_is_over() {
    let stage = Stage::new();
    let most = Duration::from_secs(10) + Duration::from_micros(choose(200) as u64 * 2);
    let guard = stage.one.mutex("job").max_hold(most).lock_owned().expect("it is free");
    while guard.is_held() {
        sleep(Duration::from_millis(500));
    }
    sleep(Duration::from_secs(1));
    assert!(!stage.one.mutex("job").is_locked().expect("the store answers"), "it was given up");
    let again = stage.one.try_lock_for("job", Duration::from_secs(1)).expect("the store answers");
    assert!(again.is_some(), "the lock is free, and the call did not get it");
    drop(again);
    drop(guard);
    stage.end();
}
