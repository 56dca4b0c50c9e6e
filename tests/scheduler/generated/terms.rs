//! Steps with an election, and the model of it: terms never overlap and their numbers grow, who
//! resigns stands back for others and no longer, and each leader is seen with its own data.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::time::{Duration, Instant};

use leasehold::os::{now, since};
use leasehold::{Election, ErrorKind, Term};

use super::bounds::SLACK;
use super::guards::Guard;
use super::ledger::{Believer, Share};
use super::play::Play;
use super::program::{Client, Ending, Lead, Step};
use super::text::name_of;
use crate::book::pause;
use crate::stage::OnPurpose;

thread_local! {
    static ELECTIONS: RefCell<Vec<Terms>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct Terms {
    /// In their order. When each was over; `None` for the last one.
    ended: Vec<Option<Instant>>,
    requests: Vec<Request>,
    calls: usize,
}

struct Request {
    asked: Instant,
    /// `None`: its outcome is unknown.
    ended: Option<Instant>,
    may_be_heard: bool,
}

fn with<T>(thing: usize, run: impl FnOnce(&mut Terms) -> T) -> T {
    ELECTIONS.with_borrow_mut(|elections| run(&mut elections[thing]))
}

pub(crate) fn begin(things: usize) {
    ELECTIONS.set((0..things).map(|_| Terms::default()).collect());
}

/// One candidate.
struct Candidate<'p> {
    play: &'p Play,
    client: Client,
    lead: &'p Lead,
    election: Election,
    data: String,
    /// When it began to stand for election, or to do so again.
    asked: Cell<Instant>,
    /// How many terms it has had.
    terms: Cell<usize>,
    /// The place of its own term, if it has resigned, and when that was over.
    resigned: Cell<Option<(usize, Instant)>>,
    /// What a term found to be wrong: a panic would only begin another term.
    wrong: Cell<Option<Box<dyn Any + Send>>>,
}

/// How a term goes on.
enum Goes {
    On,
    /// It fails, or panics.
    Wrong,
}

impl Play {
    pub(crate) fn lead(&self, client: Client, lead: &Lead) {
        let calls = with(lead.thing, |terms| {
            terms.calls += 1;
            terms.calls
        });
        let data = format!("candidate {calls}");
        let election = self.client(client).election(name_of(lead.thing)).with_data(&data);
        let election = if lead.cancellable { election.with_cancel(&self.cancel) } else { election };
        let candidate = Candidate {
            play: self,
            client,
            lead,
            election,
            data,
            asked: Cell::new(now()),
            terms: Cell::new(0),
            resigned: Cell::new(None),
            wrong: Cell::new(None),
        };
        let led = candidate.election.run(|term| candidate.has(term));
        crate::runs::tell(|| format!("{lead}: {led:?}"));
        if let Some(wrong) = candidate.wrong.take() {
            resume_unwind(wrong);
        }
        if let Err(e) = led {
            let ends = matches!(e.kind(), ErrorKind::Closed | ErrorKind::Cancelled);
            assert!(ends, "{lead}: it stands for election until it is told to end: {e}");
            self.expect(&e, client, lead.cancellable);
        }
    }

    /// Asks the leader to give way.
    pub(crate) fn ask_for(&self, client: Client, thing: usize) {
        let place = with(thing, |terms| {
            terms.requests.push(Request { asked: now(), ended: None, may_be_heard: true });
            terms.requests.len() - 1
        });
        match self.client(client).election(name_of(thing)).request() {
            Ok(is_heard) => with(thing, |terms| {
                let request = &mut terms.requests[place];
                (request.ended, request.may_be_heard) = (Some(now()), is_heard);
            }),
            Err(e) => self.expect(&e, client, false),
        }
    }
}

impl Candidate<'_> {
    /// One term.
    fn has(&self, term: &Term) -> Result<(), &'static str> {
        let goes = catch_unwind(AssertUnwindSafe(|| self.leads(term)));
        self.asked.set(now());
        match goes {
            Ok(Goes::On) => Ok(()),
            Ok(Goes::Wrong) if self.lead.ending == Ending::Panics => panic_any(OnPurpose),
            Ok(Goes::Wrong) => Err("the program wants it"),
            Err(wrong) => {
                self.wrong.set(Some(wrong));
                Ok(())
            }
        }
    }

    fn leads(&self, term: &Term) -> Goes {
        let Self { play, client, lead, .. } = self;
        let thing = lead.thing;
        self.is_in_time();
        let lease = play.program.settings.lease.time();
        let believer = Believer {
            things: vec![thing],
            share: Share::Alone,
            client: *client,
            began: self.asked.get(),
            lease,
            is_taken: Cell::new(false),
            guard: Guard::Term(term.clone()),
        };
        let believer = believer.enter(Some(term.number().get()));
        let place = with(thing, |terms| {
            terms.ended.push(None);
            terms.ended.len() - 1
        });
        pause();
        believer.look();
        self.is_seen(term);
        for _ in 0..4 {
            let _ = term.cancel_token().wait_timeout(lead.stay.time() / 4);
            believer.look();
            assert!(term.is_leader() || self.may_end(), "{lead}: nothing took it away");
            if term.is_requested() {
                self.is_asked();
            }
        }
        let is_first = self.terms.replace(self.terms.get() + 1) == 0;
        if is_first && lead.ending == Ending::Resigns {
            term.resign();
            assert!(!term.is_leader(), "{lead}: it leads after it has resigned");
            self.resigned.set(Some((place, now())));
        }
        drop(believer.leave());
        with(thing, |terms| terms.ended[place] = Some(now()));
        match lead.ending {
            Ending::Fails | Ending::Panics if is_first => Goes::Wrong,
            _ => Goes::On,
        }
    }

    fn may_end(&self) -> bool {
        let ends = |step: &Step| match step {
            Step::Close(client) | Step::StopWaiting(client) => *client == self.client,
            Step::Cancel => self.lead.cancellable,
            _ => false,
        };
        self.play.may_lose(self.lead.thing) || self.play.program.any(ends)
    }

    /// It has waited no longer than the others led; after it has resigned, until another has led, or
    /// for a lease.
    fn is_in_time(&self) {
        let Self { play, lead, .. } = self;
        if !play.is_calm() {
            return;
        }
        let Some((own, resigned)) = self.resigned.take() else {
            let longest = play.program.longest_terms(lead.thing);
            let waited = since(self.asked.get());
            // A failure has a pause of a lease at most.
            let pause = if self.terms.get() > 0 {
                play.program.settings.lease.time()
            } else {
                Duration::ZERO
            };
            assert!(waited <= longest + pause, "{lead}: it waited {waited:?}, at most {longest:?}");
            return;
        };
        let lease = play.program.settings.lease.time();
        let others = with(lead.thing, |terms| terms.ended[own + 1..].to_vec());
        match others.last() {
            None => {
                let after = since(resigned);
                assert!(after >= lease, "{lead}: it leads {after:?} after it has resigned");
                assert!(after <= lease + SLACK, "{lead}: it stood back for {after:?}");
            }
            Some(last) => {
                let free = last.expect("terms do not overlap").max(resigned);
                let after = since(free);
                assert!(after <= SLACK, "{lead}: another had led, and it waited {after:?} more");
            }
        }
    }

    /// Whoever looks sees this leader, and its own data.
    fn is_seen(&self, term: &Term) {
        let seen = self.play.client(self.client).election(name_of(self.lead.thing)).leader();
        let is_certain = !self.may_end() && !self.play.program.has_failures();
        if is_certain {
            let leader = seen.expect("the store answers").expect("somebody leads");
            assert_eq!(
                (leader.data(), leader.term()),
                (self.data.as_bytes(), Some(term.number())),
                "{}: another one is seen",
                self.lead
            );
        }
    }

    /// Somebody has asked for the leadership, in this term.
    fn is_asked(&self) {
        let asked = self.asked.get();
        let is_real = with(self.lead.thing, |terms| {
            terms.requests.iter().any(|request| {
                request.may_be_heard
                    && request.asked <= now()
                    && request.ended.is_none_or(|ended| ended >= asked)
            })
        });
        assert!(is_real, "{}: it was told of a request that nobody made", self.lead);
    }
}
