//! After the success of an occurrence nobody begins that one, or an earlier one, unless it was
//! forgotten; nobody hears of a success before somebody can have had it; attempts are counted, and
//! follow one that has failed after its pause; whoever waits for a success hears of it.
//!
//! The order is that of the fencing tokens. The lease itself is checked like any other lock.

use std::collections::HashMap;

use super::{MOST_LOAD, Violation, in_millis, unrest};
use crate::event::{Kind, Nanos, Verb, millis};
use crate::fault::Disturbance;
use crate::history::{Attempt, Fired, History, Outcome};
use crate::worker::{ATTEMPTS, PAUSE, PAUSES};

const CHECK: &str = "jobs";

/// Times are cut to milliseconds in the stores.
const CUT: Nanos = millis(2);

type Call<'a> = (&'a Attempt, &'a Fired);

/// The calls for one job.
struct Calls<'a> {
    history: &'a History,
    all: Vec<Call<'a>>,
    /// Those that ran, by their tokens.
    runs: Vec<Call<'a>>,
    forgets: Vec<Call<'a>>,
    unrest: &'a [(Nanos, Nanos)],
}

pub(super) fn check(history: &History) -> Vec<Violation> {
    let unrest = unrest(history);
    let is_job = |attempt: &&Attempt| attempt.kind == Kind::Job;
    let mut names: Vec<&str> =
        history.attempts.iter().filter(is_job).map(|call| call.names[0].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().flat_map(|name| Calls::of(history, name, &unrest).check()).collect()
}

fn token((run, _): &Call<'_>) -> Option<u64> {
    run.token_of(run.names.first()?)
}

fn said<'a>((call, _): &Call<'a>) -> Option<&'a str> {
    call.answer().map(|(_, words)| words)
}

/// Whether a success of it may be recorded.
fn may_be_done(run: &Call<'_>) -> bool {
    said(run) != Some("failed")
}

/// A record of a success waits for replicas as a grant does.
fn forgets_grants(fault: &Disturbance) -> bool {
    fault.overlap.is_some() && fault.names.is_empty()
}

impl<'a> Calls<'a> {
    fn of(history: &'a History, name: &str, unrest: &'a [(Nanos, Nanos)]) -> Self {
        let of_name = history.attempts.iter().filter(|call| call.names[0] == name);
        let all: Vec<Call<'a>> =
            of_name.filter_map(|call| Some((call, call.fired.as_ref()?))).collect();
        let mut runs = all.clone();
        runs.retain(|(run, _)| run.got().is_some());
        runs.sort_by_key(token);
        let mut forgets = all.clone();
        forgets.retain(|(call, _)| call.verb == Verb::Forgets);
        Self { history, all, runs, forgets, unrest }
    }

    fn check(&self) -> Vec<Violation> {
        [
            self.after_success(),
            self.uncounted(),
            self.too_soon(),
            self.untrue(),
            self.given_up_too_soon(),
            self.not_told(),
        ]
        .concat()
    }

    fn found(&self, (call, fired): Call<'_>, text: &str) -> Violation {
        let (who, at) = (self.history.who(call), call.answered().unwrap_or(call.asked));
        let text = format!("{who} asked for the occurrence {}, and {text}", fired.occurrence);
        Violation { check: CHECK, at, text }
    }

    /// Whether a fault may have made the store forget something between these times.
    fn is_lost(&self, from: Nanos, until: Nanos, by: impl Fn(&Disturbance) -> bool) -> bool {
        let faults = &self.history.faults;
        faults.iter().any(|fault| by(fault) && fault.from < until && fault.to > from)
    }

    /// Whether what the store knew after the one had asked may be unknown when the other runs.
    fn is_lost_between(
        &self,
        (one, _): Call<'_>,
        (other, _): Call<'_>,
        by: impl Fn(&Disturbance) -> bool,
    ) -> bool {
        self.is_lost(one.asked, other.got().unwrap_or(self.history.over), by)
    }

    /// Whether nothing explains what happens between these times.
    fn is_quiet(&self, from: Nanos, until: Nanos) -> bool {
        !self.unrest.iter().any(|(begin, end)| *begin < until && from < *end)
    }

    /// Whether somebody may have had one of these occurrences forgotten between these times. One
    /// that failed may still run.
    fn may_forget(&self, from: Nanos, until: Nanos, which: impl Fn(u64) -> bool) -> bool {
        let ends = |call: &Attempt| call.answer().map_or(Nanos::MAX, |(at, _)| at);
        let mut forgets = self.forgets.iter();
        forgets
            .any(|(call, fired)| which(fired.occurrence) && call.asked < until && ends(call) > from)
    }

    /// Runs of what was done, or of what is older.
    fn after_success(&self) -> Vec<Violation> {
        let (mut bad, mut done) = (Vec::new(), Vec::<Call<'_>>::new());
        for run in self.runs.iter().copied() {
            let number = run.1.occurrence;
            let until = run.0.got().unwrap_or(self.history.over);
            done.retain(|done| !self.is_lost_between(*done, run, forgets_grants));
            let forbids = |done: &&Call<'_>| {
                let newer = done.1.occurrence;
                let may_again = self.may_forget(done.0.asked, until, |forgotten| {
                    forgotten == number || newer > number && forgotten >= newer
                });
                // It stays open until it is done, whatever is done meanwhile.
                let is_open = newer > number && self.may_forget(0, until, |one| one == number);
                newer >= number && !may_again && !is_open
            };
            if let Some(done) = done.iter().find(forbids) {
                let (number, who) = (done.1.occurrence, self.history.who(done.0));
                let text = format!("began it after {who} had done {number}: {:?}", said(&run));
                bad.push(self.found(run, &text));
            }
            if said(&run) == Some("done") {
                done.push(run);
            }
        }
        bad
    }

    /// Each run with the one before it of the same occurrence.
    fn pairs(&self) -> Vec<(Call<'a>, Call<'a>)> {
        let mut last = HashMap::<u64, Call<'a>>::new();
        let of = |run: &Call<'a>| Some((last.insert(run.1.occurrence, *run)?, *run));
        let mut pairs: Vec<_> = self.runs.iter().filter_map(of).collect();
        pairs.retain(|(one, run)| {
            let until = run.0.got().unwrap_or(self.history.over);
            !self.may_forget(one.0.asked, until, |forgotten| forgotten == run.1.occurrence)
        });
        pairs
    }

    /// Attempts whose number is not larger than that of an earlier one.
    fn uncounted(&self) -> Vec<Violation> {
        let bad = |(before, run): (Call<'_>, Call<'_>)| {
            let is_counted = run.1.number.is_none() || run.1.number > before.1.number;
            if is_counted || self.is_lost_between(before, run, |fault| fault.forgets_counts) {
                return None;
            }
            let (number, who) = (run.1.number, self.history.who(before.0));
            let text = format!("was attempt {number:?} after {:?} of {who}", before.1.number);
            Some(self.found(run, &text))
        };
        self.pairs().into_iter().filter_map(bad).collect()
    }

    /// Attempts that began before the pause after one that had failed was over, or were refused
    /// because of a pause that nobody can have begun.
    fn too_soon(&self) -> Vec<Violation> {
        let pause = u64::try_from(PAUSE.as_nanos()).expect("it is short");
        let pause_of = |(call, _): &Call<'_>| if call.names[0] == PAUSES { pause } else { 0 };
        let early = |(before, run): (Call<'_>, Call<'_>)| {
            let (ended, began) = (before.0.believed?, run.0.got()?);
            let is_early = said(&before) == Some("failed")
                && began + CUT < ended + pause_of(&run)
                && self.is_quiet(before.0.asked, began);
            let after = in_millis(began.saturating_sub(ended));
            let who = self.history.who(before.0);
            is_early.then(|| self.found(run, &format!("began it {after} after {who} had failed")))
        };
        let mut bad: Vec<_> = self.pairs().into_iter().filter_map(early).collect();
        let is_made_up = |call: &&Call<'_>| {
            let Some((told, "pausing")) = call.0.answer() else { return false };
            let explains = |run: &Call<'_>| {
                let ended = run.0.answer().map_or(Nanos::MAX, |(at, _)| at);
                run.1.occurrence == call.1.occurrence
                    && run.0.got().is_some_and(|began| began < told)
                    && said(run) != Some("done")
                    && call.0.asked < ended.saturating_add(pause_of(run) + CUT)
            };
            pause_of(call) == 0
                || self.is_quiet(call.0.asked, told) && !self.runs.iter().any(explains)
        };
        let text = "was told of a pause that nobody had begun";
        bad.extend(self.all.iter().filter(is_made_up).map(|call| self.found(*call, text)));
        bad
    }

    /// Calls that were told of a success that nobody can have had, or that was forgotten since.
    fn untrue(&self) -> Vec<Violation> {
        let text = "was told of a success that nobody had";
        let is_untrue = |call: &&Call<'_>| match call.0.answer() {
            Some((told, "already")) => !self
                .runs
                .iter()
                .any(|run| run.1.occurrence == call.1.occurrence && self.explains(run, call, told)),
            Some((told, "passed")) => {
                let mut runs = self.runs.iter();
                !runs.any(|run| {
                    run.1.occurrence >= call.1.occurrence && self.explains(run, call, told)
                })
            }
            _ => false,
        };
        self.all.iter().filter(is_untrue).map(|call| self.found(*call, text)).collect()
    }

    /// Whether the call can have been told of a success of this run, or of what it knew.
    fn explains(&self, run: &Call<'_>, call: &Call<'_>, told: Nanos) -> bool {
        let recorded = run.0.answer().map_or(Nanos::MAX, |(at, _)| at);
        // The occurrence of the call was let run again after that, for certain.
        let was_forgotten = |forget: &Call<'_>| {
            forget.1.occurrence == call.1.occurrence
                && forget.0.asked > recorded
                && forget.0.answer().is_some_and(|(at, _)| at < call.0.asked)
                && !self.is_lost(forget.0.asked, told, |fault| fault.forgets_counts)
        };
        run.0.got().is_some_and(|began| began < told)
            && may_be_done(run)
            && !self.forgets.iter().any(was_forgotten)
    }

    /// Calls that were told of too many attempts, when so many cannot have begun.
    fn given_up_too_soon(&self) -> Vec<Violation> {
        let is_too_soon = |call: &&Call<'_>| {
            let Some((told, "gave-up")) = call.0.answer() else { return false };
            let mut begun = self.all.clone();
            // One that failed, or whose process was killed, may have been counted.
            begun.retain(|(run, fired)| {
                run.verb.takes()
                    && !matches!(run.outcome, Outcome::Vain { .. })
                    && fired.occurrence == call.1.occurrence
                    && run.asked < told
            });
            begun.len() < ATTEMPTS as usize
        };
        let text = "was told of attempts that nobody had begun";
        self.all.iter().filter(is_too_soon).map(|call| self.found(*call, text)).collect()
    }

    /// Calls that waited in vain for what was done meanwhile, or before, or heard of it too late.
    fn not_told(&self) -> Vec<Violation> {
        // Less than the time after which a waiter asks again by itself, or at its deadline.
        let load = self.history.load.min(MOST_LOAD);
        let at_once = (self.history.lease as f64 / 2.0 * load) as Nanos;
        let is_not_told = |call: &&Call<'_>| {
            let Some((told, words)) = call.0.answer() else { return false };
            let asked = match words {
                "nothing" => 0,
                "already" if call.0.verb == Verb::Waits => call.0.asked,
                _ => return false,
            };
            let was_done = |run: &Call<'_>| {
                let Some((done, "done")) = run.0.answer() else { return false };
                run.1.occurrence == call.1.occurrence
                    && done.max(asked) + at_once < told
                    && self.is_quiet(run.0.asked.min(call.0.asked), told)
                    && !self.may_forget(run.0.asked, told, |one| one >= call.1.occurrence)
            };
            self.runs.iter().any(was_done)
        };
        let text = "waited although it was done";
        self.all.iter().filter(is_not_told).map(|call| self.found(*call, text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{fault, held, history};
    use super::*;
    use crate::fault::Fault;

    /// A run of an occurrence that began and ended at these times.
    fn ran(occurrence: u64, number: u32, [got, to]: [Nanos; 2], word: &str) -> Attempt {
        let mut run = held(0, Kind::Job, "j", [got, got, to], got);
        run.fired = Some(Fired { occurrence, number: Some(number) });
        run.said = vec![(millis(to), word.to_owned())];
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
        killed.said.clear();
        assert_eq!(count(vec![killed, told(7, 30, "already")]), 0);
    }

    /// A call of another kind, which began a millisecond before it was answered.
    fn asked(verb: Verb, occurrence: u64, at: Nanos, word: &str) -> Attempt {
        let mut call = told(occurrence, at, word);
        (call.verb, call.asked) = (verb, millis(at - 1));
        call
    }

    #[test]
    fn what_somebody_forgot_may_run_again() {
        let forget = |occurrence| asked(Verb::Forgets, occurrence, 30, "true");
        let again = |forgotten, number| {
            let calls = [ran(6, 1, [1, 2], "failed"), ran(7, 1, [10, 20], "done")];
            let after = [forget(forgotten), ran(number, 2, [50, 60], "done")];
            count([calls.to_vec(), after.to_vec()].concat())
        };
        assert_eq!(again(7, 7), 0);
        assert_eq!(again(8, 7), 1, "another one was forgotten");
        assert_eq!([again(6, 6), again(7, 6), again(5, 6)], [0, 0, 1], "an earlier one");
        // The forgotten one stays open until it is done.
        let open = |last| vec![forget(6), ran(7, 1, [40, 50], "done"), last];
        assert_eq!(count(open(ran(6, 1, [60, 70], "done"))), 0);
        assert_eq!(count(open(ran(5, 1, [60, 70], "done"))), 1);
        // It was sent, and nobody knows whether it has run.
        let mut unknown = forget(7);
        unknown.said.clear();
        let again = ran(7, 2, [50, 60], "done");
        assert_eq!(count(vec![ran(7, 1, [10, 20], "done"), unknown, again]), 0);
    }

    #[test]
    fn who_hears_of_a_success_that_was_forgotten_is_found() {
        let calls = |word: &str, told: Attempt| {
            count(vec![ran(7, 1, [10, 20], "done"), asked(Verb::Forgets, 7, 30, word), told])
        };
        assert_eq!(calls("true", asked(Verb::Takes, 7, 40, "already")), 1);
        assert_eq!(calls("true", asked(Verb::Waits, 7, 40, "passed")), 1);
        assert_eq!(calls("true", asked(Verb::Takes, 6, 40, "passed")), 0, "another may be newest");
        assert_eq!(calls("true", asked(Verb::Takes, 7, 29, "already")), 0, "before it");
    }

    #[test]
    fn who_begins_within_a_pause_is_found() {
        let pause = u64::try_from(PAUSE.as_millis()).unwrap();
        let job = |name: &str, word: &str, got: Nanos| {
            let mut runs = [ran(7, 1, [10, 20], word), ran(7, 2, [got, got + 5], "done")];
            for run in &mut runs {
                run.names = vec![name.to_owned()];
            }
            count(runs.to_vec())
        };
        assert_eq!(job(PAUSES, "failed", 20 + pause), 0);
        assert_eq!(job(PAUSES, "failed", 10 + pause), 1);
        assert_eq!(job("j0", "failed", 30), 0);
        // Of those that end by themselves nothing is recorded.
        assert_eq!(job(PAUSES, "unrecorded", 30), 0);
    }

    #[test]
    fn a_pause_that_nobody_began_is_found() {
        let pause = u64::try_from(PAUSE.as_millis()).unwrap();
        let told = |name: &str, at: Nanos| {
            let mut calls = [ran(7, 1, [10, 20], "failed"), asked(Verb::Takes, 7, at, "pausing")];
            for call in &mut calls {
                call.names = vec![name.to_owned()];
            }
            count(calls.to_vec())
        };
        assert_eq!([told(PAUSES, 30), told(PAUSES, 30 + pause)], [0, 1]);
        assert_eq!(told("j0", 30), 1, "it has none");
    }

    #[test]
    fn too_few_attempts_to_give_up_are_found() {
        let failed = |n: u64| ran(7, n as u32, [n * 10, n * 10 + 5], "failed");
        let calls = |most: u64| (1..=most).map(failed).collect::<Vec<_>>();
        let last = || asked(Verb::Waits, 7, 500, "gave-up");
        assert_eq!(count([calls(u64::from(ATTEMPTS)), vec![last()]].concat()), 0);
        assert_eq!(count([calls(u64::from(ATTEMPTS) - 1), vec![last()]].concat()), 1);
    }

    #[test]
    fn who_waits_for_what_was_done_is_found() {
        let waits = |word: &str, at: Nanos| {
            let mut wait = asked(Verb::Waits, 7, at, word);
            wait.asked = millis(5);
            count(vec![ran(7, 1, [10, 20], "done"), wait])
        };
        assert_eq!([waits("nothing", 1000), waits("nothing", 1600)], [0, 1]);
        assert_eq!([waits("already", 1000), waits("already", 1600)], [0, 1], "it was told late");
    }
}
