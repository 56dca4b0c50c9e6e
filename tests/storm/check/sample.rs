//! Handmade histories for the tests of the checks.

use crate::event::{Kind, Nanos, millis};
use crate::fault::{Disturbance, Fault};
use crate::history::{Attempt, Ending, History, Outcome, Process};

/// Two processes, a lease of 3 s, no faults; ends after ten seconds.
pub(super) fn history(attempts: Vec<Attempt>) -> History {
    let process = |label: &str| Process {
        label: label.to_owned(),
        ending: Some(Ending { threads: 0, sockets: 0, close: "ok".to_owned() }),
        ..Process::default()
    };
    History {
        processes: vec![process("p0"), process("p1")],
        attempts,
        faults: Vec::new(),
        over: millis(10_000),
        permits: 2,
        lease: millis(3000),
        ..History::default()
    }
}

/// An attempt of thread 0 of a process: when it asked, got the lock and released it, in
/// milliseconds.
pub(super) fn held(
    process: usize,
    kind: Kind,
    name: &str,
    [asked, got, to]: [Nanos; 3],
    token: u64,
) -> Attempt {
    let mut attempt = Attempt::new(process, 0, kind, &[name], millis(asked));
    let tokens = if kind.is_exclusive() { vec![token] } else { Vec::new() };
    attempt.outcome = Outcome::Got { at: millis(got), tokens };
    attempt.believed = Some(millis(to));
    attempt.given = Some((millis(to), millis(to + 1), "ok".to_owned()));
    attempt
}

/// A fault on all names, in milliseconds.
pub(super) fn fault(fault: Fault, from: Nanos, to: Nanos, overlap: Option<Nanos>) -> Disturbance {
    let (from, to) = (millis(from), millis(to));
    let (names, target, forgets_counts) = (Vec::new(), String::new(), overlap.is_some());
    Disturbance { fault, from, to, names, overlap: overlap.map(millis), forgets_counts, target }
}
