//! What happened in a run, assembled from the files of all processes and the list of faults.

use std::collections::HashMap;
use std::path::Path;

use crate::event::{Event, Kind, LatchCall, Nanos, Verb, What};
use crate::fault::Disturbance;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its process was killed, or the run ended.
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

/// One call for an occurrence of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fired {
    pub(crate) occurrence: u64,
    /// How often it was tried, with this run, if it ran.
    pub(crate) number: Option<u32>,
}

/// One acquire attempt, and the hold that it obtained; or a call about a job or a leader, which
/// obtains nothing.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// The index of the process.
    pub(crate) process: usize,
    pub(crate) thread: u32,
    pub(crate) verb: Verb,
    pub(crate) kind: Kind,
    pub(crate) names: Vec<String>,
    pub(crate) asked: Nanos,
    pub(crate) patience: Option<Nanos>,
    /// Set if its lease is fixed instead of renewed.
    pub(crate) fixed: Option<Nanos>,
    pub(crate) outcome: Outcome,
    /// The start of the last `is_held` that returned true: at that time it was held.
    pub(crate) believed: Option<Nanos>,
    /// The end of the first `is_held` that returned false.
    pub(crate) doubted: Option<Nanos>,
    /// An `is_held` returned true after one had returned false.
    pub(crate) revived: bool,
    pub(crate) told: Option<(Nanos, String)>,
    pub(crate) signalled: bool,
    /// The unlock: its start, its end, and its result.
    pub(crate) given: Option<(Nanos, Nanos, String)>,
    /// The occurrence, if it is a job.
    pub(crate) fired: Option<Fired>,
    /// What the call returned, and when, if it is about a job or a leader. Nothing if its process
    /// was killed, or it failed.
    pub(crate) said: Vec<(Nanos, String)>,
    /// When this leader resigned, and when it learned that somebody asks for the leadership.
    pub(crate) resigned: Option<Nanos>,
    pub(crate) wanted: Option<Nanos>,
}

impl Attempt {
    pub(crate) fn new(
        process: usize,
        thread: u32,
        kind: Kind,
        names: &[&str],
        asked: Nanos,
    ) -> Self {
        Self {
            process,
            thread,
            verb: Verb::Takes,
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
            fired: None,
            said: Vec::new(),
            resigned: None,
            wanted: None,
        }
    }

    pub(crate) fn got(&self) -> Option<Nanos> {
        match self.outcome {
            Outcome::Got { at, .. } => Some(at),
            _ => None,
        }
    }

    /// The time in which it certainly believed: it had the guard before the first `is_held`, and a
    /// guard that reports true has done so since it was created.
    pub(crate) fn belief(&self) -> Option<(Nanos, Nanos)> {
        Some((self.got()?, self.believed?))
    }

    pub(crate) fn token_of(&self, name: &str) -> Option<u64> {
        let Outcome::Got { tokens, .. } = &self.outcome else { return None };
        tokens.get(self.names.iter().position(|own| own == name)?).copied()
    }

    /// When the call returned.
    pub(crate) fn answered(&self) -> Option<Nanos> {
        match self.outcome {
            Outcome::Open => None,
            Outcome::Got { at, .. } | Outcome::Vain { at } | Outcome::Failed { at, .. } => Some(at),
        }
    }

    /// The last that it returned, and when.
    pub(crate) fn answer(&self) -> Option<(Nanos, &str)> {
        self.said.last().map(|(at, words)| (*at, words.as_str()))
    }

    pub(crate) fn takes(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }
}

/// One call of the latch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LatchUse {
    pub(crate) process: usize,
    pub(crate) thread: u32,
    pub(crate) call: LatchCall,
    pub(crate) from: Nanos,
    /// When it returned; `None` if its process was killed before that.
    pub(crate) to: Option<Nanos>,
    /// What it returned; `None` after an error, or without an answer.
    pub(crate) yes: Option<bool>,
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
    /// When a fault killed it.
    pub(crate) killed: Option<Nanos>,
    pub(crate) ending: Option<Ending>,
    /// What forked children reported: the time, whether the guard was held there, and the result of
    /// an acquire.
    pub(crate) forks: Vec<(Nanos, bool, String)>,
    pub(crate) panics: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) processes: Vec<Process>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) latch: Vec<LatchUse>,
    pub(crate) faults: Vec<Disturbance>,
    /// When the workers were told to stop acquiring.
    pub(crate) over: Nanos,
    /// The number of permits of each semaphore.
    pub(crate) permits: usize,
    /// The number of permits without a lease, and how many of them were free when everybody had gone.
    pub(crate) counted: usize,
    pub(crate) counted_left: Option<i64>,
    /// The lease of renewed holds.
    pub(crate) lease: Nanos,
    /// Every waiter has an entry in a queue of the store, and a multi-lock one for each of its
    /// names: later arrivals wait behind it, even for a name that nobody holds.
    pub(crate) queues_all: bool,
    /// When nothing ran on the machine, or too little.
    pub(crate) stalls: Vec<(Nanos, Nanos)>,
    /// How overloaded the machine was, as a factor of at least 1: waits that only the load explains
    /// may be longer by this factor.
    pub(crate) load: f64,
}

impl Default for History {
    fn default() -> Self {
        Self {
            processes: Vec::new(),
            attempts: Vec::new(),
            latch: Vec::new(),
            faults: Vec::new(),
            over: 0,
            permits: 1,
            counted: 1,
            counted_left: None,
            lease: 0,
            queues_all: false,
            stalls: Vec::new(),
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
                What::Latch(call) => self.latch.push(LatchUse {
                    process: index,
                    thread: event.thread,
                    call: *call,
                    from: event.at,
                    to: None,
                    yes: None,
                }),
                What::Said { yes } => {
                    // A thread makes one call at a time.
                    let is_its =
                        |one: &&mut LatchUse| one.process == index && one.thread == event.thread;
                    if let Some(call) = self.latch.iter_mut().rev().find(is_its) {
                        (call.to, call.yes) = (Some(event.at), *yes);
                    }
                }
                What::Forked { held, answer } => {
                    process.forks.push((event.at, *held, answer.clone()));
                }
                What::Panicked { message } => process.panics.push(message.clone()),
                What::Ended { threads, sockets, close } => {
                    process.ending =
                        Some(Ending { threads: *threads, sockets: *sockets, close: close.clone() });
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
        let mut names: Vec<String> =
            self.attempts.iter().flat_map(|attempt| attempt.names.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// How many may have what this is for at the same time.
    pub(crate) fn most(&self, kind: Kind) -> usize {
        match kind {
            Kind::Permit => self.permits,
            Kind::Count => self.counted,
            _ => 1,
        }
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
            attempt.outcome =
                Outcome::Failed { at, error: error.clone(), message: message.clone() };
        }
        What::Looked { held: true, .. } => {
            attempt.revived |= attempt.doubted.is_some();
            attempt.believed = Some(at);
        }
        What::Looked { held: false, until } => drop(attempt.doubted.get_or_insert(*until)),
        What::Told { reason } => attempt.told = Some((at, reason.clone())),
        What::Signalled => attempt.signalled = true,
        What::Fires { occurrence } => {
            attempt.fired = Some(Fired { occurrence: *occurrence, number: None });
        }
        What::Runs { number } => {
            attempt.fired.iter_mut().for_each(|fired| fired.number = Some(*number));
        }
        What::Calls(verb) => attempt.verb = *verb,
        What::Says { words } => attempt.said.push((at, words.clone())),
        What::Resigned => attempt.resigned = Some(at),
        What::Wanted => attempt.wanted = Some(at),
        What::Gave { answer, until } => attempt.given = Some((at, *until, answer.clone())),
        What::Asks { .. }
        | What::Latch(_)
        | What::Said { .. }
        | What::Forked { .. }
        | What::Panicked { .. }
        | What::Ended { .. } => {}
    }
}
