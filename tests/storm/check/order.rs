//! A fair lock is granted in the order of arrival, among the calls that waited undisturbed.

use super::{MOST_LOAD, Violation, holds_of, in_millis, unrest};
use crate::event::{Kind, Nanos, millis};
use crate::history::{Attempt, History};

const CHECK: &str = "order";

/// How much earlier a call must begin for its order to be certain: on a busy machine two requests
/// may be in transit at the same time.
const AHEAD: Nanos = millis(400);

pub(super) fn check(history: &History) -> Vec<Violation> {
    history.names().iter().flat_map(|name| of_name(history, name)).collect()
}

fn of_name(history: &History, name: &str) -> Vec<Violation> {
    let unrest = unrest(history);
    let waited_in_peace = |hold: &&Attempt| {
        let (asked, got) = (hold.asked, hold.got().unwrap_or(hold.asked));
        !unrest.iter().any(|(from, to)| *from < got && asked < *to)
    };
    let holds: Vec<&Attempt> = holds_of(history, name)
        .into_iter()
        .filter(|hold| hold.kind == Kind::Fair)
        .filter(waited_in_peace)
        .collect();
    let mut found = Vec::new();
    let ahead = (AHEAD as f64 * history.load.min(MOST_LOAD)) as Nanos;
    for early in &holds {
        let overtaken = |late: &&&Attempt| {
            // Compares tokens, which are drawn where the order is decided.
            early.asked + ahead < late.asked && late.token_of(name) < early.token_of(name)
        };
        if let Some(late) = holds.iter().find(overtaken) {
            let before = in_millis(late.asked - early.asked);
            let text = format!(
                "{} asked for {name} {before} before {}, and got it later (tokens {:?} and {:?})",
                history.who(early),
                history.who(late),
                early.token_of(name),
                late.token_of(name)
            );
            found.push(Violation { check: CHECK, at: late.got().unwrap_or(late.asked), text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::sample::{fault, held, history};
    use super::*;
    use crate::fault::Fault;

    fn turn(process: usize, asked: Nanos, got: Nanos, token: u64) -> Attempt {
        held(process, Kind::Fair, "f", [asked, got, got + 5], token)
    }

    fn count(attempts: Vec<Attempt>) -> usize {
        check(&history(attempts)).len()
    }

    #[test]
    fn one_that_is_overtaken_is_found() {
        let holder = turn(0, 0, 1, 1);
        assert_eq!(count(vec![holder.clone(), turn(1, 10, 2000, 2), turn(0, 700, 2100, 3)]), 0);
        assert_eq!(count(vec![holder.clone(), turn(1, 10, 2100, 3), turn(0, 700, 2000, 2)]), 1);
        // Simultaneous calls have no order.
        assert_eq!(count(vec![holder.clone(), turn(1, 10, 2100, 3), turn(0, 100, 2000, 2)]), 0);
        // A plain lock has no order.
        let plain = |mut attempt: Attempt| {
            attempt.kind = Kind::Plain;
            attempt
        };
        assert_eq!(
            count(vec![holder, plain(turn(1, 10, 2100, 3)), plain(turn(0, 700, 2000, 2))]),
            0
        );
    }

    #[test]
    fn one_that_was_disturbed_may_have_lost_its_place() {
        let mut history =
            history(vec![turn(0, 0, 1, 1), turn(1, 10, 2100, 3), turn(0, 700, 2000, 2)]);
        history.faults = vec![fault(Fault::Stop, 100, 110, None)];
        assert_eq!(check(&history).len(), 0);
        history.faults = vec![fault(Fault::Stop, 5000, 5010, None)];
        assert_eq!(check(&history).len(), 1);
    }
}
