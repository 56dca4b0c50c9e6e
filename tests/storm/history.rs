//! What happened, put together from the files of all processes and the list of faults.

use std::collections::HashMap;
use std::path::Path;

use crate::event::{Event, Kind, Nanos, What};
use crate::fault::Disturbance;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its process was killed, or the run was over.
    Open,
    Got {
        at: Nanos,
        tokens: Vec<u64>,
    },
    Vain {
        at: Nanos,
    },
    Failed {
        at: Nanos,
        error: String,
        message: String,
    },
}

/// One acquire attempt, and the hold that it got.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// The index of the process.
    pub(crate) process: usize,
    pub(crate) thread: u32,
    pub(crate) kind: Kind,
    pub(crate) names: Vec<String>,
    pub(crate) asked: Nanos,
    pub(crate) patience: Option<Nanos>,
    /// Its lease is not renewed.
    pub(crate) fixed: Option<Nanos>,
    pub(crate) outcome: Outcome,
    /// The beginning of the last look that said true: at that time it was held.
    pub(crate) believed: Option<Nanos>,
    /// The end of the first look that said false.
    pub(crate) doubted: Option<Nanos>,
    /// A look said true after one that had said false.
    pub(crate) revived: bool,
    pub(crate) told: Option<(Nanos, String)>,
    pub(crate) signalled: bool,
    /// The unlock: from when to when, and what it answered.
    pub(crate) given: Option<(Nanos, Nanos, String)>,
}

impl Attempt {
    pub(crate) fn new(process: usize, thread: u32, kind: Kind, names: &[&str], asked: Nanos) -> Self {
        Self {
            process,
            thread,
            kind,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            asked,
            patience: None,
            fixed: None,
            outcome: Outcome::Open,
            believed: None,
            doubted: None,
            revived: false,
            told: None,
            signalled: false,
            given: None,
        }
    }

    pub(crate) fn got(&self) -> Option<Nanos> {
        match self.outcome {
            Outcome::Got { at, .. } => Some(at),
            _ => None,
        }
    }

    /// From when to when it certainly believed: it had the guard before the first look, and a guard
    /// that says true has said so since it was made.
    pub(crate) fn belief(&self) -> Option<(Nanos, Nanos)> {
        Some((self.got()?, self.believed?))
    }

    pub(crate) fn token_of(&self, name: &str) -> Option<u64> {
        let Outcome::Got { tokens, .. } = &self.outcome else { return None };
        tokens.get(self.names.iter().position(|own| own == name)?).copied()
    }

    /// When the call came back.
    pub(crate) fn answered(&self) -> Option<Nanos> {
        match self.outcome {
            Outcome::Open => None,
            Outcome::Got { at, .. } | Outcome::Vain { at } | Outcome::Failed { at, .. } => Some(at),
        }
    }

    pub(crate) fn takes(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }
}

/// What one process left behind at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) threads: i64,
    pub(crate) sockets: i64,
    pub(crate) close: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Process {
    pub(crate) label: String,
    /// When it was killed by a fault.
    pub(crate) killed: Option<Nanos>,
    pub(crate) ending: Option<Ending>,
    /// What forked children said: when, whether the guard was held there, and what a lock answered.
    pub(crate) forks: Vec<(Nanos, bool, String)>,
    pub(crate) panics: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) processes: Vec<Process>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) faults: Vec<Disturbance>,
    /// When the workers were told to take no more.
    pub(crate) over: Nanos,
    /// How many may hold each semaphore.
    pub(crate) permits: usize,
    /// Of renewed holds.
    pub(crate) lease: Nanos,
    /// Every waiter has a place in a queue of the store, a multi-lock in that of each of its names:
    /// whoever comes later waits behind it, also for a name that nobody holds.
    pub(crate) queues_all: bool,
    /// How many times more work the machine had than it can do, 1 at least: times that nothing but
    /// the machine explains are allowed to be so much longer.
    pub(crate) load: f64,
}

impl Default for History {
    fn default() -> Self {
        Self {
            processes: Vec::new(),
            attempts: Vec::new(),
            faults: Vec::new(),
            over: 0,
            permits: 1,
            lease: 0,
            queues_all: false,
            load: 1.0,
        }
    }
}

impl History {
    /// Adds what the process wrote.
    pub(crate) fn read(&mut self, label: &str, killed: Option<Nanos>, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let events: Vec<Event> = text.lines().filter_map(Event::parse).collect();
        self.add(label, killed, &events);
    }

    pub(crate) fn add(&mut self, label: &str, killed: Option<Nanos>, events: &[Event]) {
        let index = self.processes.len();
        let mut process = Process { label: label.to_owned(), killed, ..Process::default() };
        let mut places: HashMap<(u32, u64), usize> = HashMap::new();
        for event in events {
            match &event.what {
                What::Asks { kind, names, patience, fixed } => {
                    places.insert((event.thread, event.attempt), self.attempts.len());
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let mut attempt = Attempt::new(index, event.thread, *kind, &names, event.at);
                    (attempt.patience, attempt.fixed) = (*patience, *fixed);
                    self.attempts.push(attempt);
                }
                What::Forked { held, answer } => process.forks.push((event.at, *held, answer.clone())),
                What::Panicked { message } => process.panics.push(message.clone()),
                What::Ended { threads, sockets, close } => {
                    process.ending = Some(Ending { threads: *threads, sockets: *sockets, close: close.clone() });
                }
                what => {
                    if let Some(place) = places.get(&(event.thread, event.attempt)) {
                        note(&mut self.attempts[*place], event.at, what);
                    }
                }
            }
        }
        self.processes.push(process);
    }

    /// The names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.attempts.iter().flat_map(|attempt| attempt.names.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// `p1/t2`.
    pub(crate) fn who(&self, attempt: &Attempt) -> String {
        format!("{}/t{}", self.processes[attempt.process].label, attempt.thread)
    }
}

fn note(attempt: &mut Attempt, at: Nanos, what: &What) {
    match what {
        What::Got { tokens } => attempt.outcome = Outcome::Got { at, tokens: tokens.clone() },
        What::Vain => attempt.outcome = Outcome::Vain { at },
        What::Failed { error, message } => {
            attempt.outcome = Outcome::Failed { at, error: error.clone(), message: message.clone() };
        }
        What::Looked { held: true, .. } => {
            attempt.revived |= attempt.doubted.is_some();
            attempt.believed = Some(at);
        }
        What::Looked { held: false, until } => drop(attempt.doubted.get_or_insert(*until)),
        What::Told { reason } => attempt.told = Some((at, reason.clone())),
        What::Signalled => attempt.signalled = true,
        What::Gave { answer, until } => attempt.given = Some((at, *until, answer.clone())),
        What::Asks { .. } | What::Forked { .. } | What::Panicked { .. } | What::Ended { .. } => {}
    }
}
