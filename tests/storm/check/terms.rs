//! A term that has resigned ends, and its leader stands back; a leader learns of a request, and of
//! none that nobody made; and whoever looks sees the terms in their order, and none that nobody has.
//!
//! That terms do not overlap, and that their numbers grow, is checked as for any other lock.

use super::{Violation, in_millis, unrest};
use crate::event::{Kind, Nanos, Verb, millis};
use crate::history::{Attempt, History};

const CHECK: &str = "terms";

/// By how much the clocks of a process and of this file may differ.
const CUT: Nanos = millis(5);

struct Terms<'a> {
    history: &'a History,
    unrest: Vec<(Nanos, Nanos)>,
    all: Vec<&'a Attempt>,
}

pub(super) fn check(history: &History) -> Vec<Violation> {
    let all = history.attempts.iter().filter(|attempt| attempt.kind == Kind::Leader).collect();
    let terms = Terms { history, unrest: unrest(history), all };
    let each = terms.all.iter().flat_map(|attempt| match attempt.verb {
        Verb::Takes | Verb::StandsBack => terms.of_leader(attempt),
        Verb::Requests => terms.of_request(attempt),
        _ => terms.of_looks(attempt),
    });
    each.collect()
}

/// The term in `term 7`.
fn term_in(words: &str) -> Option<u64> {
    words.strip_prefix("term ")?.parse().ok()
}

impl<'a> Terms<'a> {
    fn found(&self, attempt: &Attempt, at: Nanos, text: &str) -> Violation {
        let text = format!("{} {text}", self.history.who(attempt));
        Violation { check: CHECK, at, text }
    }

    /// Whether nothing explains what happens between these times.
    fn is_quiet(&self, from: Nanos, until: Nanos) -> bool {
        !self.unrest.iter().any(|(begin, end)| *begin <= until && from <= *end)
    }

    /// Those that led.
    fn led(&self) -> impl Iterator<Item = &'a Attempt> + '_ {
        self.all.iter().copied().filter(|attempt| attempt.got().is_some())
    }

    fn number(attempt: &Attempt) -> Option<u64> {
        attempt.token_of(&attempt.names[0])
    }

    fn of_leader(&self, term: &Attempt) -> Vec<Violation> {
        let Some(got) = term.got() else { return Vec::new() };
        let mut bad = Vec::new();
        if let Some((resigned, last)) = term.resigned.zip(term.believed)
            && last > resigned
        {
            bad.push(self.found(term, last, "led after it had resigned"));
        }
        if term.verb == Verb::StandsBack && self.is_pushy(term, got) {
            let after = in_millis(got - term.asked);
            let text = format!("led again {after} after it had resigned, and nobody between");
            bad.push(self.found(term, got, &text));
        }
        if let Some(at) = term.wanted.filter(|at| !self.is_wanted(term, *at)) {
            bad.push(self.found(term, at, "was told of a request that nobody made in its term"));
        }
        bad
    }

    /// Whether it leads again although nobody else has led since it resigned, and no lease is over.
    fn is_pushy(&self, term: &Attempt, got: Nanos) -> bool {
        let own = self.led().filter(|other| {
            (other.process, other.thread) == (term.process, term.thread) && other.asked < term.asked
        });
        let Some((since, before)) = own.last().and_then(|one| Some((one.got()?, one.asked))) else {
            return false;
        };
        let mut between = self
            .led()
            .filter(|other| other.got().is_some_and(|theirs| since < theirs && theirs < got));
        got + CUT < term.asked + self.history.lease
            && got < self.history.over
            && self.is_quiet(before, got)
            && between.next().is_none()
    }

    /// Whether somebody asked for the leadership in this term, before that time.
    fn is_wanted(&self, term: &Attempt, at: Nanos) -> bool {
        self.all.iter().any(|call| {
            let ended = call.answer().map_or(Nanos::MAX, |(at, _)| at);
            call.verb == Verb::Requests
                && call.answer().is_none_or(|(_, words)| words == "true")
                && call.asked < at
                && ended > term.asked
        })
    }

    /// A leader that led for a whole lease after it, undisturbed, has learned of it.
    fn of_request(&self, call: &Attempt) -> Vec<Violation> {
        let Some((asked, "true")) = call.answer() else { return Vec::new() };
        let until = asked + self.history.lease;
        let mut unaware = self.led().filter(|term| {
            term.belief().is_some_and(|(from, to)| from < call.asked && to > until)
                && term.wanted.is_none()
        });
        match unaware.next().filter(|_| self.is_quiet(call.asked, until)) {
            None => Vec::new(),
            Some(term) => {
                let leader = self.history.who(term);
                let text = format!("asked {leader} for the leadership, which did not learn of it");
                vec![self.found(call, asked, &text)]
            }
        }
    }

    /// The looks of one call, of which a watch has several.
    fn of_looks(&self, call: &Attempt) -> Vec<Violation> {
        let (mut bad, mut highest, mut since) = (Vec::new(), 0, call.asked);
        for (at, words) in &call.said {
            let began = std::mem::replace(&mut since, *at);
            let Some(term) = term_in(words) else { continue };
            if term < highest {
                let text = format!("saw the term {term} after the term {highest}");
                bad.push(self.found(call, *at, &text));
            }
            highest = highest.max(term);
            if self.is_quiet(began, *at) && !self.may_show(term, began, *at) {
                let text = format!("saw the term {term}, which nobody had");
                bad.push(self.found(call, *at, &text));
            }
        }
        bad
    }

    /// Whether a look may see this term: it had been asked for, and was not over for longer than a
    /// lease.
    fn may_show(&self, term: u64, began: Nanos, at: Nanos) -> bool {
        self.led().any(|led| {
            let ended = led.given.as_ref().map_or(Nanos::MAX, |given| given.1);
            Self::number(led) == Some(term)
                && led.asked < at
                && began < ended.saturating_add(self.history.lease)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{fault, held, history};
    use super::*;
    use crate::fault::Fault;
    use crate::history::Outcome;

    /// A term of a process, in milliseconds; its number is when it began.
    fn led(process: usize, got: Nanos, to: Nanos) -> Attempt {
        held(process, Kind::Leader, "e", [got - 1, got, to], got)
    }

    fn call(verb: Verb, at: Nanos, words: &[&str]) -> Attempt {
        let mut call = led(1, at, at);
        (call.verb, call.outcome) = (verb, Outcome::Vain { at: millis(at) });
        (call.believed, call.given) = (None, None);
        call.said = words.iter().map(|words| (millis(at), (*words).to_owned())).collect();
        call
    }

    fn count(attempts: Vec<Attempt>) -> usize {
        check(&history(attempts)).len()
    }

    #[test]
    fn who_leads_after_it_has_resigned_is_found() {
        let resigned = |at| {
            let mut term = led(0, 10, 20);
            term.resigned = Some(millis(at));
            count(vec![term])
        };
        assert_eq!([resigned(21), resigned(15)], [0, 1]);
    }

    #[test]
    fn who_resigns_lets_others_lead() {
        let again = |got| {
            let mut term = led(0, got, got + 5);
            (term.verb, term.asked) = (Verb::StandsBack, millis(21));
            term
        };
        assert_eq!(count(vec![led(0, 10, 20), again(3100)]), 0, "a lease is over");
        assert_eq!(count(vec![led(0, 10, 20), again(500)]), 1);
        assert_eq!(count(vec![led(0, 10, 20), led(1, 30, 40), again(500)]), 0);
        assert_eq!(count(vec![led(1, 2, 4), led(0, 10, 20), again(500)]), 1, "that was before");
        let mut explained = history(vec![led(0, 10, 20), again(500)]);
        explained.faults = vec![fault(Fault::LoseReply, 100, 200, None)];
        assert_eq!(check(&explained).len(), 0);
    }

    #[test]
    fn a_request_has_its_leader_and_a_leader_its_request() {
        let term = |wanted: Option<Nanos>| {
            let mut term = led(0, 10, 4000);
            term.wanted = wanted.map(millis);
            term
        };
        let request = |at, words| call(Verb::Requests, at, &[words]);
        assert_eq!(count(vec![term(Some(100)), request(50, "true")]), 0);
        assert_eq!(count(vec![term(Some(100))]), 1, "nobody asked");
        assert_eq!(count(vec![term(Some(100)), request(50, "false")]), 1);
        assert_eq!(count(vec![term(Some(100)), request(5, "true")]), 1, "in another term");
        assert_eq!(count(vec![term(Some(100)), request(200, "true")]), 1, "later");
        assert_eq!(count(vec![term(None), request(50, "true")]), 1, "it did not learn of it");
        assert_eq!(count(vec![term(None), request(3500, "true")]), 0, "it may still");
    }

    #[test]
    fn a_watch_that_goes_back_or_sees_what_is_not_there_is_found() {
        let terms = || vec![led(0, 10, 20), led(0, 30, 40)];
        let looks =
            |at, words: &[&str]| count([terms(), vec![call(Verb::Watches, at, words)]].concat());
        assert_eq!(looks(50, &["term 10", "nobody", "somebody", "term 30"]), 0);
        assert_eq!(looks(50, &["term 30", "term 10"]), 1);
        assert_eq!(looks(50, &["term 11"]), 1);
        assert_eq!(looks(25, &["term 30"]), 1, "not yet");
        assert_eq!([looks(3000, &["term 30"]), looks(3100, &["term 30"])], [0, 1]);
    }
}
