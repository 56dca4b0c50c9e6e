//! A loss is reported in every possible way, and nothing else is reported as one.

use super::{Violation, in_millis};
use crate::event::{Nanos, millis};
use crate::history::{Attempt, History};

const CHECK: &str = "loss told";

/// How long after the unlock a callback may run: it has a thread of its own.
const LATE: Nanos = millis(5000);

fn is_loss(answer: &str) -> bool {
    ["Lost", "Closed"].contains(&answer)
}

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for attempt in history.attempts.iter().filter(|attempt| attempt.got().is_some()) {
        let at = attempt
            .doubted
            .or(attempt.given.as_ref().map(|given| given.1))
            .unwrap_or(attempt.asked);
        for wrong in faults_of(history, attempt) {
            let text = format!(
                "{} with {:?} {:?}: {wrong}",
                history.who(attempt),
                attempt.kind,
                attempt.names
            );
            found.push(Violation { check: CHECK, at, text });
        }
    }
    for process in &history.processes {
        for (at, held, answer) in
            process.forks.iter().filter(|(_, held, answer)| *held || answer != "Some(Forked)")
        {
            let text = format!(
                "a fork of {} holds it: {held}; an acquire returned {answer}",
                process.label
            );
            found.push(Violation { check: "forks", at: *at, text });
        }
    }
    found
}

fn faults_of(history: &History, attempt: &Attempt) -> Vec<String> {
    let mut wrong = Vec::new();
    if attempt.revived {
        wrong.push("is_held() was true after it had been false".to_owned());
    }
    // It was killed before it released, or the run ended.
    let Some((_, until, answer)) = &attempt.given else { return wrong };
    let is_lost = |doubted| attempt.resigned.is_none_or(|resigned| doubted < resigned);
    if attempt.doubted.is_some_and(is_lost) && !is_loss(answer) {
        wrong.push(format!("it was lost, and unlock returned {answer}"));
    }
    match &attempt.told {
        Some((_, reason)) if !is_loss(answer) => {
            wrong.push(format!("the callback reported {reason}, and unlock {answer}"));
        }
        Some((at, _)) if *at > until + (LATE as f64 * history.load) as Nanos => {
            wrong.push(format!("the callback ran {} after the unlock", in_millis(at - until)));
        }
        None if is_loss(answer) && had_time(history, attempt, *until) => {
            wrong.push(format!("unlock returned {answer}, and the callback was not called"));
        }
        _ => {}
    }
    if attempt.signalled && !is_loss(answer) {
        wrong.push(format!("its channel was ready, and unlock returned {answer}"));
    }
    wrong
}

/// Whether its process lived long enough to run a callback, undisturbed.
fn had_time(history: &History, attempt: &Attempt, until: Nanos) -> bool {
    let process = &history.processes[attempt.process];
    process.killed.is_none_or(|killed| killed > until + LATE)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{held, history};
    use super::*;
    use crate::event::Kind;

    fn lost(answer: &str, told: Option<Nanos>) -> Attempt {
        let mut attempt = held(0, Kind::Plain, "a", [1, 2, 10], 1);
        attempt.doubted = Some(millis(20));
        attempt.given = Some((millis(30), millis(31), answer.to_owned()));
        attempt.told = told.map(|at| (millis(at), "NotRenewed".to_owned()));
        attempt
    }

    fn count(attempt: Attempt) -> usize {
        check(&history(vec![attempt])).len()
    }

    #[test]
    fn a_loss_that_nobody_tells_is_found() {
        assert_eq!(count(lost("Lost", Some(25))), 0);
        assert_eq!(count(lost("Closed", Some(32))), 0);
        assert_eq!(count(lost("ok", None)), 1);
        assert_eq!(count(lost("Lost", None)), 1);
        assert_eq!(count(lost("Lost", Some(9000))), 1);
    }

    #[test]
    fn a_loss_that_is_none_is_found() {
        let fine = held(0, Kind::Plain, "a", [1, 2, 10], 1);
        assert_eq!(count(fine.clone()), 0);
        let told = Attempt { told: Some((millis(5), "TakenAway".to_owned())), ..fine.clone() };
        assert_eq!(count(told), 1);
        assert_eq!(count(Attempt { signalled: true, ..fine.clone() }), 1);
        assert_eq!(count(Attempt { revived: true, ..fine }), 1);
    }

    #[test]
    fn the_dead_tell_nothing() {
        let mut killed = history(vec![lost("Lost", None)]);
        killed.processes[0].killed = Some(millis(40));
        assert_eq!(check(&killed).len(), 0);
        killed.attempts[0].given = None;
        assert_eq!(check(&killed).len(), 0);
    }

    #[test]
    fn a_fork_that_holds_something_is_found() {
        let forked = |held: bool, answer: &str| {
            let mut history = history(Vec::new());
            history.processes[0].forks.push((1, held, answer.to_owned()));
            check(&history).len()
        };
        assert_eq!(forked(false, "Some(Forked)"), 0);
        assert_eq!(forked(true, "not-asked"), 1);
        assert_eq!(forked(false, "None"), 1);
    }
}
