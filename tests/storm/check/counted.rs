//! A permit without a lease comes back, once, unless its holder was killed.

use super::Violation;
use crate::event::Kind;
use crate::history::{Attempt, History, Outcome};

const CHECK: &str = "counted";

pub(super) fn check(history: &History) -> Vec<Violation> {
    let Some(left) = history.counted_left else { return Vec::new() };
    let lost = history
        .attempts
        .iter()
        .filter(|one| one.kind == Kind::Count && may_be_lost(history, one))
        .count();
    let all = i64::try_from(history.counted).unwrap_or(i64::MAX);
    let found = |text| vec![Violation { check: CHECK, at: history.over, text }];
    if left > all {
        return found(format!("{left} permits are free, of {all} that exist"));
    }
    if left + i64::try_from(lost).unwrap_or(i64::MAX) < all {
        return found(format!(
            "{left} of {all} permits are free, and {lost} may be lost with their processes"
        ));
    }
    Vec::new()
}

/// What a process has not given back, or may not have, comes back unless it was killed, or its
/// client says that it could not close cleanly.
fn may_be_lost(history: &History, attempt: &Attempt) -> bool {
    let is_given = match &attempt.outcome {
        Outcome::Got { .. } => attempt.given.as_ref().is_some_and(|(_, _, answer)| answer == "ok"),
        // It may have been granted to a call that has not learned of it.
        _ => false,
    };
    let process = &history.processes[attempt.process];
    !is_given && process.ending.as_ref().is_none_or(|ending| ending.close != "ok")
}

#[cfg(test)]
mod tests {
    use super::super::sample::{held, history};
    use super::*;
    use crate::event::millis;

    #[test]
    fn a_permit_that_does_not_come_back_is_found_and_one_that_comes_back_twice() {
        let permit = held(0, Kind::Count, "c", [1, 2, 3], 0);
        let mut history = history(vec![permit]);
        history.counted = 6;
        let found = |history: &History, left| {
            let history = History { counted_left: left, ..history.clone() };
            check(&history).len()
        };
        assert_eq!(found(&history, None), 0);
        assert_eq!([5, 6, 7].map(|left| found(&history, Some(left))), [1, 0, 1]);
        // The client repeats a release that failed.
        history.attempts[0].given = Some((millis(3), millis(4), "Unreachable".to_owned()));
        assert_eq!([5, 6, 7].map(|left| found(&history, Some(left))), [1, 0, 1]);
        // Unless it is killed, or cannot close.
        history.processes[0].ending.as_mut().unwrap().close = "Unreachable".to_owned();
        assert_eq!([4, 5, 6, 7].map(|left| found(&history, Some(left))), [1, 0, 0, 1]);
        history.processes[0].ending = None;
        assert_eq!([4, 5, 6, 7].map(|left| found(&history, Some(left))), [1, 0, 0, 1]);
        // A call that timed out may have been granted.
        history.attempts[0].outcome = Outcome::Vain { at: millis(2) };
        assert_eq!([4, 5].map(|left| found(&history, Some(left))), [1, 0]);
    }
}
