//! Leasehold threads that take turns with those of Redisson (`Turns.java`) on a file that only the
//! lock protects. It has a number, a byte that tells all of them to stop, and a byte that says that
//! two were inside, for players that are killed before they can report it.

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
    /// Each turn adds one: the number is exact only if two were never inside together.
    Count,
    /// For players that may be killed during a turn: each turn leaves a mark, and nobody else may
    /// leave one meanwhile.
    Mark,
}

impl Mode {
    /// Its name in the Java program.
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

    /// A `long` as Java writes it.
    pub(crate) fn read(&self) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        u64::from_be_bytes(bytes)
    }

    /// Stops the Redisson threads; leasehold threads go on, to notify Redisson waiters that have
    /// lost their places.
    pub(crate) fn stop_java(&self) {
        self.0.write_all_at(&[1], STOP).unwrap();
    }

    pub(crate) fn stop(&self) {
        self.0.write_all_at(&[2], STOP).unwrap();
    }

    fn is_stopped(&self) -> bool {
        self.byte(STOP) == 2
    }

    /// A player found another inside.
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

/// What a player did until the end.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// The number of turns that wrote.
    pub(crate) turns: u64,
    pub(crate) longest_wait: Duration,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.turns += other.turns;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }

    /// TURNS MILLISECONDS, as the Java program and a leasehold process print it.
    pub(crate) fn of_words(words: &str) -> Self {
        let (turns, millis) = words.split_once(' ').unwrap();
        Self { turns: turns.parse().unwrap(), longest_wait: ms(millis.parse().unwrap()) }
    }
}

/// The longest wait: once all others have stopped while holding it, it never comes free.
const PATIENCE: Duration = Duration::from_secs(2);

/// Only servers out of reach, or with too few replicas for now, are no reason to fail.
fn outage(error: &Error) {
    let kinds = [ErrorKind::Unreachable, ErrorKind::NotReady, ErrorKind::Protocol, ErrorKind::NotReplicated];
    assert!(kinds.contains(&error.kind()), "{error:?}");
}

/// One leasehold turn: whether it wrote, and how long it waited. `None` after an error before the
/// turn. An error at the end of the hold does not matter to the counter.
fn turn(
    client: &LockClient,
    primitive: &str,
    counter: &Counter,
    mode: Mode,
) -> Result<Option<(bool, Duration)>, Error> {
    let (name, other) = (format!("stress-{primitive}"), format!("stress-{primitive}-2"));
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
    match primitive {
        "lock" | "redlock" => turn!(client.mutex(&name).try_lock_for(PATIENCE), true, write()),
        "fenced" => turn!(client.mutex(&name).keep_token().try_lock_for(PATIENCE), true, write()),
        "fair" => turn!(client.fair(&name).try_lock_for(PATIENCE), true, write()),
        "rw" if rand::random() => turn!(client.rw_lock(&name).try_read_for(PATIENCE), false, counter.stays()),
        "rw" => turn!(client.rw_lock(&name).try_write_for(PATIENCE), true, write()),
        // In another order than Redisson.
        "multi" => turn!(client.multi([&other, &name]).try_lock_for(PATIENCE), true, write()),
        "permits" => turn!(client.semaphore(&name).try_acquire_for(PATIENCE), true, write()),
        "counting" => turn!(client.counting_semaphore(&name).try_acquire_for(PATIENCE), true, write()),
        _ => panic!("{primitive}"),
    }
}

/// Takes turns with this many threads until the file says stop.
pub(crate) fn play(client: &LockClient, primitive: &str, path: &Path, mode: Mode, threads: usize) -> Tally {
    let one = || {
        let (counter, mut tally) = (Counter::open(path), Tally::default());
        while !counter.is_stopped() {
            match turn(client, primitive, &counter, mode) {
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

/// One latch in each round: whoever passes it finds that all have arrived.
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

/// A leasehold process that plays as its input says.
pub(crate) struct Process(Child);

impl Process {
    /// `lease` is in milliseconds.
    pub(crate) fn start(server: &Server, lease: u64) -> Self {
        let env = [("LEASEHOLD_TEST_URL", &*server.url()), ("LEASEHOLD_TEST_LEASE", &lease.to_string())];
        let mut child = Child::spawn("players::playing_process", &env);
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
