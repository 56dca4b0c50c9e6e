//! Threads of ours that take turns with those of Java (`Turns.java`) at a file that only the lock protects: a number, a byte
//! that tells all of them to stop, and one that says that two were inside, for those who are killed before they can.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, LockClient};

use crate::rig::{Child, Server, ms};
use crate::stress::patience;

const STOP: u64 = 8;
const BROKEN: u64 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each turn adds one: exact only if never two were inside.
    Count,
    /// For those who may be killed in the middle: each turn leaves a mark, and nobody else may leave one meanwhile.
    Mark,
}

impl Mode {
    /// As Java calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Count => "write",
            Self::Mark => "mark",
        }
    }
}

pub(crate) struct Counter(File);

impl Counter {
    pub(crate) fn create(path: &Path) -> Self {
        std::fs::write(path, [0; 10]).unwrap();
        Self::open(path)
    }

    fn open(path: &Path) -> Self {
        Self(OpenOptions::new().read(true).write(true).open(path).unwrap())
    }

    /// As Java writes a `long`.
    pub(crate) fn read(&self) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        u64::from_be_bytes(bytes)
    }

    /// Those of Java; ours go on, and tell those of Java who have lost their places.
    pub(crate) fn stop_java(&self) {
        self.0.write_all_at(&[1], STOP).unwrap();
    }

    pub(crate) fn stop(&self) {
        self.0.write_all_at(&[2], STOP).unwrap();
    }

    fn is_stopped(&self) -> bool {
        self.byte(STOP) == 2
    }

    /// Somebody found somebody else inside.
    pub(crate) fn is_broken(&self) -> bool {
        self.byte(BROKEN) != 0
    }

    fn byte(&self, at: u64) -> u8 {
        let mut byte = [0];
        self.0.read_exact_at(&mut byte, at).unwrap();
        byte[0]
    }

    fn same(&self, before: u64) {
        if self.read() != before {
            self.0.write_all_at(&[1], BROKEN).unwrap();
            panic!("two inside");
        }
    }

    fn write(&self, mode: Mode) {
        let before = match mode {
            Mode::Count => self.read(),
            Mode::Mark => rand::random(),
        };
        if mode == Mode::Mark {
            self.0.write_all_at(&before.to_be_bytes(), 0).unwrap();
        }
        std::thread::yield_now();
        match mode {
            Mode::Count => self.0.write_all_at(&(before + 1).to_be_bytes(), 0).unwrap(),
            Mode::Mark => self.same(before),
        }
    }

    fn stays(&self) {
        let before = self.read();
        std::thread::yield_now();
        self.same(before);
    }
}

/// What somebody did until the end.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// The turns that wrote.
    pub(crate) turns: u64,
    pub(crate) longest_wait: Duration,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.turns += other.turns;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }

    /// TURNS MILLISECONDS, as Java and a process of ours say it.
    pub(crate) fn of_words(words: &str) -> Self {
        let (turns, millis) = words.split_once(' ').unwrap();
        Self { turns: turns.parse().unwrap(), longest_wait: ms(millis.parse().unwrap()) }
    }
}

/// Waits so long at most: nothing is free any more once all the others have stopped with it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Only a server that is away is no reason to fail.
fn outage(error: &Error) {
    let kinds = [ErrorKind::Unreachable, ErrorKind::NotReady, ErrorKind::Protocol];
    assert!(kinds.contains(&error.kind()), "{error:?}");
}

/// One turn of ours, if there was one: whether it wrote, and how long it waited. An error before it is none, and what the end
/// of the hold tells is of no use to the counter.
fn turn(client: &LockClient, noun: &str, counter: &Counter, mode: Mode) -> Result<Option<(bool, Duration)>, Error> {
    let (name, other) = (format!("stress-{noun}"), format!("stress-{noun}-2"));
    let start = Instant::now();
    macro_rules! turn {
        ($won:expr, $wrote:expr, $work:expr) => {{
            let Some(guard) = $won? else { return Ok(None) };
            let waited = start.elapsed();
            $work;
            if let Err(e) = guard.unlock() {
                outage(&e);
            }
            Ok(Some(($wrote, waited)))
        }};
    }
    let write = || counter.write(mode);
    match noun {
        "lock" | "redlock" => turn!(client.mutex(&name).try_lock_for(PATIENCE), true, write()),
        "fenced" => turn!(client.mutex(&name).keep_token().try_lock_for(PATIENCE), true, write()),
        "fair" => turn!(client.fair(&name).try_lock_for(PATIENCE), true, write()),
        "rw" if rand::random() => turn!(client.rw_lock(&name).try_read_for(PATIENCE), false, counter.stays()),
        "rw" => turn!(client.rw_lock(&name).try_write_for(PATIENCE), true, write()),
        // In another order than Java's.
        "multi" => turn!(client.multi([&other, &name]).try_lock_for(PATIENCE), true, write()),
        "permits" => turn!(client.semaphore(&name).try_acquire_for(PATIENCE), true, write()),
        "counting" => turn!(client.counting_semaphore(&name).try_acquire_for(PATIENCE), true, write()),
        _ => panic!("{noun}"),
    }
}

/// Takes turns with so many threads until the file says stop.
pub(crate) fn play(client: &LockClient, noun: &str, path: &Path, mode: Mode, threads: usize) -> Tally {
    let one = || {
        let (counter, mut tally) = (Counter::open(path), Tally::default());
        while !counter.is_stopped() {
            match turn(client, noun, &counter, mode) {
                Ok(Some((wrote, longest_wait))) => tally.add(Tally { turns: u64::from(wrote), longest_wait }),
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
        threads.into_iter().for_each(|thread| all.add(thread.join().unwrap()));
    });
    all
}

/// Rounds of a latch each: whoever is through it finds that all have been there.
pub(crate) fn rounds(client: &LockClient, path: &Path, rounds: usize, players: usize) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    for round in 0..rounds {
        let latch = client.latch(&format!("stress-{round}"));
        file.write_all(b".").unwrap();
        latch.count_down().unwrap();
        latch.wait().unwrap();
        let been = usize::try_from(file.metadata().unwrap().len()).unwrap();
        assert!(been >= players * (round + 1), "{been} of {players} in round {round}");
    }
}

/// A process of ours that plays as its input tells it.
pub(crate) struct Process(Child);

impl Process {
    /// `lease` in milliseconds.
    pub(crate) fn start(server: &Server, lease: u64) -> Self {
        let env = [("LEASEHOLD_TEST_URL", &*server.url()), ("LEASEHOLD_TEST_LEASE", &lease.to_string())];
        let mut child = Child::spawn("players::playing_process", &env);
        child.expect("ready");
        Self(child)
    }

    pub(crate) fn begin(&mut self, noun: &str, path: &Path, mode: Mode, threads: usize) {
        self.0.say(&format!("{noun} {} {} {threads}", path.display(), mode.word()));
    }

    /// Of a noun that was begun.
    pub(crate) fn tally(&mut self, noun: &str) -> Tally {
        Tally::of_words(&self.0.expect(&format!("{noun}: ")))
    }

    pub(crate) fn begin_rounds(&mut self, path: &Path, rounds: usize, players: usize, threads: usize) {
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
    let lease = ms(std::env::var("LEASEHOLD_TEST_LEASE").unwrap().parse().unwrap());
    let builder = LockClient::builder().url(std::env::var("LEASEHOLD_TEST_URL").unwrap());
    let client = patience(builder.lease(lease)).build().unwrap();
    println!("@@ready");
    std::thread::scope(|s| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let client = &client;
            s.spawn(move || {
                let words: Vec<_> = line.split(' ').collect();
                let (noun, path) = (words[0], PathBuf::from(words[1]));
                let number = |n: usize| words[n].parse::<usize>().unwrap();
                if noun == "latch" {
                    std::thread::scope(|s| {
                        for _ in 0..number(4) {
                            s.spawn(|| rounds(client, &path, number(2), number(3)));
                        }
                    });
                    println!("@@latch: through");
                    return;
                }
                let mode = if words[2] == Mode::Mark.word() { Mode::Mark } else { Mode::Count };
                let tally = play(client, noun, &path, mode, number(3));
                println!("@@{noun}: {} {}", tally.turns, tally.longest_wait.as_millis());
            });
        }
    });
}
