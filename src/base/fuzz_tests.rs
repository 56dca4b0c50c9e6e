//! Inputs for tests of whatever reads bytes from outside: valid ones, and random changes of them.
//!
//! Each test runs for a fraction of a second, or for `LEASEHOLD_FUZZ_SECONDS`. What fails prints
//! its input and its seed, which `LEASEHOLD_SEED` repeats. The command compiles this file as well.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// No input takes a reader that long, not even on a machine that is busy with other tests.
const ENDLESS: Duration = Duration::from_secs(60);
/// No reader needs that much: a length that is only claimed must reserve no memory.
#[cfg(unix)]
const MOST_MEMORY: u64 = 4 << 30;
/// How often each valid input is read, once as it is and otherwise changed.
const CHANGES: usize = 8;
/// How many valid inputs there are at least, also on a busy machine.
const LEAST: u64 = 20;
/// One of so many valid inputs is also cut at each byte, up to this one.
const CUT_EACH: u64 = 16;
const LONGEST_CUT: usize = 200;

/// Random numbers that can be repeated (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`, or 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub(crate) fn choose<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }

    /// A number that is often one at which arithmetic fails.
    pub(crate) fn number(&mut self) -> i64 {
        let edges = [
            0,
            1,
            -1,
            i64::MAX,
            i64::MIN,
            i64::from(i32::MAX),
            i64::from(i32::MIN),
            i64::from(u32::MAX),
        ];
        match self.below(4) {
            0 => self.roll() as i64,
            1 => *self.choose(&edges),
            _ => self.below(20) as i64 - 2,
        }
    }

    /// A short text, in which some characters are those that separate fields somewhere.
    pub(crate) fn text(&mut self) -> String {
        let characters: Vec<char> =
            "abz019 :;,./?#@%=&-_[]{}()\\'\"\r\n\0ä\u{1f512}".chars().collect();
        (0..self.below(12)).map(|_| *self.choose(&characters)).collect()
    }
}

/// Calls `read` with what `valid` makes, and with changes of it. It panics if the reader breaks a
/// promise.
pub(crate) fn fuzz(
    valid: impl FnMut(&mut Dice) -> Vec<u8> + Send + 'static,
    read: impl FnMut(&[u8], &mut Dice) + Send + 'static,
) {
    let number = |name: &str| {
        std::env::var(name).ok().map(|text| text.parse::<u64>().expect("it is a number"))
    };
    let length = match number("LEASEHOLD_FUZZ_SECONDS") {
        Some(0) => Duration::ZERO,
        Some(seconds) => {
            limit_memory();
            Duration::from_secs(seconds)
        }
        None => Duration::from_millis(200),
    };
    let seed = number("LEASEHOLD_SEED").unwrap_or_else(random);
    let input = Arc::new(Mutex::new(Vec::new()));
    let (has_ended, ended) = mpsc::channel();
    let worker = {
        let input = input.clone();
        thread::spawn(move || {
            // Dropped at the end, also by a panic.
            let _has_ended: mpsc::Sender<()> = has_ended;
            read_all(Dice(seed), Instant::now() + length, &input, valid, read)
        })
    };
    let is_endless = ended.recv_timeout(length + ENDLESS) == Err(mpsc::RecvTimeoutError::Timeout);
    let bytes = input.lock().unwrap_or_else(PoisonError::into_inner).escape_ascii().to_string();
    assert!(!is_endless, "LEASEHOLD_SEED={seed}: this input takes for ever: b\"{bytes}\"");
    match worker.join() {
        Ok(count) => println!("LEASEHOLD_SEED={seed}: {count} inputs"),
        Err(panic) => {
            println!("LEASEHOLD_SEED={seed}: this input fails: b\"{bytes}\"");
            resume_unwind(panic);
        }
    }
}

/// Returns the number of inputs.
fn read_all(
    mut dice: Dice,
    end: Instant,
    input: &Mutex<Vec<u8>>,
    mut valid: impl FnMut(&mut Dice) -> Vec<u8>,
    mut read: impl FnMut(&[u8], &mut Dice),
) -> u64 {
    let mut count = 0;
    for round in 0_u64.. {
        let one = valid(&mut dice);
        let other = valid(&mut dice);
        let cuts = if round % CUT_EACH == 0 { one.len().min(LONGEST_CUT) } else { 0 };
        for place in 0..CHANGES + cuts {
            let bytes = match place.checked_sub(CHANGES) {
                Some(length) => one[..length].to_vec(),
                None if place == 0 => one.clone(),
                None => changed(one.clone(), &other, &mut dice),
            };
            input.lock().expect("nobody panics with it").clone_from(&bytes);
            read(&bytes, &mut dice);
            count += 1;
        }
        if round >= LEAST && Instant::now() >= end {
            break;
        }
    }
    count
}

/// A few random changes.
fn changed(mut bytes: Vec<u8>, other: &[u8], dice: &mut Dice) -> Vec<u8> {
    for _ in 0..=dice.below(3) {
        let (place, new) = change(&bytes, other, dice);
        bytes.splice(place, new);
    }
    bytes
}

/// A place, and what comes there.
fn change(bytes: &[u8], other: &[u8], dice: &mut Dice) -> (Range<usize>, Vec<u8>) {
    let from = dice.below(bytes.len() + 1);
    let next = |count: usize| from..(from + count).min(bytes.len());
    let some = next(dice.below(9));
    match dice.below(10) {
        0 => (next(1), vec![dice.roll() as u8]),
        1 => (next(1), next(1).map(|at| bytes[at] ^ 1 << dice.below(8)).collect()),
        2 => (next(4), (dice.number() as i32).to_be_bytes().to_vec()),
        3 => (next(2), (dice.number() as i16).to_be_bytes().to_vec()),
        4 => {
            let start =
                bytes[from..].iter().position(u8::is_ascii_digit).map_or(from, |at| from + at);
            let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            (start..start + digits, dice.number().to_string().into_bytes())
        }
        5 => (some, dice.text().into_bytes()),
        6 => (some, Vec::new()),
        7 => (from..from, bytes[some].to_vec()),
        8 => (from..bytes.len(), Vec::new()),
        _ => {
            let start = dice.below(other.len() + 1);
            (some, other[start..].iter().take(dice.below(20)).copied().collect())
        }
    }
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Of the process, as long as only these tests run in it.
fn limit_memory() {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, setrlimit};
        setrlimit(Resource::RLIMIT_AS, MOST_MEMORY, MOST_MEMORY).expect("a limit can be lowered");
    }
}
