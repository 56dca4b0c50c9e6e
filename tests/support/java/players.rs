//! Leasehold threads that take turns on a counter with those of Redisson or Curator
//! (`Turns.java`).

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, LockClient};

use super::{Counter, Mode, Tally};
use crate::rig::{Child, ms};
use crate::stress::{OUTAGES, builder};

/// The longest wait: once all others have stopped while holding it, it never becomes free.
const PATIENCE: Duration = Duration::from_secs(2);

/// Only what an outage explains is accepted as a failure.
fn outage(error: &Error) {
    assert!(OUTAGES.contains(&error.kind()), "{error:?}");
}

/// The file beside a counter that says that another process of the server has its data now.
pub(crate) const RESTARTED: &str = "restarted";

/// A release that has run just before the server was killed finds no hold when it is repeated at
/// the next process of the server, and reports a loss: the data might be lost as well.
fn end_of_a_hold(error: &Error, dir: &Path) {
    if error.kind() != ErrorKind::Lost || !dir.join(RESTARTED).exists() {
        outage(error);
    }
}

/// One leasehold turn: whether it wrote, and how long it waited. `None` after an error before the
/// turn. An error at the end of the hold does not matter to the counter. `dir`: of the counter.
fn turn(
    client: &LockClient,
    primitive: &str,
    counter: &Counter,
    dir: &Path,
    mode: Mode,
) -> Result<Option<(bool, Duration)>, Error> {
    let (name, other) = (format!("stress-{primitive}"), format!("stress-{primitive}-2"));
    let start = Instant::now();
    macro_rules! turn {
        ($won:expr, $wrote:expr, $work:expr) => {
            turn!($won, $wrote, $work, unlock)
        };
        ($won:expr, $wrote:expr, $work:expr, $end:ident) => {{
            let Some(guard) = $won? else { return Ok(None) };
            let waited = start.elapsed();
            $work;
            if let Err(e) = guard.$end() {
                end_of_a_hold(&e, dir);
            }
            Ok(Some(($wrote, waited)))
        }};
    }
    let write = || counter.write(mode);
    match primitive {
        "lock" | "mutex" | "redlock" => {
            turn!(client.mutex(&name).try_lock_for(PATIENCE), true, write())
        }
        "fenced" => turn!(client.mutex(&name).keep_token().try_lock_for(PATIENCE), true, write()),
        "fair" => turn!(client.fair(&name).try_lock_for(PATIENCE), true, write()),
        "rw" if rand::random() => {
            turn!(client.rw_lock(&name).try_read_for(PATIENCE), false, counter.stays())
        }
        "rw" => turn!(client.rw_lock(&name).try_write_for(PATIENCE), true, write()),
        // In an order other than Java's.
        "multi" => turn!(client.multi([&other, &name]).try_lock_for(PATIENCE), true, write()),
        "permits" | "semaphore" => {
            turn!(client.semaphore(&name).try_acquire_for(PATIENCE), true, write(), release)
        }
        "counting" => turn!(
            client.counting_semaphore(&name).try_acquire_for(PATIENCE),
            true,
            write(),
            release
        ),
        _ => panic!("{primitive}"),
    }
}

/// Takes turns with this many threads until the file signals the end.
pub(crate) fn play(
    client: &LockClient,
    primitive: &str,
    path: &Path,
    mode: Mode,
    threads: usize,
) -> Tally {
    let one = || {
        let (counter, mut tally) = (Counter::open(path), Tally::default());
        let dir = path.parent().expect("it is in a directory");
        while !counter.is_stopped() {
            match turn(client, primitive, &counter, dir, mode) {
                Ok(Some((wrote, longest_wait))) => {
                    tally.add(Tally { turns: u64::from(wrote), longest_wait });
                }
                Ok(None) => {}
                Err(e) => {
                    outage(&e);
                    std::thread::sleep(ms(2));
                }
            }
        }
        tally
    };
    let mut all = Tally::default();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..threads).map(|_| s.spawn(one)).collect();
        for thread in threads {
            all.add(thread.join().unwrap());
        }
    });
    all
}

/// One latch in each round: every thread that passes it finds that all have arrived.
pub(crate) fn rounds(client: &LockClient, path: &Path, rounds: usize, players: usize) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    for round in 0..rounds {
        let latch = client.latch(format!("stress-{round}"));
        file.write_all(b".").unwrap();
        latch.count_down().unwrap();
        latch.wait().unwrap();
        let been = usize::try_from(file.metadata().unwrap().len()).unwrap();
        assert!(been >= players * (round + 1), "{been} of {players} in round {round}");
    }
}

/// A leasehold process that follows the commands on its input.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(url: &str, lease: Duration) -> Self {
        let lease = lease.as_millis().to_string();
        let env = [("LEASEHOLD_TEST_URL", url), ("LEASEHOLD_TEST_LEASE", &lease)];
        let mut child = Child::spawn("java::players::playing_process", &env);
        child.expect("ready");
        Self(child)
    }

    pub(crate) fn begin(&mut self, primitive: &str, path: &Path, mode: Mode, threads: usize) {
        self.0.say(&format!("{primitive} {} {} {threads}", path.display(), mode.word()));
    }

    /// The result of a primitive that was started.
    pub(crate) fn tally(&mut self, primitive: &str) -> Tally {
        Tally::of_words(&self.0.expect(&format!("{primitive}: ")))
    }

    pub(crate) fn begin_rounds(
        &mut self,
        path: &Path,
        rounds: usize,
        players: usize,
        threads: usize,
    ) {
        self.0.say(&format!("latch {} {rounds} {players} {threads}", path.display()));
    }

    pub(crate) fn end_rounds(&mut self) {
        self.0.expect("latch: ");
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }
}

#[test]
#[ignore = "a program for other tests"]
fn playing_process() {
    let value = |name: &str| std::env::var(name).unwrap();
    let lease = ms(value("LEASEHOLD_TEST_LEASE").parse().unwrap());
    let client = builder(&value("LEASEHOLD_TEST_URL")).lease(lease).build().unwrap();
    println!("@@ready");
    std::thread::scope(|s| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let client = &client;
            s.spawn(move || {
                let words: Vec<_> = line.split(' ').collect();
                let (primitive, path) = (words[0], PathBuf::from(words[1]));
                let number = |n: usize| words[n].parse::<usize>().unwrap();
                if primitive == "latch" {
                    std::thread::scope(|s| {
                        for _ in 0..number(4) {
                            s.spawn(|| rounds(client, &path, number(2), number(3)));
                        }
                    });
                    println!("@@latch: through");
                    return;
                }
                let mode = if words[2] == Mode::Mark.word() { Mode::Mark } else { Mode::Count };
                let tally = play(client, primitive, &path, mode, number(3));
                println!("@@{primitive}: {} {}", tally.turns, tally.longest_wait.as_millis());
            });
        }
    });
}
