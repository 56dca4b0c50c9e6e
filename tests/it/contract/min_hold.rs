//! A lock with a minimum hold time stays taken after its guard is dropped.

use std::time::{Duration, Instant};

use leasehold::{Builder, ErrorKind};

use super::case::Case;
use super::lost_replies::impatient;
use super::network::Network;
use super::primitives::Exclusive;
use super::{LONG, SOON, assert_unasked};
use crate::rig::{Fault, ms, wait_until};

/// Short enough to wait for, long enough to check the lock meanwhile on a busy machine.
const LEAST: Duration = ms(2000);
/// Covers the rounding to milliseconds, and the comparison of two clocks. The time counts from
/// inside of `lock`, so each test reads its clock before the call: between there and the return a
/// busy machine can stop the thread for longer than this.
const SLACK: Duration = ms(100);

/// The lock of this client with a minimum hold time; `None` if it is unsupported, which is checked.
fn keeping(case: &Case, of: &dyn Exclusive, least: Duration) -> Option<Box<dyn Exclusive>> {
    let lock = of.with_min_hold(least)?;
    if case.is_over_zookeeper() {
        let refused = lock.try_lock().err().expect("a hold there ends with its session");
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        assert!(
            of.with_min_hold(Duration::ZERO)?.try_lock().unwrap().is_some(),
            "zero means no minimum"
        );
        return None;
    }
    Some(lock)
}

pub(super) fn it_stays_taken_until_its_time_is_over_and_no_longer(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open(), case.open());
    let Some(kept) = keeping(case, &*a, LEAST) else { return };
    let began = Instant::now();
    let guard = kept.lock().unwrap();
    let token = guard.token();
    guard.unlock().expect(primitive);
    // It is taken for its own thread, for another thread of the client, and for another client.
    let others =
        std::thread::scope(|s| s.spawn(|| a.try_lock().unwrap().is_none()).join().unwrap());
    let is_taken = a.try_lock().unwrap().is_none() && b.try_lock().unwrap().is_none() && others;
    assert!(is_taken || began.elapsed() >= LEAST, "{primitive}: it was free at once");
    let next = b.try_lock_for(SOON).unwrap().expect(primitive);
    assert!(began.elapsed() + SLACK >= LEAST, "{primitive}: free after {:?}", began.elapsed());
    assert!(next.token() > token, "{primitive}");
    next.unlock().expect(primitive);
    // A section that takes longer than the minimum frees it at once.
    let kept = a.with_min_hold(ms(1)).unwrap();
    let guard = kept.lock().unwrap();
    std::thread::sleep(ms(20));
    guard.unlock().expect(primitive);
    case.assert_free("its time was over");
}

/// The waiter was informed of a lease that lasts for minutes, and sleeps. There is one waiter at a
/// time: the release by one would wake the other.
pub(super) fn whoever_waits_learns_of_the_end_that_comes_sooner(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open(), case.open());
    let Some(kept) = keeping(case, &*a, LEAST) else { return };
    for waits in [&b, &a] {
        let began = Instant::now();
        let guard = kept.lock().unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                // At its deadline it would ask again.
                let guard = waits.try_lock_for(SOON * 3).unwrap().expect(primitive);
                let passed = began.elapsed();
                assert!(passed + SLACK >= LEAST, "{primitive}: free after {passed:?}");
                assert!(passed < LEAST + SOON, "{primitive}: it was not notified");
                guard.unlock().expect(primitive);
            });
            if std::ptr::eq(waits, &b) {
                case.wait_for_a_waiter();
            }
            guard.unlock().expect(primitive);
            waiter.join().expect(primitive);
        });
    }
}

/// The lease is no longer renewed, and would have ended.
pub(super) fn it_outlasts_a_short_lease(case: &mut Case) {
    let primitive = case.primitive.label;
    // On a busy machine PostgreSQL needs most of a second to let a client in.
    let short = |builder: Builder| builder.lease(LEAST).io_timeout(LEAST / 10 * 9);
    let (a, b) = (case.open_with(short), case.open());
    let least = LEAST / 2 * 3;
    let Some(kept) = keeping(case, &*a, least) else { return };
    let began = Instant::now();
    let guard = kept.lock().unwrap();
    drop(guard);
    let next = b.try_lock_for(SOON).unwrap().expect(primitive);
    assert!(began.elapsed() + SLACK >= least, "{primitive}: free after {:?}", began.elapsed());
    next.unlock().expect(primitive);
}

pub(super) fn a_hold_that_was_lost_is_reported_and_harms_nobody(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open(), case.open());
    let Some(kept) = keeping(case, &*a, LONG) else { return };
    let guard = kept.lock().unwrap();
    case.forget(false);
    let next = b.try_lock().unwrap().expect(primitive);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{primitive}");
    next.ensure_held().and_then(|()| next.extend(LONG)).expect(primitive);
    next.unlock().expect(primitive);
    case.assert_free("the next holder released it");
}

/// Closing a client keeps what it has released early.
pub(super) fn closing_keeps_it_too(case: &mut Case) {
    let primitive = case.primitive.label;
    let (a, b) = (case.open(), case.open());
    let Some(kept) = keeping(case, &*a, LEAST) else { return };
    let began = Instant::now();
    let guard = kept.lock().unwrap();
    a.close(SOON).expect(primitive);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed, "{primitive}");
    let next = b.try_lock_for(SOON).unwrap().expect(primitive);
    assert!(began.elapsed() + SLACK >= LEAST, "{primitive}: free after {:?}", began.elapsed());
    next.unlock().expect(primitive);
}

/// The request is repeated until it succeeds; the lease would last for minutes.
pub(super) fn a_lost_request_is_repeated_and_names_the_same_end(case: &mut Case) {
    const FAULTS: [Fault; 3] =
        [Fault::CutBeforeSend, Fault::CutAfterApplied, Fault::BlackHoleReply];
    /// Longer than the timeout of the lost reply.
    const LEAST: Duration = ms(1500);
    let (proxy, direct) = (Network::start(case), case.open());
    for (n, fault) in FAULTS.into_iter().enumerate() {
        let what = format!("{}: {fault:?}", case.primitive.label);
        let client = case.open_through(&proxy, impatient);
        let Some(kept) = keeping(case, &*client, LEAST) else { return };
        let began = Instant::now();
        let guard = kept.lock().unwrap();
        proxy.inject(&case.name, fault);
        if let Err(e) = guard.unlock() {
            assert_unasked(&what, &e);
        }
        proxy.wait_hits(u32::try_from(n).unwrap() + 1);
        let next = direct.try_lock_for(SOON).unwrap().expect(&what);
        assert!(began.elapsed() + SLACK >= LEAST, "{what}: free after {:?}", began.elapsed());
        next.unlock().expect(&what);
        // A master that was still busy would get no acquire to release, and no fault.
        wait_until(&format!("{what} leaves nothing"), || case.is_clean());
    }
}
