//! A client whose process may start no further thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::observe::{Listener, LockInfo};
use leasehold::testing::{Failure, Faults, Operation};
use leasehold::{ErrorKind, LockClient};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, setuid};

use crate::rig::{CAP, Child, logged, record_logs, wait_until};

/// Longer than [`Child::expect`] waits.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// From now on this process can start no thread; the returned closure ends that.
fn forbid_threads() -> impl FnOnce() {
    // The limit does not bind the super-user.
    if Uid::effective().is_root() {
        setuid(Uid::from_raw(61_234)).expect("the super-user can become another");
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC).expect("a limit");
    setrlimit(Resource::RLIMIT_NPROC, 0, hard).expect("it may be lowered");
    std::thread::Builder::new().spawn(|| ()).expect_err("no thread can be started");
    move || setrlimit(Resource::RLIMIT_NPROC, soft, hard).expect("it may be raised")
}

#[test]
fn what_cannot_be_undone_without_a_thread_is_undone_by_the_next_one() {
    Child::spawn("without_threads::undoing_process", &[]).wait();
}

#[test]
#[ignore = "a program for other tests"]
fn undoing_process() {
    let [client, closed] = [(); 2].map(|()| LockClient::in_memory());
    let permits = [&client, &closed].map(|client| {
        let semaphore = client.counting_semaphore("s");
        semaphore.try_set_permits(1).unwrap();
        semaphore.acquire().unwrap()
    });
    let allow_threads = forbid_threads();
    for client in [&client, &closed] {
        Faults::of(client).unwrap().fail_next(Operation::Release, Failure::BeforeItRan);
    }
    // The permit of the second has not come back, and no lease ends it.
    let error = closed.close(CAP).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("no lease"), "{error}");
    drop(permits);
    assert_eq!(client.stats().unknown_outcomes(), 1);
    allow_threads();
    drop(client.lock("any").unwrap());
    wait_until("the permit has come back", || {
        client.counting_semaphore("s").available_permits().unwrap() == 1
    });
}

#[derive(Default)]
struct Counts(AtomicU32);

impl Listener for Counts {
    fn released(&self, _: &LockInfo<'_>, _: Duration) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_cannot_be_done_without_a_thread_is_reported_as_such() {
    Child::spawn("without_threads::reporting_process", &[]).wait();
}

#[test]
#[ignore = "a program for other tests"]
fn reporting_process() {
    record_logs();
    let listener = Arc::new(Counts::default());
    let client = LockClient::builder().listener(listener.clone()).build_in_memory().unwrap();
    let _ = forbid_threads();
    let error = client.lock("job").unwrap_err();
    assert!(error.to_string().contains("cannot be started"), "{error}");
    assert_eq!(listener.0.load(Ordering::SeqCst), 0, "nobody had it");
    LockClient::open("redis://a.host.invalid").unwrap_err();
    assert!(!logged(log::Level::Warn, &["no thread for lh-name"]).is_empty());
}

#[test]
fn a_close_without_threads_notifies_the_listener_and_ends() {
    let mut child = Child::spawn("without_threads::closing_process", &[]);
    child.expect("closed");
    child.wait();
}

#[test]
#[ignore = "a program for other tests"]
fn closing_process() {
    let listener = Arc::new(Counts::default());
    let client = LockClient::builder().listener(listener.clone()).build_in_memory().unwrap();
    let guard = client.lock("job").unwrap();
    let _ = forbid_threads();
    client.close(FOR_EVER).unwrap();
    println!("@@closed");
    assert_eq!(listener.0.load(Ordering::SeqCst), 1);
    drop((guard, client));
    assert_eq!(Arc::strong_count(&listener), 1, "nothing is left of the client");
}
