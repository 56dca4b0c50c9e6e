//! After the success of an occurrence nobody begins that one, or an earlier one; nobody hears of a
//! success before somebody can have had it; and attempts are counted.
//!
//! The order is that of the fencing tokens. The lease itself is checked like any other lock.

use std::collections::HashMap;

use super::Violation;
use crate::fault::Disturbance;
use crate::history::{Attempt, Fired, History};

const CHECK: &str = "jobs";

type Call<'a> = (&'a Attempt, &'a Fired);

pub(super) fn check(history: &History) -> Vec<Violation> {
    let calls: Vec<Call<'_>> =
        history.attempts.iter().filter_map(|call| Some((call, call.fired.as_ref()?))).collect();
    let mut runs = calls.clone();
    runs.retain(|(run, _)| run.got().is_some());
    runs.sort_by_key(token);
    [after_success(history, &runs), uncounted(history, &runs), untrue(history, &calls, &runs)]
        .concat()
}

fn token((run, _): &Call<'_>) -> Option<u64> {
    run.token_of(run.names.first()?)
}

fn found(history: &History, (call, fired): Call<'_>, text: &str) -> Violation {
    let (who, at) = (history.who(call), call.answered().unwrap_or(call.asked));
    let text = format!("{who} asked for the occurrence {}, and {text}", fired.occurrence);
    Violation { check: CHECK, at, text }
}

/// Whether something that the store knew after the one had asked may be unknown when the other runs.
fn is_forgotten(
    history: &History,
    (one, _): Call<'_>,
    (other, _): Call<'_>,
    by: impl Fn(&Disturbance) -> bool,
) -> bool {
    let until = other.got().unwrap_or(history.over);
    history.faults.iter().any(|fault| by(fault) && fault.from < until && fault.to > one.asked)
}

/// A record of a success waits for replicas as a grant does.
fn forgets_grants(fault: &Disturbance) -> bool {
    fault.overlap.is_some() && fault.names.is_empty()
}

/// Runs of what was done, or of what is older.
fn after_success(history: &History, runs: &[Call<'_>]) -> Vec<Violation> {
    let (mut bad, mut newest) = (Vec::new(), None::<Call<'_>>);
    for run in runs.iter().copied() {
        newest = newest.filter(|done| !is_forgotten(history, *done, run, forgets_grants));
        if let Some(done) = newest.filter(|done| run.1.occurrence <= done.1.occurrence) {
            let (number, who) = (done.1.occurrence, history.who(done.0));
            let text = format!("began it after {who} had done {number}: {:?}", run.1.said);
            bad.push(found(history, run, &text));
        }
        let is_newest = newest.is_none_or(|done| run.1.occurrence > done.1.occurrence);
        if is_newest && said(&run) == Some("done") {
            newest = Some(run);
        }
    }
    bad
}

fn said<'a>((_, fired): &Call<'a>) -> Option<&'a str> {
    fired.said.as_ref().map(|(_, word)| word.as_str())
}

/// Attempts whose number is not larger than that of an earlier one.
fn uncounted(history: &History, runs: &[Call<'_>]) -> Vec<Violation> {
    let (mut bad, mut last) = (Vec::new(), HashMap::<u64, Call<'_>>::new());
    for run in runs.iter().copied() {
        let before = last.insert(run.1.occurrence, run);
        let before = before.filter(|one| {
            run.1.number.is_some()
                && run.1.number <= one.1.number
                && !is_forgotten(history, *one, run, |fault| fault.forgets_counts)
        });
        if let Some(before) = before {
            let (number, who) = (run.1.number, history.who(before.0));
            let text = format!("was attempt {number:?} after {:?} of {who}", before.1.number);
            bad.push(found(history, run, &text));
        }
    }
    bad
}

/// Calls that were told of a success that nobody can have had.
fn untrue(history: &History, calls: &[Call<'_>], runs: &[Call<'_>]) -> Vec<Violation> {
    let is_untrue = |call: &Call<'_>| {
        let Some((told, word)) = &call.1.said else { return false };
        let is_meant = |occurrence: u64| match word.as_str() {
            "already" => occurrence == call.1.occurrence,
            _ => occurrence >= call.1.occurrence,
        };
        let explains = |run: &Call<'_>| {
            is_meant(run.1.occurrence)
                && run.0.got().is_some_and(|began| began < *told)
                && said(run) != Some("failed")
        };
        ["already", "passed"].contains(&word.as_str()) && !runs.iter().any(explains)
    };
    let text = "was told of a success that nobody had";
    calls.iter().filter(|call| is_untrue(call)).map(|call| found(history, *call, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::{fault, held, history};
    use super::*;
    use crate::event::{Kind, Nanos, millis};
    use crate::fault::Fault;
    use crate::history::Outcome;

    /// A run of an occurrence that began and ended at these times.
    fn ran(occurrence: u64, number: u32, [got, to]: [Nanos; 2], word: &str) -> Attempt {
        let mut run = held(0, Kind::Job, "j", [got, got, to], got);
        let said = Some((millis(to), word.to_owned()));
        run.fired = Some(Fired { occurrence, number: Some(number), said });
        run
    }

    /// A call that ran nothing.
    fn told(occurrence: u64, at: Nanos, word: &str) -> Attempt {
        let mut call = ran(occurrence, 1, [at, at], word);
        call.outcome = Outcome::Vain { at: millis(at) };
        call.fired.as_mut().unwrap().number = None;
        call
    }

    fn count(calls: Vec<Attempt>) -> usize {
        check(&history(calls)).len()
    }

    #[test]
    fn who_begins_after_a_success_is_found() {
        let done = || ran(7, 1, [10, 20], "done");
        assert_eq!(count(vec![done(), ran(8, 1, [30, 40], "done")]), 0);
        assert_eq!(count(vec![done(), ran(7, 2, [30, 40], "done")]), 1, "two successes");
        assert_eq!(count(vec![done(), ran(7, 2, [30, 40], "failed")]), 1, "whatever becomes of it");
        assert_eq!(count(vec![done(), ran(6, 1, [30, 40], "done")]), 1, "an earlier one");
        // One that was not recorded may be done again, and so may one that failed.
        for word in ["unrecorded", "failed"] {
            assert_eq!(count(vec![ran(7, 1, [10, 20], word), ran(7, 2, [30, 40], "done")]), 0);
        }
    }

    #[test]
    fn what_the_store_forgot_may_run_again() {
        let again = |overlap, forgets_counts| {
            let calls = vec![ran(7, 1, [10, 20], "done"), ran(7, 1, [70, 80], "done")];
            let mut history = history(calls);
            history.faults = vec![fault(Fault::Failover, 50, 60, overlap)];
            history.faults[0].forgets_counts = forgets_counts;
            check(&history).len()
        };
        assert_eq!(again(Some(1000), true), 0);
        assert_eq!(again(None, true), 1, "a success waits for replicas");
        assert_eq!(again(None, false), 2, "and so does everything in a file");
    }

    #[test]
    fn attempts_that_are_not_counted_are_found() {
        let runs = |second| vec![ran(7, 1, [10, 20], "failed"), ran(7, second, [30, 40], "done")];
        assert_eq!([1, 2, 3].map(|second| count(runs(second))), [1, 0, 0]);
        // Each occurrence has its own.
        assert_eq!(count(vec![ran(7, 2, [10, 20], "failed"), ran(8, 1, [30, 40], "done")]), 0);
    }

    #[test]
    fn a_success_that_nobody_had_is_found() {
        for word in ["done", "unrecorded"] {
            let done = || ran(7, 1, [10, 20], word);
            assert_eq!(count(vec![done(), told(7, 30, "already"), told(6, 30, "passed")]), 0);
            assert_eq!(count(vec![done(), told(8, 30, "passed")]), 1);
            assert_eq!(count(vec![done(), told(6, 30, "already")]), 1);
            assert_eq!(count(vec![done(), told(7, 5, "already")]), 1, "before it began");
            assert_eq!(count(vec![done(), told(8, 30, "running")]), 0);
        }
        assert_eq!(count(vec![ran(7, 1, [10, 20], "failed"), told(7, 30, "already")]), 1);
        // Its process may have been killed between the record and the answer.
        let mut killed = ran(7, 1, [10, 20], "done");
        killed.fired.as_mut().unwrap().said = None;
        assert_eq!(count(vec![killed, told(7, 30, "already")]), 0);
    }
}
