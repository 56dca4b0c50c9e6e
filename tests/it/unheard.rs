//! Waiters that may not subscribe, so that no release can count them. They get the lock
//! nevertheless, in competition with the threads of another client.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::LockClient;

use crate::rig::{CAP, Server, ms};
use crate::support::Clients;

const THREADS: usize = 6;
/// How often the waiter must get in.
const TIMES: u32 = 3;
/// Without a gap it never gets in; with gaps, about once per second on an idle machine.
const LONGEST: Duration = Duration::from_secs(60);

/// `busy`: what the threads of one client do repeatedly. `try_for`: whether the waiter got in.
fn gets_in_beside_threads(
    busy: impl Fn(&LockClient) + Sync,
    try_for: impl Fn(&LockClient, Duration) -> bool,
) {
    let server = Server::start();
    server.cmd::<()>(&[
        "ACL",
        "SETUSER",
        "unheard",
        "on",
        ">pw",
        "~*",
        "&*",
        "+@all",
        "-subscribe",
        "-psubscribe",
    ]);
    let (client, url) = (server.client(), format!("{}?user=unheard&pass=pw", server.url()));
    let unheard = LockClient::open(&url).unwrap();
    let (done, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    let got_in = std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    busy(&client);
                    turns.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let give_up = Instant::now() + LONGEST;
        let left = || give_up.saturating_duration_since(Instant::now());
        let got_in = (0..TIMES).take_while(|_| try_for(&unheard, left())).count();
        done.store(true, Ordering::SeqCst);
        got_in
    });
    assert_eq!(got_in, TIMES as usize, "against {} turns", turns.into_inner());
    unheard.close(CAP).unwrap();
    drop(client);
    server.assert_clean();
}

#[test]
fn a_plain_lock() {
    gets_in_beside_threads(
        |client| client.lock("job").unwrap().unlock().unwrap(),
        |unheard, left| unheard.try_lock_for("job", left).unwrap().is_some(),
    );
}

/// Each section is longer than a client keeps the lock without a gap at the server.
#[test]
fn a_plain_lock_with_long_sections() {
    gets_in_beside_threads(
        |client| {
            let guard = client.lock("job").unwrap();
            std::thread::sleep(ms(200));
            guard.unlock().unwrap();
        },
        |unheard, left| unheard.try_lock_for("job", left).unwrap().is_some(),
    );
}

#[test]
fn a_write_lock() {
    gets_in_beside_threads(
        |client| client.rw_lock("job").write().unwrap().unlock().unwrap(),
        |unheard, left| unheard.rw_lock("job").try_write_for(left).unwrap().is_some(),
    );
}
