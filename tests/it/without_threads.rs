//! A client whose process may start no further thread.

use leasehold::testing::{Failure, Faults, Operation};
use leasehold::{ErrorKind, LockClient};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, setuid};

use crate::rig::{CAP, Child, wait_until};

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
