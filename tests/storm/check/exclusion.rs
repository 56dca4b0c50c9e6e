//! No two guards believe at the same time in what only one can hold; also checks readers against
//! writers, and the number of permits.

use super::{MOST_LOAD, Violation, holds_of, in_millis};
use crate::event::{Kind, Nanos, millis};
use crate::fault::Disturbance;
use crate::history::{Attempt, History};

const CHECK: &str = "exclusion";

/// How long after it was sent a reply may arrive, and be recorded, on a machine that is not busy.
const ON_ITS_WAY: Nanos = millis(30);

pub(super) fn check(history: &History) -> Vec<Violation> {
    history.names().iter().flat_map(|name| of_name(history, name)).collect()
}

fn of_name(history: &History, name: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut holds: Vec<&Attempt> =
        holds_of(history, name).into_iter().filter(|hold| hold.belief().is_some()).collect();
    holds.sort_by_key(|hold| hold.got());
    let mut active: Vec<&Attempt> = Vec::new();
    for next in holds {
        let (from, to) = next.belief().expect("filtered");
        active.retain(|hold| hold.belief().is_some_and(|(_, end)| end > from));
        let beside: Vec<_> = active
            .iter()
            .filter(|hold| conflict(hold, next) && !is_excused(history, hold, next))
            .collect();
        let most = history.most(next.kind);
        if beside.len() >= most {
            let both = beside[0].belief().expect("filtered").1.min(to) - from;
            found.push(Violation {
                check: CHECK,
                at: from,
                text: format!(
                    "{} and {} both believed in {:?} {name} for {} (tokens {:?} and {:?})",
                    history.who(beside[0]),
                    history.who(next),
                    next.kind,
                    in_millis(both),
                    beside[0].token_of(name),
                    next.token_of(name)
                ),
            });
        }
        active.push(next);
    }
    found
}

/// Permits are counted: all of them conflict.
fn conflict(a: &Attempt, b: &Attempt) -> bool {
    let counts = a.kind == b.kind && matches!(a.kind, Kind::Permit | Kind::Count);
    counts || a.kind.is_exclusive() || b.kind.is_exclusive()
}

/// A fault that breaks a documented limit: the first holder had the lock before the end of the
/// fault, and stops believing within the time that the limit allows. The lock may have been granted
/// before that, and the reply may have arrived after it.
pub(super) fn is_excused(history: &History, first: &Attempt, second: &Attempt) -> bool {
    let (Some((held_from, held_to)), Some((from, to))) = (first.belief(), second.belief()) else {
        return false;
    };
    let excuses = |fault: &Disturbance| {
        let Some(overlap) = fault.overlap else { return false };
        // A hold with a fixed lease is checked at the server every 10 s at most.
        let overlap =
            if first.fixed.is_some() { overlap.max(crate::event::millis(10_500)) } else { overlap };
        let meant = fault.names.is_empty()
            || fault.names.iter().any(|name| first.takes(name) && second.takes(name));
        let before =
            first.asked <= fault.to && held_from <= fault.to + on_its_way(history, fault.to);
        meant && before && from >= fault.from && held_to.min(to) <= fault.to + overlap
    };
    history.faults.iter().any(excuses)
}

/// How long after this moment a reply that was sent before it may arrive.
fn on_its_way(history: &History, sent: Nanos) -> Nanos {
    let usual = (ON_ITS_WAY as f64 * history.load.min(MOST_LOAD)) as Nanos;
    let stalled = history.stalls.iter().filter(|(from, to)| *from <= sent + usual && sent < *to);
    usual + stalled.map(|(_, to)| to - sent).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{fault, held, history};
    use super::*;
    use crate::fault::Fault;

    fn count(attempts: Vec<Attempt>) -> usize {
        check(&history(attempts)).len()
    }

    fn plain(process: usize, got: Nanos, to: Nanos) -> Attempt {
        held(process, Kind::Plain, "a", [got, got, to], got)
    }

    #[test]
    fn two_holders_of_one_name_are_found_and_neighbours_are_not() {
        assert_eq!(count(vec![plain(0, 10, 20), plain(1, 20, 30), plain(0, 31, 40)]), 0);
        assert_eq!(count(vec![plain(0, 10, 20), plain(1, 19, 30)]), 1);
        // Also after a short belief, and when one belief is within another.
        assert_eq!(count(vec![plain(0, 10, 90), plain(1, 20, 21), plain(1, 30, 31)]), 2);
        // Beliefs in two names do not conflict.
        let mut other = plain(1, 15, 25);
        other.names = vec!["b".to_owned()];
        assert_eq!(count(vec![plain(0, 10, 20), other]), 0);
        // A multi-lock holds each of its names.
        let mut both = plain(1, 15, 25);
        (both.kind, both.names) = (Kind::Multi, vec!["b".to_owned(), "a".to_owned()]);
        assert_eq!(count(vec![plain(0, 10, 20), both]), 1);
    }

    #[test]
    fn a_guard_that_no_longer_believes_is_no_holder() {
        let mut stopped = plain(0, 10, 20);
        stopped.given = Some((millis(500), millis(501), "Lost".to_owned()));
        assert_eq!(count(vec![stopped, plain(1, 100, 400)]), 0);
    }

    #[test]
    fn readers_are_together_and_writers_alone() {
        let rw = |process, kind, got, to| held(process, kind, "r", [got, got, to], got);
        assert_eq!(
            count(vec![
                rw(0, Kind::Read, 10, 30),
                rw(1, Kind::Read, 20, 40),
                rw(0, Kind::Write, 50, 60)
            ]),
            0
        );
        assert_eq!(count(vec![rw(0, Kind::Read, 10, 30), rw(1, Kind::Write, 20, 40)]), 1);
        assert_eq!(count(vec![rw(0, Kind::Write, 10, 30), rw(1, Kind::Read, 20, 40)]), 1);
    }

    #[test]
    fn as_many_permits_as_there_are() {
        let permit = |got, to| held(0, Kind::Permit, "s", [got, got, to], 0);
        assert_eq!(count(vec![permit(10, 30), permit(11, 20), permit(20, 40)]), 0);
        assert_eq!(count(vec![permit(10, 30), permit(11, 20), permit(15, 40)]), 1);
    }

    #[test]
    fn a_limit_excuses_what_was_held_before_and_for_its_time_only() {
        let excused = |attempts, overlap| {
            let mut history = history(attempts);
            history.faults = vec![fault(Fault::Flush, 50, 60, overlap)];
            check(&history).len()
        };
        assert_eq!(excused(vec![plain(0, 10, 900), plain(1, 70, 2000)], Some(1000)), 0);
        assert_eq!(excused(vec![plain(0, 10, 1100), plain(1, 70, 2000)], Some(1000)), 1);
        assert_eq!(excused(vec![plain(0, 10, 900), plain(1, 70, 2000)], None), 1);
        // Both held it after the fault, or both before.
        assert_eq!(excused(vec![plain(0, 65, 900), plain(1, 70, 2000)], Some(1000)), 1);
        assert_eq!(excused(vec![plain(0, 10, 900), plain(1, 40, 2000)], Some(1000)), 1);
        // The reply to the first one came after the fault; and much later, so that it was granted then.
        let late = |got| held(0, Kind::Plain, "a", [55, got, 900], got);
        assert_eq!(excused(vec![late(65), plain(1, 70, 2000)], Some(1000)), 0);
        assert_eq!(excused(vec![late(100), plain(1, 110, 2000)], Some(1000)), 1);
        let mut stalled = history(vec![late(100), plain(1, 110, 2000)]);
        stalled.faults = vec![fault(Fault::Flush, 50, 60, Some(1000))];
        stalled.stalls = vec![(millis(55), millis(95))];
        assert_eq!(check(&stalled).len(), 0);
    }

    #[test]
    fn a_forced_name_excuses_no_other() {
        let mut history = history(vec![plain(0, 10, 900), plain(1, 70, 2000)]);
        history.faults = vec![fault(Fault::Force, 50, 60, Some(1000))];
        history.faults[0].names = vec!["b".to_owned()];
        assert_eq!(check(&history).len(), 1);
        history.faults[0].names = vec!["a".to_owned()];
        assert_eq!(check(&history).len(), 0);
    }
}
