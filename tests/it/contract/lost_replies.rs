//! A lost reply leaves nothing behind.

use leasehold::Builder;

use super::case::Case;
use super::network::Network;
use super::{LONG, assert_unasked};
use crate::rig::{Fault, ms, wait_until};

const FAULTS: [Fault; 4] =
    [Fault::CutBeforeSend, Fault::CutAfterApplied, Fault::CutReplyAt(3), Fault::BlackHoleReply];

/// Limits the cost of a reply that never arrives.
pub(super) fn impatient(builder: Builder) -> Builder {
    builder.lease(LONG).io_timeout(ms(2000))
}

pub(super) fn a_lost_acquire_leaves_nothing_behind(case: &mut Case) {
    let (proxy, direct) = (Network::start(case), case.open());
    for (n, fault) in FAULTS.into_iter().enumerate() {
        let what = format!("{}: {fault:?}", case.primitive.label);
        let client = case.open_through(&proxy, impatient);
        proxy.inject(&case.name, fault);
        match client.try_lock() {
            Err(e) => assert_unasked(&what, &e),
            // The client assumed that the connection had ended while idle, and repeated the
            // request.
            Ok(Some(guard)) => guard.unlock().unwrap(),
            Ok(None) => panic!("{what}: nobody else has it"),
        }
        proxy.wait_hits(u32::try_from(n).unwrap() + 1);
        wait_until(&format!("{what} leaves nothing"), || case.keys().is_empty());
        direct.try_lock().unwrap().expect(&what).unlock().unwrap();
        client.try_lock().unwrap().expect(&what).unlock().unwrap();
    }
}

pub(super) fn a_lost_release_frees_all_the_same(case: &mut Case) {
    let (proxy, direct) = (Network::start(case), case.open());
    for (n, fault) in FAULTS.into_iter().enumerate() {
        let what = format!("{}: {fault:?}", case.primitive.label);
        let client = case.open_through(&proxy, impatient);
        let guard = client.lock().unwrap();
        proxy.inject(&case.name, fault);
        if let Err(e) = guard.unlock() {
            assert_unasked(&what, &e);
        }
        proxy.wait_hits(u32::try_from(n).unwrap() + 1);
        wait_until(&format!("{what} frees it"), || case.keys().is_empty());
        direct.try_lock().unwrap().expect(&what).unlock().unwrap();
        client.try_lock().unwrap().expect(&what).unlock().unwrap();
        // A master that was still busy would get no acquire to release, and no fault.
        wait_until(&format!("{what} leaves nothing"), || case.is_clean());
    }
}

/// A waiter whose first or second attempt is lost either fails or gets the lock. It neither stays
/// in a queue nor keeps readers out.
pub(super) fn a_waiter_whose_reply_was_lost_leaves_nothing_and_gets_in(case: &mut Case) {
    let (proxy, holder) = (Network::start(case), case.open());
    let mut hits = vec![0; case.primitive.masters];
    for fault in [Fault::CutAfterApplied, Fault::CutBeforeSend] {
        for skip in [0, 1] {
            let what = format!("{}: {fault:?} after {skip}", case.primitive.label);
            let client = case.open_through(&proxy, impatient);
            let guard = holder.lock().unwrap();
            let before = case.keys();
            proxy.inject_after(&case.name, skip, fault);
            match client.try_lock_for(ms(150)) {
                Ok(won) => assert!(won.is_none(), "{what}: somebody else has it"),
                Err(e) => assert_unasked(&what, &e),
            }
            // A waiting call sends at least two requests (another attempt, or one to leave the
            // queue), unless it timed out earlier.
            proxy
                .proxies
                .iter()
                .zip(&mut hits)
                .for_each(|(proxy, hits)| *hits += u32::from(!proxy.disarm()));
            for (proxy, hits) in proxy.proxies.iter().zip(&hits) {
                proxy.wait_hits(*hits);
            }
            wait_until(&format!("{what} leaves nothing"), || case.keys() == before);
            std::thread::scope(|s| {
                let waiter = s.spawn(|| client.lock().map(|guard| guard.unlock()));
                case.wait_for_a_waiter();
                guard.unlock().expect(&what);
                waiter.join().unwrap().expect(&what).expect(&what);
            });
        }
    }
}
