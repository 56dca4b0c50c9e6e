//! Nobody keeps waiting while the name is free, and nobody starves while it is handed on.
//!
//! Only the time that no fault can explain counts. A lost wake-up delays a waiter by the rest of
//! the holder's lease, so the limit is less than a lease.

use std::collections::HashMap;

use super::{MOST_LOAD, Violation, in_millis, longest_rest, unrest};
use crate::event::{Kind, Nanos, Verb, millis};
use crate::history::{Attempt, History};

const CHECK: &str = "waits";

/// The limit while others take turns.
const STARVES: Nanos = millis(15_000);

/// The limit while the name is free; a wait that ends at once proves nothing.
fn longest_while_free(history: &History) -> Nanos {
    (history.lease as f64 / 2.0 * history.load.min(MOST_LOAD)) as Nanos
}

type Spans = Vec<(Nanos, Nanos)>;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let (unrest, taken) = (unrest(history), taken(history));
    for attempt in history.attempts.iter().filter(|attempt| attempt.verb.takes()) {
        let end = end(history, attempt);
        // One that has resigned lets others lead for so long.
        let stands_back = if attempt.verb == Verb::StandsBack { history.lease } else { 0 };
        let span = ((attempt.asked + stands_back).min(end), end);
        let (from, to) = longest_rest(span, &unrest);
        if to - from <= longest_while_free(history) {
            continue;
        }
        let mut report = |what: String| {
            let (who, kind, names) = (history.who(attempt), attempt.kind, &attempt.names);
            found.push(Violation {
                check: CHECK,
                at: to,
                text: format!("{who} waited for {kind:?} {names:?} {what}"),
            });
        };
        let of_names = attempt.names.iter().flat_map(|name| taken[name.as_str()].iter().copied());
        let busy = joined(of_names.chain(unrest.iter().copied()).collect());
        let free = longest_rest(span, &busy);
        if free.1 - free.0 > longest_while_free(history) {
            report(format!("for {} while it was free", in_millis(free.1 - free.0)));
        } else if to - from > (STARVES as f64 * history.load) as Nanos && can_starve(attempt.kind) {
            report(format!("for {} while others had it", in_millis(to - from)));
        }
    }
    found
}

/// A multi-lock needs all its names to be free at once; a permit goes to whoever asks first.
fn can_starve(kind: Kind) -> bool {
    !matches!(kind, Kind::Multi | Kind::Permit | Kind::Count)
}

/// When it stopped waiting, at the latest when its process or the run ended.
fn end(history: &History, attempt: &Attempt) -> Nanos {
    let killed = history.processes[attempt.process].killed;
    attempt.answered().or(killed).unwrap_or(history.over).max(attempt.asked)
}

/// When each name may have been held: from the reply that granted it to the end of the unlock, or
/// of the lease if it was never released.
fn taken(history: &History) -> HashMap<String, Spans> {
    let of_name = |name: String| {
        let holds: Vec<_> =
            history.attempts.iter().filter(|attempt| attempt.takes(&name)).collect();
        let most = holds.iter().map(|hold| history.most(hold.kind)).max().unwrap_or(1);
        let spans: Spans = holds.into_iter().filter_map(|hold| held(history, hold)).collect();
        (name, times_of(most, &spans))
    };
    let mut taken: HashMap<String, Spans> = history.names().into_iter().map(of_name).collect();
    // Multi-locks can block each other in a chain as long as the number of names.
    for _ in 0..if history.queues_all { 3 } else { 0 } {
        let before = taken.clone();
        for waits in history.attempts.iter().filter(|attempt| attempt.names.len() > 1) {
            let span = (waits.asked, end(history, waits));
            for (name, other) in waits
                .names
                .iter()
                .flat_map(|name| waits.names.iter().map(move |other| (name, other)))
            {
                let in_its_way =
                    before[other].iter().map(|(from, to)| ((*from).max(span.0), (*to).min(span.1)));
                let blocks = taken.get_mut(name).expect("all names are listed");
                blocks.extend(in_its_way.filter(|(from, to)| from < to && name != other));
            }
        }
        for spans in taken.values_mut() {
            *spans = joined(std::mem::take(spans));
        }
    }
    taken
}

/// Sorts the spans and merges overlaps.
fn joined(spans: Spans) -> Spans {
    times_of(1, &spans)
}

fn held(history: &History, attempt: &Attempt) -> Option<(Nanos, Nanos)> {
    let from = attempt.got()?;
    let last = attempt.believed.unwrap_or(from);
    // A hold that was lost or never released may last at the store for one more lease.
    let never_given = attempt.given.as_ref().is_none_or(|given| given.2 != "ok");
    let to = attempt.given.as_ref().map_or(last, |given| given.1);
    let lease = attempt.fixed.unwrap_or(0).max(history.lease);
    if attempt.kind == Kind::Count && never_given {
        return Some((from, Nanos::MAX));
    }
    Some((from, if never_given { to.max(last).saturating_add(lease + millis(2500)) } else { to }))
}

/// When at least `count` of the spans overlap.
fn times_of(count: usize, spans: &[(Nanos, Nanos)]) -> Spans {
    // At the same instant an end comes before a beginning.
    let mut changes: Vec<(Nanos, i32)> =
        spans.iter().flat_map(|(from, to)| [(*from, 1), (*to, -1)]).collect();
    changes.sort_unstable();
    let (mut times, mut now, mut since) = (Vec::new(), 0, None);
    for (at, change) in changes {
        now += change;
        match since {
            None if now >= count as i32 => since = Some(at),
            Some(from) if now < count as i32 => {
                times.push((from, at));
                since = None;
            }
            _ => {}
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::super::sample::{fault, held as hold, history};
    use super::*;
    use crate::fault::Fault;
    use crate::history::Outcome;

    fn waiter(asked: Nanos, got: Nanos) -> Attempt {
        hold(1, Kind::Plain, "a", [asked, got, got + 1], 9)
    }

    fn count(attempts: Vec<Attempt>) -> usize {
        check(&history(attempts)).len()
    }

    #[test]
    fn a_waiter_that_sleeps_while_it_is_free_is_found() {
        let before = hold(0, Kind::Plain, "a", [0, 1, 100], 1);
        assert_eq!(count(vec![before.clone(), waiter(50, 120)]), 0);
        assert_eq!(count(vec![before.clone(), waiter(50, 1900)]), 1);
        // Another client held it in between.
        let between = hold(0, Kind::Plain, "a", [900, 1000, 1800], 2);
        assert_eq!(count(vec![before.clone(), between, waiter(50, 1900)]), 0);
        // A wait that times out or never ends is just as bad.
        let mut vain = waiter(50, 1900);
        vain.outcome = Outcome::Vain { at: millis(1900) };
        assert_eq!(count(vec![before.clone(), vain.clone()]), 1);
        vain.outcome = Outcome::Open;
        assert_eq!(count(vec![before, vain]), 1);
    }

    #[test]
    fn a_fault_explains_it_for_its_time_only() {
        let mut history =
            history(vec![hold(0, Kind::Plain, "a", [0, 1, 100], 1), waiter(50, 12_000)]);
        history.faults = vec![fault(Fault::Cut, 60, 70, None)];
        assert_eq!(check(&history)[0].at, millis(12_000));
        history.attempts[1] = waiter(50, 9500);
        history.faults = vec![fault(Fault::Cut, 60, 1000, None)];
        assert_eq!(check(&history).len(), 0);
    }

    #[test]
    fn a_machine_that_stood_still_explains_it_for_its_time_only() {
        let mut history =
            history(vec![hold(0, Kind::Plain, "a", [0, 1, 100], 1), waiter(50, 9500)]);
        assert_eq!(check(&history).len(), 1);
        history.stalls = vec![(millis(60), millis(1000))];
        assert_eq!(check(&history).len(), 0);
        history.attempts[1] = waiter(50, 12_000);
        assert_eq!(check(&history).len(), 1);
        // For a short time only if it was short.
        (history.attempts[1], history.stalls) = (waiter(50, 2000), vec![(millis(60), millis(400))]);
        assert_eq!(check(&history).len(), 0);
        history.attempts[1] = waiter(50, 9500);
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn what_was_lost_or_never_given_up_stands_for_a_lease() {
        let mut killed = hold(0, Kind::Plain, "a", [0, 1, 100], 1);
        killed.given = None;
        assert_eq!(count(vec![killed.clone(), waiter(50, 5500)]), 0);
        assert_eq!(count(vec![killed, waiter(50, 7500)]), 1);
    }

    #[test]
    fn a_permit_is_free_while_not_all_are_taken() {
        let permit = |asked, got, to| hold(0, Kind::Permit, "s", [asked, got, to], 0);
        let waits = hold(1, Kind::Permit, "s", [100, 2000, 2001], 0);
        assert_eq!(count(vec![permit(0, 1, 1990), permit(0, 1, 1990), waits.clone()]), 0);
        assert_eq!(count(vec![permit(0, 1, 1990), permit(0, 1, 300), waits]), 1);
    }

    #[test]
    fn where_all_queue_a_waiting_multi_lock_is_in_the_way() {
        let mut both = hold(0, Kind::Multi, "a", [150, 5000, 5001], 5);
        both.names.push("b".to_owned());
        let mut of_b = hold(0, Kind::Plain, "b", [0, 1, 4900], 1);
        of_b.thread = 1;
        let mut history = history(vec![of_b, both, waiter(200, 5010)]);
        assert_eq!(check(&history).len(), 1, "it is free, and goes to whoever asks");
        history.queues_all = true;
        assert_eq!(check(&history).len(), 0);
    }

    #[test]
    fn a_busy_machine_is_allowed_more() {
        let mut history =
            history(vec![hold(0, Kind::Plain, "a", [0, 1, 100], 1), waiter(50, 1900)]);
        assert_eq!(check(&history).len(), 1);
        history.load = 9.0;
        assert_eq!(check(&history).len(), 0);
        history.attempts[1] = waiter(50, 2900);
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn who_starves_is_found() {
        let turn =
            |n: Nanos| hold(0, Kind::Plain, "a", [n * 100, n * 100 + 1, n * 100 + 90], n + 1);
        let turns = |count| (0..count).map(turn).collect::<Vec<_>>();
        assert_eq!(count([turns(90), vec![waiter(1, 9000)]].concat()), 0);
        assert_eq!(count([turns(170), vec![waiter(1, 17_000)]].concat()), 1);
    }

    #[test]
    fn times_are_counted() {
        assert_eq!(times_of(1, &[(1, 5), (4, 9), (20, 21)]), [(1, 9), (20, 21)]);
        assert_eq!(times_of(2, &[(1, 5), (4, 9), (20, 21)]), [(4, 5)]);
        assert_eq!(times_of(1, &[(1, 5), (5, 9)]), [(1, 5), (5, 9)]);
    }
}
