//! Checks a history. It has no side effects, so each check is tested with handmade histories.

mod counted;
mod exclusion;
mod jobs;
mod latch;
mod leftovers;
mod losses;
mod order;
#[cfg(test)]
mod sample;
mod terms;
mod tokens;
mod waits;

use crate::event::{Nanos, millis};
use crate::history::{Attempt, History, Outcome};

/// One violation.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) check: &'static str,
    pub(crate) at: Nanos,
    pub(crate) text: String,
}

/// How long after a fault everything may still be slow: leases of dead holders must end, and
/// waiters must find the servers again.
fn settle(history: &History) -> Nanos {
    settles_within(history.lease)
}

pub(crate) const fn settles_within(lease: Nanos) -> Nanos {
    2 * lease + millis(2500)
}

/// The same after the machine stood still for this long: that ends no lease if it is short, and only
/// makes what is under way late.
fn settle_after(history: &History, stood_still: Nanos) -> Nanos {
    if stood_still < history.lease / 4 { stood_still + AT_ONCE } else { settle(history) }
}

/// All violations in a history, by time.
pub(crate) fn judge(history: &History) -> Vec<Violation> {
    let checks = [
        exclusion::check,
        tokens::check,
        losses::check,
        waits::check,
        order::check,
        latch::check,
        counted::check,
        jobs::check,
        terms::check,
        leftovers::check,
        leftovers::unexpected,
    ];
    let mut found: Vec<Violation> = checks.iter().flat_map(|check| check(history)).collect();
    found.sort_by_key(|violation| violation.at);
    found
}

/// From this load on a server may fail to answer within an I/O timeout.
const BUSY: f64 = 2.0;

/// The largest factor for a busy machine: with twice this a lost wake-up would look like a slow
/// one.
const MOST_LOAD: f64 = 1.6;

/// An I/O timeout. Two processes give up their requests to a stalled server no further apart than
/// this, because it answers neither.
const AT_ONCE: Nanos = millis(500);

/// When a server was stalled, if this attempt proves it: the machine was too busy, or another
/// process gave up waiting for a reply at about the same time, and the two share nothing but the
/// servers.
fn stalled(history: &History, attempt: &Attempt) -> Option<(Nanos, Nanos)> {
    let at = unanswered(attempt)?;
    let as_well = |other: &Attempt| {
        other.process != attempt.process
            && unanswered(other).is_some_and(|theirs| theirs.abs_diff(at) <= AT_ONCE)
    };
    (history.load > BUSY || history.attempts.iter().any(as_well)).then_some((attempt.asked, at))
}

/// When it failed because a server did not answer.
fn unanswered(attempt: &Attempt) -> Option<Nanos> {
    let Outcome::Failed { at, message, .. } = &attempt.outcome else { return None };
    let words = [
        "did not answer within",
        "due to statement timeout",
        "has not answered for",
        "acknowledged it in time",
        "reported its slots in time",
        "busy for the I/O timeout",
    ];
    words.iter().any(|words| message.contains(words)).then_some(*at)
}

/// The times in which faults may explain what happens, sorted and without overlaps: from each fault
/// until everything has recovered.
fn unrest(history: &History) -> Vec<(Nanos, Nanos)> {
    let rest = settle(history);
    let faults = history.faults.iter().map(|fault| (fault.from, fault.to));
    let stalls = history.attempts.iter().filter_map(|attempt| stalled(history, attempt));
    let settled = faults.chain(stalls).map(|(from, to)| (from, to.saturating_add(rest)));
    let stood_still = history
        .stalls
        .iter()
        .map(|(from, to)| (*from, to.saturating_add(settle_after(history, to - from))));
    let mut all: Vec<_> = settled.chain(stood_still).collect();
    all.sort_unstable();
    let mut merged: Vec<(Nanos, Nanos)> = Vec::new();
    for (from, to) in all {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// The longest part of a span that overlaps none of the others, which are sorted.
fn longest_rest(span: (Nanos, Nanos), others: &[(Nanos, Nanos)]) -> (Nanos, Nanos) {
    let (mut longest, mut from) = ((span.0, span.0), span.0);
    for (begin, end) in others.iter().copied().chain([(span.1, span.1)]) {
        let to = begin.min(span.1);
        if to > from && to - from > longest.1 - longest.0 {
            longest = (from, to);
        }
        from = from.max(end);
    }
    longest
}

/// The successful attempts on a name.
fn holds_of<'a>(history: &'a History, name: &str) -> Vec<&'a Attempt> {
    let name = name.to_owned();
    history
        .attempts
        .iter()
        .filter(|attempt| attempt.takes(&name) && attempt.got().is_some())
        .collect()
}

fn in_millis(span: Nanos) -> String {
    format!("{:.1} ms", span as f64 / 1e6)
}

#[test]
fn the_longest_rest_is_found_between_and_beside_others() {
    assert_eq!(longest_rest((10, 100), &[]), (10, 100));
    assert_eq!(longest_rest((10, 100), &[(0, 20), (30, 40)]), (40, 100));
    assert_eq!(longest_rest((10, 100), &[(40, 200)]), (10, 40));
    let (from, to) = longest_rest((10, 100), &[(0, 200)]);
    assert_eq!(from, to);
}
