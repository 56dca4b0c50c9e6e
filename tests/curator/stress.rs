//! Threads of leasehold and Curator, in two processes each, take turns.

use std::time::Duration;

use leasehold::{Builder, ErrorKind, LockClient};

use crate::driver::{World, curator};
use crate::java::{Javas, Mode, Process, THREADS, compete, is_long, play, set_up};
use crate::rig::{ms, wait_until};

/// Errors while servers are unreachable, or when a session has ended.
pub(crate) const OUTAGES: [ErrorKind; 3] =
    [ErrorKind::Unreachable, ErrorKind::NotReady, ErrorKind::Lost];

/// The session of all players, so that the hold of a killed one becomes free soon.
const SESSION: Duration = ms(2000);

pub(crate) fn builder(url: &str) -> Builder {
    LockClient::builder().url(url)
}

fn client(url: &str) -> LockClient {
    builder(url).lease(SESSION).build().unwrap()
}

fn session() -> String {
    format!("session={}", SESSION.as_millis())
}

#[test]
fn never_two_inside() {
    let World { jvm, server } = World::with(&[&session()]);
    let second = curator(&server.address(), &[&session()]);
    let client = client(&server.url());
    let mut process = Process::start(&server.url(), SESSION);
    // Several of Curator's multi-locks and one of ours can block each other, as Curator's can among
    // themselves: they acquire their locks one after another.
    for primitive in ["mutex", "fair", "rw", "semaphore"] {
        compete(&client, &mut process, [&jvm, &second], server.dir(), primitive);
    }
    drop((client, process, jvm, second));
    // Its size is permanent.
    server.assert_clean_but(&["/stress-semaphore/permits"]);
}

/// Processes of both sides are killed in the middle of their turns, and others start.
#[test]
fn killed_players_leave_nobody_inside_and_nothing_behind() {
    let World { jvm, server } = World::with(&[&session()]);
    let client = client(&server.url());
    for primitive in ["mutex", "rw", "semaphore"] {
        let (path, counter) = set_up(server.dir(), &client, primitive);
        let stays = Javas::begin(&jvm, primitive, &path, Mode::Mark, 2);
        let ours = std::thread::scope(|s| {
            let ours = s.spawn(|| play(&client, primitive, &path, Mode::Mark, 2));
            for round in 0..if is_long() { 8 } else { 2 } {
                let victim = curator(&server.address(), &[&session()]);
                let mut process = Process::start(&server.url(), SESSION);
                let javas = Javas::begin(&victim, primitive, &path, Mode::Mark, THREADS);
                process.begin(primitive, &path, Mode::Mark, THREADS);
                let before = counter.read();
                wait_until("they take turns", || counter.read() != before);
                std::thread::sleep(ms(300 + 170 * round));
                victim.kill();
                process.kill();
                drop(javas);
                let before = counter.read();
                wait_until("the others continue", || counter.read() != before);
            }
            counter.stop();
            ours.join().unwrap()
        });
        let theirs = stays.tally();
        assert!(!counter.is_broken(), "{primitive}: two holders");
        println!("{primitive}: {ours:?}; Curator: {theirs:?}");
        assert!(ours.turns > 0 && theirs.turns > 0, "{primitive}: {ours:?} {theirs:?}");
    }
    drop((client, jvm));
    server.assert_clean_but(&["/stress-semaphore/permits"]);
}
