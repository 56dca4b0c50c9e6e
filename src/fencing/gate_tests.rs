use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;

const A: FencingToken = FencingToken::new(1);
const B: FencingToken = FencingToken::new(2);

fn is_stale<R>(result: Result<R>) -> bool {
    result.is_err_and(|e| e.kind() == ErrorKind::Stale)
}

/// Fencing without a claim: the resource compares tokens only when a write arrives.
struct ComparesAtTheWrite {
    highest: FencingToken,
    value: u32,
}

impl ComparesAtTheWrite {
    fn write(&mut self, token: FencingToken, value: u32) -> bool {
        let taken = token >= self.highest;
        if taken {
            self.highest = token;
            self.value = value;
        }
        taken
    }
}

#[test]
fn without_a_claim_an_update_is_lost() {
    let mut resource = ComparesAtTheWrite { highest: FencingToken::new(0), value: 10 };
    let seen_by_a = resource.value;
    let seen_by_b = resource.value;
    assert!(resource.write(A, seen_by_a + 1), "nothing newer was seen yet");
    assert!(resource.write(B, seen_by_b + 5));
    assert_eq!(resource.value, 15, "both writes were taken, and the sum should be 16");
}

#[test]
fn with_a_claim_the_late_write_is_refused() {
    let gate = FenceGate::new(10);
    let a = gate.claim(A).unwrap();
    let seen_by_a = a.read(|v| *v).unwrap();
    let b = gate.claim(B).unwrap();
    let seen_by_b = b.read(|v| *v).unwrap();
    assert!(is_stale(a.write(|v| *v = seen_by_a + 1)));
    b.write(|v| *v = seen_by_b + 5).unwrap();
    assert_eq!(gate.into_inner(), 15);
}

#[test]
fn a_write_before_the_next_claim_is_in_what_the_next_holder_reads() {
    let gate = FenceGate::new(10);
    let a = gate.claim(A).unwrap();
    let seen_by_a = a.read(|v| *v).unwrap();
    a.write(|v| *v = seen_by_a + 1).unwrap();
    let b = gate.claim(B).unwrap();
    let seen_by_b = b.read(|v| *v).unwrap();
    b.write(|v| *v = seen_by_b + 5).unwrap();
    assert_eq!(gate.into_inner(), 16);
}

#[test]
fn older_claims_are_refused_and_equal_ones_are_not() {
    let gate = FenceGate::new(());
    let first = gate.claim(B).unwrap();
    let again = gate.claim(B).unwrap();
    assert!(is_stale(gate.claim(A)));
    assert_eq!(gate.highest(), Some(B), "a refused claim changes nothing");
    first.write(|()| ()).unwrap();
    again.write(|()| ()).unwrap();
}

#[test]
fn an_ended_claim_neither_reads_nor_calls() {
    let gate = FenceGate::new(0);
    let a = gate.claim(A).unwrap();
    let _b = gate.claim(B).unwrap();
    assert!(is_stale(a.read(|_| unreachable!("read under an ended claim"))));
    let e = a.write(|_| unreachable!("written under an ended claim")).unwrap_err();
    assert_eq!(
        e.to_string(),
        "fencing token 1 is stale: a newer holder with token 2 has claimed the resource"
    );
}

#[test]
fn a_panicking_closure_strands_nobody() {
    let gate = FenceGate::new(0);
    let a = gate.claim(A).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        a.write(|v| {
            *v = 1;
            panic!("half way");
        })
    }));
    assert!(panic.is_err());
    assert_eq!(a.read(|v| *v).unwrap(), 1, "its own claim stays good");
    gate.claim(B).unwrap().write(|v| *v = 2).unwrap();
    assert_eq!(gate.into_inner(), 2);
}

#[test]
fn a_claim_waits_for_the_closure_of_an_older_one() {
    let gate = FenceGate::new(());
    let finished = AtomicBool::new(false);
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    thread::scope(|s| {
        let gate = &gate;
        let finished = &finished;
        s.spawn(move || {
            let a = gate.claim(A).unwrap();
            a.write(|()| {
                entered.send(()).unwrap();
                may_go_on.recv().unwrap();
                // Time for the other thread to reach its claim. If it is too short, the test
                // only proves less.
                thread::sleep(Duration::from_millis(30));
                finished.store(true, Ordering::SeqCst);
            })
            .unwrap();
        });
        has_entered.recv().unwrap();
        assert!(format!("{gate:?}").contains("in use"), "Debug must not wait");
        go_on.send(()).unwrap();
        let _b = gate.claim(B).unwrap();
        assert!(finished.load(Ordering::SeqCst));
    });
}

/// A lock with leases in miniature: tokens are given under exclusion, and some holders outlive
/// their leases.
#[test]
fn threads_whose_leases_end_early_lose_no_update() {
    let gate = FenceGate::new(0);
    let last_token = Mutex::new(0);
    let refused = AtomicU64::new(0);
    let add_one = |lease_ends: bool| -> Result<()> {
        let mut lock = last_token.lock();
        *lock += 1;
        let claim = gate.claim(FencingToken::new(*lock))?;
        let seen = claim.read(|v| *v)?;
        let lock = (!lease_ends).then_some(lock);
        if lease_ends {
            thread::sleep(Duration::from_millis(1));
        }
        let written = claim.write(|v| *v = seen + 1);
        drop(lock);
        written
    };
    thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for i in 0..200 {
                    let mut lease_ends = i % 4 == 0;
                    while is_stale(add_one(lease_ends)) {
                        refused.fetch_add(1, Ordering::Relaxed);
                        lease_ends = false;
                    }
                }
            });
        }
    });
    let refused = refused.into_inner();
    assert!(refused > 0, "no holder was late, so nothing was tested");
    assert_eq!(gate.highest().unwrap().get(), 1600 + refused, "each try had its own token");
    assert_eq!(gate.into_inner(), 1600);
}

#[test]
fn debug_needs_nothing_of_the_resource() {
    struct Opaque;
    let gate = FenceGate::new(Opaque);
    let claim = gate.claim(A).unwrap();
    assert_eq!(format!("{gate:?}"), "FenceGate { highest: Some(FencingToken(1)), .. }");
    assert_eq!(format!("{claim:?}"), "Claim { token: FencingToken(1), .. }");
}

#[test]
fn goes_to_other_threads_as_far_as_the_resource_does() {
    fn assert_send_sync<T: Send + Sync>() {}
    // `Cell` is `Send` and not `Sync`: the mutex makes it shareable.
    assert_send_sync::<FenceGate<std::cell::Cell<u8>>>();
    assert_send_sync::<Claim<'_, std::cell::Cell<u8>>>();
}
