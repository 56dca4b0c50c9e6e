//! Users and passwords that the server refuses.

use std::time::Instant;

use leasehold::{ErrorKind, LockClient};

use super::{LEASE, SECRET, all_methods_fail, client, fails, query, settings, works};
use crate::rig::{Server, wait_until};

#[test]
fn a_wrong_password_is_denied_and_the_right_one_works() {
    let server = Server::start();
    let open_before = client(&server);
    works(&open_before, "before");
    let lazy = settings(&server.url()).connect_lazily().build().unwrap();
    // This connection is older than the password, so it stays logged in.
    let mut admin = server.connect();
    query::<()>(&mut admin, &["CONFIG", "SET", "requirepass", SECRET]).unwrap();

    let url = server.url();
    fails(ErrorKind::Denied, None, "password", || settings(&url).build());
    fails(ErrorKind::Denied, None, "password", || {
        settings(&format!("{url}?pass={SECRET}-not")).build()
    });
    fails(ErrorKind::Denied, None, "password", || {
        settings(&format!("{url}?user=who&pass={SECRET}")).build()
    });
    all_methods_fail(&lazy, "job", ErrorKind::Denied, "password");
    let good = settings(&format!("{url}?pass={SECRET}")).build().unwrap();
    works(&good, "job");
    let other = settings(&format!("{url}?pass={SECRET}")).build().unwrap();
    waits_and_is_woken(&good, &other, "job", || {
        !query::<Vec<String>>(&mut admin, &["PUBSUB", "CHANNELS"]).unwrap().is_empty()
    });

    query::<()>(&mut admin, &["CONFIG", "SET", "requirepass", ""]).unwrap();
    works(&lazy, "job");
    works(&open_before, "job");
    drop((lazy, open_before, good, other, admin));
    server.assert_clean();
}

/// `b` waits for the lock that `a` holds, and a message wakes it.
#[track_caller]
fn waits_and_is_woken(
    a: &LockClient,
    b: &LockClient,
    name: &str,
    mut listens: impl FnMut() -> bool,
) {
    let guard = a.lock(name).unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            let start = Instant::now();
            b.lock(name).and_then(|guard| guard.unlock()).unwrap();
            start.elapsed()
        });
        wait_until("the waiter is subscribed", &mut listens);
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap() < LEASE / 2, "woken by the timer");
    });
}
