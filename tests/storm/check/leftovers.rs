//! What processes leave behind, and what must never happen.

use super::{Violation, settle, unrest};
use crate::history::{History, Outcome};

/// Checks the threads and sockets of each process at its end, and that it ended at all.
pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for process in history.processes.iter().filter(|process| process.killed.is_none()) {
        let mut bad = |text: String| {
            let text = format!("{} {text}", process.label);
            found.push(Violation { check: "leaks", at: history.over, text });
        };
        match &process.ending {
            None => bad("did not end".to_owned()),
            Some(ending) => {
                if ending.threads > 0 {
                    bad(format!("ended with {} threads too many", ending.threads));
                }
                if ending.sockets > 0 {
                    bad(format!("ended with {} sockets too many", ending.sockets));
                }
            }
        }
    }
    found
}

/// Finds panics, errors that no fault explains, and a run in which nothing happened.
pub(super) fn unexpected(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut bad = |check, at, text| found.push(Violation { check, at, text });
    for process in &history.processes {
        for message in &process.panics {
            bad("panics", history.over, format!("{}: {message}", process.label));
        }
    }
    let unrest = unrest(history);
    for attempt in &history.attempts {
        let Outcome::Failed { at, error, message } = &attempt.outcome else { continue };
        let explained = unrest.iter().any(|(from, to)| *from < *at && attempt.asked < *to);
        // These are caused by `stop_waiting` and by tokens.
        let wanted = error == "Cancelled" || (error == "Closed" && *at >= history.over);
        let never = ["InvalidInput", "Unsupported", "Closed", "Denied", "Forked", "Tls"]
            .contains(&error.as_str());
        // The reply took longer than a very short lease.
        let short = attempt.fixed.is_some() && message.contains("after its lease had ended");
        if !wanted && !short && (never || !explained) {
            let text = format!(
                "{} with {:?} {:?}: {error}: {message}",
                history.who(attempt),
                attempt.kind,
                attempt.names
            );
            bad("errors", *at, text);
        }
    }
    // A run without acquisitions finds no bugs.
    let last = history.faults.iter().map(|fault| fault.to + settle(history)).max().unwrap_or(0);
    if !history.attempts.iter().any(|attempt| attempt.got().is_some_and(|at| at > last)) {
        bad("progress", history.over, "nothing was acquired after the last fault".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::sample::{fault, held, history};
    use super::*;
    use crate::event::{Kind, millis};
    use crate::fault::Fault;
    use crate::history::Ending;

    #[test]
    fn what_a_process_leaves_is_found() {
        let mut history = history(Vec::new());
        assert_eq!(check(&history).len(), 0);
        history.processes[0].ending =
            Some(Ending { threads: 1, sockets: 2, close: "ok".to_owned() });
        assert_eq!(check(&history).len(), 2);
        history.processes[0].ending = None;
        assert_eq!(check(&history).len(), 1);
        history.processes[0].killed = Some(1);
        assert_eq!(check(&history).len(), 0);
    }

    #[test]
    fn errors_without_a_fault_are_found() {
        let fine = held(0, Kind::Plain, "a", [9000, 9001, 9002], 1);
        let mut failed = held(0, Kind::Plain, "a", [100, 110, 111], 1);
        let count = |history: &History| unexpected(history).len();
        let fails = |error: &str| Outcome::Failed {
            at: millis(110),
            error: error.to_owned(),
            message: "no".to_owned(),
        };
        failed.outcome = fails("Unreachable");
        let mut history = history(vec![fine, failed]);
        assert_eq!(count(&history), 1);
        history.faults = vec![fault(Fault::Cut, 105, 106, None)];
        history.faults[0].to = millis(106);
        history.lease = millis(500);
        assert_eq!(count(&history), 0);
        history.faults.clear();
        history.attempts[1].outcome = Outcome::Failed {
            at: millis(110),
            error: "Unreachable".to_owned(),
            message: "127.0.0.1:1 did not answer within 500ms".to_owned(),
        };
        assert_eq!(count(&history), 1);
        history.load = 3.0;
        assert_eq!(count(&history), 0);
        history.load = 1.0;
        let mut other = history.attempts[1].clone();
        history.attempts.push(other.clone());
        assert_eq!(count(&history), 2, "of one process");
        history.attempts.pop();
        other.process = 1;
        history.attempts.push(other);
        assert_eq!(count(&history), 0, "the server did not answer anybody");
        let Outcome::Failed { at, .. } = &mut history.attempts[2].outcome else { unreachable!() };
        *at += millis(501);
        assert_eq!(count(&history), 2, "at another time");
        history.attempts.pop();
        history.attempts[1].outcome = fails("InvalidInput");
        assert_eq!(count(&history), 1);
        history.attempts[1].outcome = fails("Cancelled");
        assert_eq!(count(&history), 0);
    }

    #[test]
    fn a_fixed_lease_may_be_too_short_for_its_answer() {
        let mut late = held(0, Kind::Write, "a", [100, 400, 401], 1);
        late.outcome = Outcome::Failed {
            at: millis(400),
            error: "Unreachable".to_owned(),
            message: "the lock was granted, but the answer came after its lease had ended"
                .to_owned(),
        };
        let fine = held(0, Kind::Plain, "a", [9000, 9001, 9002], 1);
        let mut history = history(vec![fine, late]);
        assert_eq!(unexpected(&history).len(), 1);
        history.attempts[1].fixed = Some(millis(200));
        assert_eq!(unexpected(&history).len(), 0);
    }

    #[test]
    fn a_panic_is_found() {
        let mut history = history(vec![held(0, Kind::Plain, "a", [9000, 9001, 9002], 1)]);
        assert_eq!(unexpected(&history).len(), 0);
        history.processes[1].panics.push("index out of bounds".to_owned());
        assert_eq!(unexpected(&history).len(), 1);
    }

    #[test]
    fn a_run_in_which_nothing_happens_after_the_faults_is_found() {
        let mut history = history(vec![held(0, Kind::Plain, "a", [1, 2, 3], 1)]);
        assert_eq!(unexpected(&history).len(), 0);
        history.faults = vec![fault(Fault::Cut, 4, 5, None)];
        assert_eq!(unexpected(&history).len(), 1);
    }
}
