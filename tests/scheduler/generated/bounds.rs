//! How long a call may take in virtual time, computed from its program: no longer than the holds
//! that can come before it, and the faults.

use std::time::Duration;

use super::program::{
    Code, End, Inside, Micros, Program, Request, Settings, Step, Take, Terms, When,
};
use super::rates::{PER, RATE};

/// What a listener, a tracer or a callback that blocks takes.
pub(crate) const BLOCKED: Duration = Duration::from_secs(40);

/// What a request takes at a store that hangs.
pub(crate) const HANGS: Duration = Duration::from_secs(10);

/// The steps of a call, gaps for other clients, and polls take no longer. Far less than a lease of
/// thirty seconds, for which a waiter sleeps whose wake-up was lost.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// How long a request whose reply was lost keeps a lock taken until it is undone.
const UNDONE: Duration = Duration::from_secs(4);

impl Take {
    /// For how long its guard lives.
    pub(crate) fn stays(&self) -> Duration {
        let stay = |inside: &Inside| {
            if let Inside::Stay(time) = inside { time.time() } else { Duration::ZERO }
        };
        self.inside.iter().map(stay).sum()
    }

    /// The longest lease that it asks for by itself; zero for the usual one.
    pub(crate) fn own_lease(&self) -> Duration {
        let extended = |inside: &Inside| {
            if let Inside::Extend(time) = inside { time.time() } else { Duration::ZERO }
        };
        let longest = self.inside.iter().map(extended).max().unwrap_or_default();
        if let Terms::Lease(lease) = self.terms { longest.max(lease.time()) } else { longest }
    }

    /// Since its grant: after this time its guard must not believe any more. `None`: it is renewed.
    pub(crate) fn ends_after(&self, settings: &Settings) -> Option<Duration> {
        let again = |inside: &Inside| matches!(inside, Inside::Again | Inside::AgainForLonger);
        let is_entered_once = !self.inside.iter().any(again);
        match self.terms {
            // Each extension may begin later, and each further level is one.
            Terms::Lease(lease) if self.own_lease() == lease.time() && is_entered_once => {
                Some(lease.time())
            }
            Terms::Lease(_) => Some(self.stays() + self.own_lease()),
            Terms::MaxHold(most) => Some(most.time() + settings.lease.time().max(self.own_lease())),
            Terms::Usual | Terms::MinHold(_) => None,
        }
    }

    /// For how long nobody else can have what it takes.
    fn keeps(&self, settings: &Settings) -> Duration {
        let forgotten = self.end == End::Forget && self.mode.is_owned();
        let most = self.ends_after(settings).unwrap_or(Duration::MAX);
        let held = if forgotten { most } else { self.stays().min(most) };
        match self.terms {
            Terms::MinHold(least) => held.max(least.time()),
            _ => held,
        }
    }
}

impl Program {
    fn faults(&self) -> Duration {
        let settings = &self.settings;
        let cost = |(_, step): (_, &Step)| match step {
            Step::Cut(time) => time.time().min(settings.outage.time()) + SLACK,
            // The request of a caller before this one, that by which the queue notices the outage,
            // two that are under way when it has tolerated enough, and the last, which removes the
            // wait marker.
            Step::Hang(time) => time.time().min(settings.outage.time()) + 5 * HANGS + SLACK,
            Step::Fail(Request::Acquire | Request::Release, When::Before | When::After) => UNDONE,
            Step::Fail(..) => Duration::from_secs(1),
            // What it cannot release ends with its lease.
            Step::Close(_) if self.has_failures() => settings.lease.time() + UNDONE,
            _ => Duration::ZERO,
        };
        self.steps().map(cost).sum()
    }

    /// How long a release can be delayed by an outage: it is repeated until the outage is over.
    fn outages(&self) -> Duration {
        let outage = |(_, step): (_, &Step)| match step {
            Step::Cut(time) => time.time(),
            Step::Hang(time) => time.time() + 2 * HANGS,
            _ => Duration::ZERO,
        };
        self.steps().map(outage).sum()
    }

    /// How long any call for this thing may wait, if no outage keeps holds at the store.
    pub(crate) fn longest_wait(&self, thing: usize) -> Duration {
        let before: Duration = self
            .takes()
            .filter(|take| self.taken(take).contains(&thing))
            .map(|take| take.keeps(&self.settings))
            .sum();
        SLACK + before + self.faults()
    }

    /// The same after an outage, at most.
    pub(crate) fn longest_wait_at_all(&self, thing: usize) -> Duration {
        self.longest_wait(thing) + self.outages()
    }

    /// How long a candidate may wait for its term, if nothing else happens.
    pub(super) fn longest_terms(&self, thing: usize) -> Duration {
        let of = |(_, step): (_, &Step)| match step {
            Step::Lead(lead) if lead.thing == thing => 2 * lead.stay.time(),
            _ => Duration::ZERO,
        };
        SLACK + self.steps().map(of).sum::<Duration>()
    }

    /// The same of a call for permits of a limiter.
    pub(super) fn longest_paces(&self, thing: usize) -> Duration {
        let of = |(_, step): (_, &Step)| match step {
            Step::Pace(pace) if pace.thing == thing => pace.permits,
            _ => 0,
        };
        SLACK + PER * (self.steps().map(of).sum::<u32>() / RATE + 1)
    }

    /// How long a request, or a few of a job, may take.
    fn request(&self) -> Duration {
        let hangs = self.any(|step| matches!(step, Step::Hang(_)));
        SLACK + if hangs { 8 * HANGS } else { Duration::ZERO }
    }

    /// How long a step of a job, an election or a limiter may take.
    fn longest(&self, step: &Step) -> Duration {
        let lease = self.settings.lease.time();
        let late = self.request() + self.faults() + self.outages();
        match step {
            // An end is repeated for the rest of the lease.
            Step::Fire(fire) => fire.works.time() + lease + late,
            Step::AwaitDone(_, _, time) => time.time() + late,
            Step::Reopen(..) | Step::AskFor(_) | Step::SetRate(_) => late,
            // It stands back, or pauses after a failure.
            Step::Lead(lead) => 2 * (self.longest_terms(lead.thing) + lease) + late,
            Step::Pace(pace) => self.longest_paces(pace.thing) + lease + late,
            _ => Duration::ZERO,
        }
    }

    /// How long the program may take.
    pub(crate) fn limit(&self) -> Duration {
        let of = |(_, step): (_, &Step)| match step {
            Step::Take(take) => {
                let things = self.taken(take).into_iter();
                things.map(|thing| self.longest_wait_at_all(thing)).max().unwrap_or_default()
                    + take.stays()
            }
            Step::Sleep(Micros(us)) => Duration::from_micros(*us),
            Step::Hang(_) => 4 * HANGS,
            Step::CountDown(_) | Step::WaitFor(_) => SLACK,
            other => self.longest(other),
        };
        let blocks = |code: Code| if code == Code::Blocks { 4 * BLOCKED } else { Duration::ZERO };
        let steps: Duration = self.steps().map(of).sum();
        let after: Duration =
            (0..self.things.len()).map(|thing| 8 * self.longest_wait_at_all(thing)).sum();
        20 * SLACK
            + 8 * (PER + self.settings.lease.time())
            + self.outages()
            + steps
            + after
            + blocks(self.settings.listener)
            + blocks(self.settings.callbacks)
    }
}
