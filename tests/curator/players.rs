//! Our threads and processes, which take turns on a counter with Curator's (`Turns.java`).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, LockClient};

use crate::counter::{Counter, Mode, Tally};
use crate::rig::{Child, ms};

/// The longest wait: once all others have stopped while holding it, it never becomes free.
const PATIENCE: Duration = Duration::from_secs(2);

/// The session of all players, so that the hold of a killed one becomes free soon.
pub(crate) const SESSION: Duration = ms(2000);

/// Only unreachable servers, and a session that ended, are accepted as failures.
fn outage(error: &Error) {
    let kinds = [ErrorKind::Unreachable, ErrorKind::NotReady, ErrorKind::Lost];
    assert!(kinds.contains(&error.kind()), "{error:?}");
}

/// One turn: whether it wrote, and how long it waited. `None` after an error or a timeout.
fn turn(
    client: &LockClient,
    primitive: &str,
    counter: &Counter,
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
                outage(&e);
            }
            Ok(Some(($wrote, waited)))
        }};
    }
    let write = || counter.write(mode);
    match primitive {
        "mutex" => turn!(client.mutex(&name).try_lock_for(PATIENCE), true, write()),
        "fair" => turn!(client.fair(&name).try_lock_for(PATIENCE), true, write()),
        "rw" if rand::random() => {
            turn!(client.rw_lock(&name).try_read_for(PATIENCE), false, counter.stays())
        }
        "rw" => turn!(client.rw_lock(&name).try_write_for(PATIENCE), true, write()),
        // In an order other than Curator's.
        "multi" => turn!(client.multi([&other, &name]).try_lock_for(PATIENCE), true, write()),
        "semaphore" => {
            turn!(client.semaphore(&name).try_acquire_for(PATIENCE), true, write(), release)
        }
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
        while !counter.is_stopped() {
            match turn(client, primitive, &counter, mode) {
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

pub(crate) fn client(url: &str) -> LockClient {
    LockClient::builder().url(url).lease(SESSION).build().unwrap()
}

/// A process that follows the commands on its input.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(url: &str) -> Self {
        let mut child = Child::spawn("players::playing_process", &[("LEASEHOLD_TEST_URL", url)]);
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

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }
}

#[test]
#[ignore = "a program for other tests"]
fn playing_process() {
    let client = client(&std::env::var("LEASEHOLD_TEST_URL").unwrap());
    println!("@@ready");
    std::thread::scope(|s| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let client = &client;
            s.spawn(move || {
                let words: Vec<_> = line.split(' ').collect();
                let (primitive, path) = (words[0], PathBuf::from(words[1]));
                let mode = if words[2] == Mode::Mark.word() { Mode::Mark } else { Mode::Count };
                let tally = play(client, primitive, &path, mode, words[3].parse().unwrap());
                println!("@@{primitive}: {} {}", tally.turns, tally.longest_wait.as_millis());
            });
        }
    });
}
