//! A file that only the lock protects. It contains a number, a byte that stops all players, and a
//! byte set when two were inside, for players that are killed before they can report it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::rig::ms;

const STOP: u64 = 8;
const BROKEN: u64 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each turn adds one: the number is exact only if there were never two holders.
    Count,
    /// Suits players that may be killed during a turn: each turn leaves a mark, and no other player
    /// may leave one meanwhile.
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

    pub(crate) fn open(path: &Path) -> Self {
        Self(OpenOptions::new().read(true).write(true).open(path).unwrap())
    }

    /// A `long` in Java's byte order.
    pub(crate) fn read(&self) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        u64::from_be_bytes(bytes)
    }

    /// Stops the Java threads; leasehold threads continue, to notify Redisson waiters that have lost
    /// their queue entries.
    pub(crate) fn stop_java(&self) {
        self.0.write_all_at(&[1], STOP).unwrap();
    }

    pub(crate) fn stop(&self) {
        self.0.write_all_at(&[2], STOP).unwrap();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.byte(STOP) == 2
    }

    /// A player found another one inside.
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
            panic!("two holders");
        }
    }

    pub(crate) fn write(&self, mode: Mode) {
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

    pub(crate) fn stays(&self) {
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

    /// TURNS MILLISECONDS, as printed by the Java program and a leasehold process.
    pub(crate) fn of_words(words: &str) -> Self {
        let (turns, millis) = words.split_once(' ').unwrap();
        Self { turns: turns.parse().unwrap(), longest_wait: ms(millis.parse().unwrap()) }
    }
}
