//! Threads of both sides, in two processes each, take turns at a counter outside of Redis.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Builder, LockClient};

use crate::jvm::{JavaThread, Jvm};
use crate::players::{Counter, Mode, Process, Tally, play, rounds};
use crate::rig::{Server, ms, wait_until};
use crate::world::World;

/// Threads of each process.
const THREADS: usize = 4;
/// Of locks, in milliseconds: what is left locked by a process that went away, or missed by a waiter of Java, is over by then.
pub(crate) const LEASE: u64 = 10_000;

/// `LEASEHOLD_LONG=1`: two minutes in all.
fn is_long() -> bool {
    std::env::var("LEASEHOLD_LONG").is_ok_and(|value| value == "1")
}

/// How long one primitive is under stress.
pub(crate) fn length() -> Duration {
    if is_long() { Duration::from_secs(15) } else { ms(1200) }
}

/// For waiters of fair locks that were killed.
pub(crate) fn patience(builder: Builder) -> Builder {
    builder.waiter_timeout(ms(1500)).java_waiter_timeout(ms(2000))
}

pub(crate) fn client(server: &Server) -> LockClient {
    patience(server.builder().lease(ms(LEASE))).build().unwrap()
}

pub(crate) fn java(server: &Server) -> Option<Jvm> {
    Jvm::start(server, &[&format!("watchdog={LEASE}"), "fairWait=2000"])
}

/// The threads of Java that take turns on one noun.
pub(crate) struct Javas<'a>(Vec<(JavaThread<'a>, bool)>);

impl<'a> Javas<'a> {
    pub(crate) fn begin(jvm: &'a Jvm, noun: &str, path: &Path, mode: Mode, threads: usize) -> Self {
        let begin = |n: usize| {
            let thread = jvm.thread();
            // Half of those that can only read.
            let reads = noun == "rw" && n % 2 == 1;
            let name = if noun == "multi" { "stress-multi,stress-multi-2" } else { &format!("stress-{noun}") };
            let (noun, mode) = match noun {
                "rw" if reads => ("read", "read"),
                "rw" => ("write", mode.word()),
                _ => (noun, mode.word()),
            };
            thread.begin(&format!("{noun} {name} turns {} {mode}", path.display()));
            (thread, reads)
        };
        Self((0..threads).map(begin).collect())
    }

    pub(crate) fn tally(&self) -> Tally {
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

/// Starts the counter of a noun, and what the noun needs.
pub(crate) fn set_up(server: &Server, client: &LockClient, noun: &str) -> (PathBuf, Counter) {
    let name = format!("stress-{noun}");
    if ["permits", "counting"].contains(&noun) {
        client.counting_semaphore(&name).try_set_permits(1).unwrap();
    }
    let path = server.dir().join(&name);
    let counter = Counter::create(&path);
    (path, counter)
}

/// Threads of ours take turns; then all who take turns are told to stop.
pub(crate) fn play_for_a_while(client: &LockClient, noun: &str, path: &Path, counter: &Counter) -> Tally {
    std::thread::scope(|s| {
        let ours = s.spawn(|| play(client, noun, path, Mode::Count, THREADS));
        std::thread::sleep(length());
        counter.stop();
        ours.join().unwrap()
    })
}

/// That each turn counted once.
pub(crate) fn judge(noun: &str, counter: &Counter, ours: Tally, theirs: Tally) {
    println!(
        "{noun}: {} turns of ours, longest wait {:?}; {} of Java, {:?}",
        ours.turns, ours.longest_wait, theirs.turns, theirs.longest_wait
    );
    assert_eq!(counter.read(), ours.turns + theirs.turns, "{noun}");
    assert!(ours.turns > 0, "{noun}: {ours:?}");
}

#[test]
fn never_two_inside() {
    let Some(world) = World::with(&[&format!("watchdog={LEASE}"), "fairWait=2000"]) else { return };
    let Some(second) = java(&world.server) else { return };
    let client = client(&world.server);
    let mut process = Process::start(&world.server, LEASE);
    for noun in ["lock", "fenced", "fair", "rw", "multi", "permits", "counting"] {
        let (path, counter) = set_up(&world.server, &client, noun);
        let javas = [&world.jvm, &second].map(|jvm| Javas::begin(jvm, noun, &path, Mode::Count, THREADS));
        process.begin(noun, &path, Mode::Count, THREADS);
        let mut ours = play_for_a_while(&client, noun, &path, &counter);
        ours.add(process.tally(noun));
        let mut theirs = Tally::default();
        javas.iter().for_each(|javas| theirs.add(javas.tally()));
        judge(noun, &counter, ours, theirs);
        assert!(theirs.turns > 0, "{noun}: {theirs:?}");
        if noun == "fair" {
            let (least, most) = (ours.turns.min(theirs.turns), ours.turns.max(theirs.turns));
            assert!(4 * least > most, "as many threads, one queue: {least} turns and {most}");
        }
    }
    for noun in ["permits", "counting"] {
        assert_eq!(world.server.cmd::<String>(&["GET", &format!("stress-{noun}")]), "1");
        world.server.cmd::<u32>(&["DEL", &format!("stress-{noun}")]);
    }
    // Redisson's mark of an unlock may stay for a while: it has an end, and before 4 nobody removes it.
    wait_until("no lock is left behind", || {
        world.server.lock_keys().iter().all(|key| key.starts_with("redisson_unlock_latch:"))
    });
}

#[test]
fn nobody_is_through_a_latch_before_all_have_counted() {
    let Some(world) = World::with(&[]) else { return };
    let Some(second) = Jvm::start(&world.server, &[]) else { return };
    let client = client(&world.server);
    let mut process = Process::start(&world.server, LEASE);
    let (turns, players) = (if is_long() { 500 } else { 40 }, 4 * THREADS);
    for round in 0..turns {
        assert!(client.latch(&format!("stress-{round}")).try_set_count(players as u32).unwrap());
    }
    let path = world.server.dir().join("latch");
    std::fs::write(&path, "").unwrap();
    let javas: Vec<_> = [&world.jvm, &second].iter().flat_map(|jvm| (0..THREADS).map(|_| jvm.thread())).collect();
    for java in &javas {
        java.begin(&format!("latch stress rounds {} {turns} {players}", path.display()));
    }
    process.begin_rounds(&path, turns, players, THREADS);
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| rounds(&client, &path, turns, players));
        }
    });
    process.end_rounds();
    for java in &javas {
        assert_eq!(java.answer(), turns.to_string());
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), (turns * players) as u64);
    wait_until("nothing is left behind", || world.server.lock_keys().is_empty());
}
