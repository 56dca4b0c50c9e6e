//! Threads of both libraries, in two processes each, take turns on a counter outside of ZooKeeper.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::LockClient;

use crate::counter::{Counter, Mode, Tally};
use crate::driver::{World, curator};
use crate::java::{JavaThread, Jvm};
use crate::players::{Process, SESSION, client, play};
use crate::rig::{ms, wait_until};

/// Threads in each process.
const THREADS: usize = 4;

fn is_long() -> bool {
    std::env::var("LEASEHOLD_LONG").is_ok_and(|value| value == "1")
}

/// How long one primitive is under stress.
fn length() -> Duration {
    if is_long() { Duration::from_secs(15) } else { ms(1500) }
}

fn session() -> String {
    format!("session={}", SESSION.as_millis())
}

/// The Curator threads that take turns on one primitive.
struct Javas<'a>(Vec<(JavaThread<'a>, bool)>);

impl<'a> Javas<'a> {
    fn begin(jvm: &'a Jvm, primitive: &str, path: &Path, mode: Mode, threads: usize) -> Self {
        let begin = |n: usize| {
            let thread = jvm.thread();
            // Half of the threads, where threads can only read.
            let reads = primitive == "rw" && n % 2 == 1;
            let name = if primitive == "multi" {
                "stress-multi,stress-multi-2"
            } else {
                &format!("stress-{primitive}")
            };
            let (primitive, mode) = match primitive {
                "rw" if reads => ("read", "read"),
                "rw" => ("write", mode.word()),
                "fair" => ("mutex", mode.word()),
                _ => (primitive, mode.word()),
            };
            thread.begin(&format!("{primitive} {name} turns {} {mode}", path.display()));
            (thread, reads)
        };
        Self((0..threads).map(begin).collect())
    }

    fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for (thread, reads) in &self.0 {
            let mut tally = Tally::of_words(&thread.answer_within(Duration::from_secs(90)));
            if *reads {
                tally.turns = 0;
            }
            all.add(tally);
        }
        all
    }
}

/// Creates the counter of a primitive, and what the primitive needs.
fn set_up(dir: &Path, client: &LockClient, primitive: &str) -> (PathBuf, Counter) {
    if primitive == "semaphore" {
        assert_eq!(
            client.semaphore("stress-semaphore").try_set_permits(1).unwrap(),
            leasehold::SetPermits::New
        );
    }
    let path = dir.join(primitive);
    let counter = Counter::create(&path);
    (path, counter)
}

#[test]
fn never_two_inside() {
    let World { jvm, server } = World::with(&[&session()]);
    let second = curator(&server.address(), &[&session()]);
    let client = client(&server.url());
    let mut process = Process::start(&server.url());
    // Several of Curator's multi-locks and one of ours can block each other, as Curator's can among
    // themselves: they acquire their locks one after another.
    for primitive in ["mutex", "fair", "rw", "semaphore"] {
        let (path, counter) = set_up(server.dir(), &client, primitive);
        let javas =
            [&jvm, &second].map(|jvm| Javas::begin(jvm, primitive, &path, Mode::Count, THREADS));
        process.begin(primitive, &path, Mode::Count, THREADS);
        let mut ours = std::thread::scope(|s| {
            let ours = s.spawn(|| play(&client, primitive, &path, Mode::Count, THREADS));
            std::thread::sleep(length());
            counter.stop();
            ours.join().unwrap()
        });
        ours.add(process.tally(primitive));
        let mut theirs = Tally::default();
        for javas in &javas {
            theirs.add(javas.tally());
        }
        println!("{primitive}: {ours:?}; Curator: {theirs:?}");
        assert_eq!(counter.read(), ours.turns + theirs.turns, "{primitive}");
        assert!(ours.turns > 0 && theirs.turns > 0, "{primitive}: {ours:?} {theirs:?}");
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
                let mut process = Process::start(&server.url());
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
