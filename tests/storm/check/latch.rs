//! A latch is open when it was counted down as often as it was set to, and not earlier; and as long
//! as nobody sets it again.

use super::Violation;
use crate::event::{LatchCall, Nanos};
use crate::history::{History, LatchUse};

const CHECK: &str = "latch";

pub(super) fn check(history: &History) -> Vec<Violation> {
    let found = |(one, text): (&LatchUse, String)| Violation {
        check: CHECK,
        at: one.from,
        text: format!("{}/t{} {text}", history.processes[one.process].label, one.thread),
    };
    let early = history.latch.iter().filter_map(|open| Some((open, opened_early(history, open)?)));
    let in_vain = history.latch.iter().filter(|wait| in_vain(history, wait));
    early
        .chain(in_vain.map(|wait| (wait, "waited in vain for a latch that was open".to_owned())))
        .map(found)
        .collect()
}

/// Whether this call proves that the latch was open: it waited with success, or could set it.
fn is_open(one: &LatchUse) -> bool {
    one.yes == Some(true) && one.call != LatchCall::Down
}

/// How it was found open although it had been set and was not counted down often enough since. A
/// call without an answer may have counted.
fn opened_early(history: &History, open: &LatchUse) -> Option<String> {
    let until = open.to.filter(|_| is_open(open))?;
    let was_set = |one: &&LatchUse| matches!(one.call, LatchCall::Set(_)) && one.yes == Some(true);
    let before =
        history.latch.iter().filter(was_set).filter(|one| one.to.is_some_and(|to| to < open.from));
    let set = before.max_by_key(|one| one.to)?;
    let LatchCall::Set(count) = set.call else { return None };
    let counts = |one: &&LatchUse| {
        one.call == LatchCall::Down && one.from < until && one.to.is_none_or(|to| to > set.from)
    };
    let downs = history.latch.iter().filter(counts).count();
    let early = downs < count as usize && !is_forgotten(history, set.from, until);
    early.then(|| {
        format!("found it open, which was set to {count} and counted down {downs} times at most")
    })
}

/// Whether it did not find a latch open that had been seen open, and that nobody can have set since.
fn in_vain(history: &History, wait: &LatchUse) -> bool {
    let Some(until) = wait.to.filter(|_| wait.call == LatchCall::Wait && wait.yes == Some(false))
    else {
        return false;
    };
    let waited = |one: &&LatchUse| one.call == LatchCall::Wait && is_open(one);
    let before =
        history.latch.iter().filter(waited).filter(|one| one.to.is_some_and(|to| to < wait.from));
    let Some(open) = before.max_by_key(|one| one.to) else { return false };
    // One without an answer may have an effect later.
    let may_set = |one: &LatchUse| {
        let is_late =
            one.yes.is_none() || one.yes == Some(true) && one.to.is_none_or(|to| to > open.from);
        matches!(one.call, LatchCall::Set(_)) && one.from < until && is_late
    };
    !history.latch.iter().any(may_set)
}

fn is_forgotten(history: &History, from: Nanos, to: Nanos) -> bool {
    history.faults.iter().any(|fault| fault.forgets_counts && fault.from < to && fault.to > from)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{fault, history};
    use super::*;
    use crate::event::millis;
    use crate::fault::Fault;

    fn used(call: LatchCall, from: Nanos, to: Nanos, yes: impl Into<Option<bool>>) -> LatchUse {
        LatchUse {
            process: 0,
            thread: 1,
            call,
            from: millis(from),
            to: Some(millis(to)),
            yes: yes.into(),
        }
    }

    fn of(latch: Vec<LatchUse>) -> History {
        History { latch, ..history(Vec::new()) }
    }

    #[test]
    fn a_latch_that_opens_early_is_found() {
        let set = used(LatchCall::Set(2), 10, 20, true);
        let down = |from| used(LatchCall::Down, from, from + 5, true);
        let wait = used(LatchCall::Wait, 30, 60, true);
        let count =
            |latch: &[&LatchUse]| check(&of(latch.iter().copied().cloned().collect())).len();
        assert_eq!(count(&[&set, &down(25), &down(40), &wait]), 0);
        assert_eq!(count(&[&set, &down(25), &wait]), 1);
        // One that came later, or was over before.
        assert_eq!(count(&[&set, &down(25), &down(70), &wait]), 1);
        assert_eq!(count(&[&set, &down(25), &down(1), &wait]), 1);
        // One without an answer may have counted, and a wait that began before it was set proves nothing.
        assert_eq!(
            count(&[&set, &down(25), &LatchUse { to: None, yes: None, ..down(26) }, &wait]),
            0
        );
        assert_eq!(count(&[&set, &used(LatchCall::Wait, 15, 60, true)]), 0);
        // Only an open latch can be set.
        assert_eq!(count(&[&set, &down(25), &used(LatchCall::Set(1), 50, 55, true)]), 1);
        assert_eq!(count(&[&set, &down(25), &used(LatchCall::Set(1), 50, 55, false)]), 0);
    }

    #[test]
    fn a_store_that_forgets_opens_it() {
        let mut history =
            of(vec![used(LatchCall::Set(2), 10, 20, true), used(LatchCall::Wait, 30, 60, true)]);
        history.faults = vec![fault(Fault::Cut, 22, 23, None)];
        assert_eq!(check(&history).len(), 1);
        history.faults = vec![fault(Fault::Flush, 22, 23, Some(1000))];
        assert_eq!(check(&history).len(), 0);
        history.faults = vec![fault(Fault::Flush, 1, 2, Some(1000))];
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn who_waits_in_vain_at_an_open_latch_is_found() {
        let open = used(LatchCall::Wait, 10, 20, true);
        let vain = used(LatchCall::Wait, 40, 60, false);
        assert_eq!(check(&of(vec![open.clone(), vain.clone()])).len(), 1);
        assert_eq!(check(&of(vec![vain.clone()])).len(), 0);
        for set in [used(LatchCall::Set(1), 25, 30, true), used(LatchCall::Set(1), 1, 50, None)] {
            assert_eq!(check(&of(vec![open.clone(), set, vain.clone()])).len(), 0);
        }
        let refused = used(LatchCall::Set(1), 25, 30, false);
        assert_eq!(check(&of(vec![open, refused, vain])).len(), 1);
    }
}
