//! Threads of both libraries, in two processes each, take turns on a counter outside of the store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{LockClient, SetPermits};

use super::{Counter, JavaThread, Jvm, Mode, Process, Tally, play};
use crate::rig::ms;

/// Threads in each process.
pub(crate) const THREADS: usize = 4;

/// `LEASEHOLD_LONG=1` sets two minutes in total.
pub(crate) fn is_long() -> bool {
    std::env::var("LEASEHOLD_LONG").is_ok_and(|value| value == "1")
}

/// How long one primitive is under stress.
pub(crate) fn length() -> Duration {
    if is_long() { Duration::from_secs(15) } else { ms(1300) }
}

/// The Java threads that take turns on one primitive.
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
        "permits" | "semaphore" => {
            assert_eq!(client.semaphore(&name).try_set_permits(1).unwrap(), SetPermits::New);
        }
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

/// Two processes of each library, one of which is this one, take turns on a primitive. Returns what
/// leasehold and Java did.
pub(crate) fn compete(
    client: &LockClient,
    process: &mut Process,
    jvms: [&Jvm; 2],
    dir: &Path,
    primitive: &str,
) -> (Tally, Tally) {
    let (path, counter) = set_up(dir, client, primitive);
    let javas = jvms.map(|jvm| Javas::begin(jvm, primitive, &path, Mode::Count, THREADS));
    process.begin(primitive, &path, Mode::Count, THREADS);
    let mut ours = play_for_a_while(client, primitive, &path, &counter);
    ours.add(process.tally(primitive));
    let mut theirs = Tally::default();
    for javas in &javas {
        theirs.add(javas.tally());
    }
    judge(primitive, &counter, ours, theirs);
    assert!(theirs.turns > 0, "{primitive}: {theirs:?}");
    (ours, theirs)
}
