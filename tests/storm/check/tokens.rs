//! The fencing tokens of a name increase in the order in which its holders believed, across all
//! faults.

use super::exclusion::is_excused;
use super::{Violation, holds_of};
use crate::history::{Attempt, History};

const CHECK: &str = "tokens";

pub(super) fn check(history: &History) -> Vec<Violation> {
    history.names().iter().flat_map(|name| of_name(history, name)).collect()
}

/// Only holders that believed count: a grant whose reply was late may be older than it looks.
fn of_name(history: &History, name: &str) -> Vec<Violation> {
    let mut holds: Vec<&Attempt> =
        holds_of(history, name).into_iter().filter(|hold| hold.belief().is_some()).collect();
    holds.retain(|hold| hold.kind.is_exclusive());
    let mut found: Vec<Violation> = Vec::new();
    let mut bad = |at, text| found.push(Violation { check: CHECK, at, text });
    let mut by_end = holds.clone();
    by_end.sort_by_key(|hold| hold.belief().map(|belief| belief.1));
    holds.sort_by_key(|hold| hold.got());
    let (mut ended, mut largest) = (by_end.into_iter().peekable(), None::<(u64, &Attempt)>);
    for hold in holds {
        let from = hold.got().expect("it believed");
        let Some(token) = hold.token_of(name) else {
            bad(from, format!("{} has {name} without a token", history.who(hold)));
            continue;
        };
        while let Some(before) =
            ended.next_if(|before| before.belief().is_some_and(|(_, to)| to < from))
        {
            if let Some(token) =
                before.token_of(name).filter(|token| largest.is_none_or(|(most, _)| *token > most))
            {
                largest = Some((token, before));
            }
        }
        // Its lock was taken away while the reply that grants it was on its way.
        let is_late = |before| is_excused(history, hold, before);
        let larger = largest.filter(|(most, before)| token <= *most && !is_late(before));
        if let Some((most, before)) = larger {
            let (after, before) = (history.who(hold), history.who(before));
            bad(
                from,
                format!("{after} has {name} with the token {token} after {before} had {most}"),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::sample::{fault, held, history};
    use super::*;
    use crate::event::Kind;
    use crate::fault::Fault;
    use crate::history::Outcome;

    fn count(tokens: [u64; 3]) -> usize {
        let hold = |n: u64| {
            held(n as usize % 2, Kind::Plain, "a", [n * 10, n * 10, n * 10 + 5], tokens[n as usize])
        };
        check(&history((0..3).map(hold).collect())).len()
    }

    #[test]
    fn tokens_that_do_not_grow_are_found() {
        assert_eq!(count([5, 6, 9]), 0);
        assert_eq!(count([5, 5, 9]), 1);
        assert_eq!(count([5, 4, 9]), 1);
        // Not only compared with its predecessor.
        assert_eq!(count([7, 8, 7]), 1);
        assert_eq!(count([9, 4, 5]), 2);
    }

    #[test]
    fn a_hold_without_a_token_is_found() {
        let mut bare = held(0, Kind::Fair, "a", [1, 2, 3], 4);
        bare.outcome = Outcome::Got { at: 2_000_000, tokens: Vec::new() };
        assert_eq!(check(&history(vec![bare])).len(), 1);
        assert_eq!(check(&history(vec![held(0, Kind::Read, "a", [1, 2, 3], 0)])).len(), 0);
    }

    #[test]
    fn a_grant_that_was_taken_away_before_its_reply_came_is_older_than_it_looks() {
        let late = held(0, Kind::Plain, "a", [40, 66, 70], 5);
        let mut history = history(vec![late, held(1, Kind::Plain, "a", [56, 62, 64], 9)]);
        assert_eq!(check(&history).len(), 1);
        history.faults = vec![fault(Fault::Force, 50, 60, Some(1000))];
        assert_eq!(check(&history).len(), 0);
    }

    #[test]
    fn one_that_never_believed_does_not_count() {
        let mut late = held(0, Kind::Plain, "a", [1, 50, 50], 1);
        late.believed = None;
        assert_eq!(check(&history(vec![held(1, Kind::Plain, "a", [2, 3, 4], 2), late])).len(), 0);
    }
}
