//! What a test has caused is done when the call that caused it returns: renewals, losses, callbacks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::TryRecvError;
use leasehold::observe::{Listener, LockInfo};
use leasehold::testing::Faults;
use leasehold::{Error, LockClient, Loss};

/// The default lease is 30 s.
const LEASE: Duration = Duration::from_secs(30);

fn client() -> (LockClient, Faults) {
    let client = LockClient::in_memory();
    let faults = Faults::of(&client).unwrap();
    (client, faults)
}

/// Without waiting in between, the clock overtakes the thread that renews.
#[test]
fn a_lease_is_renewed_however_often_the_clock_is_moved() {
    let (client, faults) = client();
    let slots = client.semaphore("slots");
    slots.try_set_permits(1).unwrap();
    let (one, two) = (client.lock("job").unwrap(), slots.acquire().unwrap());
    for step in (0..10).map(|_| Duration::from_secs(12)).chain([Duration::from_secs(9); 400]) {
        faults.advance(step);
        assert!(one.is_held() && two.is_held(), "moved by {step:?}");
        assert!(one.remaining() > LEASE / 2, "{:?}", one.remaining());
    }
    one.unlock().unwrap();
    two.release().unwrap();
}

#[test]
fn callbacks_have_run_when_the_fault_returns() {
    let faults_of_a_loss: [fn(&Faults); 3] = [
        |faults| faults.advance(LEASE),
        |faults| assert!(faults.lose("job")),
        |faults| {
            faults.cut(LEASE * 2);
            faults.advance(LEASE);
        },
    ];
    for cause in faults_of_a_loss {
        let (client, faults) = client();
        let guard = client.lock("job").unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        guard.on_lost(move |_| {
            // What a callback does takes time.
            std::thread::sleep(Duration::from_millis(20));
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let lost = guard.lost();
        cause(&faults);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(lost.try_recv(), Err(TryRecvError::Disconnected));
    }
}

#[test]
fn failing_renewals_are_told_when_the_cut_returns() {
    let (client, faults) = client();
    let guard = client.lock("job").unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    guard.on_renewal_failed(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    faults.cut(LEASE / 3);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    faults.advance(LEASE / 3);
    assert!(guard.remaining() > LEASE * 2 / 3, "renewed after the cut");
    guard.unlock().unwrap();
}

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Listener for Told {
    fn lost(&self, lock: &LockInfo<'_>, _: &Loss) {
        self.0.lock().unwrap().push(format!("lost {}", lock.name()));
    }

    fn renewal_failed(&self, lock: &LockInfo<'_>, _: &Error, _: Duration) {
        self.0.lock().unwrap().push(format!("failed {}", lock.name()));
    }
}

#[test]
fn the_listener_knows_when_the_fault_returns() {
    let told = Arc::new(Told::default());
    let client = LockClient::builder().listener(told.clone()).build_in_memory().unwrap();
    let faults = Faults::of(&client).unwrap();
    let guard = client.lock("job").unwrap();
    faults.cut(LEASE * 2);
    faults.advance(LEASE);
    let mut told = told.0.lock().unwrap().clone();
    told.dedup();
    assert_eq!(told, ["failed job", "lost job"]);
    assert!(guard.unlock().is_err());
}

/// Its loss is found by the thread that renews, which the fault did not wake.
#[test]
fn what_another_client_did_is_done_after_settling() {
    let (client, faults) = client();
    let other = LockClient::in_memory_shared(&client).unwrap();
    let guard = client.lock("job").unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    guard.on_lost(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    assert!(client.mutex("job").force_unlock().unwrap());
    faults.settle();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(other.try_lock("job").unwrap().is_some());
}

/// A callback that waited for itself would end only at the limit, and so would the test's call.
#[test]
fn a_callback_may_cause_faults() {
    let (client, faults) = client();
    let (first, second) = (client.lock("first").unwrap(), client.lock("second").unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let (counted, causes) = (calls.clone(), faults.clone());
    first.on_lost(move |_| {
        assert!(causes.lose("second"));
        causes.settle();
        counted.fetch_add(1, Ordering::SeqCst);
    });
    assert!(faults.lose("first"));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    faults.settle();
    assert!(!second.is_held());
}

/// A client that has gone, or is closed, has nothing to do.
#[test]
fn clients_that_have_ended_do_not_count() {
    let (client, faults) = client();
    let other = LockClient::in_memory_shared(&client).unwrap();
    drop(other.lock("other").unwrap());
    drop(other);
    let guard = client.lock("job").unwrap();
    client.close(Duration::from_secs(1)).unwrap();
    faults.advance(LEASE);
    assert!(guard.unlock().is_err());
}
