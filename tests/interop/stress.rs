//! Threads of both libraries, in two processes each, take turns on a counter outside of Redis.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Builder, LockClient, Redis};

use crate::jvm::{JavaThread, Jvm};
use crate::players::{Counter, Mode, Process, Tally, play, rounds};
use crate::rig::{Server, ms, wait_until};
use crate::world::World;

/// Threads in each process.
const THREADS: usize = 4;
/// The lease of locks in milliseconds: it limits how long a dead process keeps a lock, and how long
/// a Redisson waiter sleeps after a missed message.
pub(crate) const LEASE: u64 = 10_000;

/// `LEASEHOLD_LONG=1` sets two minutes in total.
fn is_long() -> bool {
    std::env::var("LEASEHOLD_LONG").is_ok_and(|value| value == "1")
}

/// How long one primitive is under stress.
pub(crate) fn length() -> Duration {
    if is_long() { Duration::from_secs(15) } else { ms(1200) }
}

/// The timeouts of killed waiters for fair locks.
pub(crate) const WAITER_TIMEOUT: Duration = ms(1500);
pub(crate) const JAVA_WAITER_TIMEOUT: Duration = ms(2000);

pub(crate) fn client(server: &Server) -> LockClient {
    builder(server.url()).lease(ms(LEASE)).build().unwrap()
}

pub(crate) fn builder(url: String) -> Builder {
    let server = Redis::new(url).java_waiter_timeout(JAVA_WAITER_TIMEOUT);
    LockClient::builder().redis(server).waiter_timeout(WAITER_TIMEOUT)
}

pub(crate) fn java(server: &Server) -> Jvm {
    Jvm::start(server, &[&format!("watchdog={LEASE}"), "fairWait=2000"])
}

/// The Redisson threads that take turns on one primitive.
pub(crate) struct Javas<'a>(Vec<(JavaThread<'a>, bool)>);

impl<'a> Javas<'a> {
    pub(crate) fn begin(
        jvm: &'a Jvm,
        primitive: &str,
        path: &Path,
        mode: Mode,
        threads: usize,
    ) -> Self {
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
                _ => (primitive, mode.word()),
            };
            thread.begin(&format!("{primitive} {name} turns {} {mode}", path.display()));
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

/// Creates the counter of a primitive, and what the primitive needs.
pub(crate) fn set_up(dir: &Path, client: &LockClient, primitive: &str) -> (PathBuf, Counter) {
    let name = format!("stress-{primitive}");
    match primitive {
        "permits" => assert_eq!(
            client.semaphore(&name).try_set_permits(1).unwrap(),
            leasehold::SetPermits::New
        ),
        "counting" => {
            assert!(client.counting_semaphore(&name).try_set_permits(1).unwrap().is_new());
        }
        _ => {}
    }
    let path = dir.join(&name);
    let counter = Counter::create(&path);
    (path, counter)
}

/// Lets leasehold threads take turns; then stops all players.
pub(crate) fn play_for_a_while(
    client: &LockClient,
    primitive: &str,
    path: &Path,
    counter: &Counter,
) -> Tally {
    std::thread::scope(|s| {
        let ours = s.spawn(|| play(client, primitive, path, Mode::Count, THREADS));
        std::thread::sleep(length());
        counter.stop();
        ours.join().unwrap()
    })
}

/// Checks that each turn counted once.
pub(crate) fn judge(primitive: &str, counter: &Counter, ours: Tally, theirs: Tally) {
    println!(
        "{primitive}: {} turns of ours, longest wait {:?}; {} of Java, {:?}",
        ours.turns, ours.longest_wait, theirs.turns, theirs.longest_wait
    );
    assert_eq!(counter.read(), ours.turns + theirs.turns, "{primitive}");
    assert!(ours.turns > 0, "{primitive}: {ours:?}");
}

#[test]
fn never_two_inside() {
    let world = World::with(&[&format!("watchdog={LEASE}"), "fairWait=2000"]);
    let second = java(&world.server);
    let client = client(&world.server);
    let mut process = Process::start(&world.server, LEASE);
    for primitive in ["lock", "fenced", "fair", "rw", "multi", "permits", "counting"] {
        let (path, counter) = set_up(world.server.dir(), &client, primitive);
        let javas = [&world.jvm, &second]
            .map(|jvm| Javas::begin(jvm, primitive, &path, Mode::Count, THREADS));
        process.begin(primitive, &path, Mode::Count, THREADS);
        let mut ours = play_for_a_while(&client, primitive, &path, &counter);
        ours.add(process.tally(primitive));
        let mut theirs = Tally::default();
        for javas in &javas {
            theirs.add(javas.tally());
        }
        judge(primitive, &counter, ours, theirs);
        assert!(theirs.turns > 0, "{primitive}: {theirs:?}");
        if primitive == "fair" {
            let (least, most) = (ours.turns.min(theirs.turns), ours.turns.max(theirs.turns));
            assert!(4 * least > most, "equally many threads, one queue: {least} turns and {most}");
        }
    }
    for primitive in ["permits", "counting"] {
        assert_eq!(world.server.cmd::<String>(&["GET", &format!("stress-{primitive}")]), "1");
        world.server.cmd::<u32>(&["DEL", &format!("stress-{primitive}")]);
    }
    // Redisson marks an unlock with a key that expires after a while; before version 4 nothing
    // deletes it earlier.
    wait_until("no lock is left behind", || {
        world.server.lock_keys().iter().all(|key| key.starts_with("redisson_unlock_latch:"))
    });
}

#[test]
fn nobody_passes_a_latch_before_all_have_counted() {
    let world = World::with(&[]);
    let second = Jvm::start(&world.server, &[]);
    let client = client(&world.server);
    let mut process = Process::start(&world.server, LEASE);
    let (turns, players) = (if is_long() { 500 } else { 40 }, 4 * THREADS);
    for round in 0..turns {
        assert!(client.latch(format!("stress-{round}")).try_set_count(players as u32).unwrap());
    }
    let path = world.server.dir().join("latch");
    std::fs::write(&path, "").unwrap();
    let javas: Vec<_> =
        [&world.jvm, &second].iter().flat_map(|jvm| (0..THREADS).map(|_| jvm.thread())).collect();
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
