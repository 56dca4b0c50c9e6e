//! Turns polls into events and spans of time. No I/O; all times are since the start.

use std::time::Duration;

use leasehold::observe::HolderOwner;

use super::standing::{Holder, Standing, who};
use crate::text::visible;

/// Clients beyond this number are counted as one.
const MOST_GROUPS: usize = 1_000;
const OTHERS: &str = "of others";
const MOST_SINGLE: usize = 12;
/// If there are more spans than this, those that no eye could tell apart are joined.
const MOST_SPANS: usize = 20_000;
const FINEST: u32 = 4_000;

#[derive(Debug, PartialEq)]
pub(super) struct Event {
    pub(super) at: Duration,
    pub(super) what: What,
    /// How many hold it from then on.
    pub(super) holders: usize,
}

#[derive(Debug, PartialEq)]
pub(super) enum What {
    /// It was already held at the first poll, or is still held after a time without answers.
    Held {
        by: Holder,
    },
    Taken {
        by: Holder,
        token: Option<u64>,
    },
    /// Taken by the same holder, which must have released it meanwhile.
    TakenAgain {
        by: Holder,
        token: Option<u64>,
    },
    HandedOver {
        from: Holder,
        to: Holder,
        after: Duration,
        token: Option<u64>,
    },
    /// One of several holders has released it.
    Left {
        who: Holder,
        after: Duration,
    },
    /// Without a holder and a time at the first poll.
    Free {
        holder: Option<Holder>,
        after: Option<Duration>,
    },
    /// A holder has announced its owner.
    Named {
        holder: Holder,
    },
    Waiting(u64),
    Number(i64),
    CutOff {
        why: String,
    },
    Back {
        after: Duration,
    },
}

/// A client, and when it had the lock.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    pub(super) client: String,
    pub(super) owner: Option<HolderOwner>,
    /// How many others with the same label and host are shown with it.
    pub(super) more: usize,
    pub(super) total: Duration,
    pub(super) times: u64,
    pub(super) spans: Vec<Span>,
}

pub(super) type Span = (Duration, Duration);

struct Open {
    holder: Holder,
    group: usize,
    /// How long it had the lock before `since`, if the first poll found it there.
    held_before: Duration,
    since: Duration,
    /// The time from here on is not in a span yet.
    span_from: Duration,
}

pub(super) struct Timeline {
    /// If the next answer comes later than this, nothing is known about the time between.
    longest_pause: Duration,
    pub(super) groups: Vec<Group>,
    pub(super) free: Duration,
    pub(super) unknown: Vec<Span>,
    /// How many waited, and since when.
    pub(super) waits: Vec<(Duration, u64)>,
    pub(super) end: Duration,
    open: Vec<Open>,
    /// The last poll that was answered.
    last: Option<Duration>,
    is_cut_off: bool,
    waiting: Option<u64>,
    number: Option<i64>,
    token: Option<u64>,
    /// The last token that was ever seen.
    given: Option<u64>,
}

impl Timeline {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            longest_pause: interval * 3 + Duration::from_secs(1),
            groups: Vec::new(),
            free: Duration::ZERO,
            unknown: Vec::new(),
            waits: Vec::new(),
            end: Duration::ZERO,
            open: Vec::new(),
            last: None,
            is_cut_off: false,
            waiting: None,
            number: None,
            token: None,
            given: None,
        }
    }

    /// The changes since the last poll.
    pub(super) fn see(&mut self, at: Duration, now: &Standing) -> Vec<Event> {
        let mut news = Vec::new();
        let is_first = self.last.is_none();
        let since_last = at.saturating_sub(self.last.unwrap_or(at));
        let was_out = self.pass_to(at);
        if was_out {
            news.push(What::Back { after: since_last });
        }
        // The first answer counts from the start, which was just before it.
        let begin = if is_first && at <= self.longest_pause { Duration::ZERO } else { at };
        self.see_holders(begin, now, is_first, since_last, &mut news);
        self.last = Some(begin);
        self.is_cut_off = false;
        self.pass_to(at);
        if was_out || is_first {
            self.still_there(now, &mut news);
        }
        if now.holders.is_empty()
            && now.number.is_none()
            && (is_first || was_out)
            && !news.iter().any(is_free)
        {
            news.push(What::Free { holder: None, after: None });
        }
        if now.waiting != self.waiting {
            let waiting = now.waiting.unwrap_or(0);
            if waiting != self.waiting.unwrap_or(0) {
                news.push(What::Waiting(waiting));
            }
            self.waits.push((begin, waiting));
        }
        if let Some(number) = now.number.filter(|number| self.number != Some(*number)) {
            news.push(What::Number(number));
        }
        self.waiting = now.waiting;
        self.number = now.number;
        self.token = now.token;
        self.given = now.token.or(self.given);
        self.last = Some(at);
        self.end = at;
        self.thin_out();
        let holders = self.open.len();
        news.into_iter().map(|what| Event { at, what, holders }).collect()
    }

    /// The store could not be queried.
    pub(super) fn cut_off(&mut self, at: Duration, why: &str) -> Vec<Event> {
        let is_new = !self.is_cut_off;
        self.is_cut_off = true;
        let event =
            Event { at, what: What::CutOff { why: why.to_owned() }, holders: self.open.len() };
        if is_new { vec![event] } else { Vec::new() }
    }

    pub(super) fn finish(&mut self, at: Duration) {
        self.pass_to(at);
        for open in self.open.drain(..) {
            self.groups[open.group].spans.push((open.span_from, at));
        }
        self.end = at;
    }

    /// A few clients are shown one by one; of many, those with the same label and host are one,
    /// such as a job that is started again and again.
    pub(super) fn shown_groups(&self) -> Vec<Group> {
        if self.groups.len() <= MOST_SINGLE {
            return self.groups.clone();
        }
        let mut shown: Vec<Group> = Vec::new();
        for group in &self.groups {
            match shown.iter_mut().find(|one| one.is_as(group)) {
                Some(one) => one.take_in(group),
                None => shown.push(group.clone()),
            }
        }
        shown
    }

    pub(super) fn unknown_time(&self) -> Duration {
        self.unknown.iter().map(|(from, to)| *to - *from).sum()
    }

    /// Assumes that what the last poll showed was so until now, unless the time between is unknown.
    /// Returns whether it is.
    fn pass_to(&mut self, at: Duration) -> bool {
        let Some(last) = self.last else {
            // Before the first answer.
            if !at.is_zero() && at > self.longest_pause {
                self.unknown.push((Duration::ZERO, at));
            }
            return false;
        };
        let passed = at.saturating_sub(last);
        if self.is_cut_off || passed > self.longest_pause {
            self.unknown.push((last, at));
            for open in &mut self.open {
                self.groups[open.group].spans.push((open.span_from, last));
                open.span_from = at;
            }
            return true;
        }
        let mut groups: Vec<usize> = self.open.iter().map(|open| open.group).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in &groups {
            self.groups[*group].total += passed;
        }
        if groups.is_empty() {
            self.free += passed;
        }
        false
    }

    fn see_holders(
        &mut self,
        at: Duration,
        now: &Standing,
        is_first: bool,
        since_last: Duration,
        news: &mut Vec<What>,
    ) {
        let is_there = |open: &Open| now.holders.iter().any(|holder| holder.id == open.holder.id);
        let (still, mut gone): (Vec<Open>, Vec<Open>) =
            std::mem::take(&mut self.open).into_iter().partition(is_there);
        self.open = still;
        let mut came = Vec::new();
        for holder in &now.holders {
            match self.open.iter().position(|open| open.holder.id == holder.id) {
                Some(place) => self.see_again(at, place, holder, now, since_last, news),
                None => came.push(holder.clone()),
            }
        }
        for open in &gone {
            self.close(open, at);
        }
        // A token that was seen before belongs to an earlier holder: this one has drawn none.
        let has_drawn =
            now.holders.len() == 1 && !now.holders[0].is_foreign && now.token != self.given;
        let token = now.token.filter(|_| has_drawn);
        match (&mut gone[..], &came[..]) {
            ([from], [to]) if self.open.is_empty() => {
                let after = held(from, at);
                let from = from.holder.clone();
                news.push(What::HandedOver { from, to: to.clone(), after, token });
            }
            _ => {
                let last = gone.len();
                for (place, open) in (1..).zip(&gone) {
                    let holder = open.holder.clone();
                    let after = held(open, at);
                    news.push(if place == last && now.holders.is_empty() {
                        What::Free { holder: Some(holder), after: Some(after) }
                    } else {
                        What::Left { who: holder, after }
                    });
                }
                let taken = |by: &Holder| What::Taken { by: by.clone(), token };
                news.extend(came.iter().filter(|_| !is_first).map(taken));
            }
        }
        for holder in came {
            self.open(at, holder, is_first);
        }
    }

    /// A holder that the last poll showed as well.
    fn see_again(
        &mut self,
        at: Duration,
        place: usize,
        holder: &Holder,
        now: &Standing,
        since_last: Duration,
        news: &mut Vec<What>,
    ) {
        let has_newer_token =
            now.holders.len() == 1 && self.token.is_some() && now.token > self.token;
        let began_since = holder.held_for.is_some_and(|held_for| held_for < since_last / 2);
        let open = &mut self.open[place];
        if has_newer_token || began_since {
            news.push(What::TakenAgain { by: holder.clone(), token: now.token });
            self.groups[open.group].spans.push((open.span_from, at));
            self.groups[open.group].times += 1;
            open.held_before = Duration::ZERO;
            open.since = at;
            open.span_from = at;
        } else if open.holder.owner.is_none()
            && holder.owner.is_some()
            && self.groups[open.group].owner.is_none()
        {
            news.push(What::Named { holder: holder.clone() });
        }
        self.groups[open.group].owner =
            self.groups[open.group].owner.take().or_else(|| holder.owner.clone());
        open.holder = holder.clone();
    }

    fn open(&mut self, at: Duration, holder: Holder, is_first: bool) {
        let group = self.group_of(&holder);
        self.groups[group].times += 1;
        let held_before = holder.held_for.filter(|_| is_first).unwrap_or_default();
        self.open.push(Open { holder, group, held_before, since: at, span_from: at });
    }

    fn close(&mut self, open: &Open, at: Duration) {
        // After a time without answers, the end of the hold is not known.
        if open.span_from < at {
            self.groups[open.group].spans.push((open.span_from, at));
        }
    }

    fn group_of(&mut self, holder: &Holder) -> usize {
        let client = holder.client();
        let known = self.groups.iter().position(|group| group.client == client);
        let place = known.unwrap_or_else(|| {
            let client = match self.groups.len() {
                ..MOST_GROUPS => client,
                MOST_GROUPS => OTHERS,
                full => return full - 1,
            };
            self.groups.push(Group { client: client.to_owned(), ..Group::default() });
            self.groups.len() - 1
        });
        let group = &mut self.groups[place];
        if group.owner.is_none() && group.client == client {
            group.owner.clone_from(&holder.owner);
        }
        place
    }

    fn still_there(&self, now: &Standing, news: &mut Vec<What>) {
        let is_news = |holder: &Holder| {
            let names = |what: &What| matches!(what, What::Taken { by, .. } | What::HandedOver { to: by, .. } if by.id == holder.id);
            news.iter().any(names)
        };
        let still: Vec<What> = now
            .holders
            .iter()
            .filter(|one| !is_news(one))
            .map(|one| What::Held { by: one.clone() })
            .collect();
        news.extend(still);
    }

    /// Keeps the memory bounded, however long the watch takes.
    fn thin_out(&mut self) {
        let finest = self.end / FINEST;
        for group in &mut self.groups {
            if group.spans.len() > MOST_SPANS {
                group.spans = joined(&group.spans, finest);
            }
        }
        if self.unknown.len() > MOST_SPANS {
            self.unknown = joined(&self.unknown, finest);
        }
        if self.waits.len() > MOST_SPANS {
            self.waits = most_of(&self.waits, finest);
        }
    }
}

impl Group {
    pub(super) fn who(&self) -> String {
        match &self.owner {
            Some(owner) if self.more > 0 => visible(&format!(
                "{} ({} processes on {})",
                owner.label(),
                self.more + 1,
                owner.host()
            )),
            owner => who(&self.client, owner.as_ref()),
        }
    }

    fn is_as(&self, other: &Self) -> bool {
        let of = |group: &Self| {
            group.owner.as_ref().map(|owner| (owner.label().to_owned(), owner.host().to_owned()))
        };
        self.client == other.client || of(self).is_some_and(|own| Some(own) == of(other))
    }

    fn take_in(&mut self, other: &Self) {
        self.more += 1;
        self.times += other.times;
        self.spans.extend_from_slice(&other.spans);
        self.spans.sort_unstable();
        // Two of the clients may have had it at the same time.
        self.total = joined(&self.spans, Duration::ZERO).iter().map(|(from, to)| *to - *from).sum();
    }
}

fn is_free(what: &What) -> bool {
    matches!(what, What::Free { .. })
}

fn held(open: &Open, at: Duration) -> Duration {
    open.held_before + at.saturating_sub(open.since)
}

/// Spans in their order; those with at most `finest` between them are joined.
pub(super) fn joined(spans: &[Span], finest: Duration) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    for (from, to) in spans {
        match joined.last_mut() {
            Some((_, end)) if *from <= *end + finest => *end = (*end).max(*to),
            _ => joined.push((*from, *to)),
        }
    }
    joined
}

/// Steps at least `finest` apart, each as high as the highest that it replaces.
pub(super) fn most_of(steps: &[(Duration, u64)], finest: Duration) -> Vec<(Duration, u64)> {
    let mut most: Vec<(Duration, u64)> = Vec::new();
    let mut last = 0;
    for (at, height) in steps {
        match most.last_mut() {
            Some((from, highest)) if *at < *from + finest => *highest = (*highest).max(*height),
            _ => most.push((*at, *height)),
        }
        last = *height;
    }
    // A peak must not hide the last value.
    if let (Some((_, shown)), Some((at, _))) = (most.last(), steps.last())
        && *shown != last
    {
        most.push((*at, last));
    }
    most
}

#[cfg(test)]
mod tests {
    use super::super::standing::owner;
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn holder(id: &str) -> Holder {
        Holder { id: id.to_owned(), owner: None, held_for: None, is_kept: false, is_foreign: false }
    }

    fn standing(ids: &[&str]) -> Standing {
        Standing { holders: ids.iter().map(|id| holder(id)).collect(), ..Standing::default() }
    }

    fn new() -> Timeline {
        Timeline::new(MS(100))
    }

    fn see(timeline: &mut Timeline, at: u64, ids: &[&str]) -> Vec<What> {
        timeline.see(MS(at), &standing(ids)).into_iter().map(|event| event.what).collect()
    }

    fn taken(id: &str) -> What {
        What::Taken { by: holder(id), token: None }
    }

    #[test]
    fn a_lock_is_taken_handed_over_and_freed() {
        let mut line = new();
        assert_eq!(see(&mut line, 0, &[]), [What::Free { holder: None, after: None }]);
        assert_eq!(see(&mut line, 100, &["a:1"]), [taken("a:1")]);
        assert_eq!(see(&mut line, 200, &["a:1"]), []);
        let from = holder("a:1");
        let to = holder("b:1");
        assert_eq!(
            see(&mut line, 300, &["b:1"]),
            [What::HandedOver { from, to, after: MS(200), token: None }]
        );
        assert_eq!(
            see(&mut line, 700, &[]),
            [What::Free { holder: Some(holder("b:1")), after: Some(MS(400)) }]
        );
        line.finish(MS(1_000));
        assert_eq!((line.free, line.unknown_time()), (MS(400), MS(0)));
        let spans: Vec<_> = line
            .groups
            .iter()
            .map(|group| (group.client.as_str(), group.total, &group.spans[..]))
            .collect();
        assert_eq!(
            spans,
            [("a", MS(200), &[(MS(100), MS(300))][..]), ("b", MS(400), &[(MS(300), MS(700))][..])]
        );
    }

    #[test]
    fn readers_come_and_go() {
        let mut line = new();
        assert_eq!(see(&mut line, 0, &["a:1"]), [What::Held { by: holder("a:1") }]);
        assert_eq!(see(&mut line, 100, &["a:1", "b:1", "b:2"]), [taken("b:1"), taken("b:2")]);
        assert_eq!(
            see(&mut line, 200, &["b:2"]),
            [
                What::Left { who: holder("a:1"), after: MS(200) },
                What::Left { who: holder("b:1"), after: MS(100) }
            ]
        );
        line.finish(MS(300));
        assert_eq!(line.groups[1].total, MS(200), "its two holds are not counted twice");
        assert_eq!(line.free, MS(0));
    }

    #[test]
    fn what_was_while_nobody_could_ask_is_unknown() {
        let mut line = new();
        see(&mut line, 0, &["a:1"]);
        see(&mut line, 100, &["a:1"]);
        assert_eq!(line.cut_off(MS(200), "down").len(), 1);
        assert_eq!(line.cut_off(MS(300), "down").len(), 0, "said once");
        assert_eq!(
            see(&mut line, 400, &["a:1"]),
            [What::Back { after: MS(300) }, What::Held { by: holder("a:1") }]
        );
        // A slow answer, and another holder after it.
        let news = see(&mut line, 5_000, &["b:1"]);
        assert!(matches!(news[..], [What::Back { .. }, What::HandedOver { .. }]), "{news:?}");
        line.finish(MS(5_100));
        assert_eq!(line.unknown, [(MS(100), MS(400)), (MS(400), MS(5_000))]);
        assert_eq!(
            (line.groups[0].total, line.groups[1].total, line.free),
            (MS(100), MS(100), MS(0))
        );
    }

    #[test]
    fn a_holder_that_takes_it_again_and_one_that_says_its_name() {
        let owner = owner("billing");
        let mut line = new();
        let mut now = Standing { token: Some(5), ..standing(&["a:1"]) };
        line.see(MS(0), &now);
        now.holders[0].owner = Some(owner.clone());
        let named = What::Named { holder: now.holders[0].clone() };
        assert_eq!(line.see(MS(100), &now)[0].what, named);
        now.token = Some(6);
        let again = What::TakenAgain { by: now.holders[0].clone(), token: Some(6) };
        assert_eq!(line.see(MS(200), &now)[0].what, again);
        line.finish(MS(200));
        assert_eq!((line.groups[0].times, line.groups[0].who()), (2, owner.to_string()));
    }

    #[test]
    fn who_waits_is_told_when_it_changes() {
        let mut line = new();
        let waiting = |waiting| Standing { waiting, ..standing(&["a:1"]) };
        let mut see = |at, count| line.see(MS(at), &waiting(count)).pop().map(|event| event.what);
        assert_eq!(see(0, Some(2)), Some(What::Waiting(2)));
        assert_eq!(see(100, Some(2)), None);
        assert_eq!(see(200, None), Some(What::Waiting(0)));
        assert_eq!(see(300, Some(0)), None);
        assert_eq!(line.waits, [(MS(0), 2), (MS(200), 0), (MS(300), 0)]);
    }

    #[test]
    fn many_processes_of_one_label_are_one_row() {
        let mut line = new();
        for n in 0..40_u64 {
            let one = Holder {
                owner: Some(owner(&format!("job-{}", n % 2))),
                ..holder(&format!("c{n}:1"))
            };
            line.see(MS(n * 100), &Standing { holders: vec![one], ..Standing::default() });
        }
        line.finish(MS(4_000));
        let shown: Vec<_> = line
            .shown_groups()
            .iter()
            .map(|group| (group.who(), group.total, group.times))
            .collect();
        let host = owner("job").host().to_owned();
        let job = |n| (format!("job-{n} (20 processes on {host})"), MS(2_000), 20);
        assert_eq!(shown, [job(0), job(1)]);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut line = new();
        for n in 0..45_000_u64 {
            let ids: [&str; 1] = if n % 2 == 0 { ["a:1"] } else { ["b:1"] };
            line.see(MS(n * 100), &Standing { waiting: Some(n % 3), ..standing(&ids) });
        }
        assert!(
            line.groups
                .iter()
                .all(|group| group.spans.len() <= MOST_SPANS && group.spans.len() > 1)
        );
        assert!(line.waits.len() <= MOST_SPANS);
        assert_eq!(line.groups[0].total, MS(2_250_000), "sums stay exact");
        for n in 0..2_000 {
            see(&mut line, 4_500_000 + n, &[&format!("c{n}:1")]);
        }
        assert_eq!(line.groups.len(), MOST_GROUPS + 1);
    }

    /// Clients of Java draw no tokens, nor do those that have turned them off: the last token is
    /// not theirs.
    #[test]
    fn nobody_has_the_token_of_the_holder_before() {
        let mut line = Timeline::new(MS(200));
        let seen = |id: &str, token| Standing { token: Some(token), ..standing(&[id]) };
        line.see(MS(0), &seen("a:1", 5));
        let taken = |events: &[Event]| match events {
            [Event { what: What::HandedOver { token, .. }, .. }] => *token,
            other => panic!("{other:?}"),
        };
        assert_eq!(taken(&line.see(MS(100), &seen("b:1", 6))), Some(6));
        assert_eq!(taken(&line.see(MS(200), &seen("c:1", 6))), None);
        let mut java = seen("d:1", 7);
        java.holders[0].is_foreign = true;
        assert_eq!(taken(&line.see(MS(300), &java)), None);
    }
}
